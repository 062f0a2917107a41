"""A user's mistake as one line: which field, what stands there, what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from edp.spec import UserError

_TAGS = frozenset({"clc", "bert"})


def one_line(error: ValidationError) -> str:
    """The first problem of a pydantic error: `path = value: what is wrong`."""
    problem = error.errors()[0]
    path = ".".join(str(part) for part in problem["loc"] if str(part) not in _TAGS and _is_field(part))
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        return f"{path}: unknown setting"
    if problem["type"] == "missing":
        return f"{path}: missing"
    if problem["type"] == "value_error":
        return f"{path}: {message}" if path and path not in message else message
    message = message[0].lower() + message[1:]
    return f"{path} = {_shown(problem['input'])}: {message}" if path else message


def check_page(plot: Path | None) -> None:
    """Refuses a `--plot` that names no page: figures are written as HTML.

    Raises:
        UserError: for another ending, or a folder that is not there.
    """
    if plot is None:
        return
    if plot.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--plot = {str(plot)!r}: it is written as a page; allowed: a file that ends in .html or .htm")
    if not plot.absolute().parent.is_dir():
        raise UserError(f"--plot = {str(plot)!r}: its folder is not there; allowed: a file in a folder that is")


def _is_field(part: Any) -> bool:
    """Pydantic puts the names of union members and validators among the fields."""
    return not (isinstance(part, str) and ((part[:1].isupper() and part != "C") or "[" in part or "-" in part))


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def suggestion(name: str, known: Iterable[str]) -> str:
    """`; did you mean x?` where something known is close, else what is known."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"allowed: {', '.join(known)}"
