"""A sweep from Python, to its end: run a recipe, or go on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edp.spec import UserError
from sweeps.config.loading import load_recipe
from sweeps.engine.jobs.release import release_chosen, run_proxy
from sweeps.engine.jobs.search import resume_sweep, start_sweep
from sweeps.engine.progress import Progress
from sweeps.results.sweep import Sweep, load_sweep
from sweeps.store import sweep as store
from sweeps.store.plans import plan_of

if TYPE_CHECKING:
    from sweeps.engine.progress import Callback


def run(
    recipe: str | Path,
    settings: Mapping[str, Any] | None = None,
    *,
    trials: int | None = None,
    name: str | None = None,
    storage: str | Path = "runs",
    tracking_uri: str | None = None,
    callbacks: Sequence[Callback] = (),
) -> Sweep:
    """Run a sweep to its end, as `edp-sweep run` does; with `search.plan: proxy` to the released model.

    Args:
        recipe: a recipe's name, or the path of a YAML file.
        settings: changes by dotted path, such as `{"training.epochs": 2}`.
        trials: short for the setting `search.trials`.
        name: of the sweep; by default the recipe's name and the time, with a plan the recipe's name alone.
        tracking_uri: the MLflow store; by default `MLFLOW_TRACKING_URI`, or a file in `storage`.
        callbacks: called with Optuna's study and trial when a trial has ended, as those of `Study.optimize`. If one
            raises, the sweep ends, and can be resumed. `Study.stop` raises here, since no `Study.optimize` runs.

    Raises:
        UserError: if the recipe is wrong, or corpora or cluster do not allow the sweep. Nothing was made then.
        SweepStopped: if it was stopped.
        SweepFailed: if no trial came to an end.
    """
    changes = {**(settings or {}), **({"search.trials": trials} if trials is not None else {})}
    overrides = [f"{key}={json.dumps(value, ensure_ascii=False, default=_plain)}" for key, value in changes.items()]
    where: dict[str, Any] = {"name": name, "storage": Path(storage), "tracking_uri": tracking_uri}
    where["progress"] = Progress(callbacks=callbacks)
    if load_recipe(str(recipe), overrides)[1].search.plan is not None:
        return load_sweep(run_proxy(str(recipe), overrides, **where)["sweep"], storage)
    return load_sweep(start_sweep(str(recipe), overrides, **where).name, storage)


def _plain(value: Any) -> Any:
    """Return a value or an array of NumPy as one of Python, and a path as text."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if not hasattr(value, "tolist"):
        raise UserError(f"settings: {value!r} is a {type(value).__name__}; allowed: numbers, text, lists, mappings")
    return value.tolist()


def resume(
    sweep: store.Sweep,
    *,
    trials: int = 0,
    tracking_uri: str | None = None,
    callbacks: Sequence[Callback] = (),
) -> Sweep:
    """Go on with a sweep that was stopped, whatever stopped it, and with the release that it chooses for.

    Args:
        trials: to run besides those that the sweep has or lacks.
        tracking_uri: the MLflow store, if it has moved since the sweep.
        callbacks: see `run`.

    Raises:
        UserError: for fewer than 0 trials, or if it is running, or may not go on.
        SweepStopped: if it was stopped again.
    """
    if trials < 0:
        raise UserError(f"trials = {trials}: allowed: 0 or more")
    progress = Progress(callbacks=callbacks)
    resume_sweep(sweep, progress, tracking_uri, more=trials)
    if (plan := plan_of(sweep)) is not None:
        release_chosen(sweep, plan, tracking_uri, progress)
    return load_sweep(sweep.name, sweep.storage)
