"""What is registered can be loaded without our code's pickles, answers as the trained model does, and says what it
guarantees."""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import mlflow
import pytest
import torch
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PyFuncModel

from edp.spec import EDPSpec, UserError
from sweeps.execution.frozen_states import ensure_states
from sweeps.registry.register import Registered, privacy_tags, register
from sweeps.state.trial_file import digests
from sweeps.tracking.tracker import Tracker
from tests.support.encoder_folders import make_encoder
from trainables.corpora import load_corpus
from trainables.corpora.labels import Task, for_task
from trainables.data.batch import Batch
from trainables.data.batching import encode_utterances
from trainables.data.encoded_corpus import EncodedCorpus
from trainables.data.encoding import encode
from trainables.data.states import has_states
from trainables.encoders.pretrained import pretrained_folder
from trainables.evaluation.measuring import contents
from trainables.evaluation.ser import slots_of
from trainables.frozen.serving import encoder_of, served_states
from trainables.models import JointModel, build_model
from trainables.spec import (
    BERTSpec,
    CLCSpec,
    CorpusSpec,
    EmbeddingsSpec,
    FeaturesSpec,
    HeadSpec,
    ModelSpec,
    ShadowSpec,
    TrainingSpec,
    TrialSpec,
)

PUBLIC = CorpusSpec(name="health", utterances=60)
MODELS: dict[str, ModelSpec] = {
    "clc": CLCSpec(
        embeddings=EmbeddingsSpec(corpus=PUBLIC, epochs=1), embedding_size=12, hidden_size=12, layers=1, char_filters=8
    ),
    "bert": BERTSpec(pretrained=None, vocabulary=PUBLIC, hidden_size=24, layers=1, heads=2),
}
TASKS: dict[str, Task] = {"intents": "intents", "slots": "slots"}
"""Kinds that have one task alone: heads on a frozen encoder, and CLC."""
METRICS = {"ser": 0.25, "mia_auc": 0.53, "epsilon": 7.5, "epsilon_paper": 3.0, "delta": 5e-4}
UTTERANCES = ["call my mother tomorrow", "Zyxwv unheard-of wörds", "remind me"]


def trial_spec(model: ModelSpec) -> TrialSpec:
    return TrialSpec(
        corpus=CorpusSpec(name="communication", utterances=60),
        model=model,
        shadow=ShadowSpec(corpus=CorpusSpec(name="video", utterances=60)),
        training=TrainingSpec(epochs=2),
        edp=EDPSpec(),
    )


def frozen(folder: Path) -> BERTSpec:
    return BERTSpec(
        pretrained=str(folder),
        vocabulary=PUBLIC,
        trainable="heads",
        head=HeadSpec(slots="softmax", shared_types=True, bio=True),
        features=FeaturesSpec(layers="1+2", public=(PUBLIC,)),
    )


class Kept:
    """A model as a trial leaves it, and the store that it is registered in."""

    def __init__(self, place: Path, kind: str, tracker: Tracker) -> None:
        self.kind = kind
        task, splits = TASKS.get(kind, "joint"), load_corpus(trial_spec(MODELS["clc"]).corpus)
        if kind in MODELS or kind == "slots":
            self.spec = trial_spec(MODELS.get(kind, MODELS["clc"]))
        elif kind in ("heads", "intents"):  # on a frozen encoder, which stays where it is, or goes along
            folder = make_encoder("bert", place / "encoder")
            self.spec = trial_spec(frozen(folder))
        else:  # an architecture that the bundle must tell the server of, and layers of it
            folder = make_encoder(kind, place / "pretrained")
            self.spec = trial_spec(BERTSpec(pretrained=str(folder), vocabulary=PUBLIC, layers=2))
        self.corpus: EncodedCorpus = encode(for_task(splits, task, "corpus"), self.spec.model, place / "corpus")
        ensure_states([self.corpus.folder], [self.spec.model], lambda line: None)
        self.model: JointModel = build_model(
            self.spec.model,
            self.corpus.labels,
            seed=3,
            vocabulary_size=self.corpus.vocabulary_size,
            state_sizes=self.corpus.for_model(self.spec.model).state_sizes,
        ).eval()
        if kind in ("heads", "intents"):  # which begin as zero
            for parameter in self.model.parameters():
                torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(3))
        self.folder = place / "trial"
        self.folder.mkdir()
        torch.save(contents(self.model, self.corpus), self.folder / "model.pt")
        if (place / "pretrained").is_dir():  # neither registering nor serving needs what it started from
            shutil.rmtree(place / "pretrained")
            pretrained_folder.cache_clear()
        (self.folder / "ledger.json").write_text("{}")
        self.tracker = tracker
        self.run_id = tracker.start("a run", params={}, tags={})

    def batch(self, utterances: list[str]) -> Batch:
        """What the model reads of them."""
        batch = encode_utterances([utterance.split() for utterance in utterances], self.corpus.folder / "features")
        if not has_states(self.spec.model):
            return batch
        return served_states(self.spec.model, self.corpus.folder, self.corpus.labels)(batch)

    def register(self, name: str, *, wrote: dict[str, str] | None = None, with_encoder: bool = False) -> Registered:
        return register(
            name,
            tracker=self.tracker,
            run_id=self.run_id,
            folder=self.folder,
            features=self.corpus.folder / "features",
            spec=self.spec,
            metrics=METRICS,
            cost=60.0,
            wrote=wrote,
            with_encoder=with_encoder,
        )

    def load(self, model: Registered) -> PyFuncModel:
        mlflow.set_tracking_uri(self.tracker.uri)
        try:
            return mlflow.pyfunc.load_model(model.uri)
        finally:
            mlflow.set_tracking_uri(None)
            os.environ.pop("MLFLOW_TRACKING_URI", None)  # where MLflow puts it too


