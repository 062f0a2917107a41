"""Files that a user names to be written, whole or not at all; or standard output, which is printed on."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import TextIO

from edp.spec import UserError
from trainables.records.files import atomic_write, why_not

_STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def is_printed(path: Path) -> bool:
    """Return whether `path` stands for standard output."""
    return str(path) in _STDOUT


def check_output(path: Path, option: str = "--output") -> None:
    """Raise if `path` cannot be written as a regular file, before anything is made.

    Raises:
        UserError: for what is not a file, a place without a folder or without permission.
    """
    if not is_printed(path):
        with _complaints(path, option):
            _target(path)


@contextmanager
def output(path: Path, option: str = "--output") -> Iterator[TextIO]:
    """Yield a text that becomes the file at `path` when the block ends well; a link to a file stays a link.

    Raises:
        UserError: as `check_output`, and for what the disk does not take.
    """
    if is_printed(path):
        yield sys.stdout
        sys.stdout.flush()
        return
    with _complaints(path, option):
        target = _target(path)
        with atomic_write(target) as partial:
            with partial.open("w", encoding="utf-8") as file:
                yield file
            if target.exists():
                partial.chmod(target.stat().st_mode)


def check_page(plot: Path | None) -> None:
    """Raise if `--plot` names no page: figures are written as HTML.

    Raises:
        UserError: for another ending, and as `check_output`.
    """
    if plot is None:
        return
    if plot.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--plot = {str(plot)!r}: it is written as a page; allowed: a file that ends in .html or .htm")
    check_output(plot, "--plot")


def make_folder(path: Path, option: str = "--output") -> None:
    """Make a folder for what is written, where it is not there.

    Raises:
        UserError: when it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", error)
        raise UserError(f"{option} = {str(path)!r}: {reason}; allowed: a folder that can be written") from None


def _target(path: Path) -> Path:
    """Return the regular file behind `path`, in a folder where a file can be made.

    Raises:
        OSError: with the system's reason against it.
        ValueError: for what is not a file, such as a folder or a device, which a rename would replace.
    """
    target = Path(os.path.realpath(path))
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError("it is not a file")
        target.open("ab").close()
    with TemporaryFile(dir=target.parent):
        return target


@contextmanager
def _complaints(path: Path, option: str) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except (OSError, ValueError) as error:
        reason = why_not(error) if isinstance(error, OSError) else str(error)
        raise UserError(f"{option} = {str(path)!r}: {reason}; allowed: a file that can be written") from None
