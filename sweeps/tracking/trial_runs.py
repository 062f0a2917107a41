"""The MLflow run of a sweep's trial: opened, and that of a configuration that was refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlflow.entities import DatasetInput

from sweeps.state.sweep import Sweep
from sweeps.tracking.job_run import JobRun, open_job
from sweeps.tracking.run_tags import environment_tags, flat, trial_tags
from sweeps.tracking.tracker import Tracker
from trainables.spec import TrialSpec


def open_refused_run(tracker: Tracker, sweep: Sweep, number: int, params: dict[str, Any], reason: str) -> str | None:
    """The run of a refused configuration, which says why and has ended; returns its id."""
    run_id = tracker.start(
        f"{sweep.name}-{number:03d} refused",
        params={"trial": number, **params},
        tags={
            **environment_tags(),
            "role": "trial",
            "sweep": sweep.name,
            "state": "refused",
            "reason": reason,
            "pareto": "false",
        },
        parent=sweep.record.run_id,
    )
    tracker.end(run_id, "KILLED")
    return run_id


def open_trial_run(
    tracker: Tracker,
    sweep: Sweep,
    number: int,
    params: dict[str, Any],
    spec: TrialSpec,
    inputs: Sequence[DatasetInput] = (),
    run_id: str | None = None,
) -> JobRun:
    """A trial's run, below the sweep's, with its configuration; or `run_id`, to go on with."""
    # The same keys on every child, or the UI's parallel coordinates drop them.
    shown = flat(spec.edp.model_dump(mode="json")) | flat(spec.training.model_dump(mode="json"), "training.")
    shown |= {k: v for k, v in params.items() if k not in shown}
    return open_job(
        tracker,
        f"{sweep.name}-{number:03d}",
        params={"trial": number, **shown},
        tags=trial_tags(sweep.name, spec) | {"role": "trial", "pareto": "false"},
        parent=sweep.record.run_id,
        inputs=inputs,
        run_id=run_id,
    )
