"""Micro-batches and full batches, clipped by micro-batch and by utterance, in one front at one ε."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dashboards.pareto.data import drawable, snapshot
from sweeps.store.sweep import Sweep
from tests.conftest import TINY_RECIPE, Command

pytestmark = pytest.mark.usefixtures("kept_groups")

SETTINGS = [
    "edp.epsilon=8",
    "search.sampler=random",
    "search.trials=5",
    "search.seed=3",
    "space.training.method.choice=[edp, dpsgd]",
    "space.training.micro_batches.choice=[2, 8]",
    "space.training.batch_size.choice=[18, 24, full]",
]


def test_mechanisms_stand_beside_each_other_in_a_front_of_ser_and_leakage(
    long_story: None, ray_cluster: str, command: Command, tmp_path: Path
) -> None:
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(TINY_RECIPE)
    words = [word for setting in SETTINGS for word in ("--set", setting)]
    code, out, err = command("run", str(recipe), "--name", "beside", "--storage", str(tmp_path), "--json", *words)
    assert code == 0, err
    found = json.loads(out)
    assert found["objectives"] == ["ser", "mia_auc"]
    complete = [trial for trial in found["trials"] if trial["state"] == "complete"]
    assert len(complete) == 5
    assert {trial["params"]["training.method"] for trial in complete} == {"edp", "dpsgd"}
    sweep = Sweep(tmp_path, "beside")
    clips = {t.ledger.entries[0].mechanism.N for t in sweep.trials() if t.ledger is not None}
    assert len(clips) > 2
    for trial in complete:
        assert trial["metrics"]["epsilon"] == pytest.approx(8, abs=1e-4)
        # The corpus is private, so each epoch states what the whole training guarantees.
        for point in trial["points"]:
            assert point["metrics"]["epsilon"] == trial["metrics"]["epsilon"]
            assert (point["metrics"]["epsilon_executed"] < 7.9) == (point["epoch"] < 2)
    places = {(p["metrics"]["valid_ser"], p["metrics"]["valid_mia_auc"]) for t in complete for p in t["points"]}
    best = min(ser for ser, _ in places)
    code, out, _ = command("front", "beside", "--storage", str(tmp_path), "--json")
    front = json.loads(out)
    assert front["objectives"] == ["ser", "mia_auc"]
    assert front["front"][0]["metrics"]["valid_ser"] == best
    page = snapshot(sweep)
    assert {"training.method", "training.batch_size"} <= set(drawable(list(page.candidates.values())))
    code, out, err = command("pick", "beside", "--storage", str(tmp_path), "--output", str(tmp_path / "picked.yaml"))
    assert code == 0, err
