"""One trial as Ray Tune runs it: a small process that hands a job to a worker group and reports to the driver.

It imports neither PyTorch nor the study, so that the process starts fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import ray
from ray import tune

from sweeps.config.parts import SearchSpec
from sweeps.engine.early_stopping import rung_point
from trainables.config import TrialSpec
from trainables.records.job import News, Stop, TrialError, TrialJob, TrialStopped
from trainables.records.pareto import Metrics
from trainables.workers.client import GroupSpec, death_in
from trainables.workers.leases import run_in_pool

Message = tuple[Literal["started", "epoch", "news", "outcome", "left"], Any]
"""A report to the driver: ("started", None); ("epoch", (epochs done, metrics)); ("news", `News` of its workers); and
last either ("outcome", `Outcome`) or, for a trial that `edp-sweep resume` continues, ("left", reason)."""


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
    """Settings that all trials of a sweep share: plain data, no tensors."""

    search: SearchSpec
    corpus: Path
    attack: Path
    coins: Path | None
    trials: Path
    storage: Path
    name: str
    group: GroupSpec
    leases: Any | None
    """The leases of the pool of warm worker groups. None: each trial has a `TorchTrainer` of its own."""
    stop_signal: Any
    """The actor that stops all trials at the end of their running epoch."""
    public: bool
    """True if the trials run on a public proxy corpus."""
    stopper: Any | None
    """The actor of `sweeps.engine.early_stopping.Stopper`. None: no trial is stopped early."""


def tune_trial(config: dict[str, Any], context: TrialContext) -> None:
    """Run one trial in the process that Tune gives it.

    A trial that fails does not raise, because Tune would print a traceback instead of the reason. If this process
    dies, Tune starts another one, which joins the same job in the queue, or continues from its checkpoint. A trial is
    left, and not failed, if what died is a process that it needs.
    """
    trial: Suggestion = config["suggestion"]

    def report(message: Message) -> None:
        tune.report({"message": [message]})  # Tune would flatten a dictionary; the driver empties the list

    def on_epoch(epoch: int, metrics: Metrics) -> Stop | None:
        report(("epoch", (epoch, metrics)))
        if context.stopper is None:
            return None
        point = rung_point(metrics, context.search.objectives)
        reason = ray.get(context.stopper.after_epoch.remote(trial.number, epoch, point))
        return Stop(reason) if reason is not None else None

    def on_news(news: News) -> None:
        report(("news", news))

    job = TrialJob(
        trial.spec,
        context.corpus,
        context.trials / str(trial.number),
        context.attack,
        context.coins,
        public=context.public,
        gpus_per_worker=context.group.gpus_per_worker or 1.0,
        keep=context.search.keep_epochs,
        objectives=context.search.objectives,
    )
    report(("started", None))
    try:
        if context.leases is not None:
            result = run_in_pool(context.leases, job, on_epoch, job_id=str(job.output), on_news=on_news)
        else:
            from trainables.workers.worker_group import run_fresh  # imports PyTorch

            where, name = context.storage, f"{context.name}-{trial.number}"
            result = run_fresh(
                job, context.group, where, name, on_epoch, stop_signal=context.stop_signal, on_news=on_news
            )
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
