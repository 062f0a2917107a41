"""Sweeps of many trials: recipes, the search, running and resuming on Ray, tracking in MLflow, the front, picking.

    sweep = start_sweep("quickstart_paper", [], ...)    # or Sweep.existing(Path("runs"), "first")
    front_frame(sweep)                                  # a pandas DataFrame; trials_frame, epochs_frame
    pick(sweep, {"ser": 0.5}, Path("picked.yaml"))

`examples/notebook.py` shows all of these steps. Must not import the dashboards.
"""

import os

import lazy_loader

from edp import __version__ as __version__

# If a call to the raylet fails, Ray ends this process at once and without a word when the process of this id is dead
# or, without an id, when this process has lost its parent (nohup, a container). Ray reads it when it is imported.
os.environ.setdefault("RAY_RAYLET_PID", f"{os.getpid()}")

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
