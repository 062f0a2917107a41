"""A private corpus that stands in an encoder's public ones is found: by name, by content, by its utterances."""

from __future__ import annotations

import logging
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from edp.spec import UserError
from sweeps.engine.prepare import encode_missing, read_missing
from sweeps.store.prepared import locate
from tests.support import tiny, writers
from tests.support.encoder_folders import make_encoder
from tests.support.public import CORPORA, seen_encoder, write_corpora
from trainables.config import BERTSpec, CLCSpec, CorpusSpec, TrialSpec
from trainables.corpora import Splits, Utterance, generate
from trainables.corpora.overlap import (
    check_corpus,
    check_public,
    check_utterances,
    hashes_of,
    normal_form,
    overlap,
)


def said(text: str) -> Utterance:
    tokens = tuple(text.split())
    return Utterance(tokens, ("O",) * len(tokens), "say")


def test_unicodes_forms_of_an_utterance_are_one_and_marks_tell_words_apart() -> None:
    for one, other in [("cafe\u0301 fermé", "café FERME\u0301"), ("straße", "STRASSE"), ("ﬁn", "fin"), ("❤️", "❤️")]:
        assert overlap([said(one)], hashes_of([said(other)]))[0] == 1, (one, other)
    for one, other in [("किताब", "कताबी"), ("ที่", "ทู่"), ("😀", "😢"), ("मेरा दिन", "मोरी दीन")]:
        assert overlap([said(one)], hashes_of([said(other)])) == (0, 1), (one, other)


