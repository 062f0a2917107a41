"""The MLflow run of the SGD baseline."""

from __future__ import annotations

from collections.abc import Sequence

from mlflow.entities import DatasetInput

from sweeps.state.sweep import Sweep
from sweeps.tracking.job_run import PLAIN, JobRun, open_job
from sweeps.tracking.run_tags import flat, trial_tags
from sweeps.tracking.tracker import Tracker
from trainables.spec import TrialSpec


def open_baseline_run(sweep: Sweep, spec: TrialSpec, tracker: Tracker, inputs: Sequence[DatasetInput] = ()) -> JobRun:
    """The baseline's run, with its configuration: the one that the sweep knows, or a new one."""
    return open_job(
        tracker,
        f"{sweep.name} SGD baseline",
        params={"method": "sgd"} | flat(spec.training.model_dump(mode="json"), "training."),
        tags=trial_tags(sweep.name, spec) | {"role": "baseline", "privacy": PLAIN},
        inputs=inputs,
        run_id=sweep.record.baseline_run_id,
    )


def send_baseline(sweep: Sweep, spec: TrialSpec, tracker: Tracker) -> None:
    """Sends what MLflow lacks of a baseline that has ended."""
    record = sweep.record
    if record.baseline is None or record.baseline_tracked:
        return
    known = record.baseline_run_id
    run = JobRun(tracker, known, tracker.failures) if known else open_baseline_run(sweep, spec, tracker)
    metrics = {name: value for name, value in record.baseline.items() if name != "run_id"}
    run.epochs({spec.training.epochs: metrics})
    run.files([sweep.folder / "baseline" / "model.pt"], "model")
    run.end({"state": "complete"})
    sweep.update(
        baseline={**record.baseline, "run_id": run.run_id}, baseline_run_id=run.run_id, baseline_tracked=run.whole
    )
