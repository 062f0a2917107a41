"""Tables that are more than their files: a log or metadata says which files, and which of their rows, are current.

The current files of a Delta Lake table are read off its log. Other such tables are refused by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from trainables.corpora.files import problem, read_text

_DELTA = "_delta_log"
_OTHERS = {".hoodie": "Apache Hudi", "_spark_metadata": "Spark's Structured Streaming"}
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet")
_FEATURES = {"columnMapping", "deletionVectors", "timestampNtz", "vacuumProtocolCheck"}
"""Reader features of Delta Lake that need no code: the others are refused, and so are files with deletion vectors."""


def refuse_part(path: Path) -> None:
    """Raise if a path lies in a table whose log or metadata decides what is current.

    Raises:
        UserError: with the table's folder.
    """
    for folder in path.absolute().parents:
        if (folder / _DELTA).is_dir():
            raise problem(path, None, f"is a part of a table of Delta Lake; allowed: the table's folder, {folder}")
        _refuse_other(folder)


def current_files(path: Path, files: list[Path]) -> list[Path]:
    """Return the Parquet files under a folder that are current; those of a Delta Lake table are the ones in its log.

    Raises:
        UserError: for a log that cannot be followed, and for a table of another tool.
    """
    folders = {path, *(parent for file in files for parent in file.parents if parent.is_relative_to(path))}
    for folder in sorted(folders):
        _refuse_other(folder)
        if (folder / _DELTA).is_dir():
            files = [file for file in files if not file.is_relative_to(folder)] + _delta_files(folder)
    return sorted(files)


def _refuse_other(folder: Path) -> None:
    """Raise if a folder is a table of a tool whose metadata is not read."""
    name = next((name for entry, name in _OTHERS.items() if (folder / entry).is_dir()), None)
    if name is None and any(folder.glob("metadata/*.metadata.json")):
        name = "Apache Iceberg"
    if name is not None:
        what = "its files may hold deleted rows, and others twice; allowed: its current rows, written to Parquet by it"
        raise problem(folder, None, f"is a table of {name}: {what}")


def _delta_files(table: Path) -> list[Path]:
    """Return the current files of a Delta Lake table: the newest checkpoint's, changed by the commits after it."""
    log, commits = table / _DELTA, dict[int, Path]()
    checkpoints: dict[tuple[int, int], list[Path]] = {}
    for file in sorted(log.iterdir()):
        if match := _COMMIT.fullmatch(file.name):
            commits[int(match[1])] = file
        elif match := _CHECKPOINT.fullmatch(file.name):
            checkpoints.setdefault((int(match[1]), int(match[2] or 1)), []).append(file)
    whole = {version: files for (version, parts), files in checkpoints.items() if len(files) == parts}
    begin = max(whole, default=-1)
    last = max(commits, default=begin)
    lacking = [version for version in range(begin + 1, last + 1) if version not in commits]
    if lacking or last < 0:
        raise problem(log, None, f"lacks the commit {lacking[0] if lacking else 0}; allowed: the whole log of a table")
    found: dict[str, Any] = {}
    states = [[one for file in whole[begin] for one in _checkpoint(file)]] if begin >= 0 else []
    for actions in chain(states, (_commit(commits[version]) for version in range(begin + 1, last + 1))):
        _refuse_features(actions, log)
        for one in actions:
            if removed := one.get("remove"):
                found.pop(removed["path"], None)
        found |= {one["add"]["path"]: one["add"] for one in actions if one.get("add")}
    return [_file(table, one) for one in found.values()]


def _commit(file: Path) -> list[dict[str, Any]]:
    """Return the actions of a commit."""
    try:
        actions = [json.loads(line) for line in read_text(file).splitlines() if line.strip()]
        if all(isinstance(one, dict) for one in actions):
            return actions
    except (ValueError, RecursionError):
        pass
    raise problem(file, None, "is no commit of Delta Lake; allowed: a JSON object per line")


def _checkpoint(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the actions of a part of a checkpoint."""
    import pyarrow
    import pyarrow.parquet

    try:
        kinds = {"add", "protocol", "sidecar"} & set(pyarrow.parquet.read_schema(file).names)
        actions = pyarrow.parquet.read_table(file, columns=sorted(kinds)).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise problem(file, None, f"is no checkpoint of Delta Lake: {' '.join(str(error).split())}") from None
    yield from actions


def _refuse_features(actions: list[dict[str, Any]], log: Path) -> None:
    """Raise if a table asks its readers for more than is implemented here."""
    for one in actions:
        unknown = set((one.get("protocol") or {}).get("readerFeatures") or ()) - _FEATURES
        if one.get("sidecar"):
            unknown.add("v2Checkpoint")
        if unknown:
            what = f"needs {', '.join(sorted(unknown))} of a reader of Delta Lake"
            raise problem(log, None, f"{what}; allowed: the table's current rows, written to Parquet")


def _file(table: Path, added: dict[str, Any]) -> Path:
    """Return the path of a file that the log has added."""
    name = unquote(added["path"])
    if added.get("deletionVector"):
        what = "has deleted rows, which a deletion vector names; allowed: the table after REORG TABLE … APPLY (PURGE)"
        raise problem(table / name, None, what)
    if "://" in name or name.startswith("/") or ".." in Path(name).parts or not (table / name).is_file():
        raise problem(table, None, f"its log names {name}, which is not there; allowed: a table with all its files")
    return table / name
