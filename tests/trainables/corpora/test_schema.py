"""A schema: the labels of a model are read off a public file, and labels that it lacks are never learned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edp.spec import UserError
from tests.support.real_data import real_corpus
from tests.support.tiny import spec
from tests.support.toy import BERT, CLC, encoded, utterance
from trainables.config import CanariesSpec, CorpusSpec, ModelSpec
from trainables.corpora import GENERATED, SCHEMAS, corpus_digest, generate, load_corpus
from trainables.corpora.labels import FEW, LabelCounts, Labels, Task, labels_of
from trainables.corpora.schema import bound_by, read_schema, schema_of, skeleton
from trainables.corpora.types import UNKNOWN, LabelNames, Splits
from trainables.features.encoded_corpus import encode
from trainables.measure.attacks.canary import make_canaries
from trainables.measure.attacks.shadow import fit_attack
from trainables.measure.predictions import Predictions, _outcomes, members_and_others, utility_metrics
from trainables.records.files import write_json
from trainables.records.job import TrialJob
from trainables.training.process import alone
from trainables.training.references import (
    ReferenceModel,
    halves,
    reference_spec,
    same_corpus_parts,
    score_target,
    train_reference,
)
from trainables.workers.worker import run_trial

TRAIN = [
    utterance("call my parents at 0123", "O O B-contact O B-number", "call"),
    utterance("stop", "O", "stop"),
    utterance("play a song by queen", "O O O O B-artist", "play"),
    utterance("cure my gout now", "O O B-illness O", "diagnose"),
    utterance("call about gout", "O O B-illness", "call"),
]
VALID = [TRAIN[3], TRAIN[1]]
TEST = [
    utterance("call bob", "O B-contact", "call"),
    utterance("ask about scarlet fever gout", "O O B-illness I-illness B-illness", "diagnose"),
    utterance("call about gout", "O O B-illness", "call"),
]
SPLITS = Splits(TRAIN, VALID, TEST)
SCHEMA = LabelNames(("call", "play", "stop"), ("artist", "contact", "number", "unused"))
BOUND = bound_by(SPLITS, SCHEMA, "corpus.schema = x")
MODELS = pytest.mark.parametrize("model", [CLC, BERT], ids=["clc", "bert"])


def written(folder: Path, text: str) -> Path:
    path = folder / "schema.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_list_and_a_mapping_say_the_same_and_every_name_is_text(tmp_path: Path) -> None:
    listed = read_schema(written(tmp_path, "intents: [yes, 2, book]\nslots: [city]"), "x").schema
    mapped = "intents: {book: {description: Book a seat}, 2: , yes: null}\nslots:\n  city: {}\n"
    assert listed.names == read_schema(written(tmp_path, mapped), "x").schema.names
    assert listed.names == LabelNames(("2", "book", "yes"), ("city",))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("intents: [a]", r"intents: there is one intent, .*; allowed: several, or none"),
        ("intents: [a, a]", "intents: a is given twice; allowed: once"),
        ("intents: {a: , a: }", "line 1: not YAML: a is given twice; allowed: once"),
        ("intents: {a: {text: x}, b: }", r"intents\.a\.text: unknown key; allowed: description"),
        ("intents: a", "intents: allowed: a mapping of names, or a list"),
        ("slots: [{a: b}]", r"slots: allowed: a list of names, or a mapping of names to \{description: …\}"),
        ("slots: {city: the name of a city}", r"slots\.city: allowed: \{description: …\}"),
        ("slots: ['a city']", "slots: 'a city' is no slot type; allowed: a name without blanks"),
        (f"slots: [{'a' * 201}]", "is no name of a label; allowed: 1 to 200 characters"),
        ("labels: [a, b]", "labels: unknown key; allowed: intents, slots"),
        ("intents: []", "it has no label; allowed: at least two intents, or a slot"),
        ("- a", "holds no schema; allowed: a YAML mapping"),
        ("", "holds no schema; allowed: a YAML mapping"),
        ("intents: [a", "not YAML"),
    ],
)
def test_a_file_that_is_no_schema_is_refused_in_one_line(text: str, says: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UserError, match=says) as error:
        load_corpus(CorpusSpec(name="video", utterances=60, schema=str(path)))
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_and_the_schema_of_another_corpus_are_refused() -> None:
    with pytest.raises(UserError, match=r"shadow\.corpus\.schema = no\.yaml: there is no such file; allowed: .*, atis"):
        load_corpus(CorpusSpec(name="video", utterances=60, schema="no.yaml"), "shadow.corpus")
    with pytest.raises(
        UserError, match=r"corpus\.schema = atis: no utterance of train has one of its intents; allowed"
    ):
        load_corpus(CorpusSpec(name="video", utterances=60, schema="atis"))


def test_in_train_an_unknown_slot_is_O_and_an_unknown_intent_leaves_the_utterance_out() -> None:
    assert [one.tokens for one in BOUND.train] == [TRAIN[i].tokens for i in (0, 1, 2, 4)]
    assert BOUND.train[:3] == TRAIN[:3]
    assert BOUND.train[3] == TRAIN[4]._replace(tags=("O", "O", "O"))
    assert (BOUND.left_out, BOUND.cut) == (1, 1)


def test_valid_and_test_keep_their_utterances_and_how_many_slots_they_have() -> None:
    assert [one.tokens for one in BOUND.valid + BOUND.test] == [one.tokens for one in VALID + TEST]
    assert BOUND.test[0] == TEST[0]
    assert BOUND.test[1].intent == UNKNOWN
    assert [tag[:1] for tag in BOUND.test[1].tags] == list("OOBIB")
    assert BOUND.test[2].intent == "call"


def test_the_labels_of_the_model_are_those_of_the_schema_whatever_the_corpus_has() -> None:
    labels = labels_of(BOUND)
    assert labels.intents == SCHEMA.intents
    assert labels.tags[1::2] == ("B-artist", "B-contact", "B-number", "B-unused")
    fewer = bound_by(Splits(TRAIN[:1], VALID[1:], TEST[:1]), SCHEMA, "x")
    assert labels_of(fewer) == labels


@MODELS
def test_what_a_schema_lacks_counts_as_errors_of_the_best_possible_model(model: ModelSpec, tmp_path: Path) -> None:
    corpus = encoded(model, tmp_path, BOUND)
    assert [corpus.size(split) for split in ("train", "valid", "test")] == [4, 2, 3]
    rows = np.arange(3)
    batch = corpus.batch("test", rows)
    assert batch.tags_bt is not None
    assert batch.intent_b is not None
    assert int(batch.tags_bt.max()) < len(corpus.labels.tags)
    best = _outcomes(corpus, "test", rows, batch.intent_b.numpy(), batch.tags_bt.numpy())
    # Of utterance 1 the intent and both slots are missed, of utterance 2 the slot.
    assert [(errors, slots) for errors, slots, *_ in best] == [(0, 2), (3, 3), (1, 2)]
    assert [right for _, _, right, *_ in best] == [True, False, True]
    found = utility_metrics(Predictions(np.array(best, dtype=_dtype()), None, None), corpus.labels)
    assert found["ser"] == pytest.approx(4 / 7)
    assert corpus.utterances("test", rows) == BOUND.test


def _dtype() -> Any:
    from trainables.measure.predictions import OUTCOME

    return OUTCOME


@MODELS
def test_utterances_with_unknown_intents_are_neither_members_nor_strangers(model: ModelSpec, tmp_path: Path) -> None:
    corpus = encoded(model, tmp_path, BOUND)
    assert corpus.known("train").tolist() == [0, 1, 2, 3]
    assert corpus.known("test").tolist() == [0, 2]
    for seed in range(4):
        assert set(members_and_others(corpus, "test", seed=seed)[1]) <= {0, 2}
        assert not halves(corpus, seed, 0)["test"][1]
        assert not halves(corpus, seed, 1)["test"][1]
        assert all(1 not in part for part in same_corpus_parts(corpus, seed))
    both = corpus.with_valid_in_train()
    assert both.size("train") == 5, "valid has one utterance with a known intent"
    assert both.utterances("train", np.array([0]))[0].tokens == ("stop",)


@pytest.mark.parametrize(
    ("schema", "task"), [(SCHEMA._replace(intents=()), "slots"), (SCHEMA._replace(slots=()), "intents")]
)
def test_a_schema_without_intents_or_slots_ignores_those_of_the_corpus(schema: LabelNames, task: Task) -> None:
    bound = bound_by(SPLITS, schema, "x")
    assert labels_of(bound).task == task
    if task == "slots":
        assert len(bound.train) == len(TRAIN), "no intent leaves an utterance out"
        assert {one.intent for one in bound.utterances} == {""}
    else:
        assert {tag for one in bound.utterances for tag in one.tags} == {"O"}
        assert bound.left_out == 1
    assert bound.schema == schema


def test_a_schema_of_a_corpus_that_is_read_as_public_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shadow\.corpus\.schema = video: this corpus is read as public, and so are"):
        spec(shadow={"corpus": {"name": "video", "utterances": 120, "schema": "video"}})


@pytest.mark.parametrize("kind", ["values", "new_tokens", "outliers"])
def test_canaries_have_labels_of_the_schema(kind: str) -> None:
    canaries = make_canaries(BOUND, CanariesSpec.model_validate({"count": 10, "kind": kind}), seed=0).canaries
    labels = labels_of(BOUND)
    assert {one.intent for one in canaries} <= set(labels.intents)
    assert {tag for one in canaries for tag in one.tags} <= set(labels.tags)


def test_the_holder_of_the_data_is_told_the_counts() -> None:
    counts = LabelCounts.of(BOUND)
    assert counts == LabelCounts(
        labels=7, few=7, one=6, schema=True, left_out=1, cut=1, unknown_valid=1, unknown_test=2
    )
    assert "1 training utterances are left out and 1 lose a slot; 1 of valid and 2 of test" in counts.words()
    frequent = Splits([*TRAIN * FEW, utterance("rare", "B-rare", "rare")], VALID, TEST)
    read_off = LabelCounts.of(frequent)
    assert (read_off.labels, read_off.few, read_off.one) == (10, 2, 2)
    assert "2 stand in fewer than 10 training utterances, 2 in at most one" in read_off.words()


def test_no_label_decides_which_utterances_are_in_train(tmp_path: Path) -> None:
    rows = [{"tokens": [f"w{i}"], "tags": ["B-x"], "intent": "ab"[i % 2]} for i in range(200)]
    both = []
    for intent in ("a", "rare"):
        path = tmp_path / f"{intent}.jsonl"
        own = [row | ({"intent": intent} if i == 17 else {}) for i, row in enumerate(rows)]
        path.write_text("\n".join(map(json.dumps, own)))
        schema = written(tmp_path, "intents: [a, b, rare]\nslots: [x]")
        both.append([CorpusSpec(name="mine", path=str(path), schema=one, seed=5) for one in (str(schema), None)])
    tokens = [[[one.tokens for one in load_corpus(spec).train] for spec in pair] for pair in both]
    assert tokens[0][0] == tokens[1][0]
    assert tokens[0][1] == tokens[1][1]


def test_a_digest_is_of_the_names(tmp_path: Path) -> None:
    plain = CorpusSpec(name="video", utterances=60)
    own = skeleton(Labels.of(generate("video", 3000, 0)), "video").replace("  play_video: {}\n", "  play_video:\n")
    with_file = plain.model_copy(update={"schema": str(written(tmp_path, own))})
    with_name = plain.model_copy(update={"schema": "video"})
    assert corpus_digest(with_file) == corpus_digest(with_name) != corpus_digest(plain)
    fewer = written(tmp_path, own.replace("  play_video:\n", ""))
    assert corpus_digest(plain.model_copy(update={"schema": str(fewer)})) != corpus_digest(with_name)


def test_a_skeleton_is_a_schema_of_the_labels_that_a_person_must_review(tmp_path: Path) -> None:
    odd = [utterance("a b", "B-yes I-yes", "no"), utterance("a", "B-2", "x: y"), utterance("c", "O", "ünï # 'q' \"")]
    text = skeleton(Labels.of(odd), "mine")
    assert text.startswith("# The labels of corpus mine, read off the corpus itself. REVIEW THIS FILE")
    names = read_schema(written(tmp_path, text), "x").schema.names
    assert names == LabelNames(tuple(sorted(one.intent for one in odd)), ("2", "yes"))


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.slow
def test_the_schemas_that_come_along_are_the_published_labels(name: str) -> None:
    generated, _, part = name.partition("_")
    if generated in GENERATED:
        labels = Labels.of(generate(generated, 5000, 0))
    else:
        path = real_corpus("public") / "nlupp.jsonl.gz" if name == "nlupp" else real_corpus(name)
        labels = labels_of(load_corpus(CorpusSpec(name=name, path=str(path))))
    schema = schema_of(CorpusSpec(name=name, schema=name))
    assert schema is not None
    # NLU++ has several intents an utterance, so its schema has none.
    assert schema.intents == (labels.intents if labels.has_intents and name != "nlupp" and part != "slots" else ())
    assert schema.slots == (tuple(tag[2:] for tag in labels.tags[1::2]) if part != "intents" else ())


@pytest.mark.slow
def test_a_trial_trains_measures_and_attacks_with_labels_that_the_schema_lacks(tmp_path: Path) -> None:
    one = spec()
    whole = load_corpus(one.corpus)
    labels = labels_of(whole)
    schema = LabelNames(labels.intents[:-4], tuple(tag[2:] for tag in labels.tags[1:-6:2]))
    target = bound_by(whole, schema, "x")
    assert 0 < target.left_out < len(whole.train)
    features = encode(target, one.model, tmp_path / "target").features()
    encode(load_corpus(one.shadow.corpus), one.model, tmp_path / "shadow", features=features)
    with alone():
        run_trial(TrialJob(one, tmp_path / "shadow", tmp_path / "a"), lambda epoch, metrics: None)
        with np.load(tmp_path / "a" / "attack_features.npz") as seen:
            write_json(tmp_path / "attack.json", fit_attack(seen["members"], seen["non_members"]))
        job = TrialJob(one, tmp_path / "target", tmp_path / "b", tmp_path / "attack.json")
        found = run_trial(job, lambda epoch, metrics: None)
    assert found is not None
    # The rate is that of the utterances that are trained on.
    assert {entry.mechanism.rate for entry in found.ledger.entries} == {16 / len(target.train)}
    saved = torch.load(tmp_path / "b" / "model.pt", weights_only=True)
    assert Labels.from_dict(saved["labels"]) == labels_of(target)
    assert np.isfinite(found.metrics["mia_auc"])
    for number in (0, None):
        reference = ReferenceModel(reference_spec(one, "sgd", 0), tmp_path / "target", tmp_path / "r.npz", number)
        train_reference(reference, lambda epoch: None)
    seen = score_target(one, tmp_path / "target", tmp_path / "b" / "model.pt")
    assert all(np.isfinite(values).all() for values in seen.values())
