"""A run's ledger, as a file beside its model."""

from __future__ import annotations

from pathlib import Path

from edp.ledger import Ledger
from trainables.records.files import atomic_write


def write_ledger(ledger: Ledger, folder: Path) -> None:
    """What a trial has executed so far, readable also when it never ends well."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / "ledger.json") as partial:
        partial.write_text(ledger.model_dump_json(indent=1))


def read_ledger(folder: Path) -> Ledger | None:
    """What `write_ledger` wrote last; None where a trial never came to its first epoch's end."""
    path = folder / "ledger.json"
    return Ledger.model_validate_json(path.read_text()) if path.is_file() else None
