"""Pick one configuration of a sweep: write it as a file, record who chose it, and register its model."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edp.spec import UserError
from sweeps.config.loading import as_yaml
from sweeps.registry.register import Registered, check_point, register_point
from sweeps.results.confirmed import seeds_words
from sweeps.results.headline import configuration_of, released_in_place_of
from sweeps.results.recommendation import largest_epsilon
from sweeps.results.snapshot import Snapshot
from sweeps.store.journal import now
from sweeps.store.picks import Pick, heading_of, read_picks, write_pick
from sweeps.store.records import Point
from sweeps.store.storage import train_line
from sweeps.store.sweep import Sweep
from sweeps.text.figures import FIGURES, deciding_cell, epsilon_text, epsilon_words, labels_remark, users_remark
from sweeps.text.paths import check_model_name, check_output, is_printed, output
from sweeps.tracking.run_tags import person
from sweeps.tracking.tracker import tracker_of


@dataclass(frozen=True)
class Wanted:
    """What to do with the picked configuration."""

    output: Path
    model_name: str | None = None
    """Name in the registry to register the model under; None: the model is not registered."""
    alias: str = "candidate"
    """Alias of the registered version."""
    with_encoder: bool = False
    force: bool = False
    """True to replace a file at `output`, whatever its content."""
    require_guarantee: bool = False
    tracking_uri: str | None = None
    """Store that holds the runs, if it has moved since the sweep."""

    def __post_init__(self) -> None:
        if self.model_name is not None:
            check_model_name(self.model_name)


def pick(sweep: Sweep, limits: dict[str, float], path: Path, tracking_uri: str | None = None) -> Point:
    """Choose a configuration within limits, and write it to `path`.

    Raises:
        UserError: as `pick_point`.
    """
    return pick_point(Snapshot(sweep), limits, Wanted(path, tracking_uri=tracking_uri))[0]


def pick_point(
    found: Snapshot,
    limits: dict[str, float],
    wanted: Wanted,
    named: str | None = None,
    ask: Callable[[str], bool] = lambda question: True,
) -> tuple[Point, str, Registered | None]:
    """Choose a configuration within limits, or take the named one. Write it and, if wanted, register its model.

    Args:
        ask: called before a model is registered that `objection` speaks against; returns True to go on.

    Returns:
        The point, the reason for it, and the registered version.

    Raises:
        UserError: if no point fits, or the released model does not, if a required guarantee is missing, or as `keep`.
    """
    for name, value in limits.items():
        if not 0 <= value < math.inf:
            raise UserError(f"--max-{name.replace('_', '-')} = {value}: allowed: a number of at least 0")
    if named is not None and limits:
        raise UserError(f"point = {named!r}: limits choose a point, too; allowed: either a point or limits")
    if named is not None:
        point, why = found.named(named), "A person named it."
    else:
        point, why = found.choose(limits)
    point = released_in_place_of(found, point)
    if wanted.require_guarantee and (lacks := without_guarantee(found, point)) is not None:
        raise UserError(f"--require-guarantee: {lacks}; allowed: another point, wider limits, or without it")
    if wanted.model_name is not None and (against := objection(found, point)) is not None and not ask(against):
        raise UserError(f"--register = {wanted.model_name!r}: {against}; it was not registered")
    model = keep(found, point, why, wanted, limits)
    return point, why, model


def without_guarantee(sweep: Snapshot, point: Point) -> str | None:
    """Return what a point lacks of a guarantee, in words; None for a point with a guarantee."""
    most, found = largest_epsilon(sweep.recipe.edp.epsilon), point.metrics["epsilon"]
    if found <= most:
        return None
    return f"trial {point.name} has no guarantee: its ε is {epsilon_text(found)}, not <= {most:g}"


def objection(sweep: Snapshot, point: Point) -> str | None:
    """Return what speaks against the registration of a point's model, in words; None for nothing."""
    lacks = without_guarantee(sweep, point)
    return None if lacks is None else f"{lacks} (--require-guarantee would refuse it)"


