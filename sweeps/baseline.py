"""Plain SGD on the sweep's corpus: what the front is held against. Its run stands beside the sweep's children."""

from __future__ import annotations

from sweeps.prepare import Prepared, RunJob
from sweeps.store import Sweep
from sweeps.tracking import Tracker, flat, trial_tags
from sweeps.watch import Watch
from trainables.job import TrialJob
from trainables.spec import TrialSpec
from trainables.submit import TrialError, TrialStopped


def run_baseline(
    sweep: Sweep, spec: TrialSpec, prepared: Prepared, run: RunJob, tracker: Tracker, watch: Watch
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
        sweep.update(baseline_run_id=run_id)

    def on_epoch(epoch: int, metrics: dict[str, float]) -> None:
        watch.epoch("SGD baseline", spec.training.epochs, epoch, metrics)
        tracker.log(run_id, metrics, epoch)

    try:
        result = run(TrialJob(spec, prepared.corpus, folder, prepared.attack, prepared.coins), on_epoch)
    except TrialError as error:
        stopped = isinstance(error, TrialStopped)
        tracker.tag(run_id, {"state": "stopped" if stopped else "failed", "reason": str(error)})
        tracker.end(run_id, "KILLED" if stopped else "FAILED")
        raise
    except BaseException:
        tracker.tag(run_id, {"state": "stopped"})
        tracker.end(run_id, "KILLED")
        raise
    before = tracker.failures
    tracker.log(run_id, result.metrics, spec.training.epochs)
    close_baseline_run(sweep, run_id, result.tags, tracker)
    whole = run_id is not None and tracker.failures == before
    sweep.update(baseline={"run_id": run_id, **result.metrics}, baseline_tracked=whole)
    tracker.log(record.run_id, {f"baseline_{k}": v for k, v in result.metrics.items()})


def start_baseline_run(sweep: Sweep, spec: TrialSpec, tracker: Tracker) -> str | None:
    """The baseline's run, with its configuration; returns its id."""
    return tracker.start(
        f"{sweep.name} SGD baseline",
        params={"method": "sgd"} | flat(spec.training.model_dump(mode="json"), "training."),
        tags=trial_tags(sweep.name, spec) | {"role": "baseline", "privacy": "no formal guarantee (plain SGD)"},
    )


def close_baseline_run(sweep: Sweep, run_id: str | None, tags: dict[str, str], tracker: Tracker) -> None:
    """State and model of the baseline's run, and its end."""
    tracker.tag(run_id, tags | {"state": "complete"})
    tracker.artifact(run_id, sweep.folder / "baseline" / "model.pt", "model")
    tracker.end(run_id)


def send_baseline(sweep: Sweep, spec: TrialSpec, tracker: Tracker) -> None:
    """Sends what MLflow lacks of a baseline that has ended."""
    record = sweep.record
    if record.baseline is None or record.baseline_tracked:
        return
    before = tracker.failures
    run_id = record.baseline_run_id or start_baseline_run(sweep, spec, tracker)
    metrics = {name: value for name, value in record.baseline.items() if name != "run_id"}
    tracker.log_missing(run_id, {spec.training.epochs: metrics})
    close_baseline_run(sweep, run_id, {}, tracker)
    sweep.update(
        baseline={**record.baseline, "run_id": run_id},
        baseline_run_id=run_id,
        baseline_tracked=tracker.failures == before,
    )
