"""A chart opens on the decision: nothing without a guarantee takes the place of the points that matter."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from dashboards.pareto import parts
from dashboards.pareto.data import METRICS, PageData, drawable, snapshot
from dashboards.pareto.scatter import scatter, view_of
from dashboards.pareto.selection import free_file
from sweeps.registry.pick import Wanted, keep
from sweeps.results.front import Candidate
from sweeps.results.snapshot import Snapshot
from sweeps.store.sweep import Sweep
from tests.support.synthetic import sweep_of

AXES = {axis.key: axis for axis in METRICS}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return sweep_of(tmp_path_factory.mktemp("runs"), "made", 4, tracked=False)


def of(sweep: Sweep, *metrics: dict[str, float], baseline: dict[str, float] | None = None) -> PageData:
    """Return a snapshot whose candidates, all of them on the front, have these metrics."""
    found = snapshot(sweep)
    some = list(found.candidates.values())[: len(metrics)]
    every = [Candidate(replace(c.point, metrics=of), None) for c, of in zip(some, metrics, strict=True)]
    axes = drawable(every)
    return found.changed(candidates={c.key: c for c in every}, axes=axes, baseline=baseline or {})


def point(ser: float, auc: float = 0.5, epsilon: float = 8.0, half: float = 0.0) -> dict[str, float]:
    found = {"ser": ser, "valid_ser": ser, "mia_auc": auc, "valid_mia_auc": auc, "epsilon": epsilon}
    return found | {"valid_mia_auc_lower": auc - half, "valid_mia_auc_upper": auc + half, "delta": 1e-5}


def ranges(found: PageData, x: str, y: str) -> list[tuple[float, float]]:
    layout = scatter(found, {}, AXES[x], AXES[y], AXES["epsilon"])["layout"]
    return [tuple(layout[axis]["range"]) for axis in ("xaxis", "yaxis")]


def test_what_guarantees_nothing_does_not_set_an_axis_and_that_is_said(sweep: Sweep) -> None:
    good = [point(0.20, 0.50), point(0.21, 0.51), point(0.22, 0.52), point(0.23, 0.50)]
    found = of(sweep, *good, point(0.1, epsilon=1e6))
    (_, right), _ = ranges(found, "epsilon", "valid_ser")
    assert right < math.log10(20)
    assert view_of(found, AXES["epsilon"], AXES["valid_ser"], {}).note().startswith("1 of 5 points is outside")
    assert view_of(of(sweep, *good), AXES["epsilon"], AXES["valid_ser"], {}).note() == ""
    alone = of(sweep, *(point(0.2 + 0.1 * i, epsilon=1e6) for i in range(3)))
    assert view_of(alone, AXES["epsilon"], AXES["valid_ser"], {}).outside == [], "there is nothing else to show"


def test_an_ser_of_several_magnitudes_has_a_logarithmic_axis(sweep: Sweep) -> None:
    found = of(sweep, point(0.017), point(0.016), point(0.54), baseline={"valid_ser": 0.014})
    layout = scatter(found, {}, AXES["epsilon"], AXES["valid_ser"], AXES["valid_mia_auc"])["layout"]
    assert layout["yaxis"]["type"] == "log"
    low, high = layout["yaxis"]["range"]
    assert low < math.log10(0.014) < math.log10(0.54) < high, "SGD's line and the bad point are in it"
    near = scatter(of(sweep, point(0.2), point(0.5)), {}, AXES["epsilon"], AXES["valid_ser"], AXES["epsilon"])
    assert near["layout"]["yaxis"]["type"] == "linear"
    with_zero = of(sweep, point(0.0), point(0.5))
    assert len(view_of(with_zero, AXES["epsilon"], AXES["valid_ser"], {}).drawn) == 2, "an SER of 0 is drawn"


def test_limits_that_exclude_the_selected_point_are_named(sweep: Sweep) -> None:
    found = of(sweep, point(0.5, epsilon=8.0), point(0.2, epsilon=300.0))
    one, other = found.candidates.values()
    limits = {"ser": 0.3, "epsilon": 100.0}
    assert parts.outside_line(found, one, limits) == (
        f"{one.name} is outside the limits: SER (validation) 50.0% (limit: 30.0%)."
    )
    assert "ε (honest) 300 (limit: 100)" in parts.outside_line(found, other, limits)
    assert parts.outside_line(found, one, {}) == ""
    known = found.changed(again={one.key: {"valid_ser": 0.25}})
    assert parts.outside_line(known, one, limits) == "", "new seeds decide, as in the recommendation"


@pytest.mark.parametrize(
    ("key", "value", "plain", "shown"),
    [
        ("valid_ser", 0.0167, 0.0134, "+0.3 points"),
        ("valid_ser", 0.54, 0.0134, "+52.7 points"),
        ("ser", 0.01340001, 0.0134001, "+0.0 points"),
        ("mia_auc", 0.4999, 0.5001, "+0.000"),
        ("mia_auc", 0.52, 0.57, "-0.050"),
        ("worker_seconds", 21.0, 30.0, "× 0.7"),
        ("epsilon", 8.0, 9.0, ""),
    ],
)
def test_differences_to_sgd_are_in_points_and_not_in_percent_of_a_small_figure(
    key: str, value: float, plain: float, shown: str
) -> None:
    assert AXES[key].change(value, plain) == shown


@pytest.mark.slow
def test_pick_takes_another_name_where_the_file_is_not_a_pick_of_this_sweep(tmp_path: Path) -> None:
    made = sweep_of(tmp_path / "runs", "made", 2)
    output = tmp_path / "picked.yaml"
    assert free_file(made, output) == output
    one, other = [point for trial in made.trials() for point in trial.points][:2]
    keep(Snapshot(made), one, "A person chose it.", Wanted(output))
    assert free_file(made, output) == output, "its own pick can be repeated"
    output.write_text("mine: true\n")
    assert free_file(made, output) == tmp_path / "picked-2.yaml"
    keep(Snapshot(made), other, "A person chose it.", Wanted(tmp_path / "picked-2.yaml"))
    assert free_file(made, output) == tmp_path / "picked-2.yaml"
    (tmp_path / "picked-2.yaml").write_text("mine: too\n")
    assert free_file(made, output) == tmp_path / "picked-3.yaml"
