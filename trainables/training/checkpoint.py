"""A trial's state at an epoch's end: model, optimiser, average of the weights, ledger, and where it is in the data. No
noise key, no generator.

A resumed run draws its noise from a fresh key, its data order from seed and epoch; so what it needs of chance is none.
Correlated noise starts anew too: that of earlier steps is not written down (`edp.noise.banded`: it costs the same).
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from edp.ledger import Ledger
from trainables.config import TrialSpec
from trainables.config.keys import NO_EFFECT, cache_key, identity
from trainables.records.files import one_line, save_tensors

NAME = "checkpoint.pt"
BEFORE = "checkpoint-before.pt"
"""The checkpoint of the epoch before, for a disk that has lost the end of the last one."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """The state of a trial: `ledger` holds exactly the steps that made `model`."""

    spec: str
    step: int
    seconds: list[float]
    """Seconds of each epoch that is done."""
    ledger: str
    alpha: torch.Tensor | None
    """Layer scales (K,): estimated once, before training, and kept."""
    model: dict[str, torch.Tensor]
    optimizer: dict[str, Any]
    average: dict[str, Any] | None = None
    """The average of the weights and how many steps are in it; None: the run keeps none."""
    clip: float | None = None
    """The clip to go on with, where it moves; None also in checkpoints from before there was one."""


def save_checkpoint(checkpoint: Checkpoint, folder: Path) -> None:
    """Write a checkpoint in one step, so that a crash or a full disk leaves the last one whole; two are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / NAME).is_file():
        # A second name for the last one, which stays where it is until the new one takes its place.
        with suppress(OSError):  # a file system without links keeps one
            (folder / BEFORE).unlink(missing_ok=True)
            os.link(folder / NAME, folder / BEFORE)
    save_tensors(vars(checkpoint), folder / NAME)


def load_checkpoint(folder: Path, spec: TrialSpec) -> Checkpoint | None:
    """Load the checkpoint of a run of the same configuration, or None. It holds tensors and plain data: no code is
    run."""
    for name in (NAME, BEFORE):
        if not (folder / name).is_file():
            continue
        try:
            found = Checkpoint(**torch.load(folder / name, map_location="cpu", weights_only=True))
        except Exception as error:  # a damaged file has as many faults as there are bytes
            _log.warning("%s cannot be read (%s)", folder / name, one_line(error))
            continue
        if found.spec == spec_key(spec):
            return found
    return None


def discard_checkpoint(folder: Path) -> None:
    """Remove the checkpoints of a trial that has ended well: its model and ledger stay."""
    for name in (NAME, BEFORE):
        (folder / name).unlink(missing_ok=True)


def spec_key(spec: TrialSpec) -> str:
    """Return the key that a checkpoint must have to be continued: of all settings that change the weights."""
    return cache_key(identity(spec, {f"training.{name}" for name in NO_EFFECT}))


def restored_ledger(checkpoint: Checkpoint | None, written: Ledger | None) -> Ledger:
    """Return the ledger of a resumed run: the steps that made the checkpoint's weights, none without a checkpoint, and
    the steps that were run and lost.

    Args:
        written: the ledger beside the checkpoint, written before the last epochs began; None: nothing was begun.
    """
    kept = Ledger.model_validate_json(checkpoint.ledger) if checkpoint is not None else Ledger()
    return kept.after_loss(written) if written is not None else kept
