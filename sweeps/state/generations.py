"""What a storage folder holds, by content, at one time: as it is, and as an object store has it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from sweeps.state.flock import LOCK
from trainables.records.files import digest

OWN = ".mirror"
"""Folder in a working folder that knows what the store has."""
_DATABASE = ".db"
_PARTIAL = (".partial", "-journal", "-wal", "-shm", ".log")


class Kept(BaseModel):
    """A file as a generation has it."""

    digest: str
    size: int


class Generation(BaseModel):
    """All files of the folder at one time, by their paths in it."""

    number: int = 0
    token: str = ""
    """Tells it from another one of this number."""
    files: dict[str, Kept] = {}

    @property
    def name(self) -> str:
        """Of its object."""
        return f"{self.number:010d}-{self.token}.json"


class State(BaseModel):
    """What a working folder knows of the store."""

    base: Generation = Generation()
    """That it has all of, apart from what it has changed since."""
    before: set[str] = set()
    """Contents of the generation before the base, which someone may be reading."""
    seen: dict[str, tuple[int, int, str]] = {}
    """Size, time of change and content of each file, when it was last read."""
    coming: dict[str, set[str]] = {}
    """Contents that files may have, since they were being brought down; "" where a file may have gone."""
    pending: State | None = None
    """As it will be when the generation that is being written is there."""


class Look(NamedTuple):
    """What was found in a folder: its files, when they were seen so, and where new contents are read."""

    files: dict[str, Kept]
    seen: dict[str, tuple[int, int, str]]
    sources: dict[str, Path]


def blob(content: str) -> str:
    """The object that holds a content."""
    return f"blobs/{content[:2]}/{content}"


def look(folder: Path, state: State, scratch: Path) -> Look:
    """What is in a folder. Databases first: what they tell of is there already.

    Args:
        scratch: gets copies of databases, which someone may be writing to.
    """
    found = Look({}, {}, {})
    for name in sorted(_files(folder), key=lambda one: (not one.endswith(_DATABASE), one)):
        path = folder / name
        try:
            stat, known, kept = stat_of(path), state.seen.get(name), state.base.files.get(name)
            if known is not None and kept is not None and known == (*stat, kept.digest):
                found.files[name], found.seen[name] = kept, known
                continue
            if name.endswith(_DATABASE):
                path = _copy_of(path, scratch / f"{len(found.files)}{_DATABASE}")
            content = digest(path)
            found.files[name] = Kept(digest=content, size=path.stat().st_size)
            found.seen[name], found.sources[name] = (*stat, content), path
        except FileNotFoundError:
            continue  # it went meanwhile
    return found


def _copy_of(database: Path, copy: Path) -> Path:
    """A SQLite database as of its last commit; what is none is returned as it is."""
    try:
        with (
            closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=30)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
    except sqlite3.DatabaseError:
        return database
    return copy


def stat_of(path: Path) -> tuple[int, int]:
    """Size and time of change, of a database with what was committed beside it."""
    found = [path.stat()]
    log = path.with_name(f"{path.name}-wal")
    if path.name.endswith(_DATABASE) and log.exists():
        found.append(log.stat())
    return sum(one.st_size for one in found), max(one.st_mtime_ns for one in found)


def _files(folder: Path) -> Iterator[str]:
    """What is kept of a storage folder: all but what Ray and drivers leave, and what is being written."""
    for place, folders, names in os.walk(folder):
        here = Path(place).relative_to(folder)
        folders[:] = [one for one in folders if not one.startswith(".") and not (one == "ray" and len(here.parts) == 1)]
        for name in names:
            if not name.startswith(".") and name != LOCK and not name.endswith(_PARTIAL):
                yield (here / name).as_posix()
