"""One rule says which point to take, and why: lowest SER with a guarantee, unless it clearly leaks more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edp.spec import UserError
from sweeps.config.parts import SearchSpec
from sweeps.results.confirmed import seed_folder
from sweeps.results.front import pareto_front
from sweeps.results.recommendation import choosing_leakage, leakage_of, recommend
from sweeps.results.snapshot import Snapshot
from sweeps.store.records import Point
from sweeps.store.sweep import Sweep
from tests.conftest import Command
from tests.support.studies import RECIPE
from tests.support.synthetic import sweep_of


def point(trial: int, ser: float, auc: float | None, epsilon: float, *, half: float = 0.03, **more: float) -> Point:
    metrics = {"valid_ser": ser, "valid_ser_lower": ser - 0.02, "valid_ser_upper": ser + 0.02}
    metrics |= {"ser": 1 - ser, "ser_lower": 1 - ser, "ser_upper": 1 - ser}  # the test split would choose the opposite
    metrics |= {"epsilon": epsilon, "delta": 1e-4}
    if auc is not None:
        metrics |= {"valid_mia_auc": auc, "valid_mia_auc_lower": auc - half, "valid_mia_auc_upper": auc + half}
        metrics |= {"mia_auc": 1 - auc}
    return Point(trial, 4, {}, metrics | more, None, Path(str(trial)), None, RECIPE)


def taken(points: list[Point], **how: Any) -> int | None:
    found = recommend(points, **how).point
    return found and found.trial


def test_the_lowest_ser_among_those_with_a_guarantee_is_recommended() -> None:
    found = recommend([point(0, 0.10, 0.5, 50.0), point(1, 0.30, 0.5, 9.0), point(2, 0.20, 0.5, 10.0)])
    assert found.point is not None
    assert found.point.trial == 2, "the better SER of trial 0 has no guarantee"
    assert found.why == (
        "Trial 2 has the lowest validation SER, 20.0%, of the front's 2 configurations with a guarantee (ε ≤ 10); "
        "none of them leaks clearly less."
    )


def test_a_useless_model_whose_attack_did_worse_than_guessing_is_not_chosen() -> None:
    # What the quickstart once chose: new seeds put its AUC at 0.501 ± 0.168.
    points = [point(0, 0.86, 0.479, 4.0), point(1, 0.12, 0.512, 8.0), point(2, 0.20, 0.508, 6.0)]
    assert taken(points) == taken(points, target=8.0) == 1
    assert taken([*points, point(3, 0.99, 0.30, 0.1, half=0.01)]) == 1, "an outlier sways nothing"


def test_an_auc_within_its_interval_sways_nothing_and_one_beyond_it_does() -> None:
    quiet = point(1, 0.30, 0.52, 8.0)
    assert taken([point(0, 0.10, 0.55, 8.0), quiet]) == 0
    loud = point(0, 0.10, 0.70, 8.0)
    found = recommend([loud, quiet])
    assert found.point is quiet
    assert "that do not leak clearly more than another; 0 would be lower." in found.why


def test_no_guarantee_no_recommendation_and_it_says_so() -> None:
    found = recommend([point(0, 0.1, 0.5, 1.3e6), point(1, 0.2, 0.5, float("inf"))])
    assert found.point is None
    assert found.why == (
        "Nothing is recommended: no configuration of the front has a guarantee (ε ≤ 10). "
        "The smallest ε is 1.30e+06 (no formal guarantee)."
    )
    assert found.instead is not None
    assert found.instead.trial == 0
    assert recommend([]).why == "Nothing is recommended: no trial is complete yet."


def test_the_recipes_target_is_what_counts_as_a_guarantee() -> None:
    points = [point(0, 0.1, 0.5, 3.0), point(1, 0.05, 0.5, 3.0 * (1 + 1e-12))]
    assert taken(points, target=3.0) == 0
    assert "(ε ≤ 3, the recipe's target)" in recommend(points, target=3.0).why
    far = recommend([point(0, 0.1, 0.5, 90.0)], target=100.0)
    assert far.point is not None
    assert far.why.endswith("An ε above 10 is a weak guarantee, if any.")


def test_without_an_attack_ser_alone_decides() -> None:
    found = recommend([point(0, 0.2, None, 8.0), point(1, 0.1, None, 8.0)])
    assert found.point is not None
    assert found.point.trial == 1
    assert "how much they leak was not measured" in found.why
    half = [point(0, 0.1, None, 8.0), point(1, 0.2, 0.6, 8.0), point(2, 0.3, 0.5, 8.0)]
    assert taken(half) == 0


def test_an_attack_that_is_no_objective_does_not_choose_since_it_reads_training_utterances() -> None:
    points = [point(0, 0.1, 0.9, 8.0), point(1, 0.2, 0.5, 8.0)]
    assert (taken(points), taken(points, leakage=None)) == (1, 0)
    assert recommend(points, leakage=None).why.endswith("; leakage does not choose.")
    assert choosing_leakage(RECIPE.model_copy(update={"search": SearchSpec(objectives=("ser",))})) is None


def test_limits_leave_points_out_and_the_rule_is_the_same_within_them() -> None:
    points = [point(0, 0.1, 0.5, 9.0), point(1, 0.2, 0.5, 3.0), point(2, 0.05, 0.5, 99.0)]
    assert taken(points, limits={"epsilon": 5.0}) == 1
    assert taken(points, limits={"epsilon": 200.0}) == 0, "a wider limit is no guarantee"
    assert "no configuration of the front is within the limits" in recommend(points, limits={"ser": 0.01}).why
    none = recommend(points, limits={"ser": 0.06})
    assert "no configuration of the front within the limits has a guarantee" in none.why


def test_what_new_seeds_gave_takes_the_place_of_what_was_measured_once() -> None:
    points = [point(0, 0.10, 0.5, 8.0), point(1, 0.15, 0.5, 8.0)]
    unlucky = {"valid_ser": 0.30, "valid_ser_lower": 0.25, "valid_ser_upper": 0.35, "confirmed_seeds": 3}
    again = {
        "0": unlucky,
        "1": {"valid_ser": 0.16, "valid_ser_lower": 0.12, "valid_ser_upper": 0.2, "confirmed_seeds": 3},
    }
    found = recommend(points, again=again)
    assert found.point is points[1]
    assert "lowest validation SER, 16.0%" in found.why
    assert found.why.endswith("Its figures are means over 3 new seeds.")
    assert recommend(points, again=again, limits={"ser": 0.2}).point is points[1]
    assert taken(points, again=again, limits={"ser": 0.155}) is None, "what was measured once was luck"
    leaks = {"0": {"valid_mia_auc": 0.7, "valid_mia_auc_lower": 0.65, "valid_mia_auc_upper": 0.75}}
    assert taken(points, again=leaks) == 1


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return sweep_of(tmp_path_factory.mktemp("runs"), "made", 12)


@pytest.mark.slow
def test_three_seeds_of_confirm_count_and_two_do_not(sweep: Sweep) -> None:
    assert leakage_of(sweep.recipe) == "mia_auc"
    one = pareto_front(sweep.trials(), sweep.recipe.search.objectives)[0]
    for k in (1, 2, 3):
        assert Snapshot(sweep).new_seeds(one) == {}
        folder = seed_folder(sweep, one, k)
        folder.mkdir(parents=True)
        run = {"seed": k, "run_id": None, "metrics": one.metrics | {"valid_ser": 0.1 * k}}
        (folder / "result.json").write_text(json.dumps(run))
    found = Snapshot(sweep).new_seeds(one)
    assert found["valid_ser"] == pytest.approx(0.2)
    least = min(
        [0.2, *(p.selection_figures["ser"] for p in pareto_front(sweep.trials(), sweep.recipe.search.objectives)[1:])]
    )
    with pytest.raises(UserError, match=rf"the front's lowest: {least:.4g}"):
        Snapshot(sweep).choose({"ser": 0.001})
    assert found["valid_ser_lower"] < 0.1 < 0.3 < found["valid_ser_upper"]


@pytest.mark.slow
def test_front_and_pick_say_it_in_text_and_json(sweep: Sweep, command: Command, tmp_path: Path) -> None:
    where = ("made", "--storage", str(sweep.folder.parent))
    advice = Snapshot(sweep).recommended()
    document = json.loads(command("front", *where, "--json")[1])
    assert (document["recommended"], document["why"]) == (advice.point and advice.point.name, advice.why)
    assert advice.why in " ".join(command("front", *where)[1].split())
    picked = json.loads(command("pick", *where, "--output", str(tmp_path / "p.yaml"), "--json")[1])
    chosen, why = Snapshot(sweep).choose()
    assert (picked["number"], picked["epoch"], picked["why"]) == (chosen.trial, chosen.epoch, why)
    assert why in command("pick", *where, "--output", str(tmp_path / "p.yaml"))[1]
    with pytest.raises(UserError, match=r"ser <= 0\.001 \(the front's lowest: "):
        Snapshot(sweep).choose({"ser": 0.001})
