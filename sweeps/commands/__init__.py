"""`edp-sweep`: a file a command, with its options, its work and its output. Nothing below imports it.

Ray, PyTorch, MLflow, Optuna and SciPy take seconds to import. A command's file imports them, and the modules that need
them, inside its functions, so that `--help` and the refusal of a mistake come at once.
"""
