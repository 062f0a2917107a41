"""The Grafana dashboard names metrics that exist; `tests.end_to_end.test_sweep` holds them against a sweep's export."""

from __future__ import annotations

import re

from tests.support.grafana import FILE, ONLY_WITH_A_GPU, named_metrics


def test_what_only_a_gpu_makes_ray_export_is_among_rays_own_metrics() -> None:
    from ray.dashboard.modules.reporter.reporter_agent import METRICS_GAUGES

    assert {name.removeprefix("ray_") for name in ONLY_WITH_A_GPU} <= set(METRICS_GAUGES)
    assert named_metrics() >= ONLY_WITH_A_GPU


def test_every_metric_of_the_sweeps_own_is_drawn() -> None:
    source = (FILE.parents[2] / "sweeps" / "engine" / "prometheus.py").read_text()
    gauges = set(re.findall(r'Gauge, "(\w+)"', source))
    counters = {f"{name}_total" for name in re.findall(r'Counter, "(\w+)"', source)}
    drawn = {n.removeprefix("ray_edp_sweep_") for n in named_metrics() if n.startswith("ray_edp_sweep_")}
    assert drawn == gauges | counters