@pytest.fixture(scope="module")
def tracker(tmp_path_factory: pytest.TempPathFactory) -> Tracker:
    place = tmp_path_factory.mktemp("store")
    return Tracker(f"sqlite:///{place / 'mlflow.db'}", "tiny", place / "artifacts")


@pytest.fixture(scope="module", params=["clc", "bert", "roberta", "heads"])
def kept(request: pytest.FixtureRequest, tracker: Tracker, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return Kept(tmp_path_factory.mktemp(request.param), request.param, tracker)


@pytest.fixture(scope="module")
def model(kept: Kept) -> PyFuncModel:
    return kept.load(kept.register(f"voice assistant {kept.kind}"))


def test_it_answers_as_the_trained_model_does_also_to_words_that_no_corpus_has(kept: Kept, model: PyFuncModel) -> None:
    _check_answers(kept, model)


@pytest.mark.parametrize("kind", TASKS)
def test_of_one_task_alone_it_answers_what_there_is(kind: str, tracker: Tracker, tmp_path: Path) -> None:
    kept = Kept(tmp_path, kind, tracker)
    _check_answers(kept, kept.load(kept.register(f"of {kind} alone")))
    _refused(kept, kept.folder / "model.pt", _without_numbers)


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
        words = utterance.split()
        assert answer.utterance == utterance
        found = [(slot.name, tuple(slot.value.split())) for slot in answer.slots]
        assert found == slots_of([labels.tags[tag] for tag in tags], words)
        for slot in answer.slots:
            assert words[slot.start] == slot.value.split()[0]
            assert 0 <= slot.score <= 1


def test_more_utterances_than_fit_one_pass_are_answered_in_order(model: PyFuncModel) -> None:
    one = model.predict(["call bob"])[0]
    many = model.predict(["remind me", *["call bob"] * 300])
    assert len(many) == 301
    assert many[-1].intent == one.intent
    assert many[-1].scores == pytest.approx(one.scores, abs=1e-5)


def test_an_utterance_without_a_word_is_named(model: PyFuncModel) -> None:
    with pytest.raises(MlflowException, match=r'utterance 1 = "  " has no tokens'):
        model.predict(["call bob", "  "])


def test_it_states_what_goes_in_and_what_comes_out(model: PyFuncModel) -> None:
    signature = model.metadata.signature
    assert signature.inputs.to_dict() == [{"type": "string", "required": True}]
    (answer,) = signature.outputs.to_dict()
    assert set(answer["properties"]) == {"utterance", "intent", "intent_score", "slots"}
    assert set(answer["properties"]["slots"]["items"]["properties"]) == {"name", "value", "start", "score"}
    assert isinstance(model.input_example, list)


def test_nothing_in_it_is_a_pickle_of_code_and_its_ledger_goes_with_it(kept: Kept, tmp_path: Path) -> None:
    registered = kept.register(f"plain {kept.kind}")
    version = kept.tracker.client.get_model_version(registered.name, str(registered.version))
    place = Path(kept.tracker.client.download_artifacts(kept.run_id, "served_model/2", str(tmp_path)))
    names = {file.name for file in place.rglob("*") if file.is_file()}
    assert not [name for name in names if name.endswith((".pkl", ".pickle"))]
    assert {"serving.py", "model.pt", "ledger.json", "model.json", "input_example.json"} <= names
    assert torch.load(place / "artifacts" / "bundle" / "model.pt", weights_only=True)["labels"]["intents"]
    assert version.tags["ledger"] == f"runs:/{kept.run_id}/served_model/2/artifacts/bundle/ledger.json"


def test_a_version_says_what_it_guarantees(kept: Kept) -> None:
    name = f"one name {kept.kind}"
    first, second = kept.register(name), kept.register(name)
    assert (first.version, second.version) == (1, 2)
    tags = kept.tracker.client.get_model_version(name, "2").tags
    assert tags["privacy"] == "(7.5, 0.0005)-DP for one example, shuffle sampling, trusted aggregator"
    assert tags["epsilon"] == "7.5"
    assert tags["epsilon_paper"] == "3"
    assert tags["epsilon_of_sweep"] == "60"
    assert tags["neighbours"] == "one replaced by nothing"
    assert tags["unit"] == "example"
    assert "epsilon_audited" not in tags, "not audited"


def test_audited_and_unprotected_models_are_called_so() -> None:
    spec = trial_spec(MODELS["clc"])
    assert privacy_tags(spec, METRICS | {"epsilon_audited": 0.5}, None)["epsilon_audited"] == ">= 0.5"
    assert "no formal guarantee" in privacy_tags(spec, METRICS | {"epsilon": 2e4}, None)["privacy"]


def test_an_encoder_that_does_not_say_its_architecture_is_refused(kept: Kept) -> None:
    if kept.kind in ("clc", "heads"):
        kept.register(f"{kept.kind} without one")  # its spec says it all
        return
    saved = torch.load(kept.folder / "model.pt", weights_only=True)
    torch.save({"state_dict": saved["state_dict"], "labels": saved["labels"]}, kept.folder / "model.pt")
    try:
        with pytest.raises(UserError, match=r"model\.pt does not say what architecture it is; allowed: "):
            kept.register("unknown")
    finally:
        torch.save(saved, kept.folder / "model.pt")


def test_what_cannot_be_registered_is_refused_in_one_line(kept: Kept) -> None:
    for name in ("", "a/b", "../x", "x" * 200):
        with pytest.raises(UserError, match=r"--register = .*allowed: letters"):
            kept.register(name)
    hidden = kept.folder / "elsewhere.pt"
    (kept.folder / "model.pt").rename(hidden)
    try:
        with pytest.raises(UserError, match=r"model\.pt is gone"):
            kept.register("gone")
    finally:
        hidden.rename(kept.folder / "model.pt")


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _text(file: Path) -> None:
    file.write_text("hello")


def _of_another_model(file: Path) -> None:
    torch.save({"state_dict": {"x": torch.zeros(3)}, "labels": {"intents": ["a"], "tags": ["O"]}}, file)


def _without_numbers(file: Path) -> None:
    saved = torch.load(file, weights_only=True)
    saved["state_dict"] = {
        name: tensor.fill_(math.nan) if tensor.is_floating_point() else tensor
        for name, tensor in saved["state_dict"].items()
    }
    torch.save(saved, file)


@pytest.mark.parametrize("fault", [_cut, _empty, _text, _of_another_model, _without_numbers])
def test_a_model_that_does_not_load_and_answer_becomes_no_version(fault: Callable[[Path], None], kept: Kept) -> None:
    _refused(kept, kept.folder / "model.pt", fault)


@pytest.mark.parametrize("fault", [_cut, _empty, _text])
def test_features_that_do_not_load_become_no_version(fault: Callable[[Path], None], kept: Kept) -> None:
    features = kept.corpus.folder / "features"
    names = [name for name in ("tokenizer.json", "vectors.npy", "words.json") if (features / name).is_file()]
    assert names
    for name in names:
        _refused(kept, features / name, fault)


def _refused(kept: Kept, file: Path, fault: Callable[[Path], None]) -> None:
    whole = file.read_bytes()
    fault(file)
    try:
        with pytest.raises(
            UserError, match=r"(--register = 'broken': |does not say what architecture).*; allowed: "
        ) as refused:
            kept.register("broken")
        assert "\n" not in str(refused.value)
    finally:
        file.write_bytes(whole)
    assert not kept.tracker.client.search_model_versions("name = 'broken'")
    with pytest.raises(MlflowException):
        kept.tracker.client.get_registered_model("broken")


def test_files_that_are_not_those_that_the_trial_wrote_become_no_version(kept: Kept) -> None:
    features = kept.corpus.folder / "features"
    wrote = digests(kept.folder, features)
    assert {"model.pt", "ledger.json"} < set(wrote)
    assert sum(name.startswith("features/") for name in wrote) >= 1
    name = f"compared {kept.kind}"
    assert kept.register(name, wrote=wrote).compared
    old = kept.register(name, wrote={})
    assert "its trial kept no digests: the files load and answer, and were not compared" in old.line("sqlite:///x.db")
    for file, place in (
        *((file, kept.folder / file) for file in ("model.pt", "ledger.json")),
        *((file, kept.corpus.folder / file) for file in wrote if file.startswith("features/")),
    ):
        whole = place.read_bytes()
        place.write_bytes(whole + b"\n")  # which JSON and PyTorch do not mind
        try:
            with pytest.raises(UserError, match=f"{re.escape(str(place))} is not the file that the trial wrote"):
                kept.register(name, wrote={file: wrote[file]})
        finally:
            place.write_bytes(whole)
    assert len(kept.tracker.client.search_model_versions(f"name = '{name}'")) == 2


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
    pretrained_folder.cache_clear()
    try:
        assert kept.load(whole).predict(UTTERANCES)[0].utterance == UTTERANCES[0]
        with pytest.raises(UserError, match=r"model\.pretrained = .*: no config\.json there"):
            kept.load(plain)
        other = make_encoder("bert", encoder, type_vocab_size=3)
        pretrained_folder.cache_clear()
        with pytest.raises(UserError, match=r"its weights have SHA-256 .*, the heads were trained on"):
            kept.load(plain)
        shutil.rmtree(other)
    finally:
        elsewhere.rename(encoder)
        pretrained_folder.cache_clear()
