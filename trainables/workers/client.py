"""A driver's side of a Ray cluster: run a job on a worker group, and list the other drivers and their resources.

This file does not import PyTorch, so that processes that only pass on messages start faster.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import ray
from ray import ActorID, PlacementGroupID
from ray.core.generated import gcs_pb2
from ray.job_config import JobConfig
from ray.util.placement_group import PlacementGroup, remove_placement_group

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
) -> TrialResult:
    """Run `job` on the worker group behind `queue`, and wait for its end.

    Args:
        job_id: identifies the job. A second call with the same id starts nothing: it reports all epochs again.
        on_news: called with events of the job other than its epochs.

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


_NAME = "edp_sweep"
_messages: Any = gcs_pb2  # protobuf makes its classes at import, so mypy knows none of them


def under_name(name: str) -> JobConfig:
    """Return the configuration for `ray.init` that shows this driver under `name` while it is connected."""
    return JobConfig(metadata={_NAME: name})


def this_driver() -> str:
    """Return the id of this process' connection to Ray. An earlier connection has a smaller id."""
    found: str = ray.get_runtime_context().get_job_id()
    return found


def other_drivers() -> dict[str, str]:
    """Return the names of the other connected drivers that have one (`under_name`), by the id of their connection."""
    entries = _head().get_job_table(skip_submission_job_info_field=True, skip_is_running_tasks_field=True)
    table = [_messages.JobTableData.FromString(entry) for entry in entries]
    return {
        one.job_id.hex(): str(one.config.metadata[_NAME])
        for one in table
        if not one.is_dead and _NAME in one.config.metadata and one.job_id.hex() != this_driver()
    }


def held_by_others() -> dict[str, Counter[str]]:
    """Return the resources that the worker groups of other drivers hold, by the id of the driver's connection."""
    table = [_messages.PlacementGroupTableData.FromString(entry) for entry in _head().get_placement_group_table()]
    found: dict[str, Counter[str]] = {}
    for one in table:
        owner = one.creator_job_id.hex()
        if one.state == _messages.PlacementGroupTableData.CREATED and owner != this_driver():
            for bundle in one.bundles:
                found.setdefault(owner, Counter()).update(bundle.unit_resources)
    return found


def remove_orphans() -> None:
    """Remove the placement groups of this driver whose creator, a controller of Ray Train, has died.

    Train's own cleaner needs Ray's dashboard for that, and knows no placement group of a controller that died early.
    Groups without a creator, which Ray counts as dead too, are the driver's own: Tune has one for each trial.
    """
    table = [_messages.PlacementGroupTableData.FromString(entry) for entry in _head().get_placement_group_table()]
    for one in table:
        gone = one.state == _messages.PlacementGroupTableData.REMOVED
        by_actor = not ActorID(one.creator_actor_id).is_nil()
        if by_actor and one.creator_actor_dead and one.creator_job_id.hex() == this_driver() and not gone:
            remove_placement_group(PlacementGroup(PlacementGroupID(one.placement_group_id)))


def _head() -> Any:
    """Return the accessor of the tables of Ray's head.

    Ray's public readers of these tables leave out the metadata of a driver and the owner of a placement group.
    """
    return ray._private.state.state._connect_and_get_accessor()
