"""One configuration of the front: by limits, and where several fit, the one closest to the ideal point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from edp.spec import UserError
from sweeps.front import epsilon_words, pareto_front
from sweeps.records import Point
from sweeps.settings import write_yaml
from sweeps.spec import Objective, Recipe, objective_values
from sweeps.store import Sweep
from sweeps.tracking import Tracker
from trainables.spec import TrialSpec


def choose(front: Sequence[Point], objectives: tuple[Objective, ...], limits: dict[str, float]) -> Point:
    """The point within `limits` (metric name to largest value) that is closest to the ideal point.

    Each objective is scaled to the front's range, 0 being its best; the distance is Euclidean.

    Raises:
        UserError: when none fits, with the best value that there is for each limit.
    """
    if not front:
        raise UserError("the sweep has no complete trial, so there is nothing to pick; allowed: a sweep with a front")
    fitting = [p for p in front if all(p.metrics.get(name, math.inf) <= most for name, most in limits.items())]
    if not fitting:
        best = ", ".join(
            f"{name} <= {most:g} (the front's lowest: {min(p.metrics.get(name, math.inf) for p in front):.4g})"
            for name, most in limits.items()
        )
        raise UserError(f"nothing on the front fits {best}; allowed: wider limits")
    values = [objective_values(objectives, p.metrics) for p in front]
    low = [min(column) for column in zip(*values, strict=True)]
    high = [max(column) for column in zip(*values, strict=True)]

    def distance(point: Point) -> float:
        place = objective_values(objectives, point.metrics)
        return math.hypot(*((v - a) / (b - a) if b > a else 0.0 for v, a, b in zip(place, low, high, strict=True)))

    return min(fitting, key=distance)


def pick(sweep: Sweep, limits: dict[str, float], output: Path, tracking_uri: str | None = None) -> Point:
    """Chooses a configuration within limits, and keeps it.

    Raises:
        UserError: when nothing fits, or as `keep`.
    """
    recipe = sweep.recipe
    for name, value in limits.items():
        if math.isnan(value) or value < 0:
            raise UserError(f"--max-{name.replace('_', '-')} = {value}: allowed: a number of at least 0")
    point = choose(pareto_front(sweep.trials(), recipe.search.objectives), recipe.search.objectives, limits)
    keep(sweep, point, output, tracking_uri)
    return point


def picked_spec(recipe: Recipe, point: Point) -> TrialSpec:
    """What trains `point` again: its trial's configuration, for as many epochs as the point had."""
    params = {**point.params, "training.epochs": point.epoch}
    planned = recipe.trial(point.params).training
    if planned.learning_rate_decay != "none" and point.epoch < planned.epochs:
        params["training.decay_epochs"] = planned.decay_epochs or planned.epochs
    return recipe.trial(params)


def keep(sweep: Sweep, point: Point, output: Path, tracking_uri: str | None = None) -> None:
    """Writes a chosen configuration, which `edp-sweep train` accepts; tags its run `picked=true`, `picked_epoch`.

    Args:
        tracking_uri: of the store that holds the run, where it has moved since the sweep.

    Raises:
        UserError: when the file cannot be written, or the store cannot be opened.
    """
    metrics = point.metrics
    heading = (
        f"Trial {point.trial} of sweep {sweep.name} after epoch {point.epoch}, MLflow run {point.run_id}.\n"
        f"SER {metrics['ser']:.4f}, MIA AUC {metrics['mia_auc']:.4f}.\n"
        f"{', '.join(epsilon_words(metrics))}, at δ = {metrics['delta']:g}.\n"
        f"Train it again with: edp-sweep train {output}"
    )
    try:
        write_yaml(picked_spec(sweep.recipe, point), output, heading)
    except OSError as error:
        raise UserError(f"--output = {str(output)!r}: {error.strerror}; allowed: a file that can be written") from None
    if point.run_id is not None:
        record, now = sweep.record, datetime.now(UTC).isoformat(timespec="seconds")
        tracker = Tracker(tracking_uri or record.tracking_uri, record.recipe, sweep.folder.parent / "mlflow-artifacts")
        tracker.tag(point.run_id, {"picked": "true", "picked_epoch": str(point.epoch), "picked_at": now})
