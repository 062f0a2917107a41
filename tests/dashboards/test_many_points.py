"""A sweep of thousands of points opens fast, and its dominated points look and answer as the others do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from dashboards.pareto.app import create
from dashboards.pareto.data import Snapshot
from dashboards.pareto.dense import MANY, dense, label, legend
from dashboards.pareto.parallel import parallel
from dashboards.pareto.scatter import scatter
from dashboards.pareto.source import Source
from tests.benchmarks.page import Grown
from tests.support.browser import served, settled, window
from tests.support.synthetic import sweep_of

POINTS = 2_000

PLACE = """(key) => {
  const chart = document.querySelector("#first .js-plotly-plot"), { xaxis, yaxis } = chart._fullLayout;
  const box = chart.getBoundingClientRect();
  for (const trace of chart.data.filter((one) => one.mode === "none")) {
    const i = trace.customdata.indexOf(key);
    if (i >= 0) return [box.x + xaxis._offset + xaxis.d2p(trace.x[i]), box.y + yaxis._offset + yaxis.d2p(trace.y[i])];
  }
}"""
"""The place of a dominated point on the screen."""

ALONE = """() => {
  const chart = document.querySelector("#first .js-plotly-plot"), { xaxis, yaxis } = chart._fullLayout;
  const places = chart.data.filter((trace) => trace.customdata).flatMap((trace) => trace.customdata.map((key, i) => (
    { key, none: trace.mode === "none", x: xaxis.d2p(trace.x[i]), y: yaxis.d2p(trace.y[i]) })));
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
        page.wait_for_selector("#first .dense path", state="attached")
        page.wait_for_load_state("networkidle")
        yield page


@pytest.mark.slow
def test_a_dominated_point_is_named_under_the_pointer_selected_by_a_click_and_drawn_in_a_picture(
    tab: Any, found: Snapshot
) -> None:
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

    with tab.expect_download() as download:
        tab.locator("#first .modebar-btn[data-title^=Download]").click(force=True)
    assert download.value.suggested_filename == "newplot.png"
    # The legend hides the dominated points, and shows them again.
    tab.locator("#first .legendtoggle").first.click(force=True)
    tab.wait_for_selector("#first .dense path", state="detached")
    tab.locator("#first .legendtoggle").first.click(force=True)
    tab.wait_for_selector("#first .dense path", state="attached")


@pytest.mark.slow
def test_the_parallel_coordinates_are_drawn_when_they_are_scrolled_to(tab: Any) -> None:
    assert tab.locator("#parallel :is(.js-line, .dense)").count() == 0
    tab.locator("#parallel-card").scroll_into_view_if_needed()
    tab.wait_for_selector("#parallel .dense path", state="attached")
    assert tab.locator("#parallel path.js-line").count() < POINTS / 2
    tab.click("#toggle")  # drawn anew, in other colours
    tab.wait_for_function(
        """() => document.querySelector("#parallel .dense path").style.stroke === "rgb(143, 155, 171)" """
    )


def test_only_dominated_points_beyond_a_number_are_drawn_by_the_page(found: Snapshot) -> None:
    axes = found.axes
    few = replace(found, candidates=dict([*found.candidates.items()][:MANY]))
    for one, modes in ((few, {"markers"}), (found, {"markers", "none"})):
        figure = scatter(one, {}, axes["ser"], axes["mia_auc"], axes["epsilon"], "light")
        traces = [trace for trace in figure["data"] if trace.get("customdata")]
        assert {trace["mode"] for trace in traces} == modes
        assert {key for trace in traces for key in trace["customdata"]} == set(one.candidates)
        assert [trace["mode"] for trace in traces if "Pareto" in trace["name"]] == ["markers"]
    lines = parallel(found, {}, list(axes.values()), axes["epsilon"], "dark")["data"]
    assert [line["mode"] for line in lines if line["name"] == "dominated"] == ["none"]


def test_a_dense_trace_keeps_its_look_and_a_legend_without_points_stands_for_it() -> None:
    trace = {
        "type": "scatter",
        "mode": "markers",
        "name": "dominated",
        "legendgroup": "dominated",
        "opacity": 0.65,
        "x": [0.123456789, "full"],
        "y": [1, 2.0],
        "meta": {"x": [(0.1, 0.123456789), None], "y": [], "axes": "ser"},
        "marker": {"symbol": "circle-open", "color": [1.23456789, 2.0], "cmin": 1},
        "showlegend": True,
    }
    made = dense(trace)
    assert made["mode"] == "none"
    assert made["x"] == [0.123457, "full"]
    assert made["meta"] == {"x": [[0.1, 0.123457], None], "y": [], "axes": "ser"}
    assert made["marker"] == {"symbol": "circle-open", "color": [1.23457, 2.0], "cmin": 1}
    assert not made["showlegend"]
    shown = legend(trace)
    assert (shown["x"], shown["marker"]["color"]) == ([None], [1.23456789])
    assert shown["legendgroup"] == made["legendgroup"]


@pytest.fixture(scope="module")
def client(source: Source, tmp_path_factory: pytest.TempPathFactory) -> FlaskClient:
    output = tmp_path_factory.mktemp("here") / "picked.yaml"
    return create(source, output=output, hosts={"localhost"}).server.test_client()


def test_the_label_of_a_point_is_served_and_nothing_else(client: FlaskClient, found: Snapshot) -> None:
    key = next(key for key, candidate in found.candidates.items() if not candidate.on_front)
    answer = client.get("/hover", query_string={"point": key, "axes": "ser,epsilon"})
    assert answer.text == label(found.candidates[key], [found.axes["ser"], found.axes["epsilon"]])
    assert answer.content_type.startswith("text/plain")
    for point, axes in (("nowhere", "ser"), (key, "ser,nothing"), (key, "")):
        assert client.get("/hover", query_string={"point": point, "axes": axes}).status_code == 404
    assert client.get("/hover").status_code == 404


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
