"""Search everything that is left in a folder for a text: names, bytes, and the rows of databases."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path


def holding(folder: Path, texts: Sequence[str]) -> list[str]:
    """Return the paths below `folder` whose name or contents hold one of `texts`."""
    wanted = [text.encode() for text in texts]
    return sorted(
        {
            str(path.relative_to(folder))
            for path in folder.rglob("*")
            for content in (str(path.relative_to(folder)).encode(), *_contents(path))
            if any(text in content for text in wanted)
        }
    )


def _contents(path: Path) -> Iterator[bytes]:
    if not path.is_file():
        return
    yield path.read_bytes()
    if path.suffix == ".db":  # whose whole numbers are not text
        with contextlib.closing(sqlite3.connect(path)) as database:
            yield "\n".join(database.iterdump()).encode(errors="surrogateescape")
