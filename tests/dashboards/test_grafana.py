"""The Grafana dashboard names metrics that exist; `tests.end_to_end.test_sweep` holds them against a sweep's export."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Any

import pytest

from tests.support.grafana import FILE, ONLY_WITH_A_GPU, named_metrics


@pytest.fixture(scope="module")
def panels() -> list[dict[str, Any]]:
    return json.loads(FILE.read_text())["panels"]


def test_panels_stand_side_by_side_within_the_grid(panels: list[dict[str, Any]]) -> None:
    places = [panel["gridPos"] for panel in panels]
    assert all(p["x"] >= 0 and p["x"] + p["w"] <= 24 and p["w"] > 0 and p["h"] > 0 for p in places)
    for a, b in combinations(places, 2):
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, (a, b)
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_every_panel_has_a_title_a_unit_and_queries_that_close_their_brackets(panels: list[dict[str, Any]]) -> None:
    for panel in panels:
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        for target in panel["targets"]:
            for left, right in ("()", "{}", "[]"):
                assert target["expr"].count(left) == target["expr"].count(right) > -1
            assert target["legendFormat"]


def test_what_only_a_gpu_makes_ray_export_is_among_rays_own_metrics() -> None:
    from ray.dashboard.modules.reporter.reporter_agent import METRICS_GAUGES

    assert {name.removeprefix("ray_") for name in ONLY_WITH_A_GPU} <= set(METRICS_GAUGES)
    assert named_metrics() >= ONLY_WITH_A_GPU


def test_every_metric_of_the_sweeps_own_is_drawn() -> None:
    source = (FILE.parents[2] / "sweeps" / "progress" / "prometheus.py").read_text()
    gauges = set(re.findall(r'gauge\("(\w+)"', source))
    counters = {f"{name}_total" for name in re.findall(r'counter\("(\w+)"', source)}
    drawn = {n.removeprefix("ray_edp_sweep_") for n in named_metrics() if n.startswith("ray_edp_sweep_")}
    assert drawn == gauges | counters
