"""A sweep as pandas DataFrames: its trials, their epochs, its front.

Settings have their names in `--set` (`edp.C`, `edp.z0`, `training.batch_size`; `edp.epsilon` is a target). Metrics have
names without a dot (`valid_ser`, `ser`, `epsilon`), so that no column can be mistaken for another.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from sweeps.results.confirmed import SEEDS
from sweeps.results.cost import trial_cost
from sweeps.results.snapshot import Snapshot
from sweeps.store.sweep import Sweep
from trainables.records.epochs import by_epoch
from trainables.records.pareto import Metrics


def trials_frame(sweep: Sweep) -> pd.DataFrame:
    """Return a row per trial, in every state. Missing values, such as the metrics of a failed trial, are NaN.

    Returns:
        Indexed by `trial`, its number. Columns: `state`, `reason`, `run_id`, the settings, the last epoch's metrics on
        the validation split (`valid_ser`, …) and the test split (`ser`, …), and the cost so far (`gpu_seconds`,
        `worker_seconds`).
    """
    rows = [
        {
            "trial": trial.number,
            "state": trial.state,
            "reason": trial.reason,
            "run_id": trial.run_id,
            **_settings(trial.params),
            **trial.metrics,
            **trial_cost(trial),
        }
        for trial in sweep.trials()
    ]
    return _frame(rows, ["trial"])


def epochs_frame(sweep: Sweep) -> pd.DataFrame:
    """Return a row per epoch of every trial.

    Returns:
        Indexed by `trial` and `epoch`, which counts from 1. Columns: `train_loss`, `epoch_seconds`, `epsilon` and
        `epsilon_paper` of the training, `epsilon_executed` of the steps until then, costs so far, and metrics of the
        validation split (`valid_ser`, `valid_mia_auc`, …).
    """
    rows = [
        {**metrics, "trial": trial.number, "epoch": epoch}
        for trial in sweep.trials()
        for epoch, metrics in by_epoch(trial.curve).items()
    ]
    return _frame(rows, ["trial", "epoch"])


def front_frame(sweep: Sweep) -> pd.DataFrame:
    """Return a row per Pareto-optimal point, in the order of `sweeps.results.front.pareto_front`.

    Returns:
        Indexed by `point`, its name (`2@3` is trial 2 after epoch 3). Columns: `trial`, `epoch`, `run_id`, the
        settings, the metrics on the validation and the test split, and `tied_with`, the names of the points that it is
        tied with (`sweeps.results.front.ties`). `recommended` is True for the point that `edp-sweep pick` takes.
        `confirmed_seeds` and `confirmed_ser`, `confirmed_ser_lower`, … are the results of `edp-sweep confirm`
        (`sweeps.results.confirmed.means`).
    """
    found = Snapshot(sweep)
    advised = found.recommended().point
    rows = [
        {
            "point": point.name,
            "trial": point.trial,
            "epoch": point.epoch,
            "run_id": point.run_id,
            **_settings(point.params),
            **point.metrics,
            "tied_with": found.candidates[point.name].tied_with,
            "recommended": advised is not None and point.name == advised.name,
            **_confirmed(found.new_seeds(point)),
        }
        for point in found.pareto
    ]
    return _frame(rows, ["point"])


def _confirmed(figures: Metrics) -> Metrics:
    return {name if name == SEEDS else f"confirmed_{name}": value for name, value in figures.items()}


def _settings(params: dict[str, Any]) -> dict[str, Any]:
    return {name if "." in name else f"edp.{name}": value for name, value in params.items()}


def _frame(rows: list[dict[str, Any]], index: list[str]) -> pd.DataFrame:
    return pd.DataFrame(rows).set_index(index) if rows else pd.DataFrame(columns=index).set_index(index)
