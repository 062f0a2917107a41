"""One configuration of the front: by limits, and where several fit, the one closest to the ideal point."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path

from edp.spec import UserError
from sweeps.formatting.figures import epsilon_words, users_remark
from sweeps.formatting.outputs import check_output, is_printed, output
from sweeps.recipes.loading import as_yaml
from sweeps.results.choice import choose, picked_spec
from sweeps.results.front import pareto_front
from sweeps.state.records import Point
from sweeps.state.shell import train_line
from sweeps.state.sweep import Sweep
from sweeps.tracking.tracker import Tracker


def pick(sweep: Sweep, limits: dict[str, float], path: Path, tracking_uri: str | None = None) -> Point:
    """Chooses a configuration within limits, and keeps it.

    Raises:
        UserError: when nothing fits, or as `keep`.
    """
    check_output(path)
    recipe = sweep.recipe
    for name, value in limits.items():
        if math.isnan(value) or value < 0:
            raise UserError(f"--max-{name.replace('_', '-')} = {value}: allowed: a number of at least 0")
    point = choose(pareto_front(sweep.trials(), recipe.search.objectives), recipe.search.objectives, limits)
    keep(sweep, point, path, tracking_uri)
    return point


def keep(sweep: Sweep, point: Point, path: Path, tracking_uri: str | None = None) -> None:
    """Writes a chosen configuration, which `edp-sweep train` accepts; tags its run `picked=true`, `picked_epoch`.

    Args:
        tracking_uri: of the store that holds the run, where it has moved since the sweep.

    Raises:
        UserError: when the file cannot be written, or the store cannot be opened.
    """
    record, now = sweep.record, datetime.now(UTC).isoformat(timespec="seconds")
    # First: where the store cannot be opened, nothing is written.
    storage, uri = sweep.folder.parent, tracking_uri or record.tracking_uri
    tracker = Tracker(uri, record.recipe, storage / "mlflow-artifacts", new=False)
    metrics = point.metrics
    heading = (
        f"Trial {point.trial} of sweep {sweep.name} after epoch {point.epoch}, MLflow run {point.run_id}.\n"
        f"SER {metrics['ser']:.4f}, MIA AUC {metrics['mia_auc']:.4f}.\n"
        f"{', '.join(epsilon_words(metrics))}, at δ = {metrics['delta']:g}.\n"
        f"{''.join(f'{words.capitalize()}.{chr(10)}' for words in users_remark(metrics))}"
        f"Train it again with: {train_line('FILE' if is_printed(path) else path, storage=storage, tracking_uri=uri)}"
    )
    with output(path) as file:
        file.write(as_yaml(picked_spec(sweep.recipe, point), heading))
    if point.run_id is not None:
        tracker.tag(point.run_id, {"picked": "true", "picked_epoch": str(point.epoch), "picked_at": now})
