"""A trial's folder: its ledger, the metrics of its epochs, and the models of the few epochs that are worth keeping.

Kept are the epochs that together cover most of the trial's own objectives (validation SER, validation MIA AUC, and
log10 ε where ε is searched), its last epoch always among them; what is kept is decided as the trial goes, so the folder
never holds more than one model above the number asked for.

Where ε is an objective it rises with every epoch, so nearly all of a trial's epochs are non-dominated. Where the target
is fixed, an epoch before the last has cost less than the target: it is a candidate, since its guarantee is the one that
was asked for or a better one, but that it cost less is no merit of its own. It is kept only for what it is ahead in.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edp.ledger import Ledger
from trainables.records.files import BrokenFile, atomic_write, read_json_if_any, save_tensors
from trainables.records.pareto import (
    TRADE_OFF,
    Metrics,
    Objectives,
    Values,
    hypervolume,
    non_dominated,
    objective_value,
)

LEDGER = "ledger.json"


def begin_folder(folder: Path) -> None:
    """Make a training's folder, with a ledger of nothing executed yet.

    So a folder without a ledger has lost it. Of a folder that is there already nothing is changed.
    """
    if not folder.is_dir():
        write_ledger(Ledger(), folder)


def write_ledger(ledger: Ledger, folder: Path) -> None:
    """Write the steps that a trial has executed so far, readable also when it never ends well."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / LEDGER) as partial:
        partial.write_text(ledger.model_dump_json(indent=1))


def read_ledger(folder: Path) -> Ledger | None:
    """Read the ledger that `write_ledger` wrote last; None where none was ever written.

    Raises:
        BrokenFile: for a file that is not whole.
    """
    return read_json_if_any(folder / LEDGER, Ledger)


# Where the scaled objectives of a trial end: a little beyond its worst, so that its extremes count too.
_REFERENCE = 1.1


def point_of(metrics: Metrics, objectives: Objectives = TRADE_OFF) -> tuple[float, ...]:
    """Return the values that compare a trial's epochs: its objectives, SER and leakage on the validation split."""
    return tuple(objective_value(name, metrics, "valid_") for name in objectives)


def worth_keeping(points: Sequence[Values], most: int) -> list[int]:
    """Return the places of at most `most` points: the last, and of the non-dominated ones those that cover most volume.

    Each objective is scaled to the range of `points`; what is dropped, one after the other, is whatever the covered
    volume loses least by.
    """
    last = len(points) - 1
    scaled, reference = _scaled(points), [_REFERENCE] * len(points[0])
    kept = sorted({*non_dominated(points), last})
    while len(kept) > most:
        rest = {i: hypervolume([scaled[j] for j in kept if j != i], reference) for i in kept if i != last}
        kept.remove(max(rest, key=lambda i: rest[i]))
    return kept


def _scaled(points: Sequence[Values]) -> list[tuple[float, ...]]:
    """Scale each objective from 0 (best) to 1; one that is infinite or equal everywhere is 0 and decides nothing."""
    columns = []
    for column in zip(*points, strict=True):
        low, high = min(column), max(column)
        width = high - low
        columns.append([(v - low) / width if 0 < width < math.inf else 0.0 for v in column])
    return list(zip(*columns, strict=True))


def by_epoch(curve: Sequence[Metrics]) -> dict[int, Metrics]:
    """Return a trial's reports by epoch (1 is the first); an entry without `epoch` follows the one before."""
    found: dict[int, Metrics] = {}
    epoch = 0
    for metrics in curve:
        epoch = int(metrics.get("epoch", epoch + 1))
        found[epoch] = metrics
    return found


class EpochLog:
    """The epochs that a trial has reported, in its folder: `curve.json` and `epochs/NUMBER/`. Rank 0 alone writes it.

    Args:
        folder: of the trial.
        keep: models to keep, the last epoch's among them; 1: none but the last.
        done: number of epochs to resume after; files that a crash left of later ones are removed.
        objectives: decide which epochs are kept.
    """

    def __init__(self, folder: Path, keep: int, done: int, objectives: Objectives = TRADE_OFF) -> None:
        self._folder, self._keep, self._objectives = folder, keep, objectives
        self.by_epoch = {epoch: m for epoch, m in by_epoch(read_curve(folder)).items() if epoch <= done}
        for epoch in self.kept():
            if epoch > done:
                shutil.rmtree(epoch_folder(folder, epoch))

    @property
    def curve(self) -> list[Metrics]:
        """The metrics that were reported so far, the first ones first."""
        return list(self.by_epoch.values())

    def kept(self) -> list[int]:
        """Return the epochs whose models are here, by number (1 is the first)."""
        models = (self._folder / "epochs").glob("*/model.pt")
        return sorted(int(path.parent.name) for path in models if path.parent.name.isdecimal())

    def add(self, epoch: int, metrics: Metrics, contents: Callable[[], dict[str, Any]], ledger: Ledger) -> None:
        """Add a report, with its model's contents and ledger, and remove the models that it makes superfluous."""
        last = max(self.by_epoch, default=0)
        self.by_epoch[epoch] = metrics if epoch == last + 1 else {"epoch": epoch, **metrics}
        write_curve(self.curve, self._folder)
        if self._keep == 1:
            return
        write_model(epoch_folder(self._folder, epoch), contents(), ledger)
        self._prune()

    def finish(self) -> list[int]:
        """Remove the last epoch's model, which has its place elsewhere, and return the epochs that are kept besides
        it."""
        shutil.rmtree(epoch_folder(self._folder, max(self.by_epoch, default=0)), ignore_errors=True)
        return self.kept()

    def _prune(self) -> None:
        here = self.kept()
        best = worth_keeping([point_of(self.by_epoch[epoch], self._objectives) for epoch in here], self._keep)
        for place, epoch in enumerate(here):
            if place not in best:
                shutil.rmtree(epoch_folder(self._folder, epoch))


def epoch_folder(folder: Path, epoch: int) -> Path:
    """Return the folder of a kept epoch before the trial's last, with its model and ledger."""
    return folder / "epochs" / str(epoch)


def read_curve(folder: Path) -> list[Metrics]:
    """Read the metrics that each epoch of a trial has reported so far, the first one first.

    Raises:
        BrokenFile: for a file that is not whole.
    """
    path = folder / "curve.json"
    curve = read_json_if_any(path, list[Metrics]) or []
    if not all(math.isfinite(metrics.get("epoch", 1)) for metrics in curve):
        raise BrokenFile(f"{path} is broken (an epoch without a number); allowed: the file that was written there")
    return curve


def write_curve(curve: list[Metrics], folder: Path) -> None:
    """Replace the curve, in one step."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / "curve.json") as partial:
        partial.write_text(json.dumps(curve))


def write_model(folder: Path, contents: dict[str, Any], ledger: Ledger) -> None:
    """Write `ledger.json` and, last, `model.pt`, each in one step."""
    write_ledger(ledger, folder)
    save_tensors(contents, folder / "model.pt")