@pytest.mark.parametrize(
    ("one", "other"), [("Un café noir", "un cafe noir"), ("le soufflé ✨", "LE SOUFFLE ✨"), ("ёлка", "елка")]
)
def test_accents_do_not_hide_an_utterance(one: str, other: str) -> None:
    for private, public in ((one, other), (other, one), (unicodedata.normalize("NFD", one), other)):
        assert overlap([said(private)], hashes_of([said(public)])) == (1, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder that has seen `CORPORA`."""
    place = tmp_path_factory.mktemp("public")
    return seen_encoder(place / "made", write_corpora(place / "data"))


def model(folder: Path | str | None) -> BERTSpec:
    return BERTSpec(pretrained=None if folder is None else str(folder), vocabulary=CorpusSpec(name="snips"))


@pytest.mark.parametrize(
    ("one", "other"),
    [("what 's the time ?", "What's the time"), ("at 7:30 p.m", "at 7 : 30 p . m"), ("ein Café", "EIN CAFÉ !")],
)
def test_utterances_are_compared_without_case_blanks_and_punctuation(one: str, other: str) -> None:
    assert normal_form(one.split()) == normal_form(other.split())
    assert normal_form(one.split()) != normal_form([*one.split(), "now"])


def test_distinct_utterances_are_counted_as_a_set_of_texts_counts_them() -> None:
    private = [said(text) for text in ("play jazz", "Play jazz !", "stop", "wake me at 7", "?", "tell me more")]
    public = [said(text) for text in ("play jazz", "tell me", "STOP .", "...", "stop")]
    texts = {normal_form(u.tokens) for u in private} - {""}
    both = texts & {normal_form(u.tokens) for u in public}
    assert overlap(private, hashes_of(public)) == (len(both), len(texts)) == (2, 4)
    assert overlap([], hashes_of(public)) == (0, 0)
    assert overlap(private, hashes_of([])) == (0, 4)


def test_every_corpus_that_is_taken_for_public_is_searched_for_the_private_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    private = [*generate("video", 300, seed=1), *[said(f"my very own words {n}") for n in range(100)]]
    splits, spec = Splits(private, [], []), CorpusSpec(name="mine")

    def other(shared: int) -> CorpusSpec:
        folder = writers.jsonl([*generate("health", 60, seed=2), *private[:shared]], tmp_path / f"other{shared}")
        return CorpusSpec(name=f"other{shared}", path=str(folder))

    check_public(spec, splits, {"shadow.corpus": other(0)})
    assert not caplog.records
    check_public(spec, splits, {"shadow.corpus": other(2)})
    assert "shadow.corpus = other2: 2 of the" in caplog.text
    with pytest.raises(UserError, match=r"search.proxy = other30: \d+ of the .* are in it too; allowed"):
        check_public(spec, splits, {"shadow.corpus": other(0), "search.proxy": other(30)})
    caplog.clear()
    ours = CorpusSpec(name="video", utterances=200)  # a grammar's words are nobody's
    check_public(ours, splits, {"shadow.corpus": other(30)})
    assert "corpus = video" in caplog.text


@pytest.mark.slow
def test_it_is_searched_for_in_a_shadow_that_comes_after_it_was_encoded(tmp_path: Path) -> None:
    own = [*generate("video", 200, seed=1), *[said(f"my very own words {n}") for n in range(100)]]
    mine = {"name": "mine", "path": str(writers.jsonl(own, tmp_path / "mine")), "utterances": None}
    copied = writers.jsonl([*generate("health", 60, seed=2), *own[:100]], tmp_path / "copied")
    cache = tmp_path / "cache"
    clean = tiny.spec(corpus=mine)
    first = locate(clean, cache)
    encode_missing(clean, first, read_missing(clean, first), lambda line: None)
    assert read_missing(clean, first) == {}
    spoilt = tiny.spec(corpus=mine, shadow={"corpus": {"name": "copied", "path": str(copied)}})
    second = locate(spoilt, cache)
    assert second.corpus == first.corpus
    for _ in range(2):  # a refusal is not taken for a search that found nothing
        with pytest.raises(UserError, match=r"shadow.corpus = copied: \d+ of the .* allowed: at most 1%"):
            read_missing(spoilt, second)


def test_a_trials_public_corpora_are_all_there_are() -> None:
    one, two = CorpusSpec(name="snips"), CorpusSpec(name="atis")
    fields = {"method": "sgd"}
    bert = TrialSpec(
        corpus={"name": "nlu_eval"},
        shadow={"corpus": two},
        training=fields,
        model=BERTSpec(pretrained="minilm", trainable="heads", vocabulary=one, features={"public": [one, two]}),
    )
    assert bert.public_corpora == {
        "shadow.corpus": two,
        "model.vocabulary": one,
        "model.features.public.0": one,
        "model.features.public.1": two,
    }
    clc = TrialSpec(
        corpus={"name": "nlu_eval"}, shadow={"corpus": two}, training=fields, model=CLCSpec(embeddings={"corpus": one})
    )
    assert clc.public_corpora == {"shadow.corpus": two, "model.embeddings.corpus": one}


def test_hashes_tell_no_utterance_and_are_the_same_everywhere() -> None:
    hashes = hashes_of([said("play jazz"), said("PLAY jazz"), said("stop")])
    assert hashes.dtype == np.uint64
    # the first 16 digits of `printf playjazz | sha256sum`, and of stop's
    assert hashes.tolist() == sorted([0x413835DE1635FC6F, 0x6C45CB72A36E63D5])


def test_a_private_corpus_of_the_same_name_or_content_is_refused(folder: Path, tmp_path: Path) -> None:
    place = folder.parent / "data"
    mine = writers.jsonl(generate("communication", 60, seed=9), tmp_path / "mine")
    for private in (CorpusSpec(name="slots", path=str(mine)), CorpusSpec(name="renamed", path=str(place / "intents"))):
        with pytest.raises(UserError, match=f"corpus = {private.name} cannot be private") as error:
            check_corpus(model(folder), private)
        assert "\n" not in str(error.value)
    check_corpus(model(folder), CorpusSpec(name="mine", path=str(mine)))


def test_more_than_one_percent_of_shared_utterances_is_refused_and_fewer_are_told(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = [said(f"utterance number {n} of this corpus") for n in range(198)]
    private, shared = CorpusSpec(name="mine"), CORPORA["both"][:3]
    check_utterances(model(folder), private, Splits(own, [], []))
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        check_utterances(model(folder), private, Splits(own, shared[:1], shared[1:2]))
    (warned,) = caplog.messages
    assert "2 of the 200 distinct utterances of corpus = mine" in warned
    assert " ".join(shared[0].tokens) not in warned
    with pytest.raises(UserError, match=r"3 of the 201 distinct .*; allowed: at most 1%"):
        check_utterances(model(folder), private, Splits(own, [], shared))


def test_an_encoder_from_elsewhere_is_not_asked(tmp_path: Path) -> None:
    plain = make_encoder("bert", tmp_path / "plain")
    for name in (plain, None, "huawei-noah/TinyBERT_General_4L_312D"):
        check_corpus(model(name), CorpusSpec(name="slots"))
        check_utterances(model(name), CorpusSpec(name="slots"), Splits(CORPORA["slots"], [], []))


def test_a_record_that_is_broken_or_incomplete_is_refused(folder: Path, tmp_path: Path) -> None:
    broken = make_encoder("bert", tmp_path / "broken")
    (broken / "pretraining.json").write_text("{}")
    with pytest.raises(UserError, match=r"pretraining.json: cannot be read"):
        check_corpus(model(broken), CorpusSpec(name="mine"))
    (broken / "pretraining.json").write_text((folder / "pretraining.json").read_text())
    with pytest.raises(UserError, match=r"utterances.npy is missing"):
        check_utterances(model(broken), CorpusSpec(name="mine"), Splits(CORPORA["slots"], [], []))
    for saved in (b"", np.zeros(0), np.zeros((2, 2), np.uint64), np.zeros(3)):
        if isinstance(saved, bytes):
            (broken / "utterances.npy").write_bytes(saved)
        else:
            np.save(broken / "utterances.npy", saved)
        with pytest.raises(UserError, match=r"utterances.npy is missing or cannot be read"):
            check_utterances(model(broken), CorpusSpec(name="mine"), Splits(CORPORA["slots"], [], []))
