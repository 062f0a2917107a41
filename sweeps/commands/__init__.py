"""`edp-sweep`: a file for each command, with its options, one call and its output.

Ray, PyTorch, MLflow, Optuna and SciPy take seconds to import. A command's file imports them, and the modules that need
them, inside its functions, so that `--help` and the refusal of wrong input take no time. Only `dashboards.cli` imports
this package.
"""
