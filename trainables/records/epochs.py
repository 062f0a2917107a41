"""A trial's folder: its ledger, the metrics of its epochs, and the models of its candidates, the kept epochs.

The epochs that together cover the largest volume of the trial's objectives are kept, and always the last one. The
objectives are validation SER, validation MIA AUC and, if ε is searched, log10 ε. The choice is made anew after each
epoch, so the folder never holds more than one model above the number asked for.

On a private corpus every epoch states the ε of the whole training, so an epoch is kept only for its other objectives.
On a public proxy corpus each states its own. If ε is an objective, it then rises with every epoch, and nearly all of a
trial's epochs are non-dominated.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edp.ledger import Ledger
from trainables.records.files import BrokenFile, atomic_write, read_json_if_any, save_tensors, write_json
from trainables.records.pareto import (
    TRADE_OFF,
    Metrics,
    Objectives,
    SelectionFigures,
    Values,
    hypervolume,
    non_dominated,
    objective_values,
)

LEDGER = "ledger.json"
"""The name of the ledger's file in a trial's folder."""
AUDIT = "audit.json"
"""The name of the file of a private training's own audit: its reading, or why there is none (`edp.audit`)."""
AUDIT_SCORES = "audit_scores.npz"
"""The name of the file of that audit's scores and coins, which is no artifact (`edp.audit.Scores`)."""

_REFERENCE = 1.1
"""The reference point of the volume, in scaled objectives: a little beyond the worst epoch, so that extremes count."""


def begin_folder(folder: Path) -> None:
    """Make a training's folder with an empty ledger, so that a folder without a ledger has lost it.

    A folder with a configuration or a ledger is left as it is.
    """
    if not any((folder / name).exists() for name in ("config.yaml", LEDGER)):
        write_ledger(Ledger(), folder)


def write_ledger(ledger: Ledger, folder: Path) -> None:
    """Write a trial's ledger in one step, so that a crash leaves a whole one."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / LEDGER) as partial:
        partial.write_text(ledger.model_dump_json(indent=1))


def read_ledger(folder: Path) -> Ledger | None:
    """Return the ledger that `write_ledger` wrote last; None if there is none.

    Raises:
        BrokenFile: for a file that is not whole.
    """
    return read_json_if_any(folder / LEDGER, Ledger)


def point_of(metrics: Metrics, objectives: Objectives = TRADE_OFF) -> tuple[float, ...]:
    """Return the values by which a trial's epochs are compared: its objectives on the validation split."""
    return tuple(objective_values(objectives, SelectionFigures(metrics)))


def worth_keeping(points: Sequence[Values], most: int) -> list[int]:
    """Return the indices of at most `most` points: the last one and the non-dominated ones that cover the most volume.

    Each objective is scaled to the range of `points`. Points are dropped one at a time, each time the one whose loss
    reduces the covered volume least.
    """
    last = len(points) - 1
    scaled, reference = _scaled(points), [_REFERENCE] * len(points[0])
    kept = sorted({*non_dominated(points), last})
    while len(kept) > most:
        volume_without = {i: hypervolume([scaled[j] for j in kept if j != i], reference) for i in kept if i != last}
        kept.remove(max(volume_without, key=lambda i: volume_without[i]))
    return kept


def _scaled(points: Sequence[Values]) -> list[tuple[float, ...]]:
    """Scale each objective to 0 (best) to 1; one that is infinite or constant becomes 0 and decides nothing."""
    columns = []
    for column in zip(*points, strict=True):
        low, high = min(column), max(column)
        width = high - low
        columns.append([(v - low) / width if 0 < width < math.inf else 0.0 for v in column])
    return list(zip(*columns, strict=True))


def by_epoch(curve: Sequence[Metrics]) -> dict[int, Metrics]:
    """Return a trial's reports by epoch (1 is the first); a report without `epoch` follows the one before."""
    found: dict[int, Metrics] = {}
    epoch = 0
    for metrics in curve:
        epoch = int(metrics.get("epoch", epoch + 1))
        found[epoch] = metrics
    return found


class EpochLog:
    """The epochs that a trial has reported, in its folder: `curve.json` and `epochs/NUMBER/`. Only rank 0 writes it.

    Args:
        keep: number of models to keep, including that of the last epoch.
        done: number of epochs to resume after; models of later epochs, which a crash left, are removed.
        objectives: the objectives that decide which epochs are kept.
    """

    def __init__(self, folder: Path, keep: int, done: int, objectives: Objectives = TRADE_OFF) -> None:
        self._folder, self._keep, self._objectives = folder, keep, objectives
        self.by_epoch = {epoch: m for epoch, m in by_epoch(read_curve(folder)).items() if epoch <= done}
        for epoch in self.kept():
            if epoch > done:
                shutil.rmtree(epoch_folder(folder, epoch))

    @property
    def curve(self) -> list[Metrics]:
        """The metrics of the reported epochs, in order."""
        return list(self.by_epoch.values())

    def kept(self) -> list[int]:
        """Return the numbers of the epochs whose models are kept (1 is the first)."""
        models = (self._folder / "epochs").glob("*/model.pt")
        return sorted(int(path.parent.name) for path in models if path.parent.name.isdecimal())

    def add(self, epoch: int, metrics: Metrics, contents: Callable[[], dict[str, Any]], ledger: Ledger) -> None:
        """Add a report with its model and ledger, and remove the models that are no longer worth keeping."""
        last = max(self.by_epoch, default=0)
        self.by_epoch[epoch] = metrics if epoch == last + 1 else {"epoch": epoch, **metrics}
        write_curve(self.curve, self._folder)
        if self._keep == 1:
            return
        write_model(epoch_folder(self._folder, epoch), contents(), ledger)
        here = self.kept()
        best = worth_keeping([point_of(self.by_epoch[epoch], self._objectives) for epoch in here], self._keep)
        for index, number in enumerate(here):
            if index not in best:
                shutil.rmtree(epoch_folder(self._folder, number))

    def finish(self) -> list[int]:
        """Remove the last epoch's model, which is also in the trial's folder, and return the other kept epochs."""
        shutil.rmtree(epoch_folder(self._folder, max(self.by_epoch, default=0)), ignore_errors=True)
        return self.kept()


def epoch_folder(folder: Path, epoch: int) -> Path:
    """Return the folder with the model and ledger of a kept epoch before the trial's last."""
    return folder / "epochs" / str(epoch)


def read_curve(folder: Path) -> list[Metrics]:
    """Return the metrics that a trial's epochs have reported so far, in order.

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
    write_json(folder / "curve.json", curve)


def write_model(folder: Path, contents: dict[str, Any], ledger: Ledger) -> None:
    """Write `ledger.json` and, last, `model.pt`, each in one step."""
    write_ledger(ledger, folder)
    save_tensors(contents, folder / "model.pt")
