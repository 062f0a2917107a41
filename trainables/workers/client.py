"""The sender's side of a job: run it on a worker group, and say in words which process of Ray has died.

This file does not import PyTorch, so that processes that only pass on messages start faster.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Literal

import ray

from edp.spec import Frozen
from trainables.records.job import News, Stop, TrialError, TrialJob, TrialResult, TrialStopped
from trainables.records.pareto import Metrics

OnEpoch = Callable[[int, Metrics], Stop | None]
"""Called with the number of epochs done and their metrics; returns an order to stop, or None."""

OnNews = Callable[[News], None]


class GroupSpec(Frozen):
    """The processes that one trial needs."""

    workers: int
    cpus_per_worker: float
    gpus_per_worker: float = 0.0
    backend: Literal["gloo", "nccl"] = "gloo"
    one_node: bool = False
    """True: all workers run on one node, so that a trial that fits there sends no gradients over the network."""

    @property
    def bundle(self) -> dict[str, float]:
        """The resources that Ray reserves for each worker."""
        gpus = {"GPU": self.gpus_per_worker} if self.gpus_per_worker > 0 else {}
        return {"CPU": self.cpus_per_worker, **gpus}


def run_job(
    queue: Any,
    job: TrialJob,
    on_epoch: OnEpoch,
    *,
    job_id: str | None = None,
    on_news: OnNews = lambda news: None,
    answered: bool = False,
) -> TrialResult:
    """Run `job` on the worker group behind `queue`, and wait for its end.

    Args:
        job_id: identifies the job. A second call with the same id starts nothing: it reports all epochs again.
        on_news: called with events of the job other than its epochs.
        answered: True if another process acknowledges the epochs that `on_epoch` reports to it.

    Raises:
        TrialStopped: if the job was stopped before its end.
        TrialError: if the job failed, with the reason.
    """
    job_id = job_id or uuid.uuid4().hex
    ray.get(queue.submit.remote(job_id, job))
    place = 0
    while True:
        kind, payload = ray.get(queue.next_message.remote(job_id, place))
        place += 1
        match kind:
            case "lost":
                on_news(News("the process with its messages died; it will resume from its last epoch", waits=True))
                ray.get(queue.submit.remote(job_id, job))
                place = 0
            case "started":
                on_news(News())
            case "restarted":
                on_news(News(f"its workers died ({payload}); it will resume from its last epoch", waits=True))
            case "notice":
                on_news(News(payload))
            case "epoch":
                stop = on_epoch(*payload)
                if not answered:
                    ray.get(queue.acknowledge.remote(job_id, payload[0], stop))
            case "result":
                return payload
            case "failed":
                raise TrialError(payload)
            case "stopped":
                raise TrialStopped(payload)


SHORT_OF_MEMORY = (
    "a machine is short of memory, so Ray ended processes on it; close other programs there, or ask for less in "
    "recipe.yaml: training.workers, training.memory_batch, resources.share"
)

_DEATHS = (
    ray.exceptions.RayActorError,
    ray.exceptions.WorkerCrashedError,
    ray.exceptions.NodeDiedError,
    ray.exceptions.LocalRayletDiedError,
    ray.exceptions.ObjectLostError,
    ray.exceptions.RaySystemError,
    ray.exceptions.RpcError,
    ray.exceptions.ActorUnschedulableError,
    ray.exceptions.TaskUnschedulableError,
)


def death_in(error: BaseException | None) -> str | None:
    """Return in words that a process of Ray died, or was killed for want of memory; None for any other error."""
    died = None
    while error is not None:
        if isinstance(error, ray.exceptions.OutOfMemoryError) or "low on memory" in str(error):
            return SHORT_OF_MEMORY
        if isinstance(error, _DEATHS):
            died = f"a process that it needs died ({type(error).__name__.partition('(')[0]})"
        error = error.__cause__ or error.__context__
    return died
