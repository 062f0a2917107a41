"""Write and read files that are whole or absent, and recognise a full disk; the permissions of a storage folder.

Its files are the owner's alone, or those of the folder's group: they hold private utterances, and models and attack
features that come from them. The process' umask is set, so that databases, logs and artifacts that libraries write have
them too, and processes that start from here.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import io
import os
import re
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from edp.spec import UserError

if TYPE_CHECKING:  # without NumPy and PyTorch, processes that only pass messages start in half the time
    import numpy as np

Read = TypeVar("Read")

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_WANTING = {errno.ENOMEM, errno.EMFILE, errno.ENFILE}
"""Errors of a machine that lacks memory or open files. They say nothing about the file."""
_FULL_TEXTS = re.compile(
    "no space left on device|disk is full|disk quota exceeded|file too large"
    r"|\d+ requested and \d+ written"  # NumPy, which does not pass on the system's error
    "|failed writing file"  # PyTorch, likewise
)


class BrokenFile(UserError):
    """A file is not whole, or not what was written there; the text is one line."""


def read_json(path: Path, kind: Callable[..., Read]) -> Read:
    """Return the contents of a JSON file as a `kind`, any type that pydantic can check, such as `dict[str, float]`.

    Raises:
        BrokenFile: for a file that is missing, cannot be read, is not JSON, or is not of this kind.
        UserError: if the machine lacks what it takes to read it.
    """
    with reading(path):
        return _adapter(kind).validate_json(path.read_bytes())


def read_json_if_any(path: Path, kind: Callable[..., Read]) -> Read | None:
    """Return the contents of a JSON file as `read_json` does; None if the file is missing."""
    return read_json(path, kind) if path.exists() else None


def cause_of(error: BaseException) -> BaseException:
    """Return what a task of Ray raised, whose own text begins with its place, in colours; another error as it is."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, BaseException) else error


def one_line(error: BaseException) -> str:
    """Return an error's text in one line, or its type if it has no text."""
    return " ".join(str(error).split())[:200] or type(error).__name__


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Report every error of a block that parses the contents of `path` as a fault of the file.

    Raises:
        UserError: if the machine lacks what it takes to read it.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # NumPy, zipfile, pickle and PyTorch have many types for a damaged file
        why = getattr(error, "strerror", None) or one_line(error)
        if isinstance(error, MemoryError) or getattr(error, "errno", None) in _WANTING:
            again = "allowed: another try, with more memory or open files"
            raise UserError(f"{path} cannot be read now ({why}); {again}") from None
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            why = ": ".join([".".join(map(str, first["loc"])), first["msg"]][not first["loc"] :])[:200]
        raise BrokenFile(f"{path} is broken ({why}); allowed: the file that was written there") from None


# Building an adapter takes far longer than reading a file with it.
@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, and rename it to `path` if the block succeeds.

    The file is flushed to disk first, so `path` is whole or unchanged. The temporary name is unique: if two processes
    write at once, the last one wins.

    Raises:
        BrokenFile: if `path` is a folder.
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
            error.filename = str(path)  # for the message; the error of a write names no file
        raise


def write_json(path: Path, contents: Any) -> None:
    """Write plain data or a pydantic model as JSON, in one step. Infinite numbers are kept."""
    with atomic_write(path) as partial:
        partial.write_bytes(to_json(contents, indent=1, inf_nan_mode="constants"))


def why_not(error: OSError) -> str:
    """Return the reason why a file could not be written; NumPy's errors lack the system's text."""
    return disk_full(error) or error.strerror or " ".join(str(error).split())


def load_array(path: Path, *, mapped: bool = True) -> np.ndarray:
    """Map a NumPy file into memory, or read it if `mapped` is false.

    Raises:
        BrokenFile: for a file that is not whole.
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

    The file is made in memory first, since PyTorch's own writer hides the system's error, such as a full disk.
    """
    import torch

    memory = io.BytesIO()
    torch.save(contents, memory)
    with atomic_write(path) as partial:
        partial.write_bytes(memory.getbuffer())


def disk_full(error: BaseException) -> str | None:
    """Return a message if a full disk caused `error`; None for other errors.

    SQLite, NumPy and PyTorch raise errors of their own, and an error from another process may be text alone, so texts
    are searched too.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _FULL:
            where = f" ({seen.filename})" if seen.filename else ""
            return f"the disk is full: {seen.strerror}{where}"
        if found := _FULL_TEXTS.search(text_of(seen).lower()):
            return f"the disk is full: {found[0]}"
        seen = seen.__cause__ or seen.__context__
    return None


def text_of(error: BaseException) -> str:
    """Return the text of an error; "" where that of another package fails to make one."""
    try:
        return str(error)
    except Exception:
        return ""


_OWNER, _GROUP = 0o077, 0o007
_SHARED = stat.S_ISGID | stat.S_IRWXG


def own_files(folder: Path) -> None:
    """Let this process make files below `folder` for their owner alone, or for the group of a shared folder.

    Args:
        folder: a folder of a storage folder; what is missing of it does not count.
    """
    there = next((one for one in (folder, *folder.absolute().parents) if one.is_dir()), folder)
    os.umask(_GROUP if there.is_dir() and is_shared(there) else _OWNER)


def is_shared(folder: Path) -> bool:
    """Return True for a folder of `share`, or one below it: they have its setgid bit."""
    return stat.S_IMODE(folder.stat().st_mode) & _SHARED == _SHARED


def share(folder: Path) -> None:
    """Make a folder if it is missing, and share with its group what will be made there."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(stat.S_ISGID | 0o770)


def unfinished_folder(parent: Path, prefix: str) -> Path:
    """Make a folder of a new name in `parent`, with the permissions of its files.

    Those of `tempfile.mkdtemp` would keep the workers of a group's other members out.
    """
    folder = parent / f"{prefix}{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    return folder
