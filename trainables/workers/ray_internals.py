"""All uses of private APIs of Ray: its tables, its node and its token.

Ray is pinned to a minor version, which may change them. `tests/trainables/workers/test_ray_internals.py` says which of
them a new version has changed, and what no longer works then. This file does not import PyTorch.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import ray
from ray import ActorID, PlacementGroupID
from ray._private import ray_constants
from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available
from ray.core.generated import gcs_pb2
from ray.job_config import JobConfig
from ray.util.placement_group import PlacementGroup, remove_placement_group

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
    entries = _tables().get_job_table(skip_submission_job_info_field=True, skip_is_running_tasks_field=True)
    table = [_messages.JobTableData.FromString(entry) for entry in entries]
    return {
        one.job_id.hex(): str(one.config.metadata[_NAME])
        for one in table
        if not one.is_dead and _NAME in one.config.metadata and one.job_id.hex() != this_driver()
    }


def held_by_others() -> dict[str, Counter[str]]:
    """Return the resources that the worker groups of other drivers hold, by the id of the driver's connection."""
    table = [_messages.PlacementGroupTableData.FromString(entry) for entry in _tables().get_placement_group_table()]
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
    table = [_messages.PlacementGroupTableData.FromString(entry) for entry in _tables().get_placement_group_table()]
    for one in table:
        gone = one.state == _messages.PlacementGroupTableData.REMOVED
        by_actor = not ActorID(one.creator_actor_id).is_nil()
        if by_actor and one.creator_actor_dead and one.creator_job_id.hex() == this_driver() and not gone:
            remove_placement_group(PlacementGroup(PlacementGroupID(one.placement_group_id)))


def _tables() -> Any:
    """Return the accessor of the tables of Ray's head.

    Ray's public readers of these tables leave out the metadata of a driver and the owner of a placement group.
    """
    return ray._private.state.state._connect_and_get_accessor()


def node_types() -> list[tuple[dict[str, float], int]]:
    """Return the resources and the largest number of each type of node that a managed cluster has reported."""
    config = ray._private.state.state.get_cluster_config()
    groups = config.node_group_configs if config is not None else []
    return [(dict(group.resources), group.max_count) for group in groups]


def raylet_socket() -> str | None:
    """Return the path of the socket of this machine's raylet; None for a client of a cluster elsewhere."""
    node = ray._private.worker._global_node
    return None if node is None else node.raylet_socket_name


def keep_folder_here() -> None:
    """Keep Ray from sending the current folder of a driver below `uv run` to every node.

    Ray reads the environment variable when it is imported, which may be before it is set.
    """
    ray_constants.RAY_ENABLE_UV_RUN_RUNTIME_ENV = False


def take_own_token() -> None:
    """Let `ray.init` send the token of this machine to a cluster. Ray itself does so for the address `auto` alone."""
    maybe_enable_token_auth_if_token_available()
