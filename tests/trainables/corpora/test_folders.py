"""A folder is not its files: tables whose log says what is current, and columns that folders name, are refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from edp.spec import UserError
from trainables.corpora import read_corpus


def part(path: Path, *words: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table({"text": words, "intent": ["i"] * len(words)}), path)


def words(path: Path) -> list[str]:
    return [one.tokens[0] for one in read_corpus(path, "auto")]


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ("_delta_log/00000000000000000000.json", "Delta Lake"),
        ("metadata/v2.metadata.json", "Apache Iceberg"),
        (".hoodie/hoodie.properties", "Apache Hudi"),
        ("_spark_metadata/0", "Spark's Structured Streaming"),
    ],
)
def test_tables_are_refused_by_name(entry: str, name: str, tmp_path: Path) -> None:
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


def test_columns_that_folders_name_are_refused(tmp_path: Path) -> None:
    part(tmp_path / "user=anna" / "x.parquet", "x")
    with pytest.raises(UserError, match=r"user=anna is a column, by the name of a folder, and is not read; allowed"):
        words(tmp_path)
    assert words(tmp_path / "user=anna") == ["x"]
