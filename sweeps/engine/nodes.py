"""A check that every node of the cluster sees the files which its workers read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from edp.spec import UserError

_ANSWER_S = 60.0
"""Seconds in which a node answers, or is not asked any more: it may be leaving."""


def check_nodes(paths: Mapping[str, Path]) -> None:
    """Raise if a node does not see one of `paths`. Do nothing if Ray is not connected, or has one node.

    Args:
        paths: folders that workers read, by the setting that names them.

    Raises:
        UserError: with setting, path and the node's address.
    """
    nodes = [node for node in ray.nodes() if node["Alive"]] if ray.is_initialized() else []
    if len(nodes) < 2:
        return

    @ray.remote(num_cpus=0, max_retries=0)
    def unseen() -> list[str]:
        return [setting for setting, path in paths.items() if not path.exists()]

    asked = {}
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        asked[unseen.options(scheduling_strategy=there).remote()] = node["NodeManagerAddress"]
    answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=_ANSWER_S)
    for answer in answered:
        try:
            lacking = ray.get(answer)
        except ray.exceptions.RayError:  # the node has left
            continue
        for setting in lacking:
            raise UserError(
                f"{setting} = {str(paths[setting])!r}: node {asked[answer]} does not see it; allowed: a folder that "
                'every node mounts at the same path (docs/cluster.md, "A cluster without a shared disk")'
            )
