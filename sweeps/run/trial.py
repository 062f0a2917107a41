"""One trial as Tune runs it: a small process that hands a job to a worker group and forwards what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import tune

from sweeps.recipes.parts import SearchSpec
from sweeps.run.early_stopping import rung_point
from sweeps.run.study_trials import Suggestion
from trainables.execution.client import GroupSpec, run_job
from trainables.records.job import News, Stop, TrialError, TrialJob, TrialStopped


@dataclass(frozen=True)
class TrialContext:
    """What Tune's process of a trial needs: plain data, no tensors."""

    search: SearchSpec
    corpus: Path
    attack: Path
    coins: Path | None
    trials: Path
    storage: Path
    name: str
    group: GroupSpec
    queue: Any | None
    """Of the warm worker group; None: a `TorchTrainer` a trial."""
    stop_signal: Any
    """Stops all trials at the end of their running epoch."""
    stopper: Any | None = None
    """Actor of `sweeps.run.early_stopping.Stopper`; None: no trial is stopped early."""


def tune_trial(config: dict[str, Any], context: TrialContext) -> None:
    """One trial, in the process that Tune gives it. It reports epochs, and last a result or the reason for none.

    A trial that fails does not raise: Tune would print a traceback, and the reason would be lost in it. Where this
    process dies, Tune starts another one, which hears of the same job again or goes on from its checkpoint.
    """
    trial: Suggestion = config["suggestion"]
    secret = context.search.secret

    def on_epoch(epoch: int, metrics: dict[str, float]) -> Stop | None:
        tune.report({"epoch": epoch, "epoch_metrics": metrics})
        if context.stopper is None:
            return None
        point = rung_point(metrics, context.search.objectives)
        reason = ray.get(context.stopper.after_epoch.remote(trial.number, epoch, point))
        return Stop(reason) if reason is not None else None

    def on_news(news: News) -> None:
        tune.report({"news": news})

    job = TrialJob(
        trial.spec,
        context.corpus,
        context.trials / str(trial.number),
        context.attack,
        context.coins,
        gpus_per_worker=context.group.gpus_per_worker or 1.0,
        keep=1 if secret else context.search.keep_epochs,
        objectives=context.search.objectives,
    )
    try:
        if context.queue is not None:
            result = run_job(context.queue, job, on_epoch, job_id=str(job.output), on_news=on_news)
        else:
            # PyTorch comes with it, which nobody needs to pass messages on.
            from trainables.execution.worker_group import run_fresh

            where, name = context.storage, f"{context.name}-{trial.number}"
            result = run_fresh(
                job, context.group, where, name, on_epoch, stop_signal=context.stop_signal, on_news=on_news
            )
    except TrialStopped as stopped:
        tune.report({"left": str(stopped)})
    except TrialError as error:
        tune.report({"outcome": str(error)})
    else:
        tune.report({"outcome": result})
