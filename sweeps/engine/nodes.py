"""A check of every node of the cluster: its files, its code and its network, before anything trains there."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import ray
from ray import cloudpickle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from edp.spec import UserError

_ANSWER_S = 60.0
"""Seconds in which a node answers, or is not asked any more: it may be leaving."""
_PACKAGES = ("edp", "trainables", "sweeps")
_GLOO = "GLOO_SOCKET_IFNAME"

# A node gets the functions of this file as they are, and imports nothing of ours to run them: it may find other code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def check_nodes(paths: Mapping[str, Path]) -> None:
    """Raise if a node does not see one of `paths`, imports other code than this process, or lacks what its Gloo needs.

    Do nothing if Ray is not connected. Ray puts the driver's current folder first on the workers' path, so another
    checkout, or any folder with the name of one of our packages, would train there in the place of what is installed.

    Args:
        paths: folders that workers read, by the setting that names them.

    Raises:
        UserError: with setting, path and the node's address.
    """
    if not ray.is_initialized():
        return
    ask, code = ray.remote(num_cpus=0, max_retries=0)(_problems), _code()
    asked = [
        ask.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(
            node["NodeManagerAddress"], paths, code
        )
        for node in ray.nodes()
        if node["Alive"]
    ]
    for answer in ray.wait(asked, num_returns=len(asked), timeout=_ANSWER_S)[0]:
        try:
            problems = ray.get(answer)
        except ray.exceptions.RayError:  # the node has left
            continue
        for problem in problems:
            raise UserError(problem)


def _problems(node: str, paths: Mapping[str, Path], code: Mapping[str, tuple[str, str]]) -> list[str]:
    """Return what is wrong on the node of this process, in lines.

    Args:
        code: the driver's.
    """
    lines = [
        f"{setting} = {str(path)!r}: node {node} does not see it; allowed: a folder that every node mounts at the same "
        'path (docs/cluster.md, "A cluster without a shared disk")'
        for setting, path in paths.items()
        if not path.exists()
    ]
    lines += [
        f"workers on node {node} would import {place or f'no package {name}'}, and this process runs {code[name][0]}: "
        f"other code; allowed: the same version on every node, and a current folder without a folder {name}"
        for name, (place, digest) in _code().items()
        if digest != code[name][1]
    ]
    there = [name for _, name in socket.if_nameindex()]
    lines += [
        f"{_GLOO} = {os.environ[_GLOO]!r}: node {node} has no network interface {name}; allowed: {', '.join(there)}"
        for name in os.environ.get(_GLOO, "").split(",")
        if name and name not in there
    ]
    return lines


def _code() -> dict[str, tuple[str, str]]:
    """Return the folder of each of our packages that this process imports or would import, and its code's digest."""
    found = {}
    for name in _PACKAGES:
        spec = find_spec(name)
        folders = list(spec.submodule_search_locations or ()) if spec is not None else []
        digest = hashlib.sha256()
        for file in sorted(file for folder in folders for file in Path(folder).rglob("*")):
            if file.suffix in (".py", ".c"):
                digest.update(f"{file.relative_to(folders[0])}\0".encode() + file.read_bytes())
        found[name] = (", ".join(folders), digest.hexdigest())
    return found
