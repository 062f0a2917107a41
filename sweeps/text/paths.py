"""Names and paths that a user gives: checked in the same way for every command, for reading as for writing.

A name with a `/` would reach into another folder, so `base/` is not the name `base`. An output file is written whole or
not at all; `-` prints it.
"""

from __future__ import annotations

import os
import re
import reprlib
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from tempfile import TemporaryFile
from typing import TextIO

from edp.spec import UserError
from sweeps.text.secrets import redacted
from trainables.records.files import atomic_write, why_not

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,99}")
_SHOWN = 300
"""Characters of a path in a message."""


def is_name(text: str) -> bool:
    """Return whether a sweep, a training or a file of ours may have this name."""
    return _NAME.fullmatch(text) is not None


def check_name(field: str, name: str) -> str:
    """`name`, which may be that of a sweep.

    Raises:
        UserError: saying what is allowed.
    """
    if is_name(name):
        return name
    last = PurePath(name).name
    hint = f"; did you mean {last}?" if last != name and is_name(last) else ""
    raise UserError(
        f"{field} = {short(name)}: allowed: letters, digits, '.', '_' and '-', at most 100, the first a letter or a "
        f"digit{hint}"
    )


def check_model_name(name: str) -> str:
    """`name`, which may be that of a model in the registry: as a sweep's, with spaces.

    Raises:
        UserError: saying what is allowed.
    """
    if _MODEL.fullmatch(name):
        return name
    raise UserError(f"--register = {short(name)}: allowed: letters, digits, '.', '_', '-' and spaces, at most 100")


def folder_name(text: str) -> str:
    """`text`, such as a file's stem, as a part of a name: what may not stand there becomes a dash."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:60].strip("-._") or "sweep"


def is_point(text: str) -> bool:
    """Return whether it names a point of a sweep: `7`, or `7@3`."""
    return re.fullmatch(r"\d{1,9}(@\d{1,9})?", text, re.ASCII) is not None


def as_path(text: str | Path) -> Path:
    """Return `text` as a path, which may lead to nothing yet.

    Raises:
        UserError: for an empty one, and for one that the system cannot follow, with its reason.
    """
    given = str(text)
    try:
        if not given:
            raise ValueError("it is empty")
        Path(given).stat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:  # too long, a loop of links, another user's folder; a NUL byte
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"{short(given, _SHOWN)} leads nowhere ({reason}); allowed: a path that can be followed"
        ) from None
    return Path(given)


def sqlite_url(path: Path) -> str:
    """The URL of a SQLite file, whatever stands in its path: a `?` would begin the options, a `$` a variable.

    Nothing else is quoted: MLflow makes the folder of a file that is not there yet from the URL as it stands.
    """
    return "sqlite:///" + "".join(f"%{ord(letter):02X}" if letter in "%?#$" else letter for letter in str(path))


class _Short(reprlib.Repr):
    """Bounded in depth and width: a value from a file may be nested, or as long, as it likes. Without secrets."""

    def repr_str(self, value: str, level: int) -> str:
        return super().repr_str(redacted(value), level)  # before it is cut: half a password is one

    def repr_int(self, value: int, level: int) -> str:
        return str(value) if abs(value) < 10**40 else f"a number of {value.bit_length() * 0.30103:.0f} digits"


def short(value: object, most: int = 80) -> str:
    """`value` as Python writes it, of what is long or nested the beginning, without secrets."""
    shown = _Short()
    shown.maxstring = shown.maxother = most
    shown.maxlevel = 3
    text = shown.repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


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
