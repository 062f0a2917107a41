"""Sweeps of many trials: recipes, the search, running and resuming on Ray, tracking in MLflow, the front, picking.

    sweep = sweeps.run("quickstart", trials=8)      # or sweeps.load_sweep("first"), also while another process runs it
    sweep.front()                                   # the Pareto-optimal points, with metrics, params and checkpoint
    sweep.best(max_epsilon=8).checkpoint.path       # the folder of a model
    sweep.get_dataframe()                           # of trials; "epochs" or "front"
    sweep.study                                     # Optuna's Study, for its plots
    sweeps.resume(sweep, trials=8)

Names that Ray Tune's `ResultGrid` and `Result` or Optuna's `Study` have mean the same here. `examples/notebook.ipynb`
shows all of it. A mistake raises `edp.UserError`, whose one line says what is allowed. Must not import the dashboards.
"""

import os

import lazy_loader

from edp import __version__ as __version__

# If a call to the raylet fails, Ray ends this process at once and without a word when the process of this id is dead
# or, without an id, when this process has lost its parent (nohup, a container). Ray reads it when it is imported.
os.environ.setdefault("RAY_RAYLET_PID", f"{os.getpid()}")

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
