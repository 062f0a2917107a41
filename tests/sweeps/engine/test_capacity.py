"""How many trials fit, before anything starts: on what is there, and on what an autoscaler may add."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.config.parts import ResourcesSpec, ScalesTo, SearchSpec
from sweeps.engine.placement import Node, _fitting, _of_launcher, nodes_at_most, placement
from trainables.config import TrainingSpec

LAUNCHER = Path(__file__).resolve().parents[3] / "ray_cluster.yaml"
EIGHT = Node(96.0, 8.0)
HEAD = Node(8.0, 0.0)


@pytest.mark.parametrize(
    ("nodes", "workers", "cpus", "gpus", "expected"),
    [
        ([HEAD, EIGHT, EIGHT, EIGHT], 8, 1.0, 1.0, (3, True)),
        ([HEAD, EIGHT], 4, 1.0, 1.0, (2, True)),
        ([HEAD, EIGHT], 1, 1.0, 0.25, (32, True)),
        ([Node(96, 6), Node(96, 6)], 4, 1.0, 1.0, (2, True)),  # twelve GPUs, but never three fours of six and six
        ([Node(8, 4), Node(8, 4)], 8, 0.5, 1.0, (1, False)),  # no node holds it: spread
        ([Node(2, 0)], 2, 0.9, 0.0, (1, True)),
        ([Node(2, 0)], 8, 0.24, 0.0, (1, True)),
    ],
)
def test_trials_are_counted_node_by_node(
    nodes: list[Node], workers: int, cpus: float, gpus: float, expected: tuple[int, bool]
) -> None:
    assert _fitting(nodes, workers, cpus, gpus) == expected


def test_the_launchers_file_says_what_the_autoscaler_may_add() -> None:
    assert _of_launcher(LAUNCHER) == [(Node(96.0, 8.0), 4), (Node(64.0, 8.0), 0)]
    assert _of_launcher(LAUNCHER.parent / "nothing.yaml") == []


def test_a_cluster_that_scales_from_none_is_planned_for(ray_cluster: str, tmp_path: Path) -> None:
    training = TrainingSpec(workers=8, micro_batches=8, device="cuda")
    search, launcher = SearchSpec(trials=40), ResourcesSpec()
    nodes = nodes_at_most(launcher, LAUNCHER)
    assert nodes == [Node(3.0, 0.0)] + [Node(96.0, 8.0)] * 4
    said = ResourcesSpec(scales_to=ScalesTo(nodes=3, gpus=8, cpus=96))
    found = placement(training, said, search)
    assert found.concurrency == 3
    assert found.group.one_node
    assert found.group.gpus_per_worker == 1
    assert found.line == (
        "3 trial(s) at once, 8 workers each, 1 GPU a worker, in up to 3 warm worker groups on one node "
        "(1 of at most 4 nodes run; the others are requested)"
    )
    with pytest.raises(ValueError, match=r"training.device = cuda, but the cluster has no GPU.*resources.scales_to"):
        placement(training, launcher, search)
