"""What the page answers with: the recommended point, what an ε is worth, two points, two sweeps."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from dashboards.pareto import parts
from dashboards.pareto.app import candidates_csv
from dashboards.pareto.charts import beside, others, two_sweeps
from dashboards.pareto.data import PageData, snapshot
from dashboards.pareto.detail import side_by_side
from dashboards.pareto.scatter import scatter
from dashboards.pareto.source import Source
from edp.spec import UserError
from sweeps.results.snapshot import Snapshot
from sweeps.store.picks import MAX_NOTE, read_notes, write_note
from tests.support.synthetic import sweep_of
from trainables.records.files import BrokenFile
from trainables.records.pareto import difference


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("runs")
    sweep_of(made, "other", 3, tracked=False)
    return made


@pytest.fixture(scope="module")
def source(storage: Path) -> Source:
    return Source(sweep_of(storage, "made", 30, tracked=False), seconds=0)


@pytest.fixture
def found(source: Source) -> PageData:
    return snapshot(source.sweep)


@pytest.mark.slow
def test_the_page_recommends_what_pick_does(source: Source, found: PageData) -> None:
    assert found.advice() == Snapshot(source.sweep).recommended()
    assert found.advice({"ser": 0.0}).point is None


def test_ser_against_leakage_has_the_line_of_guessing(found: PageData) -> None:
    axes = found.axes
    figure = scatter(found, {}, axes["ser"], axes["mia_auc"], axes["epsilon"], "light")
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
    shown = str(side_by_side(found, one, [other]))
    (a, of_a), (b, of_b) = ((c.value("valid_ser"), c.interval("valid_ser")) for c in (one, other))
    low, high = difference(a, of_a, b, of_b)
    assert f"{100 * low:+.1f} to {100 * high:+.1f} points" in shown
    assert one.name in shown
    assert other.name in shown
    twin = replace(other, point=replace(other.point, metrics=one.metrics, params=one.params))
    assert str(side_by_side(found, one, [twin])).count(", noise") == 4, (
        "of SER and MIA AUC on validation and test, which have intervals"
    )
    three = str(side_by_side(found, one, [other, twin]))
    assert three.count(", noise") == 4 + shown.count(", noise"), "below each figure"
    assert "difference" not in three


def test_the_csv_has_a_row_for_each_candidate_with_its_place(found: PageData) -> None:
    rows = list(csv.DictReader(io.StringIO(candidates_csv(found))))
    assert [row["point"] for row in rows] == list(found.candidates)
    assert sum(row["pareto"] == "True" for row in rows) == len(found.front)
    advised = found.advice().point
    assert [row["point"] for row in rows if row["recommended"] == "True"] == ([advised.name] if advised else [])
    assert float(rows[0]["edp.C"]) == found.front[0].params["C"]
    assert float(rows[0]["ser"]) == found.front[0].metrics["ser"]


def test_another_sweep_stands_beside_it(source: Source, found: PageData) -> None:
    assert others(source) == ["other"]
    assert beside(source, None) is beside(source, "made") is beside(source, "../made") is None
    other = beside(source, "other")
    assert other is not None
    shown = str(two_sweeps(found, other))
    for part in ("lowest validation SER at ε ≤ 1'", "lowest validation SER at ε ≤ 10", "made", "other", "3 complete"):
        assert part in shown, part
    assert "different corpora" not in shown
    foreign = other.recipe.model_copy(update={"corpus": other.recipe.corpus.model_copy(update={"utterances": 7})})
    assert "different corpora" in str(two_sweeps(found, other.changed(recipe=foreign)))
    axes = found.axes
    figure = scatter(found, {}, axes["epsilon"], axes["ser"], axes["mia_auc"], "light", beside=other)
    (drawn,) = [trace for trace in figure["data"] if trace.get("name") == "front of other"]
    assert len(drawn["x"]) == len(other.front)


def test_notes_are_kept_replaced_and_taken_away_and_the_page_sees_it(source: Source) -> None:
    sweep = source.sweep
    before, _ = source.read()
    write_note(sweep, "2@3", "  for the review <script> \n")
    write_note(sweep, "7", "other")
    assert read_notes(sweep) == {"2@3": "for the review <script>", "7": "other"}
    after, shown = source.read()
    assert after != before
    assert shown.notes["7"] == "other"
    write_note(sweep, "7", "")
    assert read_notes(sweep) == {"2@3": "for the review <script>"}
    with pytest.raises(UserError, match="note = 4,001 characters: allowed: up to 4,000"):
        write_note(sweep, "7", "x" * (MAX_NOTE + 1))
    (sweep.folder / "notes.json").write_text("[1]")
    with pytest.raises(BrokenFile, match=r"notes\.json is broken"):
        read_notes(sweep)
    assert "notes.json" in source.read()[1].problem, "and the page goes on with what it had"
    (sweep.folder / "notes.json").unlink()
