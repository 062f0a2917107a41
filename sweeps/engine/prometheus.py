"""Metrics that a running sweep exports for Prometheus in addition to Ray's own; `dashboards/grafana` draws them.

Ray adds `ray_` before each name, and `_total` after that of a counter. Only the driver exports them, while trials run.
Ray forgets a gauge that is not set repeatedly, so a thread sets them.
"""

from __future__ import annotations

import threading
from collections import Counter as Count
from collections.abc import Mapping
from typing import TypeVar

from ray.util.metrics import Counter, Gauge

from trainables.records.pareto import SelectionFigures

STATES = ("waiting", "running", "interrupted", "complete", "stopped", "failed", "refused")
_ENDED = ("complete", "stopped", "failed")
_BEST = ("ser", "mia_auc", "mia_tpr_at_1pct_fpr", "epsilon", "epsilon_user")
_EVERY_S = 5.0
"""Seconds between settings of the gauges: half of the interval at which Ray exports by default."""

Metric = TypeVar("Metric", Counter, Gauge)


class Meter:
    """The exported metrics of one sweep. `refresh` runs in a thread while trials run.

    Args:
        sweep: the sweep's name, a label of every metric.
        wanted: number of the sweep's trials.
        already: number of trials that ended under an earlier driver.
        baseline_seconds: seconds of an epoch of plain SGD, if known.
    """

    def __init__(self, sweep: str, wanted: int, already: int, baseline_seconds: float | None) -> None:
        self._wanted, self._already = wanted, already
        self._states: dict[int, str] = {}
        self._lowest: dict[str, float] = {}

        def metric(kind: type[Metric], name: str, description: str, *more: str) -> Metric:
            made = kind(f"edp_sweep_{name}", description=description, tag_keys=("sweep", *more))
            made.set_default_tags({"sweep": sweep})
            return made

        self._trials = metric(Gauge, "trials", "Trials by state.", "state")
        self._to_go = metric(Gauge, "trials_to_go", "Trials that have not ended.")
        self._epochs = metric(Counter, "epochs", "Epochs of trials that were trained.")
        self._epoch_seconds = metric(Gauge, "epoch_seconds", "Seconds of the last epoch of a trial.")
        self._baseline_seconds = metric(Gauge, "baseline_epoch_seconds", "Seconds of an epoch of plain SGD.")
        self._worker_seconds = metric(Counter, "worker_seconds", "Seconds of trials times their workers.")
        self._gpu_seconds = metric(Counter, "gpu_seconds", "Seconds of trials times their GPUs.")
        self._best = metric(Gauge, "best", "Lowest value of a trial, on the validation split.", "objective")
        self._values: dict[tuple[Gauge, str, str], float] = {}
        self._set(self._to_go, wanted - already)
        if baseline_seconds is not None:
            self._set(self._baseline_seconds, baseline_seconds)

    def refresh(self, done: threading.Event) -> None:
        """Set the gauges again and again until `done`."""
        while not done.wait(_EVERY_S):
            for (gauge, key, label), value in list(self._values.items()):
                gauge.set(value, {key: label} if key else {})

    def _set(self, gauge: Gauge, value: float, key: str = "", label: str = "") -> None:
        self._values[gauge, key, label] = value
        gauge.set(value, {key: label} if key else {})

    def trial(self, number: int, state: str, metrics: Mapping[str, float] | None) -> None:
        """Export a trial's new state, and its metrics if it has any."""
        self._states[number] = state
        counts = Count(self._states.values())
        for name in STATES:
            self._set(self._trials, counts[name], "state", name)
        ended = self._already + sum(counts[name] for name in _ENDED)
        self._set(self._to_go, max(0, self._wanted - ended))
        if metrics is None:
            return
        for counter, name in ((self._worker_seconds, "worker_seconds"), (self._gpu_seconds, "gpu_seconds")):
            if metrics.get(name, 0.0) > 0:
                counter.inc(metrics[name])
        figures = SelectionFigures(metrics)
        for name in _BEST:
            if name in figures:
                self._lowest[name] = min(figures[name], self._lowest.get(name, figures[name]))
                self._set(self._best, self._lowest[name], "objective", name)

    def epoch(self, metrics: Mapping[str, float]) -> None:
        """Export an epoch of a trial."""
        self._epochs.inc()
        self._set(self._epoch_seconds, metrics["epoch_seconds"])
