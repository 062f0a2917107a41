"""Sweeps of many trials: recipes, the search, running and resuming on Ray, tracking in MLflow, the front, picking.

    sweep = start_sweep("quickstart_paper", [], ...)    # or Sweep.existing(Path("runs"), "first")
    front_frame(sweep)                                  # a pandas DataFrame; trials_frame, epochs_frame
    pick(sweep, {"ser": 0.5}, Path("picked.yaml"))

`examples/notebook.py` shows all of these steps. Must not import the dashboards.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from edp.lazy import lazy_exports

# If a call to the raylet fails, Ray ends this process at once and without a word when the process of this id is dead
# or, without an id, when this process has lost its parent (nohup, a container). Ray reads it when it is imported.
os.environ.setdefault("RAY_RAYLET_PID", f"{os.getpid()}")

__all__ = [
    "Point",
    "Progress",
    "Recipe",
    "Sweep",
    "SweepFailed",
    "SweepRecord",
    "SweepStopped",
    "TrialRecord",
    "all_sweeps",
    "confirm",
    "epochs_frame",
    "front_frame",
    "load_recipe",
    "pareto_front",
    "pick",
    "picked_spec",
    "register_point",
    "resume_sweep",
    "start_sweep",
    "ties",
    "train",
    "trials_frame",
]

if TYPE_CHECKING:
    from sweeps.config.loading import load_recipe
    from sweeps.config.recipe import Recipe
    from sweeps.engine.jobs.confirm import confirm
    from sweeps.engine.jobs.search import resume_sweep, start_sweep
    from sweeps.engine.jobs.train import train
    from sweeps.engine.progress import Progress
    from sweeps.engine.trials import SweepFailed
    from sweeps.registry.pick import pick
    from sweeps.registry.register import register_point
    from sweeps.results.frames import epochs_frame, front_frame, trials_frame
    from sweeps.results.front import pareto_front, ties
    from sweeps.results.recommendation import picked_spec
    from sweeps.store.records import Point, SweepRecord, TrialRecord
    from sweeps.store.sweep import Sweep, all_sweeps
    from sweeps.text.signals import SweepStopped
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "sweeps.engine.jobs.confirm": ("confirm",),
            "sweeps.registry.pick": ("pick",),
            "sweeps.engine.jobs.search": ("resume_sweep", "start_sweep"),
            "sweeps.text.signals": ("SweepStopped",),
            "sweeps.engine.jobs.train": ("train",),
            "sweeps.engine.trials": ("SweepFailed",),
            "sweeps.engine.progress": ("Progress",),
            "sweeps.config.loading": ("load_recipe",),
            "sweeps.config.recipe": ("Recipe",),
            "sweeps.registry.register": ("register_point",),
            "sweeps.results.recommendation": ("picked_spec",),
            "sweeps.results.frames": ("epochs_frame", "front_frame", "trials_frame"),
            "sweeps.results.front": ("pareto_front", "ties"),
            "sweeps.store.records": ("Point", "SweepRecord", "TrialRecord"),
            "sweeps.store.sweep": ("Sweep", "all_sweeps"),
        },
    )
