"""Names and paths on their way in: what may be one, for every command, for reading as for writing.

A name that held a `/` would reach into another folder: `base/` is the folder of `base`, and not its name.
"""

from __future__ import annotations

import re
import reprlib
from pathlib import Path, PurePath

from edp.spec import UserError
from sweeps.text.secrets import redacted

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
