"""Plain SGD on the sweep's corpus: what the front is held against. Its run stands beside the sweep's children."""

from __future__ import annotations

from sweeps.run.prepare import Prepared, RunJob, blamed_on
from sweeps.run.progress import Progress
from sweeps.state.sweep import Sweep
from sweeps.tracking.baseline_run import open_baseline_run
from sweeps.tracking.corpus_inputs import corpus_inputs
from sweeps.tracking.tracker import Tracker
from trainables.records.job import TrialJob
from trainables.records.pareto import Metrics
from trainables.spec import TrialSpec


def run_baseline(
    sweep: Sweep, spec: TrialSpec, prepared: Prepared, run: RunJob, tracker: Tracker, progress: Progress
) -> None:
    """Trains the baseline, or goes on with it, and keeps what came of it in the sweep's record.

    Raises:
        TrialError: with the reason.
    """
    folder = sweep.folder / "baseline"

    def on_epoch(epoch: int, metrics: Metrics) -> None:
        progress.epoch("SGD baseline", spec.training.epochs, epoch, metrics)
        tracked.epoch(epoch, metrics)

    with open_baseline_run(sweep, spec, tracker, corpus_inputs(spec, prepared.corpus, prepared.shadow)) as tracked:
        sweep.update(baseline_run_id=tracked.run_id)
        with blamed_on("SGD baseline"):
            result = run(TrialJob(spec, prepared.corpus, folder, prepared.attack, prepared.coins), on_epoch)
        tracked.close(spec, folder, result)
    sweep.update(baseline={"run_id": tracked.run_id, **result.metrics}, baseline_tracked=tracked.whole)
    tracker.log(sweep.record.run_id, {f"baseline_{k}": v for k, v in result.metrics.items()})
