"""The specification of a corpus."""

from __future__ import annotations

import re
import warnings
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from edp.spec import Frozen
from trainables.config.plugins import Reader

Quoting = Literal["auto", "quoted", "plain"]


class ColumnsSpec(Frozen):
    """The names of a table's columns; null: one of the usual names (`trainables.corpora.tables.NAMES`).

    A column of CoNLL has a number, from 1, or a name in the line `# global.columns = …`.
    """

    model_config = ConfigDict(coerce_numbers_to_str=True)

    text: str | None = None
    """column of the words, separated by blanks or as a list; null: a usual name"""
    intent: str | None = None
    """column of the intent; null: a usual name"""
    tags: str | None = None
    """column of the tags, strict BIO with one tag per word; null: a usual name"""
    user: str | None = None
    """column of the user who said the utterance; null: a usual name"""


class PrivacyBudget(Frozen):
    """The most that all trainings on a corpus may cost together."""

    epsilon: Annotated[float, Field(gt=0)]
    """largest ε of the corpus' account; what would make it pass this is refused before it starts; without `budget`: no
    limit"""
    delta: Annotated[float, Field(gt=0, lt=1)]
    """the δ of that ε"""


# Pydantic warns of a field that has the name of a deprecated method of its own, which is not used here.
warnings.filterwarnings("ignore", message='Field name "schema" in "CorpusSpec" shadows')


class CorpusSpec(Frozen):
    """A corpus: a public or a generated one by name, or your own by path."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    """a public corpus (edp-sweep data fetch --help lists them), or a generated one: communication, health or video;
    with `path` any name, by default that of the file or folder"""
    path: str | None = None
    """file or folder of your own corpus; null: the corpus called `name`"""
    format: (
        Literal["auto", "three_file", "nlu_eval", "jsonl", "conll", "csv", "parquet", "datasets", "schema"] | Reader
    ) = "auto"
    """format of the files at `path`; schema: the text of a schema's samples, whose path may also be a name that comes
    along; auto: recognised by their names; text: a format that a plugin adds"""
    columns: ColumnsSpec | None = None
    """columns of formats csv, parquet and datasets by name; text and tags of conll by number or name; null: the usual
    ones"""
    schema: str | None = None  # type: ignore[assignment]  # mypy takes it for BaseModel.schema, a deprecated method that nothing calls
    """public names of intents and slot types, and samples (docs/corpora.md#schemas): our YAML, or files of Rasa, Alexa
    or Dialogflow ES, or a name of one that comes along: atis, clinc150, mit_restaurant, nlu_eval, snips, communication,
    health or video; null: labels are read off the corpus, and taken to be public"""
    quoting: Quoting = "auto"
    """quotes in formats csv and nlu_eval; quoted: a cell may be in double quotes; plain: a quote is a character like
    any other; auto: plain if tabs separate the cells and the header has no quotes, else quoted"""
    utterances: Annotated[int | None, Field(ge=20)] = None
    """number of utterances to generate (null: 10,000), or, for other corpora, to draw at random (null: all)"""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """seed of the generator, the sample and the split"""
    split: Literal["paper", "published"] = "paper"
    """paper: about 45:5:50 into train, valid and test, by a hash of the words; published: the corpus' own train, valid
    and test, to compare with published results"""
    budget: PrivacyBudget | None = None
    """of the private corpus: what would make its account pass this is refused before it starts; null: no limit"""

    @model_validator(mode="before")
    @classmethod
    def _named_after_its_path(cls, given: Any) -> Any:
        """Name a corpus with a path after its file or folder, unless it has a name.

        The text of `atis.yaml` is not called `atis`: a corpus of that name may be private.
        """
        if isinstance(given, dict) and isinstance(given.get("path"), int | float):  # YAML reads digits as a number
            raise ValueError(f"path = {given['path']}: allowed: text; a name of digits as ./{given['path']}")
        if not isinstance(given, dict) or given.get("name") is not None or not isinstance(given.get("path"), str):
            return given
        path = PurePath(given["path"])
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-._")[:100] or "corpus"
        made = given.get("format") == "schema" or path.suffix in (".yaml", ".yml")
        return {**given, "name": f"{stem[:95]}-text" if made else stem}

    @model_validator(mode="after")
    def _format_is_that_of_a_path(self) -> CorpusSpec:
        if self.path is not None:
            return self
        given = {name: one for name in ("format", "quoting") if (one := getattr(self, name)) != "auto"}
        if self.columns is not None:
            given |= {f"columns.{kind}": name for kind, name in self.columns.model_dump(exclude_none=True).items()}
        for name, value in given.items():
            raise ValueError(f"{name} = {value} has no meaning without path; allowed: a path beside it, or neither")
        return self

    def check_public(self, field: str) -> None:
        """Raise if a corpus that is read as public has a budget, or a schema that is not the proxy corpus'.

        The heads of the proxy corpus may begin at those of its schema's text, as the private corpus' do.
        """
        if self.budget is not None:
            raise ValueError(
                f"{field}.budget: this corpus is read as public, and no ε bounds what is learnt from it; "
                "allowed: a budget of the private corpus alone (corpus.budget)"
            )
        if self.schema is not None and field != "search.proxy":
            raise ValueError(
                f"{field}.schema = {self.schema}: this corpus is read as public, and so are its labels; "
                "allowed: null, and a schema of the private corpus (corpus.schema) or of search.proxy"
            )
