"""Files that are whole or not there, and what a full disk looks like."""

from __future__ import annotations

import errno
import io
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FULL_TEXTS = ("no space left on device", "disk is full", "disk quota exceeded", "file too large")


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Gives a name beside `path` to write to; when the block ends well that becomes `path`, whole and on disk.

    The name is nobody else's, so that of two that write at once the last one wins.
    """
    partial = path.with_name(f".{path.name[:40]}.{uuid.uuid4().hex[:8]}.partial")
    try:
        yield partial
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def save_tensors(contents: dict[str, Any], path: Path) -> None:
    """Writes tensors and plain data in one step, for `torch.load(…, weights_only=True)`.

    By way of memory: PyTorch's own writer hides why the system did not take what it wrote.
    """
    import torch  # not at the top: processes that only pass messages on start in half the time without it

    memory = io.BytesIO()
    torch.save(contents, memory)
    with atomic_write(path) as partial:
        partial.write_bytes(memory.getbuffer())


def disk_full(error: BaseException) -> str | None:
    """The line that says so where `error`, or what it came from, is a disk without room; None for other errors.

    SQLite has an error of its own for it, which holds its text alone.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _FULL:
            where = f" ({seen.filename})" if seen.filename else ""
            return f"the disk is full: {seen.strerror}{where}"
        text = str(seen).lower()
        if found := next((full for full in _FULL_TEXTS if full in text), None):
            return f"the disk is full: {found}"
        seen = seen.__cause__ or seen.__context__
    return None
