"""The MLflow run of a trial: opened, closed, and that of a configuration that was refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweeps.formatting.figures import privacy_statement
from sweeps.results.summary import metrics_line
from sweeps.search.study_trials import Outcome
from sweeps.state.sweep import Sweep
from sweeps.tracking.run_tags import NOTE, environment_tags, flat, trial_tags
from sweeps.tracking.tracker import Tracker
from trainables.records.job import TrialResult
from trainables.spec import TrialSpec

ARTIFACTS = ("ledger.json", "config.yaml", "model.pt")

PLAIN = "no formal guarantee (plain SGD)"


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


def open_trial_run(tracker: Tracker, sweep: Sweep, number: int, params: dict[str, Any], spec: TrialSpec) -> str | None:
    """A trial's MLflow run, below the sweep's, with its configuration; returns its id."""
    # The same keys on every child, or the UI's parallel coordinates drop them.
    shown = flat(spec.edp.model_dump(mode="json")) | flat(spec.training.model_dump(mode="json"), "training.")
    shown |= {k: v for k, v in params.items() if k not in shown}
    return tracker.start(
        f"{sweep.name}-{number:03d}",
        params={"trial": number, **shown},
        tags=trial_tags(sweep.name, spec) | {"role": "trial", "pareto": "false"},
        parent=sweep.record.run_id,
    )


def close_trial_run(
    tracker: Tracker,
    run_id: str | None,
    spec: TrialSpec,
    folder: Path,
    outcome: Outcome,
    state: str,
    log: Callable[[str | None, dict[int, dict[str, float]]], None] | None = None,
    artifacts: tuple[str, ...] = ARTIFACTS,
) -> None:
    """Final metrics of the kept epochs, each at its own step, artifacts and state of a trial's run.

    Args:
        artifacts: files of `folder` that go along, where they exist.
        log: writes metrics by step, where some may have been written before.
    """
    if isinstance(outcome, TrialResult):
        last = outcome.epochs[-1].epoch if outcome.epochs else spec.training.epochs
        steps = {kept.epoch: kept.metrics for kept in outcome.epochs[:-1]} | {last: outcome.metrics}
        if log is not None:
            log(run_id, steps)
        else:
            for step, metrics in steps.items():
                tracker.log(run_id, metrics, step)
        early = {"reason": outcome.stopped} if outcome.stopped else {}
        private = spec.training.method != "sgd"
        privacy = privacy_statement(outcome.metrics, spec.edp) if private else PLAIN
        note = f"{metrics_line(outcome.metrics)}.\n\n{spec.training.method}, {spec.training.epochs} epochs. {privacy}."
        tracker.tag(run_id, outcome.tags | early | {"privacy": privacy, NOTE: note})
        for name in artifacts:
            tracker.artifact(run_id, folder / name, "model" if name == "model.pt" else None)
    else:
        tracker.tag(run_id, {"reason": outcome})
        tracker.artifact(run_id, folder / "ledger.json")
    tracker.tag(run_id, {"state": state})
    tracker.end(run_id, "FAILED" if state == "failed" else "FINISHED")
