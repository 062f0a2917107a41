"""People's decisions about a sweep: the points they picked (`picks.json`) and their notes on points (`notes.json`).

A training of a picked configuration keeps its sweep in `origin.json` in its own folder: its steps were taken on the
same people's data, and count in the sweep's ε.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from pydantic import TypeAdapter

from edp.spec import Frozen, UserError
from sweeps.store.lock import one_at_a_time
from sweeps.store.sweep import Sweep
from trainables.records.files import atomic_write, read_json, read_json_if_any

PICKS, NOTES, ORIGIN = "picks.json", "notes.json", "origin.json"
MAX_NOTE = 4000
"""Characters of a note."""
_HEADING = re.compile(
    r"^# Trial (\d{1,9}) of sweep (\S{1,100}) after epoch (\d{1,9}), MLflow run (\w+)\.", re.MULTILINE
)


class Pick(Frozen):
    """One choice and its consequences."""

    trial: int
    epoch: int
    by: str
    """The person's name in MLflow."""
    at: str
    """UTC, ISO 8601."""
    limits: dict[str, float]
    """The largest value allowed, by metric."""
    why: str
    """The rule that chose, in a sentence, or a remark that the person named the point."""
    wrote: str | None = None
    """SHA-256 of the configuration that was written; None where it was printed."""
    model: str | None = None
    """`models:/NAME/VERSION` in the registry, where it was registered."""


class Origin(Frozen):
    """The sweep's point that a training trains again."""

    sweep: str
    trial: int
    epoch: int
    model: str | None = None
    """As in `Pick`."""


def read_picks(sweep: Sweep) -> list[Pick]:
    """Return every choice, the latest last.

    Raises:
        BrokenFile: for a file that is not whole.
    """
    found = read_json_if_any(sweep.folder / PICKS, list[Pick])
    return found or []


def write_pick(sweep: Sweep, made: Pick, *, instead_of: Pick | None = None) -> None:
    """Add a choice, in one step; other processes may add theirs at the same time.

    Args:
        instead_of: the same choice before its model was registered, which goes.

    Raises:
        BrokenFile: for a file that is not whole.
        OSError: if it cannot be written.
    """
    with one_at_a_time(sweep.folder):
        picks = [pick for pick in read_picks(sweep) if pick != instead_of]
        with atomic_write(sweep.folder / PICKS) as partial:
            partial.write_bytes(TypeAdapter(list[Pick]).dump_json([*picks, made], indent=1))


def read_notes(sweep: Sweep) -> dict[str, str]:
    """Return the notes by the name of their point.

    Raises:
        BrokenFile: for a file that is not whole.
    """
    return read_json_if_any(sweep.folder / NOTES, dict[str, str]) or {}


def write_note(sweep: Sweep, name: str, text: str) -> None:
    """Replace the note on the point `name`; an empty text removes it.

    Raises:
        UserError: for a text that is too long.
    """
    text = text.strip()
    if len(text) > MAX_NOTE:
        raise UserError(f"note = {len(text):,} characters: allowed: up to {MAX_NOTE:,}")
    with one_at_a_time(sweep.folder):
        notes = {key: note for key, note in read_notes(sweep).items() if key != name} | ({name: text} if text else {})
        with atomic_write(sweep.folder / NOTES) as partial:
            partial.write_text(json.dumps(notes, indent=1, ensure_ascii=False), encoding="utf-8")


def heading_of(sweep: str, trial: int, epoch: int, run_id: str | None = None) -> str:
    """Return the first line of a trial's configuration, which `origin_of` reads.

    Args:
        run_id: None while MLflow has not taken the run.
    """
    return f"Trial {trial} of sweep {sweep} after epoch {epoch}, MLflow run {run_id}."


def origin_of(config: Path, storage: Path) -> Origin | None:
    """Return the sweep in `storage` that a configuration was picked from, None if its heading names no such sweep.

    The sweep of that name counts as the origin also if it cannot be read, or if the heading knows no run: the sweep's ε
    must not leave out a training that may belong to it.
    """
    found = _heading(config)
    if found is None:
        return None
    trial, name, epoch, run_id = found.groups()
    if not (storage / name).is_dir():
        return None
    try:
        # Of a secret number of trials, the one that was released is the only one, and bears another's number.
        records = {record.number: record.run_id for record in Sweep.existing(storage, name).trials()}
        another = int(trial) not in records or (run_id != "None" and run_id not in {*records.values()} - {None})
    except UserError:
        another = False
    return None if another else Origin(sweep=name, trial=int(trial), epoch=int(epoch))


def sweep_named_in(config: Path) -> str | None:
    """Return the sweep that a configuration's heading names, wherever that sweep is."""
    found = _heading(config)
    return found[2] if found is not None else None


def _heading(config: Path) -> re.Match[str] | None:
    """Return the heading from any line: a person who edits a configuration may write above it."""
    return _HEADING.search(config.read_text(encoding="utf-8-sig", errors="replace"))


def write_origin(folder: Path, origin: Origin) -> None:
    """Write `origin` to a training's folder."""
    with atomic_write(folder / ORIGIN) as partial:
        partial.write_text(json.dumps(origin.model_dump(), indent=1))


def final_trainings(sweep: Sweep) -> dict[Path, Origin]:
    """Return the trainings of the sweep's picked configurations, by folder, the oldest first.

    Raises:
        BrokenFile: for a file that is not whole.
    """
    found = {file.parent: read_json(file, Origin) for file in sorted(sweep.folder.parent.glob(f"train-*/{ORIGIN}"))}
    return {folder: origin for folder, origin in found.items() if origin.sweep == sweep.name}
