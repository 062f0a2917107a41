"""What was picked of a sweep, by whom, when and why: `picks.json` in its folder, the last one last.

A training of a picked configuration says whose it is in `origin.json` in its own folder: its steps were taken on the
same people's data, and belong to the sweep's ε.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from pydantic import TypeAdapter

from edp.spec import Frozen, UserError
from sweeps.state.flock import one_at_a_time
from sweeps.state.sweep import Sweep
from trainables.records.files import atomic_write, read_json, read_json_if_any

PICKS, ORIGIN = "picks.json", "origin.json"
_HEADING = re.compile(
    r"^# Trial (\d{1,9}) of sweep (\S{1,100}) after epoch (\d{1,9}), MLflow run (\w+)\.", re.MULTILINE
)


class Pick(Frozen):
    """One choice, and what followed from it."""

    trial: int
    epoch: int
    by: str
    """The person, as MLflow knows them."""
    at: str
    """UTC, ISO 8601."""
    limits: dict[str, float]
    """Metric name to largest value."""
    why: str
    """The rule's sentence, or that the person named the point."""
    wrote: str | None = None
    """SHA-256 of the configuration that was written; None where it was printed."""
    model: str | None = None
    """`models:/NAME/VERSION` in the registry, where it was registered."""


class Origin(Frozen):
    """Which point of which sweep a training trains again."""

    sweep: str
    trial: int
    epoch: int
    model: str | None = None
    """As of a `Pick`."""


def read_picks(sweep: Sweep) -> list[Pick]:
    """Every choice; [] where there was none.

    Raises:
        BrokenFile: for a file that is not whole.
    """
    found = read_json_if_any(sweep.folder / PICKS, list[Pick])
    return found or []


def write_pick(sweep: Sweep, made: Pick, *, instead_of: Pick | None = None) -> None:
    """Adds a choice, in one step; also while others do.

    Args:
        instead_of: what is known of it less its model.

    Raises:
        BrokenFile: for a file that is not whole.
        OSError: where it cannot be written.
    """
    with one_at_a_time(sweep.folder):
        picks = [pick for pick in read_picks(sweep) if pick != instead_of]
        with atomic_write(sweep.folder / PICKS) as partial:
            partial.write_bytes(TypeAdapter(list[Pick]).dump_json([*picks, made], indent=1))


def heading_of(sweep: str, trial: int, epoch: int, run_id: str | None = None) -> str:
    """The first line of a trial's configuration, by which `origin_of` knows it; a run that is not known is None."""
    return f"Trial {trial} of sweep {sweep} after epoch {epoch}, MLflow run {run_id}."


def origin_of(config: Path, storage: Path) -> Origin | None:
    """The sweep in `storage` that a configuration was picked of; None where its heading names none that is there.

    A sweep that cannot be read counts as the one that is meant, and so does one of the same name where the run is not
    known, as while MLflow was away: what belongs to its ε is not left out.
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
    """The sweep that a configuration's heading says it was picked of, wherever that is."""
    found = _heading(config)
    return found[2] if found is not None else None


def _heading(config: Path) -> re.Match[str] | None:
    """Wherever it stands: who edits a configuration may write above it."""
    return _HEADING.search(config.read_text(encoding="utf-8-sig", errors="replace"))


def write_origin(folder: Path, origin: Origin) -> None:
    """Keeps it in a training's folder."""
    with atomic_write(folder / ORIGIN) as partial:
        partial.write_text(json.dumps(origin.model_dump(), indent=1))


def final_trainings(sweep: Sweep) -> dict[Path, Origin]:
    """Trainings of what was picked of the sweep, by folder, the oldest first.

    Raises:
        BrokenFile: for a file that is not whole.
    """
    found = {file.parent: read_json(file, Origin) for file in sorted(sweep.folder.parent.glob(f"train-*/{ORIGIN}"))}
    return {folder: origin for folder, origin in found.items() if origin.sweep == sweep.name}
