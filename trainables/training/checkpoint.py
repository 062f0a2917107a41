"""The checkpoint of a trial after an epoch: model, optimiser, averaged weights, ledger, audit, and place in the data.

A checkpoint holds no state of a random generator. A resumed run draws its noise from a fresh secret key, and its data
order from seed and epoch. A noise key on disk would be a secret to guard. Correlated noise starts anew too, which costs
the same privacy (`edp.noise.banded`).
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
"""The checkpoint of the epoch before, in case the last one is damaged."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """The state of a trial. Its ledger holds exactly the steps that made its model."""

    spec: str
    step: int
    seconds: list[float]
    """Seconds of each epoch done."""
    ledger: str
    alpha: torch.Tensor | None
    """Layer scales (K,). They are estimated once, before training, and a resumed run keeps them."""
    model: dict[str, torch.Tensor]
    optimizer: dict[str, Any]
    average: dict[str, Any] | None
    """Averaged weights, and the number of steps in the average; None: the run keeps no average."""
    clip: float | None
    """The clip of the next step; None without privacy."""
    audit: dict[str, Any] | None
    """Key and scores of the audit (`edp.audit.Audit.state`); None without one."""


def save_checkpoint(checkpoint: Checkpoint, folder: Path) -> None:
    """Write a checkpoint in one step, so that a crash or a full disk leaves the last one whole. Two are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / NAME).is_file():
        # The last checkpoint gets a second name. Its first name stays until the new checkpoint takes it.
        with suppress(OSError):  # a file system without hard links keeps one checkpoint
            (folder / BEFORE).unlink(missing_ok=True)
            os.link(folder / NAME, folder / BEFORE)
    save_tensors(vars(checkpoint), folder / NAME)


def load_checkpoint(folder: Path, spec: TrialSpec) -> Checkpoint | None:
    """Load the newest readable checkpoint of the same configuration; None if there is none.

    Checkpoints hold only tensors and plain data, so that loading runs no code.
    """
    for name in (NAME, BEFORE):
        if not (folder / name).is_file():
            continue
        try:
            found = Checkpoint(**torch.load(folder / name, map_location="cpu", weights_only=True))
        except Exception as error:  # PyTorch raises many kinds of errors for damaged files
            _log.warning("%s cannot be read (%s)", folder / name, one_line(error))
            continue
        if found.spec == spec_key(spec):
            return found
    return None


def discard_checkpoint(folder: Path) -> None:
    """Remove the checkpoints of a trial that has ended well. Its model and ledger stay."""
    for name in (NAME, BEFORE):
        (folder / name).unlink(missing_ok=True)


def spec_key(spec: TrialSpec) -> str:
    """Return the key of all settings that change the weights. A run resumes only from checkpoints with its key."""
    return cache_key(identity(spec, {"corpus.budget", *(f"training.{name}" for name in NO_EFFECT)}))


def restored_ledger(checkpoint: Checkpoint | None, written: Ledger | None) -> Ledger:
    """Return the ledger of a resumed run.

    It holds the steps that made the checkpoint's weights, if any, and as discarded the steps that were run and lost.

    Args:
        written: the ledger beside the checkpoint, written before the last epochs began; None: no epoch has begun.
    """
    kept = Ledger.model_validate_json(checkpoint.ledger) if checkpoint is not None else Ledger()
    return kept.after_loss(written) if written is not None else kept
