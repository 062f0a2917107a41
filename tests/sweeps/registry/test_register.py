"""What is registered can be loaded without our code's pickles, answers as the trained model does, and says what it
guarantees."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import mlflow
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PyFuncModel
from mlflow.pyfunc.scoring_server import invocations

from edp.spec import UserError
from sweeps.registry.bundle import public_start
from tests.support import frozen_heads
from tests.support.encoder_folders import make_encoder
from tests.support.registering import Kept
from trainables.corpora.types import split_blanks
from trainables.features.compute_states import encoder_of
from trainables.features.pretrained import pretrained_encoder
from trainables.measure.predictions import slots_of
from trainables.models.released import _pieces

UTTERANCES = ["call my mother tomorrow", "Zyxwv unheard-of wörds", "remind me", "pay 10\u00a0000 now", "\u00a0"]
"""With a no-break space, which is part of a word, as in the corpora."""


@pytest.fixture(scope="module")
def model(kept: Kept) -> PyFuncModel:
    return kept.load(kept.register(f"voice assistant {kept.kind}"))


@pytest.mark.slow
def test_it_answers_as_the_trained_model_does_also_to_words_that_no_corpus_has(kept: Kept, model: PyFuncModel) -> None:
    _check_answers(kept, model)


def _check_answers(kept: Kept, model: PyFuncModel) -> None:
    predictions = model.predict(UTTERANCES)
    expected = kept.model.predict(kept.batch(UTTERANCES))
    labels = kept.corpus.labels
    if labels.has_intents:
        assert [a.intent for a in predictions] == [labels.intents[i] for i in expected.intents_b.tolist()]
        assert [a.intent_score for a in predictions] == pytest.approx(
            expected.intent_probs_bi.max(1).values.tolist(), abs=1e-5
        )
    else:
        assert {(a.intent, a.intent_score) for a in predictions} == {(None, None)}
    for answer, utterance, tags in zip(predictions, UTTERANCES, expected.tags(), strict=True):
        words = split_blanks(utterance)
        assert answer.utterance == utterance
        found = [(slot.name, tuple(split_blanks(slot.value))) for slot in answer.slots]
        assert found == slots_of([labels.tags[tag] for tag in tags], words)
        for slot in answer.slots:
            assert words[slot.start] == split_blanks(slot.value)[0]
            assert 0 <= slot.score <= 1


def test_what_cannot_be_read_gets_a_reason_and_the_others_their_answers(kept: Kept, model: PyFuncModel) -> None:
    long = " ".join(["call"] * 600)
    (alone,) = model.predict(["call bob"])
    sent = ["call bob", "  ", None, 17, "", "call \ud83d", long, "call bob"]
    first, *bad, cut, last = model.predict(sent)
    for answer in (first, last):
        assert answer.model_dump(exclude={"intent_score", "slots"}) == alone.model_dump(
            exclude={"intent_score", "slots"}
        )
        assert answer.scores == pytest.approx(alone.scores, abs=1e-5)
        assert answer.reason is None
    blank, empty = "no words; allowed: at least one", "no text; allowed: a string"
    half = "half a character; allowed: Unicode text"
    assert [answer.reason for answer in bad] == [blank, empty, empty, blank, half]
    assert [answer.utterance for answer in bad] == ["  ", None, None, "", "call ?"]
    assert all(answer.intent is answer.intent_score is None and not answer.slots for answer in bad)
    read = int(kept.batch([long]).lengths_b[0])
    assert cut.intent is not None or not kept.corpus.labels.has_intents
    assert cut.reason == (f"too long: its first {read} of 600 words are read" if read < 600 else None)
    assert (kept.kind == "clc") == (read == 600)


def test_a_server_answers_each_utterance_of_a_request(model: PyFuncModel) -> None:
    sent = {"inputs": ["call bob", None, 17]}
    answer = invocations(json.dumps(sent), "application/json", model, model.metadata.get_input_schema())
    assert answer.status == 200, answer.response
    found = json.loads(answer.response)["predictions"]
    assert [one["reason"] for one in found] == [None, *["no text; allowed: a string"] * 2]
    assert [one["utterance"] for one in found] == ["call bob", None, None]


def test_a_data_frame_of_several_columns_is_refused_and_one_column_is_answered(model: PyFuncModel) -> None:
    frame = pd.DataFrame({"id": ["17", "18"], "text": ["call bob", "remind me"]})
    with pytest.raises(
        MlflowException, match=r'columns = \["id", "text"\]: .* allowed: the utterances alone'
    ) as refused:
        model.predict(frame)
    assert refused.value.get_http_status_code() == 400
    answers = model.predict(frame[["text"]])
    assert [answer.utterance for answer in answers] == ["call bob", "remind me"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")  # of an intent that no row has
def test_mlflow_evaluates_its_intents(kept: Kept) -> None:
    version = kept.register(f"evaluated {kept.kind}")
    found = [answer.intent for answer in kept.load(version).predict(UTTERANCES[:3])]
    frame = pd.DataFrame({"text": UTTERANCES[:3], "intent": [*found[:2], "another"]})
    mlflow.set_tracking_uri(kept.tracker.uri)
    try:
        with mlflow.start_run(experiment_id=kept.tracker.experiment_id):
            told = mlflow.models.evaluate(
                version.uri,
                frame,
                targets="intent",
                feature_names=["text"],
                model_type="classifier",
                model_config={"answers": "intents"},
                evaluator_config={"log_explainer": False},
            )
    finally:
        mlflow.set_tracking_uri(None)
        os.environ.pop("MLFLOW_TRACKING_URI", None)
    assert told.metrics["accuracy_score"] == pytest.approx(2 / 3)
    with pytest.raises(MlflowException, match=r'model_config\.answers = "slots"; allowed: whole, intents'):
        kept.load(version, {"answers": "slots"})


@pytest.mark.slow
def test_nothing_in_it_is_a_pickle_of_code_and_its_ledger_goes_with_it(kept: Kept, tmp_path: Path) -> None:
    registered = kept.register(f"plain {kept.kind}")
    version = kept.tracker.client.get_model_version(registered.name, str(registered.version))
    path = f"served_model/{version.source.rpartition('/')[2]}"
    place = Path(kept.tracker.client.download_artifacts(kept.run_id, path, str(tmp_path)))
    names = {file.name for file in place.rglob("*") if file.is_file()}
    assert not [name for name in names if name.endswith((".pkl", ".pickle", ".pt"))]
    released = {"model.safetensors", "config.json", "schema.yaml", "README.md", "ledger.json"}
    assert {"serving.py", "input_example.json", *released} <= names
    assert version.tags["ledger"] == f"runs:/{kept.run_id}/{path}/artifacts/bundle/ledger.json"


@pytest.mark.slow
def test_registering_again_leaves_the_files_of_the_version_before_alone(kept: Kept) -> None:
    versions = [kept.register(f"twice {kept.kind}") for _ in range(2)]
    places = [kept.tracker.client.get_model_version(one.name, str(one.version)).source for one in versions]
    assert len(set(places)) == 2


@pytest.mark.slow
def test_a_version_says_what_it_guarantees(kept: Kept) -> None:
    name = f"one name {kept.kind}"
    first, second = kept.register(name), kept.register(name)
    assert (first.version, second.version) == (1, 2)
    tags = kept.tracker.client.get_model_version(name, "2").tags
    statement = "(7.5, 0.0005)-DP for one utterance, shuffle sampling, trusted aggregator"
    assert tags["privacy"] == f"{statement}, labels are taken to be public"
    assert tags["epsilon"] == "7.5"
    assert tags["epsilon_paper"] == "3"
    assert tags["epsilon_of_sweep"] == "60"
    assert tags["neighbours"] == "one replaced by nothing"
    assert tags["unit"] == "example"


@pytest.mark.slow
def test_a_frozen_encoder_is_named_by_its_digest_or_goes_along(kept: Kept, tmp_path: Path) -> None:
    plain, whole = kept.register(f"{kept.kind} alone"), kept.register(f"{kept.kind} whole", with_encoder=True)
    version = kept.tracker.client.get_model_version(plain.name, "1")
    if kept.kind != "heads":
        assert "private part" not in version.tags
        assert whole.megabytes == pytest.approx(plain.megabytes, rel=0.05), "what is trained goes along in any case"
        return
    weights = sum(parameter.numel() for parameter in kept.model.parameters())
    about = encoder_of(kept.corpus.folder / "features")
    assert version.tags["private part"] == f"heads, {weights:,} weights"
    assert version.tags["public part"].endswith(f"{about['weights']:,} weights, SHA-256 {about['digest']}")
    assert "Private part: heads" in version.description
    encoder = Path(str(kept.spec.model.pretrained))
    elsewhere = encoder.rename(tmp_path / "elsewhere")
    pretrained_encoder.cache_clear()
    try:
        assert kept.load(whole).predict(UTTERANCES)[0].utterance == UTTERANCES[0]
        with pytest.raises(UserError, match=r"model\.pretrained = .*: no config\.json there"):
            kept.load(plain)
        other = make_encoder("bert", encoder, type_vocab_size=3)
        pretrained_encoder.cache_clear()
        with pytest.raises(UserError, match=r"its weights have SHA-256 .*, the heads were trained on"):
            kept.load(plain)
        shutil.rmtree(other)
    finally:
        elsewhere.rename(encoder)
        pretrained_encoder.cache_clear()


def test_a_long_utterance_is_no_burden_to_the_short_ones() -> None:
    lengths = [3, 2000, 5, 4, 6000, 3, *[8] * 600]
    pieces = list(_pieces(lengths))
    assert sorted(place for piece in pieces for place in piece) == list(range(len(lengths)))
    for piece in pieces:
        assert len(piece) == 1 or len(piece) * max(lengths[place] for place in piece) <= 4096
    assert [1] in pieces
    assert [4] in pieces


def test_the_public_heads_that_a_model_began_at_are_named_with_who_says_that_they_are_public() -> None:
    model = frozen_heads.model_spec(Path("encoder"))
    assert public_start(frozen_heads.trial_spec(model)) == {}
    both = model.model_copy(update={"name_prior": 0.5, "schema_weight": 0.5})
    spec = frozen_heads.trial_spec(both)
    assert public_start(spec) == {"the heads began at": "0.5 of the scores of the labels' names"}
    spec = spec.model_copy(update={"corpus": spec.corpus.model_copy(update={"schema": "mine.yaml"})})
    words = public_start(spec)["the heads began at"]
    assert "0.5 of heads that learnt from the samples of the schema mine.yaml" in words
    assert "whoever wrote them says that they are public" in words
    prior = spec.model.model_copy(update={"name_prior": 0.0, "schema_weight": 0.0, "slot_prior": 0.5})
    words = public_start(spec.model_copy(update={"model": prior}))["the heads began at"]
    assert words.startswith("0.5 of what the slots of an intent are in the samples of the schema mine.yaml")
