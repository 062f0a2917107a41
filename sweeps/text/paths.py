"""Names and paths that a user gives, checked in the same way by every command, for reading and for writing.

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

_SHOWN = 300
"""Characters of a path in a message."""


def is_name(text: str) -> bool:
    """Return True if a sweep, a training or one of our files may have this name."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", text) is not None


def check_name(field: str, name: str) -> str:
    """Return `name` if a sweep may have it.

    Raises:
        UserError: for another name, with what is allowed.
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
    """Return `name` if a model in the registry may have it: like a sweep's, but spaces are allowed.

    Raises:
        UserError: for another name, with what is allowed.
    """
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,99}", name):
        return name
    raise UserError(f"--register = {short(name)}: allowed: letters, digits, '.', '_', '-' and spaces, at most 100")


def folder_name(text: str) -> str:
    """Return `text`, such as a file's stem, as a name: runs of characters that a name cannot have become a dash."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:60].strip("-._") or "sweep"


class _Short(reprlib.Repr):
    """A `repr` without secrets and of bounded depth and width: a value from a file may be of any size."""

    def repr_str(self, value: str, level: int) -> str:
        return super().repr_str(redacted(value), level)  # before it is cut: half a password is a secret too

    def repr_int(self, value: int, level: int) -> str:
        # Python refuses to write integers of more than 4,300 digits.
        return str(value) if abs(value) < 10**40 else f"a number of {value.bit_length() * 0.30103:.0f} digits"


def short(value: object, most: int = 80) -> str:
    """Return the `repr` of a value without secrets, cut to `most` characters."""
    shown = _Short()
    shown.maxstring = shown.maxother = most
    shown.maxlevel = 3
    text = shown.repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def as_path(text: str | Path) -> Path:
    """Return `text` as a path, which need not exist.

    Raises:
        UserError: if it is empty, or the system cannot follow it; with the system's reason.
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
    """Return the URL of a SQLite file whose path may hold a `?`, which would begin options, or a `$`, a variable.

    Nothing else is quoted: MLflow makes the folder of a new file from the URL without decoding it. A `%` is quoted only
    where it would be decoded.
    """
    return "sqlite:///" + re.sub("[?#$]|%(?=[0-9A-Fa-f]{2})", lambda found: f"%{ord(found[0]):02X}", str(path))


def is_printed(path: Path) -> bool:
    """Return True if `path` means standard output."""
    return str(path) in ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def check_output(path: Path, option: str = "--output") -> None:
    """Raise if `path` cannot be written as a regular file. Called before long work begins.

    Raises:
        UserError: if it is no file, or has no folder or no permission.
    """
    if not is_printed(path):
        with _naming(option, path):
            _target(path)


@contextmanager
def output(path: Path, option: str = "--output") -> Iterator[TextIO]:
    """Yield a text that becomes the file at `path` when the block ends well; a link to a file remains a link.

    Raises:
        UserError: as `check_output`, and if the disk is full.
    """
    if is_printed(path):
        yield sys.stdout
        sys.stdout.flush()
        return
    with _naming(option, path):
        target = _target(path)
        with atomic_write(target) as partial:
            with partial.open("w", encoding="utf-8") as file:
                yield file
            if target.exists():
                partial.chmod(target.stat().st_mode)


def _target(path: Path) -> Path:
    """Return the regular file behind `path`, in a folder where a file can be made.

    Raises:
        OSError: with the system's reason against it.
        ValueError: for anything else than a file. A rename would replace a device.
    """
    target = Path(os.path.realpath(path))
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError("it is not a file")
        target.open("ab").close()
    with TemporaryFile(dir=target.parent):
        return target


@contextmanager
def _naming(option: str, path: Path) -> Iterator[None]:
    """Turn an error of the block into one that names the option and its path.

    Raises:
        UserError: for every OSError and ValueError.
    """
    try:
        yield
    except UserError:
        raise
    except (OSError, ValueError) as error:
        reason = why_not(error) if isinstance(error, OSError) else str(error)
        raise UserError(f"{option} = {str(path)!r}: {reason}; allowed: a file that can be written") from None
