"""Trained models in MLflow's registry, and the code that serves them. Must not import the engine."""