def keep(
    found: Snapshot, point: Point, why: str, wanted: Wanted, limits: dict[str, float] | None = None
) -> Registered | None:
    """Write a chosen configuration as a file for `edp-sweep train`, and register its model if a name is wanted.

    Record in MLflow and in the sweep's folder who chose it, when and why.

    Raises:
        UserError: if the file is there already or cannot be written, if the store cannot be opened, or if the model
            cannot be registered. Nothing was written then, unless the registration itself failed.
    """
    point, sweep, record = released_in_place_of(found, point), found.sweep, found.record
    check_output(wanted.output)
    if not os.access(sweep.folder, os.W_OK):
        raise UserError(
            f"name = {sweep.name!r}: {sweep.folder}, where picks are recorded, cannot be written; "
            "allowed: a sweep of yours, or a copy of it"
        )
    text = _configuration(found, point, wanted, limits or {})
    _check_there(wanted, text)
    # All checks come before the first file is written, so that a refusal leaves nothing behind.
    if wanted.model_name is not None:
        check_point(found, point, wanted.model_name)
    read_picks(sweep)
    uri = wanted.tracking_uri or record.tracking_uri
    tracker = tracker_of(sweep, uri)
    is_new = not is_printed(wanted.output) and not wanted.output.exists()
    with output(wanted.output) as file:
        file.write(text)
    made = Pick(
        trial=point.trial,
        epoch=point.epoch,
        by=person(),
        at=now(),
        limits=limits or {},
        why=why,
        wrote=None if is_printed(wanted.output) else hashlib.sha256(text.encode()).hexdigest(),
    )
    try:
        write_pick(sweep, made)
    except OSError:
        if is_new:
            wanted.output.unlink(missing_ok=True)  # a file without a recorded pick must not pass for one
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


def _configuration(found: Snapshot, point: Point, wanted: Wanted, limits: Mapping[str, float]) -> str:
    """Return the text of the configuration's file."""
    sweep, metrics = found.sweep, point.metrics
    spec = configuration_of(found, point)
    remarks = [*users_remark(metrics), *labels_remark(spec.corpus), seeds_words(found.new_seeds(point))]
    seen = f"validation SER {FIGURES['valid_ser'].cell(metrics)}, " if "valid_ser" in metrics else ""
    uri = wanted.tracking_uri or found.record.tracking_uri
    file = "FILE" if is_printed(wanted.output) else wanted.output
    measured_on = "" if point.spec.corpus == spec.corpus else f"On {point.spec.corpus.name}, which is public: "
    heading = (
        f"{heading_of(sweep.name, point.trial, point.epoch, point.run_id)}\n"
        f"{measured_on}{seen}test SER {FIGURES['ser'].cell(metrics)}, MIA AUC {deciding_cell(metrics, 'mia_auc')}.\n"
        f"{', '.join(epsilon_words(metrics))}, at δ = {metrics['delta']:g}.\n"
        f"The configuration was {found.choice(limits)}.\n"
        f"{''.join(f'{words[0].upper()}{words[1:]}.{chr(10)}' for words in filter(None, remarks))}"
        f"Train it again with: {train_line(file, storage=sweep.folder.parent, tracking_uri=uri)}"
    )
    return as_yaml(spec, heading)


def is_pick(sweep: Sweep, path: Path) -> bool:
    """Return True if an earlier pick of the sweep wrote the file, and it has not changed since."""
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return False
    return digest in {pick.wrote for pick in read_picks(sweep)}


def _check_there(wanted: Wanted, text: str) -> None:
    """Raise if another file would be overwritten without `--force`."""
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
    """Return the tags of a picked run."""
    limits = ", ".join(f"{name} <= {most:g}" for name, most in pick.limits.items())
    return {
        "picked": "true",
        "picked_epoch": str(pick.epoch),
        "picked_at": pick.at,
        "picked_by": pick.by,
        "picked_limits": limits or "none",
        "picked_rule": pick.why,
    }
