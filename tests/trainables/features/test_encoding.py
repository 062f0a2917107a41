"""Encoding: what goes in comes out, whole or not at all, and new utterances are encoded as the corpus was."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from edp.spec import UserError
from tests.support.toy import BERT, CLC, PUBLIC_TOKENS, SPLITS, TRAIN, encoded, features, utterance
from trainables.config import CLCSpec, CorpusSpec, EmbeddingsSpec, ModelSpec
from trainables.corpora.labels import Labels
from trainables.corpora.types import Splits
from trainables.features.encoded_corpus import EncodedCorpus, encode
from trainables.features.token_features import (
    Batch,
    PieceInputs,
    WordInputs,
    char_ids,
    encode_utterances,
    features_for,
    load_features,
)
from trainables.features.word_pieces import MAX_PIECES, WordPieces

MODELS = pytest.mark.parametrize("model", [CLC, BERT], ids=["clc", "bert"])


@MODELS
def test_what_goes_in_comes_out(model: ModelSpec, tmp_path: Path) -> None:
    corpus = encoded(model, tmp_path)
    assert [corpus.size(split) for split in ("train", "valid", "test")] == [5, 2, 3]
    order = np.array([3, 0, 4])
    assert corpus.utterances("train", order) == [TRAIN[i] for i in order]
    assert corpus.lengths("train").tolist() == [len(u.tokens) for u in TRAIN]
    assert corpus.utterances("train", np.array([], np.int64)) == []


def test_labels_are_those_of_all_splits_and_closed(tmp_path: Path) -> None:
    labels = encoded(CLC, tmp_path).labels
    assert labels.intents == ("call", "play", "stop")
    kinds = ("artist", "contact", "number", "song")
    assert labels.tags == ("O", *(f"{prefix}-{kind}" for kind in kinds for prefix in "BI"))
    assert Labels.from_dict(labels.to_dict()) == labels
    with pytest.raises(ValueError, match="are not O"):
        Labels(("x",), ("B-a", "I-a", "O"))


@MODELS
def test_a_batch_has_the_labels_and_the_padding_of_its_utterances(model: ModelSpec, tmp_path: Path) -> None:
    corpus = encoded(model, tmp_path)
    batch = corpus.batch("train", np.array([1, 0]))
    assert len(batch) == 2
    assert batch.lengths_b.tolist() == [1, 5]
    assert batch.mask_bt.tolist() == [[True] + [False] * 4, [True] * 5]
    assert batch.tags_bt is not None
    assert batch.intent_b is not None
    names = [[corpus.labels.tags[tag] for tag in row] for row in batch.tags_bt.tolist()]
    assert names == [["O"] * 5, list(TRAIN[0].tags)]
    assert [corpus.labels.intents[i] for i in batch.intent_b.tolist()] == ["stop", "call"]
    assert batch.to("cpu").mask_bt.equal(batch.mask_bt)


def test_words_of_a_batch_are_looked_up_once(tmp_path: Path) -> None:
    corpus = encoded(CLC, tmp_path)
    batch = corpus.batch("train", np.array([0, 0, 2]))
    assert isinstance(batch.inputs, WordInputs)
    words = sorted({*TRAIN[0].tokens, *TRAIN[2].tokens})
    assert len(batch.inputs.vectors_ud) == len(words)
    assert batch.inputs.chars_uc.shape == (len(words), len("parents"))
    row = int(batch.inputs.word_bt[0, 1])
    np.testing.assert_array_equal(batch.inputs.chars_uc[row], char_ids(["my"])[0, : len("parents")])
    expected = corpus_vectors(["my"])[0]
    np.testing.assert_allclose(batch.inputs.vectors_ud[row], expected, atol=1e-5)


def corpus_vectors(words: list[str]) -> np.ndarray:
    vectors = features(CLC)
    assert not isinstance(vectors, WordPieces)
    return vectors.vectors(words)


def test_sub_words_stand_between_their_special_tokens(tmp_path: Path) -> None:
    corpus, pieces = encoded(BERT, tmp_path), features(BERT)
    assert isinstance(pieces, WordPieces)
    batch = corpus.batch("train", np.array([1, 3]))
    assert isinstance(batch.inputs, PieceInputs)
    for row, index in enumerate([1, 3]):
        per_word = pieces.pieces(TRAIN[index].tokens)
        expected = [pieces.start, *(i for ids in per_word for i in ids), pieces.end]
        real = batch.inputs.piece_mask_bs[row]
        assert batch.inputs.piece_bs[row][real].tolist() == expected
        assert (batch.inputs.piece_bs[row][~real] == pieces.pad).all()
        firsts = batch.inputs.first_bt[row, : len(per_word)].tolist()
        assert [expected[place] for place in firsts] == [ids[0] for ids in per_word]
    assert corpus.vocabulary_size == pieces.size


def test_tokens_beyond_berts_positions_are_not_read(tmp_path: Path) -> None:
    long = utterance("song " * 600, "O " * 600, "play")
    monster = utterance("x" * 2000 + " song", "B-song O", "play")  # one word, more sub-words than positions
    corpus = encoded(BERT, tmp_path, Splits([long, monster, TRAIN[0]], [TRAIN[1]], [TRAIN[2]]))
    batch = corpus.batch("train", np.array([0, 1, 2]))
    assert isinstance(batch.inputs, PieceInputs)
    assert batch.inputs.piece_bs.shape[1] <= MAX_PIECES
    pieces = features(BERT)
    assert isinstance(pieces, WordPieces)
    (song,) = pieces.pieces(["song"])
    assert batch.lengths_b.tolist()[0] == (MAX_PIECES - 2) // len(song)
    assert batch.lengths_b.tolist()[1] >= 1
    assert batch.lengths_b.tolist()[2] == 5
    assert batch.mask_bt.sum(1).tolist() == batch.lengths_b.tolist()
    assert corpus.lengths("train").tolist() == [600, 2, 5]
    assert len(corpus.tag_ids("train", np.array([0]))[0]) == 600


def same(one: Batch, other: Batch) -> None:
    for field in vars(one.inputs):
        torch.testing.assert_close(getattr(one.inputs, field), getattr(other.inputs, field))


def test_new_utterances_are_encoded_as_the_corpus_was(tmp_path: Path) -> None:
    corpus = encoded(BERT, tmp_path)
    served = encode_utterances([list(TRAIN[3].tokens), ["stop"]], corpus.features())
    same(served, corpus.batch("train", np.array([3, 1])))
    assert served.tags_bt is None
    assert served.intent_b is None

    corpus = encoded(CLC, tmp_path)
    served = encode_utterances([["stop"]], load_features(corpus.folder / "features"))
    same(served, corpus.batch("train", np.array([1])))
    unseen = encode_utterances([["never", "seen"]], corpus.features())
    assert unseen.lengths_b.tolist() == [2]
    for nothing in ([], [["stop"], []]):
        with pytest.raises(UserError, match="utterances"):
            encode_utterances(nothing, corpus.features())


def test_what_goes_with_a_model_holds_no_private_word(tmp_path: Path) -> None:
    for model in (CLC, BERT):
        folder = encoded(model, tmp_path).folder / "features"
        assert not any(b"parents" in path.read_bytes() for path in folder.rglob("*"))


def test_a_half_written_folder_is_no_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = encoded(CLC, tmp_path)

    def fail(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr("trainables.features.encoded_corpus.make_table", fail)
        with pytest.raises(OSError, match="disk full"):
            encoded(CLC, tmp_path, Splits(TRAIN[:1], TRAIN[:1], TRAIN[:1]))
    assert EncodedCorpus.open(first.folder).size("train") == 5, "the old one still stands"
    assert [path.name for path in tmp_path.iterdir()] == ["clc"], "nothing half-written stays behind"
    (first.folder / "meta.json").unlink()
    with pytest.raises(UserError, match="not whole"):
        EncodedCorpus.open(first.folder)


@pytest.mark.parametrize("name", ["train_tags.npy", "valid_intents.npy", "meta.json", "words.json", "word_chars.npy"])
def test_a_file_that_is_cut_is_named(name: str, tmp_path: Path) -> None:
    broken = encoded(CLC, tmp_path).folder / name
    broken.write_bytes(broken.read_bytes()[:-5])
    with pytest.raises(UserError, match=rf"{name} is broken \("):
        EncodedCorpus.open(broken.parent).words()


def test_a_corpus_travels_as_its_path(tmp_path: Path) -> None:
    corpus = encoded(CLC, tmp_path)
    sent = pickle.dumps(corpus)
    assert len(sent) < 500
    assert pickle.loads(sent).digest == corpus.digest


def test_a_corpus_that_cannot_be_encoded_leaves_nothing(tmp_path: Path) -> None:
    labels = Labels(("call", "other"), ("O", "B-other", "I-other"))
    with pytest.raises(KeyError):
        encode(SPLITS, CLC, tmp_path / "c", labels=labels, features=features(CLC))
    assert not list(tmp_path.iterdir())


def test_the_spec_says_where_word_vectors_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def load_corpus(spec: CorpusSpec, field: str) -> Splits:
        asked.append((field, spec.name))
        return SPLITS

    monkeypatch.setattr("trainables.features.token_features.load_corpus", load_corpus)
    spec = CLCSpec(embeddings=EmbeddingsSpec(corpus=CorpusSpec(name="snips"), epochs=1), embedding_size=5)
    assert features_for(spec).size == 5
    assert isinstance(features_for(BERT), WordPieces)
    assert asked == [("model.embeddings.corpus", "snips"), ("model.vocabulary", "public")]


def test_a_vocabulary_is_the_same_each_time_and_spells_what_it_lacks() -> None:
    one, other = WordPieces.train(PUBLIC_TOKENS * 2), WordPieces.train(PUBLIC_TOKENS * 2)
    words = ["Queen", "queens", "xyz", "日", ""]
    assert one.pieces(words) == other.pieces(words)
    queen, queens, xyz, unknown, empty = one.pieces(words)
    assert len(queen) == 1
    assert queens == [*queen, queens[-1]]
    assert len(xyz) == 3
    assert unknown == empty == [one.unknown]


def test_the_validation_split_joins_the_training_split(tmp_path: Path) -> None:
    corpus = encoded(CLC, tmp_path)
    joined = corpus.with_valid_in_train()
    assert [joined.size(split) for split in ("train", "valid", "test")] == [7, 0, 3]
    every = corpus.utterances("valid", np.arange(2)) + corpus.utterances("train", np.arange(5))
    assert joined.utterances("train", np.arange(7)) == every
    assert joined.lengths("train").tolist() == [len(u.tokens) for u in every]
    assert [corpus.size(split) for split in ("train", "valid", "test")] == [5, 2, 3], "the corpus itself stays"
