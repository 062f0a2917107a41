"""One configuration of a sweep: the recommended one within limits, or the one that a person names."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edp.spec import UserError
from sweeps.formatting.figures import epsilon_over, epsilon_words, users_remark
from sweeps.formatting.names import check_model_name
from sweeps.formatting.outputs import check_output, is_printed, output
from sweeps.recipes.loading import as_yaml
from sweeps.results.choice import choose, named_point, picked_spec
from sweeps.results.recommendation import largest_epsilon
from sweeps.state.picks import Pick, heading_of, read_picks, write_pick
from sweeps.state.records import Point
from sweeps.state.storage import train_line
from sweeps.state.sweep import Sweep
from sweeps.tracking.run_tags import person
from sweeps.tracking.tracker import Tracker

if TYPE_CHECKING:
    from sweeps.registry.register import Registered  # which takes seconds to import

Alias = Literal["candidate", "champion"]
"""What a version is called in the registry: one to try, and the one that is served."""


@dataclass(frozen=True)
class Wanted:
    """What is done with a configuration that is picked."""

    output: Path
    model_name: str | None = None
    """The model is registered under this name."""
    alias: Alias = "candidate"
    """The registered version's."""
    with_encoder: bool = False
    force: bool = False
    """Whether a file at `output` is replaced, whatever it is."""
    require_guarantee: bool = False
    tracking_uri: str | None = None
    """Of the store that holds the runs, where it has moved since the sweep."""

    def __post_init__(self) -> None:
        if self.model_name is not None:
            check_model_name(self.model_name)


def pick(sweep: Sweep, limits: dict[str, float], path: Path, tracking_uri: str | None = None) -> Point:
    """Chooses a configuration within limits, and writes it to `path`.

    Raises:
        UserError: as `pick_point`.
    """
    return pick_point(sweep, limits, Wanted(path, tracking_uri=tracking_uri))[0]


def pick_point(
    sweep: Sweep,
    limits: dict[str, float],
    wanted: Wanted,
    named: str | None = None,
    ask: Callable[[str], bool] = lambda question: True,
) -> tuple[Point, str, Registered | None]:
    """Chooses a configuration within limits, or takes the one that is named; keeps it, and registers its model.

    Args:
        ask: whether a model without a guarantee may be registered.

    Returns:
        The point, why it is that one, and the registered version.

    Raises:
        UserError: when nothing fits, when a guarantee is required and there is none, or as `keep`.
    """
    for name, value in limits.items():
        if not 0 <= value < math.inf:
            raise UserError(f"--max-{name.replace('_', '-')} = {value}: allowed: a number of at least 0")
    if named is not None and limits:
        raise UserError(f"point = {named!r}: limits choose a point, too; allowed: a point, or limits")
    if named is not None:
        point, why = named_point(sweep, named), "A person named it."
    else:
        point, why = choose(sweep, limits)
    if (lacks := without_guarantee(sweep, point)) is not None:
        if wanted.require_guarantee:
            raise UserError(f"--require-guarantee: {lacks}; allowed: another point, wider limits, or without it")
        if wanted.model_name is not None and not ask(lacks):
            raise UserError(f"--register = {wanted.model_name!r}: {lacks}; it was not registered")
    model = keep(sweep, point, why, wanted, limits)
    return point, why, model


def without_guarantee(sweep: Sweep, point: Point) -> str | None:
    """What a point lacks to be one with a guarantee; None for one that has it."""
    most, found = largest_epsilon(sweep.recipe.edp.epsilon), point.metrics["epsilon"]
    if found <= most:
        return None
    return f"trial {point.name} has no guarantee: its ε is {epsilon_over(found, most)}, not <= {most:.4g}"


