"""Who is on a Ray cluster: the drivers that are connected to it under a name, and what each of them holds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import ray
from ray.core.generated import gcs_pb2
from ray.job_config import JobConfig

_NAME = "edp_sweep"
_messages: Any = gcs_pb2  # whose classes protobuf makes when it is imported


def under_name(name: str) -> JobConfig:
    """For `ray.init`: others on the cluster see this driver under `name`, until it disconnects or dies."""
    return JobConfig(metadata={_NAME: name})


def this_driver() -> str:
    """Id of this process' own connection. Ids grow: who came earlier has the smaller one."""
    found: str = ray.get_runtime_context().get_job_id()
    return found


def other_drivers() -> dict[str, str]:
    """Names of the others that are connected under one, by the id of their connection."""
    entries = _head().get_job_table(skip_submission_job_info_field=True, skip_is_running_tasks_field=True)
    table = [_messages.JobTableData.FromString(entry) for entry in entries]
    return {
        one.job_id.hex(): str(one.config.metadata[_NAME])
        for one in table
        if not one.is_dead and _NAME in one.config.metadata and one.job_id.hex() != this_driver()
    }


def held_by_others() -> dict[str, Counter[str]]:
    """What worker groups of other drivers hold, CPUs and GPUs by their names, by the id of the drivers' connection."""
    table = [_messages.PlacementGroupTableData.FromString(entry) for entry in _head().get_placement_group_table()]
    found: dict[str, Counter[str]] = {}
    for one in table:
        owner = one.creator_job_id.hex()
        if one.state == _messages.PlacementGroupTableData.CREATED and owner != this_driver():
            for bundle in one.bundles:
                found.setdefault(owner, Counter()).update(bundle.unit_resources)
    return found


def _head() -> Any:
    """The tables of Ray's head: Ray's own readers of them leave out metadata, and whose a placement group is."""
    return ray._private.state.state._connect_and_get_accessor()
