"""A sweep as the library shows it: its front, its best point, its study, and its rows as pandas DataFrames."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pandas as pd

from edp.spec import UserError
from sweeps.results.confirmed import SEEDS
from sweeps.results.cost import trial_cost
from sweeps.results.snapshot import Snapshot
from sweeps.store import sweep as store
from sweeps.store.records import Point, TrialRecord
from trainables.records.epochs import by_epoch

Rows = Literal["trials", "epochs", "front"]


class Sweep(store.Sweep):
    """A sweep, which another process may be running: each call reads it anew.

    All methods and properties raise `edp.UserError` for files that cannot be read.
    """

    def front(self) -> list[Point]:
        """Return the Pareto-optimal points, in the order of the objectives; [] before a trial has ended."""
        return Snapshot(self).pareto

    def best(
        self, *, max_epsilon: float | None = None, max_ser: float | None = None, max_mia_auc: float | None = None
    ) -> Point:
        """Return the point that `edp-sweep pick` takes: the recommended one within the limits.

        It is the released model, if there is one. If no point has a guarantee, it is the one that the
        rule chooses without that condition.

        Raises:
            UserError: for a limit that is no number of at least 0, or if no point, or not the released one, is within
                the limits.
        """
        given = {"epsilon": max_epsilon, "ser": max_ser, "mia_auc": max_mia_auc}
        limits = {name: most for name, most in given.items() if most is not None}
        for name, most in limits.items():
            if not isinstance(most, int | float) or not most >= 0:
                raise UserError(f"max_{name} = {most!r}: allowed: a number of at least 0")
        return Snapshot(self).choose(limits)[0]

    @property
    def release(self) -> Point | None:
        """The released model of a sweep that chooses on a proxy corpus; None if there is none."""
        return Snapshot(self).release

    @property
    def epsilon(self) -> float | None:
        """The ε of all trainings on the private corpus together (`sweeps.results.snapshot.Snapshot.epsilon`)."""
        return Snapshot(self).epsilon

    def get_dataframe(self, rows: Rows = "trials") -> pd.DataFrame:
        """Return a row for each trial in any state, for each epoch of a trial, or for each point of the front.

        Settings have their names in `--set` (`edp.C`, `edp.z0`, `training.batch_size`; `edp.epsilon` is a target), and
        metrics have names without a dot (`valid_ser`, `ser`, `epsilon`). What is missing is NaN.

        Returns:
            trials: indexed by `trial`, its number, with `state`, `reason`, `run_id`, the settings, the last epoch's
                metrics on the validation split (`valid_ser`, …) and the test split (`ser`, …), and the cost so far
                (`gpu_seconds`, `worker_seconds`).
            epochs: indexed by `trial` and `epoch`, which counts from 1, with `train_loss`, `epoch_seconds`, `epsilon`
                and `epsilon_paper` of the training, `epsilon_executed` of the steps until then, and metrics of the
                validation split.
            front: indexed by `point`, its name (`2@3` is trial 2 after epoch 3), with `trial`, `epoch`, `run_id`, the
                settings, the metrics, `tied_with` (`sweeps.results.front.ties`), `recommended`, and the results of
                `edp-sweep confirm` (`confirmed_seeds`, `confirmed_ser`, `confirmed_ser_lower`, …).

        Raises:
            UserError: for other rows.
        """
        if rows == "trials":
            return _frame([_trial_row(trial) for trial in self.trials()], ["trial"])
        if rows == "epochs":
            curves = [(trial.number, by_epoch(trial.curve)) for trial in self.trials()]
            every = [{**one, "trial": trial, "epoch": n} for trial, curve in curves for n, one in curve.items()]
            return _frame(every, ["trial", "epoch"])
        if rows != "front":
            raise UserError(f"rows = {rows!r}: allowed: trials, epochs, front")
        found = Snapshot(self)
        return _frame([_front_row(found, point) for point in found.pareto], ["point"])


def load_sweep(name: str | None = None, storage: str | Path = "runs") -> Sweep:
    """Return a sweep that was started before, also one that runs in another process; without a name the newest one.

    Raises:
        UserError: if there is no such sweep, with the names of those in the storage folder.
    """
    if name is None:
        if (newest := store.newest(Path(storage))) is None:
            raise UserError(f"storage = {str(storage)!r} holds no sweep; allowed: a folder of sweeps")
        name = newest.name
    return Sweep.existing(Path(storage), name)


def _trial_row(trial: TrialRecord) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "state": trial.state,
        "reason": trial.reason,
        "run_id": trial.run_id,
        **_settings(trial.params),
        **trial.metrics,
        **trial_cost(trial),
    }


def _front_row(found: Snapshot, point: Point) -> dict[str, Any]:
    advised, again = found.recommended().point, found.new_seeds(point).items()
    return {
        "point": point.name,
        "trial": point.trial,
        "epoch": point.epoch,
        "run_id": point.run_id,
        **_settings(point.params),
        **point.metrics,
        "tied_with": found.candidates[point.name].tied_with,
        "recommended": advised is not None and point.name == advised.name,
        **{name if name == SEEDS else f"confirmed_{name}": value for name, value in again},
    }


def _settings(params: dict[str, Any]) -> dict[str, Any]:
    return {name if "." in name else f"edp.{name}": value for name, value in params.items()}


def _frame(rows: list[dict[str, Any]], index: list[str]) -> pd.DataFrame:
    return pd.DataFrame(rows).set_index(index) if rows else pd.DataFrame(columns=index).set_index(index)
