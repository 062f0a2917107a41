"""Metrics that a running sweep exports for Prometheus beside Ray's own; `dashboards/grafana` draws them.

Ray adds `ray_` before each name, and `_total` after a counter's. The driver alone exports them, while trials run: Ray
forgets a gauge that is not set again and again, so a thread does that.
"""

from __future__ import annotations

import threading
from collections import Counter as Count
from collections.abc import Mapping

from ray.util.metrics import Counter, Gauge

STATES = ("waiting", "running", "interrupted", "complete", "stopped", "failed", "refused")
_ENDED = ("complete", "stopped", "failed")
_BEST = ("ser", "mia_auc", "mia_tpr_at_1pct_fpr", "epsilon", "epsilon_user")
_EVERY_S = 5.0
"""Half of the interval at which Ray exports by default."""


class Meter:
    """Counts what happens to the trials of one sweep. Used as a context while trials run.

    Args:
        sweep: its name, a label of every metric.
        wanted, already: numbers of its trials, and of those that an earlier driver has ended.
        baseline_seconds: of an epoch of plain SGD, where known.
    """

    def __init__(self, sweep: str, wanted: int, already: int, baseline_seconds: float | None) -> None:
        self._wanted, self._already = wanted, already
        self._states: dict[int, str] = {}
        self._lowest: dict[str, float] = {}
        label = {"sweep": sweep}

        def gauge(name: str, description: str, *more: str) -> Gauge:
            made = Gauge(f"edp_sweep_{name}", description=description, tag_keys=("sweep", *more))
            made.set_default_tags(label)
            return made

        def counter(name: str, description: str) -> Counter:
            made = Counter(f"edp_sweep_{name}", description=description, tag_keys=("sweep",))
            made.set_default_tags(label)
            return made

        self._trials = gauge("trials", "Trials by state.", "state")
        self._to_go = gauge("trials_to_go", "Trials that have not ended.")
        self._epochs = counter("epochs", "Epochs of trials that were trained.")
        self._epoch_seconds = gauge("epoch_seconds", "Seconds of the last epoch of a trial.")
        self._baseline_seconds = gauge("baseline_epoch_seconds", "Seconds of an epoch of plain SGD.")
        self._worker_seconds = counter("worker_seconds", "Seconds of trials times their workers.")
        self._gpu_seconds = counter("gpu_seconds", "Seconds of trials times their workers with a GPU.")
        self._best = gauge("best", "Lowest value that a trial has reached.", "objective")
        self._values: dict[tuple[Gauge, str, str], float] = {}
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._set(self._to_go, wanted - already)
        if baseline_seconds is not None:
            self._set(self._baseline_seconds, baseline_seconds)

    def __enter__(self) -> Meter:
        self._thread = threading.Thread(target=self._refresh, name="sweep-metrics", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _refresh(self) -> None:
        while not self._done.wait(_EVERY_S):
            for (gauge, key, label), value in list(self._values.items()):
                gauge.set(value, {key: label} if key else {})

    def _set(self, gauge: Gauge, value: float, key: str = "", label: str = "") -> None:
        self._values[gauge, key, label] = value
        gauge.set(value, {key: label} if key else {})

    def trial(self, number: int, state: str, metrics: Mapping[str, float] | None) -> None:
        """Count a trial's new state, and its metrics where it has ended well."""
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
        for name in _BEST:
            if name in metrics:
                self._lowest[name] = min(metrics[name], self._lowest.get(name, metrics[name]))
                self._set(self._best, self._lowest[name], "objective", name)

    def epoch(self, metrics: Mapping[str, float]) -> None:
        """Count an epoch of a trial."""
        self._epochs.inc()
        self._set(self._epoch_seconds, metrics["epoch_seconds"])
