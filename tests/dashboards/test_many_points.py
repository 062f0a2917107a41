"""A sweep of thousands of points opens fast, and its dominated points look and answer as the others do."""

from __future__ import annotations

import pytest

from dashboards.pareto.data import PageData
from dashboards.pareto.scatter import MANY, scatter
from dashboards.pareto.source import Source
from tests.benchmarks.page import Grown
from tests.support.synthetic import sweep_of

pytestmark = pytest.mark.slow  # to make the sweep

POINTS = 2_000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("runs")
    sweep_of(folder, "made", 20, tracked=False)
    return Source(Grown(folder, POINTS // 2))


@pytest.fixture(scope="module")
def found(source: Source) -> PageData:
    return source.read()[1]


def test_only_dominated_points_beyond_a_number_are_drawn_by_webgl(found: PageData) -> None:
    axes = found.axes
    few = found.changed(candidates=dict([*found.candidates.items()][:MANY]))
    for one, types in ((few, {"scatter"}), (found, {"scatter", "scattergl"})):
        figure = scatter(one, {}, axes["ser"], axes["mia_auc"], axes["epsilon"])
        traces = [trace for trace in figure["data"] if trace.get("customdata")]
        assert {trace["type"] for trace in traces} == types
        assert {key for trace in traces for key in trace["customdata"]} == set(one.candidates)
        assert [trace["type"] for trace in traces if "Pareto" in trace["name"]] == ["scatter"]


def test_what_is_computed_of_a_sweep_is_kept_until_it_changes(source: Source) -> None:
    calls: list[str] = []

    def size(snapshot: PageData, word: str) -> int:
        calls.append(word)
        return len(snapshot.candidates)

    assert [source.computed(size, word) for word in "aba"] == [POINTS] * 3
    assert calls == ["a", "b"]
    source._kept = source.read()[1].changed(candidates={})
    assert source.computed(size, "a") == 0
    source._kept = None
