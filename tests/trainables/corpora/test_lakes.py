"""A folder is not its files: a table's log says which are current, and what is not read is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from edp.spec import UserError
from trainables.corpora import read_corpus


def part(path: Path, *words: str) -> dict[str, Any]:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table({"text": words, "intent": ["i"] * len(words)}), path)
    return {"add": {"path": path.name, "dataChange": True}}


def commit(table: Path, version: int, *actions: dict[str, Any]) -> None:
    (table / "_delta_log").mkdir(exist_ok=True)
    text = "\n".join(map(json.dumps, actions))
    (table / "_delta_log" / f"{version:020}.json").write_text(text)


def words(path: Path) -> list[str]:
    return [one.tokens[0] for one in read_corpus(path, "auto")]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three versions: a and b are written, b is rewritten as c with its `deleted` row gone, and d is added."""
    table = tmp_path / "table"
    first = part(table / "a.parquet", "a"), part(table / "b b.parquet", "kept", "deleted")
    first[1]["add"]["path"] = "b%20b.parquet"
    commit(table, 0, {"protocol": {"minReaderVersion": 1}}, {"metaData": {}}, *first)
    commit(table, 1, part(table / "c.parquet", "kept"), {"remove": {"path": "b%20b.parquet"}})
    commit(table, 2, part(table / "d.parquet", "d"))
    part(table / "e.parquet", "never committed")
    return table


def test_a_delta_table_is_the_files_of_its_log(table: Path) -> None:
    assert words(table) == ["a", "kept", "d"]
    part(table.parent / "beside" / "x.parquet", "x")
    assert words(table.parent) == ["x", "a", "kept", "d"]


@pytest.mark.parametrize("parts", [1, 2])
def test_it_may_begin_at_a_checkpoint(table: Path, parts: int) -> None:
    log = table / "_delta_log"
    rows = [{"add": {"path": "a.parquet"}}, {"add": {"path": "c.parquet"}}]
    for number in range(parts):
        name = f"{1:020}.checkpoint" + (f".{number + 1:010}.{parts:010}" if parts > 1 else "")
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows[number::parts]), log / f"{name}.parquet")
    for version in (0, 1):
        (log / f"{version:020}.json").unlink()
    assert words(table) == ["a", "kept", "d"]
    (log / f"{name}.parquet").unlink()
    with pytest.raises(UserError, match="_delta_log: lacks the commit 0; allowed: the whole log of a table"):
        words(table)


@pytest.mark.parametrize(
    ("action", "says"),
    [
        ({"add": {"path": "a.parquet", "deletionVector": {"storageType": "u"}}}, "a.parquet: has deleted rows"),
        ({"add": {"path": "s3://bucket/x.parquet"}}, "its log names s3://bucket/x.parquet, which is not there"),
        ({"add": {"path": "../beside.parquet"}}, r"its log names \.\./beside.parquet, which is not there"),
        ({"protocol": {"readerFeatures": ["newest"]}}, "needs newest of a reader of Delta Lake"),
        ({"sidecar": {"path": "x"}}, "needs v2Checkpoint of a reader of Delta Lake"),
    ],
)
def test_what_is_not_read_of_a_delta_table_is_refused(action: dict[str, Any], says: str, table: Path) -> None:
    part(table.parent / "beside.parquet", "x")
    commit(table, 3, action)
    with pytest.raises(UserError, match=says):
        words(table)


def test_a_broken_log_is_one_line(table: Path) -> None:
    (table / "_delta_log" / f"{3:020}.json").write_text("{")
    with pytest.raises(UserError, match=r"3\.json: is no commit of Delta Lake; allowed: a JSON object per line"):
        words(table)


def test_a_part_of_a_table_is_refused_with_the_tables_folder(table: Path) -> None:
    part(table / "day=1" / "x.parquet", "x")
    for path in (table / "b b.parquet", table / "day=1"):
        with pytest.raises(
            UserError, match=f"is a part of a table of Delta Lake; allowed: the table's folder, {table}"
        ):
            words(path)


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ("metadata/v2.metadata.json", "Apache Iceberg"),
        (".hoodie/hoodie.properties", "Apache Hudi"),
        ("_spark_metadata/0", "Spark's Structured Streaming"),
    ],
)
def test_other_tables_are_refused_by_name(entry: str, name: str, tmp_path: Path) -> None:
    table = tmp_path / "mine" / "table"
    part(table / "data" / "x.parquet", "x")
    assert words(table) == ["x"]
    (table / entry).parent.mkdir()
    (table / entry).write_text("{}")
    for path in (table, table / "data", table.parent):
        with pytest.raises(UserError, match=rf"{table}: is a table of {name}: its files may hold deleted rows"):
            read_corpus(path, "parquet")


def test_files_of_tools_are_not_read_and_a_link_is_the_same_twice(tmp_path: Path) -> None:
    part(tmp_path / "x.parquet", "x")
    part(tmp_path / "_temporary" / "0" / "x.parquet", "y")
    part(tmp_path / "_x.parquet", "y")
    assert words(tmp_path) == ["x"]
    (tmp_path / "z.parquet").symlink_to("x.parquet")
    with pytest.raises(UserError, match=r"z\.parquet: is the same as .*x\.parquet; allowed: one of the two"):
        words(tmp_path)
