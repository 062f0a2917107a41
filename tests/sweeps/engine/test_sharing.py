"""Sweeps on one cluster: each runs its part of the trials, and what waits says for whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st
from ray import tune

from edp.spec import UserError
from sweeps.config.parts import ResourcesSpec, ScalesTo, SearchSpec
from sweeps.engine import placement as resources
from sweeps.engine.placement import Placement, at_once, part, placement
from sweeps.engine.watch import wanted
from tests.conftest import Command
from tests.support import studies
from tests.support.neighbour import neighbour
from tests.support.waiting import wait_for
from trainables.config import TrainingSpec
from trainables.workers.client import GroupSpec
from trainables.workers.ray_internals import other_drivers


@given(st.integers(1, 40), st.integers(1, 12))
def test_parts_are_equal_and_fill_the_cluster(whole: int, sweeps: int) -> None:
    ids = [f"{n:08d}" for n in range(sweeps)]
    parts = [part(whole, me, [other for other in ids if other != me]) for me in ids]
    assert sum(parts) == max(whole, sweeps), "one trial each, where there are fewer than sweeps"
    assert max(parts) - min(parts) <= 1
    assert parts == sorted(parts, reverse=True), "the rest goes to whoever came first"


def test_a_share_caps_the_trials_and_leaves_one(ray_cluster: str) -> None:
    training = TrainingSpec(workers=8, micro_batches=8, device="cuda")

    def plan(share: float, **search: int) -> Placement:
        wanted = ResourcesSpec(scales_to=ScalesTo(nodes=4, gpus=8, cpus=96), share=share)
        return placement(training, wanted, SearchSpec(trials=40, **search))

    assert [plan(share).concurrency for share in (1, 0.75, 0.5, 0.3, 0.01)] == [4, 3, 2, 1, 1]
    assert "GPUs idle" not in plan(0.5).line, "they are somebody else's"
    with pytest.raises(UserError, match=r"concurrency = 3 .*share = 0.5 of the cluster holds 2 trial.*at most 2"):
        plan(0.5, concurrency=3)
    assert at_once(plan(0.5), ResourcesSpec(share=0.5), lambda line: None)() == 2


@pytest.mark.parametrize("share", [0, 1.5, "half"])
def test_a_share_that_is_none_is_one_line(share: float | str, tmp_path: Path, command: Command) -> None:
    code, _, err = command(
        "run", "quickstart", "--storage", str(tmp_path / "runs"), "--set", f"resources.share={share}"
    )
    assert code == 2
    assert "resources.share" in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_who_else_is_there_is_seen_and_named(ray_cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_LOOK_S", 0.0)
    group = GroupSpec(workers=2, cpus_per_worker=0.75, gpus_per_worker=0.0, backend="gloo", one_node=False)
    said: list[str] = []
    most = at_once(Placement(group, 3, 4, "fresh"), ResourcesSpec(), said.append)
    assert most() == 3
    assert said == []
    with neighbour(ray_cluster, "other", 2.5):
        assert most() == 2
        assert said == ["2 trial(s) at once from now on: the cluster is shared with sweep(s) other"]
        waits = ray.util.placement_group([group.bundle] * group.workers)
        line = wait_for(lambda: found if "other" in (found := wanted(group)) else None)
        assert line.endswith("of 3; sweep other holds 2.5)"), line
        ray.util.remove_placement_group(waits)
    wait_for(lambda: not other_drivers())
    assert most() == 3
    assert said[1:] == ["3 trial(s) at once from now on: no other sweep is on the cluster"]


def _one_trial(config: dict[str, Any]) -> None:
    number = config["suggestion"].number
    tune.report({"message": [("started", None)], "number": number})
    tune.report({"message": [("outcome", studies.result())], "number": number})


def test_tune_waits_for_its_part_and_runs_them_all(long_story: None, ray_cluster: str, tmp_path: Path) -> None:
    counts: list[int] = []

    def most() -> int:
        counts.append(len(driver._trials))
        return 2

    made, recipe = studies.sweep(tmp_path / "runs", "search.points_to_evaluate=[]", "search.sampler=random")
    driver = studies.driver(made, recipe, max_running=most)
    found = tune.Tuner(
        tune.with_resources(_one_trial, {"cpu": 0.05}),
        tune_config=tune.TuneConfig(search_alg=driver, num_samples=5, max_concurrent_trials=3, reuse_actors=True),
        run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
    ).fit()
    assert sorted(one.metrics["number"] for one in found) == [0, 1, 2, 3, 4]
    assert max(counts) == 2
    assert [trial.state for trial in made.trials()] == ["complete"] * 5
