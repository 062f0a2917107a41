"""The specification of a corpus."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from edp.spec import Frozen


class ColumnsSpec(Frozen):
    """The names of a table's columns; null: one of the usual names (`trainables.corpora.tables.NAMES`)."""

    text: Annotated[str | None, Field(description="words separated by blanks, or a list of words")] = None
    intent: str | None = None
    tags: Annotated[str | None, Field(description="strict BIO, one tag a word")] = None
    user: Annotated[str | None, Field(description="user of the utterance")] = None


class CorpusSpec(Frozen):
    """A corpus: a public one by name, a generated one, or a user's own by path."""

    name: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
            description="a public corpus (edp-sweep data fetch --help), communication, health or video; with a "
            "path any name, by default that of the file",
        ),
    ]
    path: Annotated[str | None, Field(description="folder or file of the corpus; takes precedence over `name`")] = None
    format: Annotated[
        Literal["auto", "three_file", "nlu_eval", "jsonl", "conll", "csv", "parquet", "datasets"],
        Field(description="format of `path`"),
    ] = "auto"
    columns: Annotated[ColumnsSpec | None, Field(description="of csv, parquet, datasets; null: the usual names")] = None
    utterances: Annotated[
        int | None, Field(ge=20, description="number of utterances to generate (generated corpora)")
    ] = None
    seed: Annotated[int, Field(ge=0, lt=2**32, description="of the generator and of the 45:5:50 split")] = 0
    split: Annotated[
        Literal["paper", "published"],
        Field(
            description="paper: 45:5:50, no utterance in two parts; published: the corpus' own train, valid and "
            "test, to compare with published SER and F1"
        ),
    ] = "paper"

    @model_validator(mode="before")
    @classmethod
    def _named_after_its_path(cls, given: Any) -> Any:
        """Name a corpus with a path after its file or folder, unless it is given a name."""
        if isinstance(given, dict) and isinstance(given.get("path"), int | float):  # as YAML reads digits
            raise ValueError(f"path = {given['path']}: allowed: text; a name of digits as ./{given['path']}")
        if not isinstance(given, dict) or given.get("name") is not None or not isinstance(given.get("path"), str):
            return given
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", PurePath(given["path"]).stem).strip("-._")[:100]
        return {**given, "name": stem or "corpus"}

    @model_validator(mode="after")
    def _format_is_that_of_a_path(self) -> CorpusSpec:
        if self.path is not None:
            return self
        columns = self.columns.model_dump(exclude_none=True) if self.columns is not None else {}
        given = {} if self.format == "auto" else {"format": self.format}
        given |= {f"columns.{kind}": name for kind, name in columns.items()}
        if given:
            name, value = next(iter(given.items()))
            raise ValueError(f"{name} = {value} has no meaning without path; allowed: a path beside it, or neither")
        return self
