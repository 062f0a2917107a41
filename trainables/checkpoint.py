"""A trial's state at an epoch's end: model, optimiser, ledger, and where it is in the data. No noise key, no generator.

A resumed run draws its noise from a fresh key, its data order from seed and epoch; so what it needs of chance is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from edp.ledger import Ledger
from trainables.spec import TrialSpec

NAME = "checkpoint.pt"


@dataclass(frozen=True)
class Checkpoint:
    """What one is: `ledger` holds exactly the steps that made `model`."""

    spec: str
    step: int
    seconds: list[float]
    """Of each epoch that is done."""
    ledger: str
    alpha: torch.Tensor | None
    """Layer scales (K,): estimated once, before training, and kept."""
    model: dict[str, torch.Tensor]
    optimizer: dict[str, Any]


def save_checkpoint(checkpoint: Checkpoint, folder: Path) -> None:
    """Writes a checkpoint in one step, so that a crash leaves the last one whole; one is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{NAME}.partial"
    torch.save(vars(checkpoint), partial)
    partial.replace(folder / NAME)


def load_checkpoint(folder: Path, spec: TrialSpec) -> Checkpoint | None:
    """The checkpoint of a run of the same configuration, or None. Tensors and plain data only: no code is run."""
    path = folder / NAME
    if not path.is_file():
        return None
    found = Checkpoint(**torch.load(path, map_location="cpu", weights_only=True))
    return found if found.spec == spec_key(spec) else None


def discard_checkpoint(folder: Path) -> None:
    """The trial has ended well: its model and ledger are what stays."""
    (folder / NAME).unlink(missing_ok=True)


def write_ledger(ledger: Ledger, folder: Path) -> None:
    """What a trial has executed so far, readable also when it never ends well."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / "ledger.json.partial"
    partial.write_text(ledger.model_dump_json(indent=1))
    partial.replace(folder / "ledger.json")


def read_ledger(folder: Path) -> Ledger | None:
    """What `write_ledger` wrote last; None where a trial never came to its first epoch's end."""
    path = folder / "ledger.json"
    return Ledger.model_validate_json(path.read_text()) if path.is_file() else None


def spec_key(spec: TrialSpec) -> str:
    """What must be equal for a checkpoint to be one's own: all but the hardware."""
    hardware = {"training": {"workers", "device", "sub_chunks"}}
    return spec.model_dump_json(exclude=hardware)


def restored_ledger(checkpoint: Checkpoint) -> Ledger:
    """The ledger of the steps that made the checkpoint's weights."""
    return Ledger.model_validate_json(checkpoint.ledger)
