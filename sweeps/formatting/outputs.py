"""Files that a user names to be written: regular ones, whole or not at all; or standard output, which is printed on."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from edp.spec import UserError
from trainables.records.files import atomic_write, why_not

_STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (lambda mode: not stat.S_ISREG(mode), "a device"),
)


def is_printed(path: Path) -> bool:
    """Whether `path` stands for standard output."""
    return str(path) in _STDOUT


def check_output(path: Path, option: str = "--output") -> None:
    """Refuses what cannot be written as a regular file, before anything is made.

    Raises:
        UserError: for a folder, a device, a pipe, a socket, a place without a folder or without permission.
    """
    if not is_printed(path):
        with _complaints(path, option):
            _target(path, option)


@contextmanager
def output(path: Path, option: str = "--output") -> Iterator[TextIO]:
    """What is written to the text becomes the file at `path` when the block ends well; a link to a file stays a link.

    Raises:
        UserError: as `check_output`, and for what the disk does not take.
    """
    if is_printed(path):
        yield sys.stdout
        sys.stdout.flush()
        return
    with _complaints(path, option):
        target = _target(path, option)
        with atomic_write(target) as partial:
            with partial.open("w", encoding="utf-8") as file:
                yield file
            if target.exists():
                partial.chmod(target.stat().st_mode)


def check_page(plot: Path | None) -> None:
    """Refuses a `--plot` that names no page: figures are written as HTML.

    Raises:
        UserError: for another ending, and as `check_output`.
    """
    if plot is None:
        return
    if plot.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--plot = {str(plot)!r}: it is written as a page; allowed: a file that ends in .html or .htm")
    check_output(plot, "--plot")


def make_folder(path: Path, option: str = "--output") -> None:
    """Makes a folder for what is written, where it is not there.

    Raises:
        UserError: when it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", error)
        raise UserError(f"{option} = {str(path)!r}: {reason}; allowed: a folder that can be written") from None


def _target(path: Path, option: str) -> Path:
    """The file behind `path`."""
    target = Path(os.path.realpath(path))
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise UserError(
                f"{option} = {str(path)!r}: its folder is not there; allowed: a file in a folder that is"
            ) from None
        writable = os.access(target.parent, os.W_OK | os.X_OK)
    else:
        if kind := next((words for is_kind, words in _KINDS if is_kind(mode)), None):
            raise UserError(f"{option} = {str(path)!r} is {kind}; allowed: a file, or - to print it")
        writable = os.access(target, os.W_OK) and os.access(target.parent, os.W_OK | os.X_OK)
    if not writable:
        raise UserError(f"{option} = {str(path)!r}: permission denied; allowed: a file that can be written")
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
