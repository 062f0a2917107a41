"""One configuration of the front: by limits, and where several fit, the one closest to the ideal point."""

from __future__ import annotations

import math
from pathlib import Path

from edp.spec import UserError
from sweeps.front import epsilon_text, pareto_front
from sweeps.settings import write_yaml
from sweeps.spec import Objective, objective_values
from sweeps.store import Sweep, TrialRecord
from sweeps.tracking import Tracker


def choose(front: list[TrialRecord], objectives: tuple[Objective, ...], limits: dict[str, float]) -> TrialRecord:
    """The trial within `limits` (metric name to largest value) that is closest to the ideal point.

    Each objective is scaled to the front's range, 0 being its best; the distance is Euclidean.

    Raises:
        UserError: when none fits, with the best value that there is for each limit.
    """
    if not front:
        raise UserError("the sweep has no complete trial, so there is nothing to pick; allowed: a sweep with a front")
    fitting = [t for t in front if all(t.metrics.get(name, math.inf) <= most for name, most in limits.items())]
    if not fitting:
        best = ", ".join(
            f"{name} <= {most:g} (the front's lowest: {min(t.metrics.get(name, math.inf) for t in front):.4g})"
            for name, most in limits.items()
        )
        raise UserError(f"no trial of the front fits {best}; allowed: wider limits")
    points = {t.number: objective_values(objectives, t.metrics) for t in front}
    low = [min(column) for column in zip(*points.values(), strict=True)]
    high = [max(column) for column in zip(*points.values(), strict=True)]

    def distance(trial: TrialRecord) -> float:
        return math.hypot(
            *((v - a) / (b - a) if b > a else 0.0 for v, a, b in zip(points[trial.number], low, high, strict=True))
        )

    return min(fitting, key=distance)


def pick(sweep: Sweep, limits: dict[str, float], output: Path, tracking_uri: str | None = None) -> TrialRecord:
    """Chooses a configuration within limits, and keeps it.

    Raises:
        UserError: when nothing fits, or as `keep`.
    """
    recipe = sweep.recipe
    for name, value in limits.items():
        if math.isnan(value) or value < 0:
            raise UserError(f"--max-{name.replace('_', '-')} = {value}: allowed: a number of at least 0")
    trial = choose(pareto_front(sweep.trials(), recipe.search.objectives), recipe.search.objectives, limits)
    keep(sweep, trial, output, tracking_uri)
    return trial


def keep(sweep: Sweep, trial: TrialRecord, output: Path, tracking_uri: str | None = None) -> None:
    """Writes a chosen configuration, which `edp-sweep train` accepts, and tags its run `picked=true`.

    Args:
        tracking_uri: of the store that holds the run, where it has moved since the sweep.

    Raises:
        UserError: when the file cannot be written, or the store cannot be opened.
    """
    metrics = trial.metrics
    heading = (
        f"Trial {trial.number} of sweep {sweep.name}, MLflow run {trial.run_id}.\n"
        f"SER {metrics['ser']:.4f}, MIA AUC {metrics['mia_auc']:.4f}, "
        f"epsilon {epsilon_text(metrics['epsilon'])} at delta {metrics['delta']:g}.\n"
        f"Train it again with: edp-sweep train {output}"
    )
    try:
        write_yaml(sweep.recipe.trial(trial.params), output, heading)
    except OSError as error:
        raise UserError(f"--output = {str(output)!r}: {error.strerror}; allowed: a file that can be written") from None
    if trial.run_id is not None:
        record = sweep.record
        tracker = Tracker(tracking_uri or record.tracking_uri, record.recipe, sweep.folder.parent / "mlflow-artifacts")
        tracker.tag(trial.run_id, {"picked": "true"})
