"""A sweep before it runs: the recipe, its space and initial points, target ε and prices, and the recipes' YAML files.

Must not import anything that runs.
"""
