"""One trial as Ray Tune runs it: a small process that hands a job to a worker group and reports to the driver.

It imports neither PyTorch nor the study, so that the process starts fast.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import ray
from ray import tune

from trainables.config import TrialSpec
from trainables.records.job import TrialError, TrialJob, TrialStopped
from trainables.records.pareto import Metrics
from trainables.workers.client import GroupSpec, death_in, run_in_pool

Message = tuple[Literal["started", "queue", "epoch", "news", "outcome", "left"], Any]
"""A report to the driver: ("started", None); ("queue", that of the trial's workers, by which the driver answers);
("epoch", (epochs done, metrics)); ("news", `News` of its workers); and last either ("outcome", `Outcome`) or, for a
trial that `edp-sweep resume` continues, ("left", reason)."""


@dataclass(frozen=True)
class Suggestion:
    """A trial that may start."""

    number: int
    """The number of the first try, in whose folder an interrupted trial finds its checkpoint."""
    params: dict[str, Any]
    spec: TrialSpec

    # Tune keeps the configurations of all trials, and copies and prints each several times.
    def __deepcopy__(self, memo: dict[int, Any]) -> Suggestion:
        return self

    def __repr__(self) -> str:
        return f"Suggestion({self.number})"


@dataclass(frozen=True)
class TrialContext:
    """What all trials of a sweep share: plain data, no tensors."""

    job: TrialJob
    """A trial's job, but for its configuration and its folder, which is in this one and named by the trial's number."""
    storage: Path
    name: str
    group: GroupSpec
    leases: Any | None
    """The leases of the pool of warm worker groups. None: each trial has a `TorchTrainer` of its own."""


def tune_trial(config: dict[str, Any], context: TrialContext) -> None:
    """Run one trial in the process that Tune gives it.

    A trial that fails does not raise, because Tune would print a traceback instead of the reason. If this process
    dies, Tune starts another one, which joins the same job in the queue, or continues from its checkpoint. A trial is
    left, and not failed, if what died is a process that it needs.
    """
    trial: Suggestion = config["suggestion"]

    def report(message: Message) -> None:
        tune.report({"message": [message]})  # Tune would flatten a dictionary; the driver empties the list

    def on_epoch(epoch: int, metrics: Metrics) -> None:
        report(("epoch", (epoch, metrics)))

    job = replace(context.job, spec=trial.spec, output=context.job.output / str(trial.number))
    report(("started", None))
    hear: dict[str, Any] = {
        "job_id": str(job.output),
        "on_queue": lambda queue: report(("queue", queue)),
        "on_news": lambda news: report(("news", news)),
        "answered": True,
    }
    try:
        if context.leases is not None:
            result = run_in_pool(context.leases, job, on_epoch, **hear)
        else:
            from trainables.workers.worker_group import run_fresh  # imports PyTorch

            result = run_fresh(job, context.group, context.storage, f"{context.name}-{trial.number}", on_epoch, **hear)
    except TrialStopped as stopped:
        report(("left", str(stopped)))
    except TrialError as error:
        report(("outcome", str(error)))
    except ray.exceptions.RayError as error:
        if (death := death_in(error)) is None:
            raise
        report(("left", death))
    else:
        report(("outcome", result))
