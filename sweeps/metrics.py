"""What a running sweep exports beside Ray's own metrics, for Prometheus: `dashboards/grafana` draws it.

Ray adds `ray_` before each name, and `_total` after a counter's. The driver alone exports them, so they are there for
as long as it runs.
"""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Mapping

from ray.util.metrics import Counter, Gauge

STATES = ("waiting", "running", "interrupted", "complete", "stopped", "failed", "refused")
_ENDED = ("complete", "stopped", "failed")
_BEST = ("ser", "mia_auc", "epsilon")


class Meter:
    """Counts what happens to the trials of one sweep.

    Args:
        sweep: its name, a label of every metric.
        wanted, already: trials that it is to have, and that an earlier driver has ended.
        baseline_seconds: of an epoch of plain SGD, where it is known.
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
        self._to_go.set(wanted - already)
        if baseline_seconds is not None:
            self._baseline_seconds.set(baseline_seconds)

    def trial(self, number: int, state: str, metrics: Mapping[str, float] | None) -> None:
        """A trial's state has changed; with its figures, where it has ended well."""
        self._states[number] = state
        counts = Count(self._states.values())
        for name in STATES:
            self._trials.set(counts[name], {"state": name})
        self._to_go.set(max(0, self._wanted - self._already - sum(counts[name] for name in _ENDED)))
        if metrics is None:
            return
        for counter, name in ((self._worker_seconds, "worker_seconds"), (self._gpu_seconds, "gpu_seconds")):
            if metrics.get(name, 0.0) > 0:
                counter.inc(metrics[name])
        for name in _BEST:
            if name in metrics:
                self._lowest[name] = min(metrics[name], self._lowest.get(name, metrics[name]))
                self._best.set(self._lowest[name], {"objective": name})

    def epoch(self, metrics: Mapping[str, float]) -> None:
        """A trial has done an epoch."""
        self._epochs.inc()
        self._epoch_seconds.set(metrics["epoch_seconds"])
