"""Recipes of sweeps: the model, its search space, its first points, its reader, and the YAML files. Must not import
anything that runs."""
