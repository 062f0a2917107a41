"""What the page shows is what the sweep holds: front, limits, ranges, intervals, and a fresh look when it changed."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dashboards.pareto import parts
from dashboards.pareto.data import drawable, snapshot, within
from dashboards.pareto.layout import page
from dashboards.pareto.scatter import scatter
from dashboards.pareto.source import Source
from sweeps.config.parts import Objective
from sweeps.config.target_epsilon import planned
from sweeps.results.front import candidates, hollow, pareto_front
from sweeps.text.figures import epsilon_cell, epsilon_text, epsilon_words
from tests.support.studies import sweep as new_sweep
from tests.support.studies import trials
from tests.support.synthetic import add_trials, sweep_of
from trainables.records.epochs import write_ledger

OBJECTIVES = ("ser", "mia_auc", "log10_epsilon")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return Source(sweep_of(tmp_path_factory.mktemp("runs"), "made", 30, tracked=False), seconds=0)


@pytest.mark.slow
def test_every_complete_trial_is_a_candidate_and_the_front_comes_first(source: Source) -> None:
    found = snapshot(source.sweep)
    trials = source.sweep.trials()
    front = pareto_front(trials, OBJECTIVES)
    noisy = hollow(front, OBJECTIVES)
    assert 0 < len(noisy) < len(front)
    assert [c.point for c in found.front] == sorted(front, key=lambda point: point.name in noisy), "hollow ones apart"
    assert {c.key for c in found.candidates.values() if c.hollow} == noisy
    assert set(found.candidates) == {p.name for t in trials for p in t.points}
    assert len(found.candidates) == 60, "two epochs of each trial"
    for candidate in found.candidates.values():
        if candidate.dominated_by is not None:
            better = found.candidates[candidate.dominated_by]
            assert better.on_front
            figures = better.point.selection_figures, candidate.point.selection_figures
            assert all(figures[0][k] <= figures[1][k] for k in ("ser", "mia_auc", "epsilon"))


@pytest.mark.slow
def test_a_limit_keeps_exactly_what_does_not_exceed_it(source: Source) -> None:
    found = snapshot(source.sweep)
    sers = sorted(c.point.selection_figures["ser"] for c in found.candidates.values())
    kept = [c for c in found.candidates.values() if within(found, c, {"ser": sers[9]})]
    assert len(kept) == 10
    front = sum(c.on_front for c in kept)
    assert parts.remain_line(found, {"ser": sers[9]}) == (
        f"10 of 60 remain, {front} of {len(found.front)} Pareto-optimal"
    )
    assert not within(found, kept[0], {"never_measured": 1.0})


def test_an_infinite_epsilon_is_a_candidate_that_no_limit_lets_through(source: Source) -> None:
    trials = source.sweep.trials()
    trials[0].points[-1].metrics["epsilon"] = math.inf
    objectives: tuple[Objective, ...] = ("ser", "mia_auc")
    found = candidates(trials, pareto_front(trials, objectives), objectives)
    worst = found[trials[0].points[-1].name]
    whole = snapshot(source.sweep)
    assert not within(whole, worst, {"epsilon": 1e300})
    assert within(whole, worst, {})
    confirmed = whole.changed(again={worst.key: {"epsilon": 8.0}})
    assert within(confirmed, worst, {"epsilon": 8.0}), "as what is recommended, by what new seeds gave"


def test_the_scatter_tells_the_groups_apart_by_their_marks(source: Source) -> None:
    found = snapshot(source.sweep)
    axes = found.axes
    limit = {"ser": sorted(c.point.selection_figures["ser"] for c in found.candidates.values())[14]}
    figure = scatter(found, limit, axes["ser"], axes["mia_auc"], axes["epsilon"])
    marks = {trace.get("name"): trace for trace in figure["data"]}
    inside = {c.key for c in found.candidates.values() if within(found, c, limit)}
    front = {c.key for c in found.front if not c.hollow}
    assert set(marks["Pareto-optimal"]["customdata"]) == inside & front
    assert set(marks["dominated"]["customdata"]) == inside - {c.key for c in found.front}
    assert len(marks["outside the limits"]["customdata"]) == 45
    symbols = [marks[name]["marker"]["symbol"] for name in ("Pareto-optimal", "dominated", "outside the limits")]
    assert len(set(symbols)) == 3
    bars = [marks["Pareto-optimal"][name] for name in ("error_x", "error_y")]
    assert bars[0]["array"] + bars[1]["arrayminus"] == pytest.approx([0.02] * 2 * len(inside & front))
    # The SGD baseline, on both axes, and within their ranges.
    lines = [(shape["x0"], shape["x1"]) for shape in figure["layout"]["shapes"]]
    assert (0.21, 0.21) in lines
    low, high = figure["layout"]["yaxis"]["range"]
    assert low < 0.57 < high


def test_a_point_that_only_noise_in_mia_puts_on_the_front_is_hollow_and_listed_apart(source: Source) -> None:
    found = snapshot(source.sweep)
    first, *others = found.front
    made = {c.key: replace(c, hollow=c is first) for c in found.candidates.values()}
    figure = scatter(found.changed(candidates=made), {}, *(found.axes[key] for key in ("epsilon", "ser", "mia_auc")))
    marks = {trace.get("name"): trace for trace in figure["data"]}
    trace = marks["on the front by MIA within noise alone"]
    assert (trace["customdata"], trace["marker"]["symbol"]) == ([first.key], "diamond-open")
    assert set(marks["Pareto-optimal"]["customdata"]) == {c.key for c in others}
    assert str(parts.table(found, [made[first.key], made[others[0].key]], None, False)).count("◇ ") == 1


def test_the_table_sorts_and_leaves_out_what_is_dominated_unless_asked(source: Source) -> None:
    found = snapshot(source.sweep)
    assert parts.table_members(found, {}, False, None, False) == found.front
    every = parts.table_members(found, {}, True, "epsilon", True)
    epsilons = [c.metrics["epsilon"] for c in every]
    assert len(every) == 60
    assert epsilons == sorted(epsilons, reverse=True)
    by_word = parts.table_members(found, {}, True, "decay", False)
    assert [c.params["decay"] for c in by_word] == sorted(c.params["decay"] for c in every)


def test_the_table_and_the_hover_have_three_epsilons_and_label_what_guarantees_nothing(source: Source) -> None:
    found = snapshot(source.sweep)
    weak, strong = (pick(found.front, key=lambda c: c.metrics["epsilon"]) for pick in (max, min))
    weak.metrics.update(epsilon_read=7.819, epsilon_read_upper=8.191)
    found = found.changed(axes=drawable(list(found.candidates.values())))
    shown = str(parts.table(found, [weak, strong], None, False))
    for part in ("ε honest", "ε paper", "ε (read)", f"Td('{epsilon_cell(weak.metrics['epsilon'])}')", "Td('7.81–8.2')"):
        assert part in shown, part
    assert shown.count("†") == 2, "of the weak one alone, by the mechanism and by the paper"
    assert "† an ε of 1e4 or more: no formal guarantee." in str(page("made", Path("picked.yaml"), {}, 4.0, {}))
    axes = found.axes
    figure = scatter(found, {}, axes["ser"], axes["mia_auc"], axes["epsilon"])
    hovers = {k: h for t in figure["data"] for k, h in zip(t.get("customdata", ()), t.get("text", ()), strict=True)}
    assert "<br>".join(epsilon_words(weak.metrics)) in hovers[weak.key]
    assert "(no formal guarantee)" in hovers[weak.key]
    assert "ε read" not in hovers[strong.key]
    assert "no formal" not in hovers[strong.key]


@pytest.mark.slow
def test_a_running_sweep_is_read_again_when_a_trial_has_ended(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "grows", 2, tracked=False, state="running")
    source = Source(sweep, seconds=0)
    version, found = source.read()
    assert len(found.candidates) == 4
    assert source.read() == (version, found)
    add_trials(sweep, 1)
    later, more = source.read()
    assert later != version
    assert len(more.candidates) == 6


@pytest.mark.slow
def test_it_is_read_again_as_its_configurations_are_trained_again(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "confirmed", 2, tracked=False)
    source = Source(sweep, seconds=0)
    point = source.read()[1].front[0].point
    folder = sweep.folder / "confirm" / f"{point.trial}-{point.epoch}"
    versions = [source.read()[0]]
    for seed in (1, 2):
        made = folder / f"seed-{seed}"
        made.mkdir(parents=True)
        versions.append(source.read()[0])
        shutil.copy(sweep.trial_folder(point.trial) / "ledger.json", made)
        versions.append(source.read()[0])
    assert source.read()[0] == versions[-1]
    assert len(set(versions)) == 3, "an empty folder says nothing yet"
    trained = tmp_path / "train-x"
    trained.mkdir()
    shutil.copy(sweep.trial_folder(point.trial) / "ledger.json", trained)
    assert source.read()[0] not in versions


def test_a_sweep_without_a_complete_trial_has_an_empty_page_rather_than_none(tmp_path: Path) -> None:
    found = snapshot(sweep_of(tmp_path, "new", 0, tracked=False, state="running"))
    assert found.candidates == {}
    assert "no trials yet" in parts.state_line(found)
    assert parts.remain_line(found, {}) == "0 of 0 remain, 0 of 0 Pareto-optimal"
    assert "No trial is complete yet" in str(parts.table(found, [], None, False))


def test_the_page_says_what_trials_that_failed_have_cost(tmp_path: Path) -> None:
    sweep, recipe = new_sweep(tmp_path, "search.sampler=random")
    search = trials(sweep, recipe)
    config = search.ask("a")
    assert config is not None
    ledger = planned(recipe.trial(config.params | {"z0": 1.0}), 1_350)
    write_ledger(ledger, sweep.trial_folder(config.number))
    search.tell("a", "died", ledger, [])
    found = snapshot(sweep)
    assert found.epsilon is not None
    assert found.epsilon > 0
    assert parts.state_line(found).endswith(f"ε of the whole sweep: {epsilon_text(found.epsilon)}")
