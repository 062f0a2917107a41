"""`edp-sweep`: a file for each command, with its options, one call and its output.

Ray, PyTorch and MLflow take seconds to import. A command imports what needs them inside its function, so that `--help`
and the refusal of wrong input take no time. Only `dashboards.cli` imports this package.
"""