def keep(
    sweep: Sweep, point: Point, why: str, wanted: Wanted, limits: dict[str, float] | None = None
) -> Registered | None:
    """Writes a chosen configuration, which `edp-sweep train` accepts; says in MLflow and in the sweep's folder who
    chose it, when and why; and registers its model, where a name is wanted.

    Raises:
        UserError: when the file is there already or cannot be written, the store cannot be opened, or the model cannot
            be registered, which is found out before anything is written but for a model's own faults.
    """
    check_output(wanted.output)
    record = sweep.record
    if not os.access(sweep.folder, os.W_OK):
        raise UserError(
            f"name = {sweep.name!r}: {sweep.folder} cannot be written, and keeps who picked what; "
            "allowed: a sweep of yours, or a copy of it"
        )
    text = _configuration(sweep, point, wanted)
    _check_there(wanted, text)
    # First: where the model cannot be registered, or the store or earlier picks not be read, nothing is written.
    if wanted.model_name is not None:
        from sweeps.registry.register import check_point, register_point

        check_point(sweep, point, wanted.model_name)
    read_picks(sweep)
    uri = wanted.tracking_uri or record.tracking_uri
    tracker = Tracker(uri, record.recipe, sweep.folder.parent / "mlflow-artifacts", new=False)
    is_new = not is_printed(wanted.output) and not wanted.output.exists()
    with output(wanted.output) as file:
        file.write(text)
    made = Pick(
        trial=point.trial,
        epoch=point.epoch,
        by=person(),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        limits=limits or {},
        why=why,
        wrote=None if is_printed(wanted.output) else hashlib.sha256(text.encode()).hexdigest(),
    )
    try:
        write_pick(sweep, made)
    except OSError:
        if is_new:
            wanted.output.unlink(missing_ok=True)  # it would pass for a pick
        raise
    if point.run_id is not None:
        for earlier in tracker.marked(record.run_id, "picked") - {point.run_id}:
            tracker.tag(earlier, {"picked": "false"})
        tracker.tag(point.run_id, _tags(made))
    if wanted.model_name is None:
        return None
    try:
        model = register_point(
            sweep, point, wanted.model_name, uri, with_encoder=wanted.with_encoder, alias=wanted.alias, picked=made
        )
    except UserError as error:
        raise UserError(f"{error}; trial {point.name} is picked, and its configuration written") from None
    write_pick(sweep, made.model_copy(update={"model": model.uri}), instead_of=made)
    return model


def _configuration(sweep: Sweep, point: Point, wanted: Wanted) -> str:
    """The file's text."""
    metrics, storage = point.metrics, sweep.folder.parent
    uri = wanted.tracking_uri or sweep.record.tracking_uri
    file = "FILE" if is_printed(wanted.output) else wanted.output
    heading = (
        f"{heading_of(sweep.name, point.trial, point.epoch, point.run_id)}\n"
        f"SER {metrics['ser']:.4f}, MIA AUC {metrics['mia_auc']:.4f}.\n"
        f"{', '.join(epsilon_words(metrics))}, at δ = {metrics['delta']:g}.\n"
        f"{''.join(f'{words.capitalize()}.{chr(10)}' for words in users_remark(metrics))}"
        f"Train it again with: {train_line(file, storage=storage, tracking_uri=uri)}"
    )
    return as_yaml(picked_spec(point), heading)


def is_pick(sweep: Sweep, path: Path) -> bool:
    """Whether the file is what an earlier pick of the sweep wrote, and nobody has changed it since."""
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return False
    return digest in {pick.wrote for pick in read_picks(sweep)}


def _check_there(wanted: Wanted, text: str) -> None:
    """Refuses to replace a file that says anything else."""
    path = wanted.output
    if wanted.force or is_printed(path) or not path.is_file():
        return
    try:
        same = path.read_text(encoding="utf-8") == text
    except (OSError, UnicodeDecodeError):
        same = False
    if not same:
        raise UserError(f"--output = {str(path)!r}: it is there already; allowed: another file, or --force")


def _tags(pick: Pick) -> dict[str, str]:
    limits = ", ".join(f"{name} <= {most:g}" for name, most in pick.limits.items())
    return {
        "picked": "true",
        "picked_epoch": str(pick.epoch),
        "picked_at": pick.at,
        "picked_by": pick.by,
        "picked_limits": limits or "none",
        "picked_rule": pick.why,
    }
