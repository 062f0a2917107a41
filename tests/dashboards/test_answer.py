"""What the page answers with: the recommended point, what an ε is worth, two points."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dashboards.pareto import parts
from dashboards.pareto.data import PageData, snapshot
from dashboards.pareto.scatter import scatter
from dashboards.pareto.source import Source
from sweeps.results.snapshot import Snapshot
from tests.support.synthetic import sweep_of
from trainables.records.pareto import difference


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return Source(sweep_of(tmp_path_factory.mktemp("runs"), "made", 30, tracked=False), seconds=0)


@pytest.fixture
def found(source: Source) -> PageData:
    return snapshot(source.sweep)


@pytest.mark.slow
def test_the_page_recommends_what_pick_does(source: Source, found: PageData) -> None:
    first, advice = found.first, Snapshot(source.sweep).recommended()
    assert first is not None
    assert advice.point is not None
    assert first.point.name == advice.point.name
    found.recipe.search.limits["mia_tpr_at_1pct_fpr"] = 1e-9
    assert found.first is None, "the recipe's limits count"


def test_ser_against_leakage_has_the_line_of_guessing(found: PageData) -> None:
    axes = found.axes
    figure = scatter(found, {}, axes["ser"], axes["mia_auc"], axes["epsilon"])
    layout = figure["layout"]
    assert parts.lines_line(found, axes["ser"], axes["mia_auc"]) == (
        "SER of SGD, without privacy: 21.0%; MIA AUC of SGD, without privacy: 0.570; MIA AUC of guessing: 0.500. "
    )
    named = [trace["name"] for trace in figure["data"] if trace["mode"] == "lines"]
    assert named == ["SGD, without privacy", "guessing"], "in the legend"
    assert (0.5, 0.5) in [(s.get("y0"), s.get("y1")) for s in layout["shapes"]]
    low, high = layout["yaxis"]["range"]
    assert low < 0.5 < high
    assert not [s for s in layout["shapes"] if s["type"] == "rect"], "bands belong to an ε"


def test_two_candidates_side_by_side_say_what_is_noise(found: PageData) -> None:
    one, *_, other = found.front
    shown = str(parts.side_by_side(found, one, [other]))
    (a, of_a), (b, of_b) = ((c.value("valid_ser"), c.interval("valid_ser")) for c in (one, other))
    low, high = difference(a, of_a, b, of_b)
    assert f"{100 * low:+.1f} to {100 * high:+.1f} points" in shown
    assert one.name in shown
    assert other.name in shown
    twin = replace(other, point=replace(other.point, metrics=one.metrics, params=one.params))
    assert str(parts.side_by_side(found, one, [twin])).count(", noise") == 4, (
        "of SER and MIA AUC on validation and test, which have intervals"
    )
    three = str(parts.side_by_side(found, one, [other, twin]))
    assert three.count(", noise") == 4 + shown.count(", noise"), "below each figure"
    assert "difference" not in three
