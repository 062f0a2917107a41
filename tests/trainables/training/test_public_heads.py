"""Heads that begin at public weights: labels' names, and the text of a schema."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import cross_entropy

from edp.spec import UserError
from sweeps.engine.prepare import ensure_states
from tests.support.encoder_folders import make_encoder
from tests.support.frozen_heads import PRIVATE, model_spec, trial_spec
from trainables.config import BERTSpec, CorpusSpec, HeadSpec
from trainables.corpora import load_corpus
from trainables.corpora.schema_text import Samples, make_text
from trainables.features.compute_states import frozen_encoder, hidden_states
from trainables.features.encoded_corpus import EncodedCorpus, encode
from trainables.features.pretrained import check_pretrained
from trainables.models import JointModel
from trainables.models.heads import Heads
from trainables.training.process import alone, new_model
from trainables.training.public_heads import NAMES, from_names, from_text, public_start, readable, slots_of_intents
from trainables.training.trainer import Trainer

LAYERS = 3
PRIORS = {"name_prior": 0.7, "schema_weight": 0.5}
TEXT = make_text(
    Samples(
        {"call_contact": ["call {contact}", "ring {contact} at {time}"], "send_message": ["tell {contact} {message}"]},
        {"contact": ["bob", "my aunt"], "time": ["noon"], "message": ["i am late", "hello"]},
    )
)


def learnt(hidden: int) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    shapes = {"kinds.weight": (3, hidden), "kinds.bias": (3,)}
    for kind in ("tag_names", "intent_names"):
        shapes |= {f"{kind}.state.weight": (5, hidden), f"{kind}.state.bias": (5,), f"{kind}.name.weight": (5, hidden)}
    return {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_encoder("bert", tmp_path_factory.mktemp("named"))
    config = frozen_encoder(model_spec(folder)).config
    save_file(learnt(config.hidden_size), folder / NAMES)
    assert config.num_hidden_layers == LAYERS
    return folder


def spec_of(encoder: Path, **changes: Any) -> BERTSpec:
    return BERTSpec.model_validate(model_spec(encoder).model_dump() | changes)


@pytest.fixture(scope="module")
def folder(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("corpus") / "private-0"
    spec = spec_of(encoder, slot_prior=1.0, **PRIORS)
    splits = load_corpus(CorpusSpec.model_validate({**PRIVATE, "schema": "communication"}))
    encode(splits, spec, place, text=TEXT)
    ensure_states([place], [spec], lambda line: None)
    return place


HEADS = {
    "shared types": HeadSpec(slots="softmax", shared_types=True, bio=True),
    "no sharing": HeadSpec(slots="softmax"),
    "shared types and parts": HeadSpec(slots="bio_crf", shared_types=True, shared_parts=True),
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())
@pytest.mark.parametrize("whiten", [0.0, 0.8])
def test_heads_of_names_have_the_scores_that_pretraining_learnt(
    encoder: Path, folder: Path, head: HeadSpec, whiten: float
) -> None:
    spec = spec_of(encoder, head=head, name_prior=1.0)
    assert spec.features is not None
    spec = spec.model_copy(update={"features": spec.features.model_copy(update={"whiten": whiten})})
    corpus = EncodedCorpus.open(folder)
    net = new_model(trial_spec(spec), corpus.for_model(spec), torch.device("cpu"))
    indices = np.arange(6)
    with torch.no_grad():
        output = net.outputs(corpus.for_model(spec).batch("train", indices))

    # Literally: the states of the last layer, and the learnt maps of the names' own states.
    saved, frozen, labels = learnt(frozen_encoder(spec).config.hidden_size), frozen_encoder(spec), corpus.labels
    pieces = corpus.batch("train", indices)
    token_bth, sentence_bh = hidden_states(frozen, pieces, [f"token_first_{LAYERS}", "sentence_mean_last"])

    def vector(name: str) -> Tensor:
        words = name.split()
        one = hidden_states(frozen, _encoded(corpus, words), ["sentence_mean_last"])[0][0]
        return one / one.norm() * len(one) ** 0.5

    def score(kind: str, state: Tensor, name_h: Tensor) -> Tensor:
        mapped = saved[f"{kind}.state.weight"] @ state + saved[f"{kind}.state.bias"]
        return mapped @ (saved[f"{kind}.name.weight"] @ name_h) / 5**0.5

    for b in range(2):
        for i, intent in enumerate(labels.intents):
            expected = score("intent_names", sentence_bh[b], vector(readable(intent)))
            assert output.intent_logits_bi[b, i] == pytest.approx(float(expected), abs=2e-2)
        for k, tag in enumerate(labels.tags):
            kind = "OBI".index(tag[0])
            expected = saved["kinds.weight"][kind] @ token_bth[b, 0] + saved["kinds.bias"][kind]
            if tag != "O":
                expected = expected + score("tag_names", token_bth[b, 0], vector(readable(tag)))
            assert output.emissions_btk[b, 0, k] == pytest.approx(float(expected), abs=2e-2)


def _encoded(corpus: EncodedCorpus, words: list[str]) -> Any:
    from trainables.features.token_features import encode_utterances

    return encode_utterances([words], corpus.features())


def test_priors_are_weights_of_public_heads(encoder: Path, folder: Path) -> None:
    spec = spec_of(encoder, **PRIORS)
    corpus = EncodedCorpus.open(folder).for_model(spec)
    assert corpus.size("schema") > 3
    names = from_names(spec, corpus)
    base = {name: 0.7 * weight for name, weight in names.items()}
    text = from_text(spec, corpus, base)
    for _ in range(2):  # the second time, kept weights are read
        found = public_start(spec, corpus)
        assert set(found) == set(base)
        for name, weight in found.items():
            assert torch.allclose(weight, base[name] + 0.5 * (text[name] - base[name]), atol=1e-6)
    assert not any(weight.any() for weight in public_start(spec_of(encoder), corpus).values())


def test_an_intent_adds_how_much_likelier_its_text_has_a_slot(encoder: Path, folder: Path) -> None:
    spec = spec_of(encoder, slot_prior=1.0)
    corpus = EncodedCorpus.open(folder).for_model(spec)
    found = slots_of_intents(corpus)
    text = [(one.intent, {tag[2:] for tag in one.tags if tag != "O"}) for one in TEXT]
    intents, labels = Counter(intent for intent, _ in text), corpus.labels

    def share(intent: str, slot: str) -> float:
        return sum(one == intent and slot in has for one, has in text) / max(1, intents[intent])

    some = 0
    for i, intent in enumerate(labels.intents):
        for k, tag in enumerate(labels.tags):
            mean = sum(share(one, tag[2:]) for one in labels.intents) / len(labels.intents)
            expected = 0.0
            if tag.startswith("B-") and mean:
                times = intents[intent] * share(intent, tag[2:])
                expected = math.log((times + mean) / (intents[intent] + 1) / mean)
            assert float(found[i, k]) == pytest.approx(expected, abs=1e-5), (intent, tag)
            some += expected > 0
    assert some > 0
    assert torch.equal(public_start(spec, corpus)["slots_ik"], found)
    doubled = spec.model_copy(update={"slot_prior": 2.0})
    assert torch.equal(public_start(doubled, corpus)["slots_ik"], 2 * found)


def test_tags_are_scored_given_the_intent_and_predicted_given_the_predicted_ones(encoder: Path, folder: Path) -> None:
    spec = spec_of(encoder, slot_prior=1.5, **PRIORS)
    corpus = EncodedCorpus.open(folder).for_model(spec)
    net = new_model(trial_spec(spec), corpus, torch.device("cpu")).eval()
    batch = corpus.batch("train", np.arange(20))
    assert net.slots_ik is not None
    assert batch.tags_bt is not None
    assert batch.intent_b is not None
    output = net.outputs(batch)
    given = output.emissions_btk + torch.stack([net.slots_ik[i] for i in batch.intent_b.tolist()])[:, None]
    nll_b = net.crf.nll(given, batch.tags_bt, batch.mask_bt)
    expected = nll_b + cross_entropy(output.intent_logits_bi, batch.intent_b, reduction="none")
    assert torch.allclose(net(batch), expected, atol=1e-5)
    share_bi = output.intent_logits_bi.softmax(1)
    mixed = output.emissions_btk + sum(
        share_bi[:, i, None, None] * net.slots_ik[i] for i in range(len(corpus.labels.intents))
    )
    found = net.predict(batch)
    assert torch.equal(found.tags_bt, net.crf.viterbi(mixed, batch.mask_bt))
    assert found.loss_b is not None
    assert torch.allclose(found.loss_b.float(), expected, atol=1e-4), "what attacks see is the loss of training"
    assert torch.allclose(
        found.slot_marginals_btk, net.crf.certainty(mixed.double(), None, batch.mask_bt)[0].float(), atol=1e-5
    )
    net.slots_ik = torch.zeros_like(net.slots_ik)
    assert not torch.allclose(net(batch), expected, atol=1e-2)


def test_a_slot_prior_is_no_weight_and_stays_as_it_is(encoder: Path, folder: Path) -> None:
    trial = trial_spec(spec_of(encoder, slot_prior=1.0, schema_weight=0.5), epochs=2)
    corpus = EncodedCorpus.open(folder).for_model(trial.model)
    with alone():
        net = new_model(trial, corpus, torch.device("cpu"))
        assert net.slots_ik is not None
        before = net.slots_ik.clone()
        trainer = Trainer(net, corpus, trial, torch.device("cpu"))
        for epoch in range(2):
            trainer.run_epoch(epoch)
        released = trainer.released.state_dict()
    assert torch.equal(released["slots_ik"], before)
    assert before.abs().max() > 0
    loaded = new_model(trial, corpus, torch.device("cpu"))
    loaded.load_state_dict(released)


def test_scores_are_those_of_the_public_heads_plus_those_of_private_ones_from_zero(encoder: Path, folder: Path) -> None:
    """The mechanism does not change: the same clip, the same noise, and a start that is not zero."""
    trial = trial_spec(spec_of(encoder, schema_weight=1.0), epochs=3)
    corpus = EncodedCorpus.open(folder).for_model(trial.model)
    with alone():
        net = new_model(trial, corpus, torch.device("cpu"))
        start = {name: weight.clone() for name, weight in net.state_dict().items()}
        trainer = Trainer(net, corpus, trial, torch.device("cpu"))
        for epoch in range(3):
            trainer.run_epoch(epoch)
        ended = trainer.released.state_dict()

        class OnTop(Heads):
            """Private heads from zero, whose scores are added to fixed public ones."""

            def outputs(self, batch: Any) -> Any:
                output, fixed = super().outputs(batch), public(batch)
                return type(output)(
                    output.intent_logits_bi + fixed.intent_logits_bi,
                    output.emissions_btk + fixed.emissions_btk,
                    output.mask_bt,
                )

        reference = new_model(trial, corpus, torch.device("cpu")).eval().requires_grad_(False)

        def public(batch: Any) -> Any:
            with torch.no_grad():
                return JointModel.outputs(reference, batch)

        zero = new_model(trial, corpus, torch.device("cpu"))
        zero.__class__ = OnTop
        zero.load_state_dict({name: torch.zeros_like(weight) for name, weight in start.items()})
        trainer = Trainer(zero, corpus, trial, torch.device("cpu"))
        for epoch in range(3):
            trainer.run_epoch(epoch)
        added = trainer.released.state_dict()
    for name, weight in ended.items():
        assert torch.allclose(weight, start[name] + added[name], atol=1e-3), name
        assert (weight - start[name]).abs().max() > 0.01


def test_what_lacks_names_is_refused_in_one_line(encoder: Path, folder: Path, tmp_path: Path) -> None:
    spec = spec_of(encoder, name_prior=1.0)
    lower = spec.model_copy(update={"features": spec.features and spec.features.model_copy(update={"layers": "1"})})
    with pytest.raises(UserError, match=r"model.name_prior = 1: .* leaves out; allowed: 0, or layers with 3"):
        check_pretrained(lower)
    without = spec_of(make_encoder("bert", tmp_path / "bare"), name_prior=1.0)
    with pytest.raises(UserError, match=r"model.name_prior = 1: .* has learnt no scores of names; allowed: 0, or an"):
        _ = [ensure_states([_new(folder, tmp_path)], [without], lambda line: None)]


def _new(folder: Path, place: Path) -> Path:
    import shutil

    copied = place / "private-1"
    shutil.copytree(folder, copied, ignore=shutil.ignore_patterns("public", "states"))
    return copied


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"name_prior": 1, "features": None}, "model.name_prior = 1 has no meaning without model.features"),
        ({"schema_weight": 1, "features": None}, "model.schema_weight = 1 has no meaning without model.features"),
        ({"slot_prior": 1, "features": None}, "model.slot_prior = 1 has no meaning without model.features"),
        ({"schema_weight": -1}, "greater than or equal to 0"),
    ],
)
def test_priors_that_mean_nothing_are_refused(encoder: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        spec_of(encoder, **changes)
