"""The MLflow run of the SGD baseline."""

from __future__ import annotations

from sweeps.state.sweep import Sweep
from sweeps.tracking.run_tags import flat, trial_tags
from sweeps.tracking.tracker import Tracker
from sweeps.tracking.trial_runs import PLAIN
from trainables.spec import TrialSpec


def start_baseline_run(sweep: Sweep, spec: TrialSpec, tracker: Tracker) -> str | None:
    """The baseline's run, with its configuration; returns its id."""
    return tracker.start(
        f"{sweep.name} SGD baseline",
        params={"method": "sgd"} | flat(spec.training.model_dump(mode="json"), "training."),
        tags=trial_tags(sweep.name, spec) | {"role": "baseline", "privacy": PLAIN},
    )


def send_baseline(sweep: Sweep, spec: TrialSpec, tracker: Tracker) -> None:
    """Sends what MLflow lacks of a baseline that has ended."""
    record = sweep.record
    if record.baseline is None or record.baseline_tracked:
        return
    before = tracker.failures
    run_id = record.baseline_run_id or start_baseline_run(sweep, spec, tracker)
    metrics = {name: value for name, value in record.baseline.items() if name != "run_id"}
    tracker.log_missing(run_id, {spec.training.epochs: metrics})
    tracker.tag(run_id, {"state": "complete"})
    tracker.artifact(run_id, sweep.folder / "baseline" / "model.pt", "model")
    tracker.end(run_id)
    sweep.update(
        baseline={**record.baseline, "run_id": run_id},
        baseline_run_id=run_id,
        baseline_tracked=tracker.failures == before,
    )
