"""The file of the account: `account.jsonl` in a storage folder, a JSON object a line (`sweeps.store.journal`).

Lines are only ever added: under a lock, and flushed to disk before the training goes on. `account.size` holds the
file's size, so that a file that was cut or removed is noticed. Every folder of a training or a sweep holds its id.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edp.ledger import Ledger
from trainables.records.files import atomic_write

JOURNAL, SIZE, ID = "account.jsonl", "account.size", "account.id"


@contextmanager
def locked(storage: Path) -> Iterator[int]:
    """Yield the journal's descriptor while no other process appends. A file system without locks admits every writer.

    The file itself is locked: NFS locks only what is open for writing.
    """
    handle = os.open(storage / JOURNAL, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def append(storage: Path, handle: int, lines: list[str]) -> None:
    """Add lines to the journal under its lock. If they cannot be written whole, leave the file as it was."""
    size, noted = os.fstat(handle).st_size, cut(storage)
    if noted is not None:
        lines = [json.dumps({"kind": "lost", "text": noted}), *lines]
    unfinished = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
    text = ("\n" * unfinished + "".join(f"{line}\n" for line in lines)).encode()
    try:
        written = 0
        while written < len(text):
            written += os.write(handle, text[written:])
        os.fsync(handle)
    except OSError as error:
        os.ftruncate(handle, size)
        error.filename = str(storage / JOURNAL)  # for the message of a full disk
        raise
    with atomic_write(storage / SIZE) as partial:
        partial.write_text(str(size + len(text)))


def cut(storage: Path) -> str | None:
    """Return that the journal has lost lines, in words; None if it is as long as it was."""
    try:
        known = int((storage / SIZE).read_text())
    except (OSError, ValueError):
        return None
    path = storage / JOURNAL
    size = path.stat().st_size if path.exists() else 0
    if size >= known:
        return None
    return f"{JOURNAL} has lost lines: {known - size:,} of its {known:,} bytes are gone"


def new_id() -> str:
    """Return a new id of a training or a sweep."""
    return uuid.uuid4().hex[:16]


def read_id(folder: Path) -> str | None:
    """Return the id of the training or sweep in `folder`; None if it has none."""
    try:
        return (folder / ID).read_text().strip() or None
    except OSError:
        return None


def write_id(folder: Path, name: str) -> None:
    """Write the id of a training or sweep to its folder."""
    with atomic_write(folder / ID) as partial:
        partial.write_text(name)


def append_discarded(folder: Path, ledger: Ledger) -> None:
    """Append the discarded steps of a training that goes on. Do nothing if the journal does not know the training."""
    storage = next((one for one in folder.absolute().parents if (one / JOURNAL).is_file()), None)
    if storage is None or (name := read_id(folder)) is None:
        return
    lost = [one.model_dump(mode="json", exclude_defaults=True) for one in ledger.discarded]
    with locked(storage) as handle:
        append(storage, handle, [json.dumps({"kind": "discarded", "id": name, "ledgers": lost})])
