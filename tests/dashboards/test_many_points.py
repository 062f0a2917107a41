"""A sweep of thousands of points opens fast, and its dominated points look and answer as the others do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dashboards.pareto.data import Snapshot
from dashboards.pareto.scatter import MANY, scatter
from dashboards.pareto.source import Source
from tests.benchmarks.page import Grown
from tests.support.browser import served, settled, window
from tests.support.synthetic import sweep_of

POINTS = 2_000

PLACE = """(key) => {
  const chart = document.querySelector("#first .js-plotly-plot"), { xaxis, yaxis } = chart._fullLayout;
  const box = chart.getBoundingClientRect();
  for (const trace of chart.data.filter((one) => one.type === "scattergl")) {
    const i = trace.customdata.indexOf(key);
    if (i >= 0) return [box.x + xaxis._offset + xaxis.d2p(trace.x[i]), box.y + yaxis._offset + yaxis.d2p(trace.y[i])];
  }
}"""
"""The place of a dominated point on the screen."""

ALONE = """() => {
  const chart = document.querySelector("#first .js-plotly-plot"), { xaxis, yaxis } = chart._fullLayout;
  const places = chart.data.filter((trace) => trace.customdata).flatMap((trace) => trace.customdata.map((key, i) => (
    { key, none: trace.type === "scattergl", x: xaxis.d2p(trace.x[i]), y: yaxis.d2p(trace.y[i]) })));
  const inside = places.filter(({ x, y }) => x > 9 && y > 9 && x < xaxis._length - 9 && y < yaxis._length - 9);
  const apart = ({ x, y }) => Math.min(...inside.map((one) => Math.hypot(one.x - x, one.y - y) || Infinity));
  return inside.filter((one) => one.none).sort((a, b) => apart(b) - apart(a))[0].key;
}"""
"""The dominated point that is farthest from all others."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("runs")
    sweep_of(folder, "made", 20, tracked=False)
    return Source(Grown(folder, POINTS // 2))


@pytest.fixture(scope="module")
def found(source: Source) -> Snapshot:
    return source.read()[1]


@pytest.fixture
def tab(chromium: Any, source: Source, tmp_path: Path) -> Iterator[Any]:
    """A window of the page; what it complains of fails the test."""
    with served(source, tmp_path) as url, window(chromium, 1400) as page:
        page.goto(url)
        page.wait_for_selector("#first .gl-canvas", state="attached")
        page.wait_for_load_state("networkidle")
        yield page


@pytest.mark.slow
def test_a_dominated_point_is_named_under_the_pointer_and_selected_by_a_click(tab: Any, found: Snapshot) -> None:
    assert tab.locator("#first path.point").count() < POINTS / 2, "an element for each point takes seconds"
    key = tab.evaluate(ALONE)
    candidate = found.candidates[key]
    tab.locator("#first").scroll_into_view_if_needed()
    tab.mouse.move(*tab.evaluate(PLACE, key))
    words = "([words]) => document.querySelector('#first .hoverlayer').textContent.includes(words)"
    tab.wait_for_function(words, arg=[f"{candidate.name} (dominated)"])
    assert "decay" in tab.text_content("#first .hoverlayer"), "the settings"
    tab.mouse.down()
    tab.mouse.up()
    settled(tab, "#chosen", candidate.name)
    tab.wait_for_function("() => document.querySelector('#first .js-plotly-plot').layout.shapes.some(s => s.name)")


def test_only_dominated_points_beyond_a_number_are_drawn_by_webgl(found: Snapshot) -> None:
    axes = found.axes
    few = replace(found, candidates=dict([*found.candidates.items()][:MANY]))
    for one, types in ((few, {"scatter"}), (found, {"scatter", "scattergl"})):
        figure = scatter(one, {}, axes["ser"], axes["mia_auc"], axes["epsilon"], "light")
        traces = [trace for trace in figure["data"] if trace.get("customdata")]
        assert {trace["type"] for trace in traces} == types
        assert {key for trace in traces for key in trace["customdata"]} == set(one.candidates)
        assert [trace["type"] for trace in traces if "Pareto" in trace["name"]] == ["scatter"]


def test_what_is_computed_of_a_sweep_is_kept_until_it_changes(source: Source) -> None:
    calls: list[str] = []

    def size(snapshot: Snapshot, word: str) -> int:
        calls.append(word)
        return len(snapshot.candidates)

    assert [source.computed(size, word) for word in "aba"] == [POINTS] * 3
    assert calls == ["a", "b"]
    source._kept = replace(source.read()[1], candidates={})
    assert source.computed(size, "a") == 0
    source._kept = None
