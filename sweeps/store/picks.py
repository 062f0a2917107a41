"""The points of a sweep that people picked (`picks.json`), and the trainings of their configurations.

A training of a picked configuration names its sweep in `origin.json` in its own folder: it read the same people's
data, so its steps count in the sweep's ε. All readers here raise `BrokenFile` for a file that is incomplete.
"""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import ConfigDict

from edp.spec import Frozen, UserError
from sweeps.store.lock import one_at_a_time
from sweeps.store.sweep import Sweep
from trainables.records.files import read_json, read_json_if_any, write_json
from trainables.records.pareto import Metrics

PICKS, ORIGIN, RESULT = "picks.json", "origin.json", "result.json"
_HEADING = re.compile(
    r"^# Trial (\d{1,9}) of sweep (\S{1,100}) after epoch (\d{1,9}), MLflow run (\w+)\.", re.MULTILINE
)


class Pick(Frozen):
    """A person's choice of a point, with the file and the model that came of it."""

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
    """SHA-256 of the configuration file; None if it was printed."""
    model: str | None = None
    """`models:/NAME/VERSION` in the registry; None if it was not registered."""


class Origin(Frozen):
    """The sweep's point whose configuration a training retrains, in the training's folder (`origin.json`)."""

    sweep: str
    trial: int
    epoch: int
    model: str | None = None
    """As in `Pick`."""


class Trained(Frozen):
    """The result of a training that has ended, in its folder (`result.json`)."""

    model_config = ConfigDict(ser_json_inf_nan="constants", allow_inf_nan=True)

    at: str
    """The end, in UTC, ISO 8601."""
    run_id: str | None
    metrics: Metrics
    trained_on: tuple[str, ...]
    """The splits."""
    examples: int | None
    """Utterances of these splits; None if unknown."""
    choice: str
    """What chose the configuration, and whether ε covers that (`sweeps.config.choice`)."""


def read_picks(sweep: Sweep) -> list[Pick]:
    """Return every choice, the latest last."""
    return read_json_if_any(sweep.folder / PICKS, list[Pick]) or []


def write_pick(sweep: Sweep, made: Pick, *, instead_of: Pick | None = None) -> None:
    """Add a choice. Other processes may add theirs at the same time.

    Args:
        instead_of: the same choice before its model was registered, which is removed.
    """
    with one_at_a_time(sweep.folder):
        picks = [pick for pick in read_picks(sweep) if pick != instead_of]
        write_json(sweep.folder / PICKS, [*picks, made])


def heading_of(sweep: str, trial: int, epoch: int, run_id: str | None = None) -> str:
    """Return the first line of a picked configuration, which `origin_of` reads."""
    return f"Trial {trial} of sweep {sweep} after epoch {epoch}, MLflow run {run_id}."


def origin_of(config: Path, storage: Path) -> Origin | None:
    """Return the sweep in `storage` that a configuration was picked from; None if its heading names no such sweep.

    A sweep of that name counts as the origin also if it cannot be read, or if the heading has no run, because the
    sweep's ε must not leave out a training that may belong to it.
    """
    found = _heading(config)
    if found is None:
        return None
    trial, name, epoch, run_id = found.groups()
    if not (storage / name).is_dir():
        return None
    try:
        records = {record.number: record.run_id for record in Sweep.existing(storage, name).trials()}
        another = int(trial) not in records or (run_id != "None" and run_id not in {*records.values()} - {None})
    except UserError:
        another = False
    return None if another else Origin(sweep=name, trial=int(trial), epoch=int(epoch))


def sweep_named_in(config: Path) -> str | None:
    """Return the sweep that a configuration's heading names, wherever that sweep is."""
    found = _heading(config)
    return found[2] if found else None


def _heading(config: Path) -> re.Match[str] | None:
    """Find the heading on any line: a person who edits a configuration may write above it."""
    return _HEADING.search(config.read_text(encoding="utf-8-sig", errors="replace"))


def final_trainings(sweep: Sweep) -> dict[Path, Origin]:
    """Return the trainings of the sweep's picked configurations, by folder, the oldest first."""
    found = {file.parent: read_json(file, Origin) for file in sorted(sweep.folder.parent.glob(f"train-*/{ORIGIN}"))}
    return {folder: origin for folder, origin in found.items() if origin.sweep == sweep.name}
