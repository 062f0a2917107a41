"""A driver's side of a Ray cluster: run a job on a worker group, and list the other drivers and their resources.

It does not import PyTorch, so that processes that only pass messages on start faster.
"""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import ray
from ray.core.generated import gcs_pb2
from ray.job_config import JobConfig

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
) -> TrialResult:
    """Run `job` on the worker group behind `queue`, and wait for its end.

    Args:
        job_id: identifies the job. To submit the same id again starts nothing new: all its epochs are reported again.
        on_news: called with events of the job other than its epochs.

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
            case "notice":
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


_NAME = "edp_sweep"
_messages: Any = gcs_pb2  # untyped: protobuf makes its classes at import


def under_name(name: str) -> JobConfig:
    """Return the configuration for `ray.init` that shows this driver to others under `name`, until it disconnects or
    dies."""
    return JobConfig(metadata={_NAME: name})


def this_driver() -> str:
    """Return the id of this process' own connection. Ids grow: an earlier connection has a smaller one."""
    found: str = ray.get_runtime_context().get_job_id()
    return found


def other_drivers() -> dict[str, str]:
    """Return the names of the other drivers that are connected under one, by the id of their connection."""
    entries = _head().get_job_table(skip_submission_job_info_field=True, skip_is_running_tasks_field=True)
    table = [_messages.JobTableData.FromString(entry) for entry in entries]
    return {
        one.job_id.hex(): str(one.config.metadata[_NAME])
        for one in table
        if not one.is_dead and _NAME in one.config.metadata and one.job_id.hex() != this_driver()
    }


def held_by_others() -> dict[str, Counter[str]]:
    """Return the resources that worker groups of other drivers hold, by the id of the drivers' connection."""
    table = [_messages.PlacementGroupTableData.FromString(entry) for entry in _head().get_placement_group_table()]
    found: dict[str, Counter[str]] = {}
    for one in table:
        owner = one.creator_job_id.hex()
        if one.state == _messages.PlacementGroupTableData.CREATED and owner != this_driver():
            for bundle in one.bundles:
                found.setdefault(owner, Counter()).update(bundle.unit_resources)
    return found


def _head() -> Any:
    """Return the tables of Ray's head: Ray's own readers of them leave out metadata and the owner of a placement
    group."""
    return ray._private.state.state._connect_and_get_accessor()
