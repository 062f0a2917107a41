"""A corpus of one's own needs a path, and no name."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from trainables.config import CorpusSpec


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("mine.csv", "mine"),
        ("/data/our tickets (2026).jsonl", "our-tickets-2026"),
        ("corpora/sub/", "sub"),
        ("…", "corpus"),
        (f"{'x' * 200}.csv", "x" * 100),
    ],
)
def test_it_is_called_as_its_file_is(path: str, name: str) -> None:
    assert CorpusSpec.model_validate({"path": path}).name == name


def test_a_name_that_is_given_stays_and_without_a_path_there_must_be_one() -> None:
    assert CorpusSpec(name="ours", path="mine.csv").name == "ours"
    with pytest.raises(ValidationError, match="name"):
        CorpusSpec.model_validate({"path": None})
    with pytest.raises(ValidationError, match="name"):
        CorpusSpec.model_validate({"name": "not/one", "path": "mine.csv"})
