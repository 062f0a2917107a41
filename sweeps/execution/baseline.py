"""Plain SGD on the sweep's corpus: what the front is held against. Its run stands beside the sweep's children."""

from __future__ import annotations

from sweeps.execution.prepare import Prepared, RunJob
from sweeps.progress.live_table import Progress
from sweeps.state.sweep import Sweep
from sweeps.tracking.baseline_run import start_baseline_run
from sweeps.tracking.corpus_inputs import corpus_inputs
from sweeps.tracking.job_run import job_run
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
    record = sweep.record
    folder = sweep.folder / "baseline"
    run_id = record.baseline_run_id
    if run_id is not None:
        tracker.reopen(run_id)
    else:
        run_id = start_baseline_run(sweep, spec, tracker)
        tracker.inputs(run_id, corpus_inputs(spec, prepared.corpus, prepared.shadow))
        sweep.update(baseline_run_id=run_id)

    def on_epoch(epoch: int, metrics: Metrics) -> None:
        progress.epoch("SGD baseline", spec.training.epochs, epoch, metrics)
        tracked.epoch(epoch, metrics)

    with job_run(tracker, run_id, spec) as tracked:
        result = run(TrialJob(spec, prepared.corpus, folder, prepared.attack, prepared.coins), on_epoch)
        before = tracker.failures
        tracked.close(result, folder)
    whole = run_id is not None and tracker.failures == before
    sweep.update(baseline={"run_id": run_id, **result.metrics}, baseline_tracked=whole)
    tracker.log(record.run_id, {f"baseline_{k}": v for k, v in result.metrics.items()})
