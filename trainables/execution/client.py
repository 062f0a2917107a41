"""Handing a job to a worker group and hearing of it: for processes that start faster without PyTorch."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from typing import Any, Literal

import ray

from edp.spec import Frozen
from trainables.records.job import News, Stop, TrialError, TrialJob, TrialResult, TrialStopped
from trainables.records.pareto import Metrics

OnEpoch = Callable[[int, Metrics], Stop | None]
"""Hears of an epoch, and answers whether the job is to stop at its end."""

OnNews = Callable[[News], None]


class GroupSpec(Frozen):
    """The processes that one trial needs."""

    workers: int
    cpus_per_worker: float
    gpus_per_worker: float = 0.0
    backend: Literal["gloo", "nccl"] = "gloo"
    one_node: bool = False
    """All workers on one node: gradients of a trial that fits there need not cross the network."""

    @property
    def bundle(self) -> dict[str, float]:
        """What Ray reserves for each worker."""
        gpus = {"GPU": self.gpus_per_worker} if self.gpus_per_worker > 0 else {}
        return {"CPU": self.cpus_per_worker, **gpus}


def run_job(
    queue: Any,
    job: TrialJob,
    on_epoch: OnEpoch,
    *,
    job_id: str | None = None,
    on_news: OnNews = lambda news: None,
) -> TrialResult:
    """Runs `job` on the worker group behind `queue`, and waits for its end.

    Args:
        job_id: identifies the job. To submit the same id again starts nothing new: all its epochs are reported again.
        on_news: told what happens to the job besides its epochs.

    Raises:
        TrialStopped: when it was stopped before its end.
        TrialError: with the reason.
    """
    job_id = job_id or uuid.uuid4().hex
    ray.get(queue.submit.remote(job_id, job))
    for place in itertools.count():
        kind, payload = ray.get(queue.next_message.remote(job_id, place))
        match kind:
            case "started":
                on_news(News())
            case "restarted":
                on_news(News(f"its workers died ({payload}); it goes on from its last epoch", waits=True))
            case "word":
                on_news(News(payload))
            case "epoch":
                stop = on_epoch(*payload)
                ray.get(queue.acknowledge.remote(job_id, payload[0], stop))
            case "result":
                return payload
            case "failed":
                raise TrialError(payload)
            case "stopped":
                raise TrialStopped(payload)
    raise AssertionError("a job has an end")
