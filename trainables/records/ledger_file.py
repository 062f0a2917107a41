"""A run's ledger, as a file beside its model."""

from __future__ import annotations

from pathlib import Path

from edp.ledger import Ledger
from trainables.records.files import atomic_write, read_json_if_any

LEDGER = "ledger.json"


def begin_folder(folder: Path) -> None:
    """Makes a training's folder, with a ledger that says that nothing was executed yet.

    So a folder without a ledger has lost it. Of a folder that is there already nothing is changed.
    """
    if not folder.is_dir():
        write_ledger(Ledger(), folder)


def write_ledger(ledger: Ledger, folder: Path) -> None:
    """What a trial has executed so far, readable also when it never ends well."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / LEDGER) as partial:
        partial.write_text(ledger.model_dump_json(indent=1))


def read_ledger(folder: Path) -> Ledger | None:
    """What `write_ledger` wrote last; None where nothing was ever written.

    Raises:
        BrokenFile: for a file that is not whole.
    """
    return read_json_if_any(folder / LEDGER, Ledger)
