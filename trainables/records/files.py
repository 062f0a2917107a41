"""Write and read files that are whole or absent, and recognise a full disk."""

from __future__ import annotations

import errno
import functools
import hashlib
import io
import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from edp.spec import UserError

if TYPE_CHECKING:  # processes that only pass messages start in half the time without NumPy and PyTorch
    import numpy as np

Read = TypeVar("Read")

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FULL_TEXTS = re.compile(
    "no space left on device|disk is full|disk quota exceeded|file too large"
    r"|\d+ requested and \d+ written"  # NumPy, which loses the system's reason
    "|failed writing file"  # PyTorch, likewise
)


class BrokenFile(UserError):
    """A file that is not whole, or holds something else than what was written there; its text is one line."""


def read_json(path: Path, kind: Callable[..., Read]) -> Read:
    """Read a JSON file as a `kind`, any type that pydantic can check, such as `dict[str, float]`.

    Raises:
        BrokenFile: for a file that is not there or cannot be read, is no JSON, or not of this kind.
    """
    try:
        return _adapter(kind).validate_json(path.read_bytes())
    except OSError as error:
        raise BrokenFile(f"{path}: {error.strerror}; allowed: the file that was written there") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        what = f"{place}: {first['msg']}" if place else first["msg"]
        raise BrokenFile(f"{path} is broken ({what[:200]}); allowed: the file that was written there") from None


def read_json_if_any(path: Path, kind: Callable[..., Read]) -> Read | None:
    """Read as `read_json`; return None where nothing was ever written.

    Raises:
        BrokenFile: as `read_json`.
    """
    return read_json(path, kind) if path.exists() else None


def one_line(error: Exception) -> str:
    """Return an error's text in one line, or else its type."""
    return " ".join(str(error).split())[:200] or type(error).__name__


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn every error of a block that parses the contents of `path` into a fault of the file.

    Raises:
        BrokenFile: naming the file.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # NumPy's, of zip files, of pickles that are refused, of shapes that do not fit
        raise BrokenFile(f"{path} is broken ({one_line(error)}); allowed: the file that was written there") from None


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a name beside `path` to write to; when the block ends well that becomes `path`, whole and on disk.

    The name is unique, so that of two writers at once the last one wins.

    Raises:
        BrokenFile: where a folder has taken the place of `path`.
    """
    partial = path.with_name(f".{path.name[:40]}.{uuid.uuid4().hex[:8]}.partial")
    try:
        yield partial
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        partial.replace(path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, IsADirectoryError) and path.is_dir():
            raise BrokenFile(f"{path} is a folder; allowed: a file, or nothing") from None
        if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
            error.filename = str(path)  # what is said of a full disk names it; a write knows no name
        raise


def why_not(error: OSError) -> str:
    """Return the reason why a file could not be written. NumPy's errors have no number, and so none of the system's
    texts."""
    return disk_full(error) or error.strerror or " ".join(str(error).split())


def load_array(path: Path, *, mapped: bool = True) -> np.ndarray:
    """Map a NumPy file into memory, or read it.

    Raises:
        BrokenFile: naming a file that is not whole.
    """
    import numpy as np

    with reading(path):
        found: np.ndarray = np.load(path, mmap_mode="r" if mapped else None)
        return found


def save_arrays(path: Path, **arrays: Any) -> None:
    """Write NumPy arrays as one `.npz` file, in one step."""
    import numpy as np

    with atomic_write(path) as partial, partial.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def save_tensors(contents: dict[str, Any], path: Path) -> None:
    """Write tensors and plain data in one step, for `torch.load(…, weights_only=True)`.

    By way of memory: PyTorch's own writer hides why the system did not take what it wrote.
    """
    import torch

    memory = io.BytesIO()
    torch.save(contents, memory)
    with atomic_write(path) as partial:
        partial.write_bytes(memory.getbuffer())


def disk_full(error: BaseException) -> str | None:
    """Return the message where `error`, or its cause, is a disk without room; None for other errors.

    SQLite, NumPy and PyTorch have errors of their own for it, and so has whatever carries an error from one process to
    another: they hold its text alone.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _FULL:
            where = f" ({seen.filename})" if seen.filename else ""
            return f"the disk is full: {seen.strerror}{where}"
        text = str(seen).lower()
        if found := _FULL_TEXTS.search(text):
            return f"the disk is full: {found[0]}"
        seen = seen.__cause__ or seen.__context__
    return None
