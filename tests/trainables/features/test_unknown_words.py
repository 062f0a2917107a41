"""What an encoder cannot read of a corpus is counted, and most of it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from edp.spec import UserError
from sweeps.engine.prepare import open_corpora
from tests.conftest import Command
from tests.support.encoder_folders import make_encoder
from tests.support.tiny import spec
from trainables.corpora import Utterance
from trainables.features.word_pieces import Readable, WordPieces, readable

THAI = "text,intent\n" + "".join(f"ขอจอง{chr(0x0E01 + i)},{('book', 'stop')[i % 2]}\n" for i in range(40))


def test_words_are_counted_as_often_as_they_are_said_and_utterances_by_their_pieces() -> None:
    pieces = WordPieces.train([("book", "a", "flight"), ("stop",)])
    lines = ["book a ขอ", "book a จอง", "book a จอง", "Book a ขอ"]
    said = [Utterance(tuple(line.split()), ("O",) * 3, "i") for line in lines]
    assert readable(said, pieces) == Readable(pieces.source, words=12, unknown=4, distinct=3, told_apart=1)


@pytest.mark.parametrize(("unknown", "told_apart", "is_most"), [(5, 5, False), (6, 10, True), (0, 4, True)])
def test_most_is_more_than_half(unknown: int, told_apart: int, is_most: bool) -> None:
    counts = Readable("minilm", 10, unknown, 10, told_apart)
    if not is_most:
        counts.check()
        return
    with pytest.raises(
        UserError, match=rf"{10 * unknown}\.0% of the words .* tells {told_apart} of 10 .*; allowed: an enc"
    ):
        counts.check()


def test_a_corpus_in_letters_that_the_encoder_lacks_is_refused_before_anything_starts(
    tmp_path: Path, command: Command
) -> None:
    corpus, encoder = tmp_path / "th.csv", make_encoder("bert", tmp_path / "encoder")
    corpus.write_text(THAI)
    code, out, err = command("data", "check", str(corpus), "--encoder", str(encoder))
    assert (code, out) == (2, "")
    assert "100.0% of the words are unknown to it, and it tells 1 of 40 distinct utterances apart" in " ".join(
        err.split()
    )
    one = spec(corpus={"name": "th", "path": str(corpus), "utterances": None})
    model = {"kind": "bert", "pretrained": str(encoder), "vocabulary": {"name": "health", "utterances": 60}}
    one = type(one).model_validate(one.model_dump(mode="json", exclude_unset=True) | {"model": model})
    with pytest.raises(UserError, match=r"model\.pretrained: .*100\.0% of the words are unknown to it"):
        open_corpora(one, tmp_path / "cache", tmp_path / "folder", lambda _: None)
