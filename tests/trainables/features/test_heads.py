"""Heads on a frozen encoder: nothing else of it is trained or run, and the heads go on to serve."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from edp.per_example import layer_of_parameter, record_per_example
from edp.spec import UserError
from tests.support.encoder_folders import make_encoder
from tests.support.frozen_heads import PRIVATE, model_spec, trial_spec
from tests.support.workers import run_workers
from trainables.config import BERTSpec, HeadSpec
from trainables.features.compute_states import (
    NewStates,
    encoder_digest,
    encoder_of,
    load_frozen,
    served_states,
    take_encoder,
)
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.features.pretrained import pretrained_encoder
from trainables.features.token_features import StateInputs, encode_utterances
from trainables.models import JointModel, build_model
from trainables.records.job import TrialFailed, TrialJob, TrialResult
from trainables.workers.worker import run_trial

HEADS = {
    "softmax, shared types": HeadSpec(slots="softmax", shared_types=True, bio=True),
    "softmax": HeadSpec(slots="softmax"),
    "crf": HeadSpec(),
    "crf, shared types, bio": HeadSpec(shared_types=True, bio=True),
    "bio_crf, shared types and parts": HeadSpec(slots="bio_crf", shared_types=True, shared_parts=True),
}


def build(spec: BERTSpec, corpus: EncodedCorpus) -> JointModel:
    return build_model(spec, corpus.labels, seed=0, state_sizes=corpus.state_sizes)


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())
def test_norms_and_sums_are_those_of_a_loop_also_when_a_batch_comes_again(
    folder: Path, encoder_folder: Path, head: HeadSpec
) -> None:
    spec = model_spec(encoder_folder).model_copy(update={"head": head})
    corpus = EncodedCorpus.open(folder).for_model(spec)
    net = build(spec, corpus).train()
    micro_batch_b = torch.tensor([0, 1, 2, 3, 4, 0, 2])
    indices = np.arange(len(micro_batch_b)) * 5
    batch = corpus.batch("train", indices)
    parameters, layer, names = layer_of_parameter(net)
    recorder = record_per_example(net)
    for turn in range(2):  # the second time, what was kept of the batch is used
        with torch.no_grad():
            for parameter in parameters:
                noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(turn))
                parameter.copy_(0.3 * noise)
        squares_mk = torch.zeros(5, len(names))
        sums = [torch.zeros_like(p) for p in parameters]
        factor_m = torch.arange(1.0, 6)
        net.recorder = None
        for m in range(5):
            mine = corpus.batch("train", indices[(micro_batch_b == m).numpy()])
            for g, k, total in zip(torch.autograd.grad(net(mine).mean(), parameters), layer, sums, strict=True):
                squares_mk[m, k] += g.square().sum()
                total += factor_m[m] * g
        net.recorder = recorder
        with recorder.examples(micro_batch_b, 5):
            loss_b = net(batch)
        (loss_b / torch.bincount(micro_batch_b)[micro_batch_b]).sum().backward()
        assert torch.allclose(recorder.squared_norms(), squares_mk, rtol=1e-4, atol=1e-6)
        found = [torch.empty_like(p) for p in parameters]
        recorder.write(factor_m, {id(p): x for p, x in zip(recorder.parameters, found, strict=True)})
        for one, other in zip(found, sums, strict=True):
            assert torch.allclose(one, other, rtol=1e-3, atol=1e-5)
    assert "rows" in batch.inputs.kept


@pytest.mark.parametrize("slots", ["softmax", "crf"])
def test_what_bio_forbids_is_never_answered(folder: Path, encoder_folder: Path, slots: str) -> None:
    chosen: dict[str, Any] = {"slots": slots}
    broken = {}
    for bio in (True, False):
        spec = model_spec(encoder_folder).model_copy(update={"head": HeadSpec(bio=bio, **chosen)})
        corpus = EncodedCorpus.open(folder).for_model(spec)
        net = build(spec, corpus).eval()
        for number, parameter in enumerate(net.parameters()):
            generator = torch.Generator().manual_seed(number)
            parameter.data = 30 * torch.randn(parameter.shape, generator=generator)
        predictions = [
            tags for start in (0, 20) for tags in net.predict(corpus.batch("test", np.arange(start, start + 20))).tags()
        ]
        names = [["O", *(corpus.labels.tags[tag] for tag in tags)] for tags in predictions]
        broken[bio] = sum(
            after[0] == "I" and before[2:] != after[2:] for row in names for before, after in pairwise(row)
        )
    assert broken[True] == 0
    assert broken[False] > 0, "the weights ask for it"


def trial(rank: int, world: int, job: TrialJob) -> tuple[TrialResult | str | None, dict[int, float]]:
    told: dict[int, float] = {}
    try:
        return run_trial(job, lambda epoch, metrics: told.update({epoch: metrics["train_loss"]})), told
    except TrialFailed as error:
        return str(error), told


@pytest.mark.slow
def test_a_trial_of_full_batches_learns_and_reports_every_so_many_epochs(
    folder: Path, encoder_folder: Path, tmp_path: Path
) -> None:
    job = TrialJob(trial_spec(model_spec(encoder_folder)), folder, tmp_path / "one")
    ((result, told),) = run_workers(trial, 1, job)
    assert isinstance(result, TrialResult)
    assert list(told) == [8, 16, 20]
    assert result.ledger.steps == 20, "an epoch is one step"
    assert told[20] < 0.8 * told[8]
    saved = torch.load(tmp_path / "one" / "model.pt", weights_only=True)["state_dict"]
    assert set(saved) == {"slot_head.weight", "intent_head.weight"}, "the encoder is public, and stays where it is"
    ((shared, _), _) = run_workers(
        trial, 2, TrialJob(trial_spec(model_spec(encoder_folder), workers=2), folder, tmp_path / "two")
    )
    assert isinstance(shared, TrialResult)
    two = torch.load(tmp_path / "two" / "model.pt", weights_only=True)["state_dict"]
    for name, tensor in saved.items():
        assert torch.allclose(two[name], tensor, rtol=0.05, atol=0.05 * float(tensor.abs().max())), name


@pytest.mark.slow
def test_served_heads_answer_as_the_trained_ones_and_only_on_the_same_encoder(
    folder: Path, encoder_folder: Path, tmp_path: Path
) -> None:
    spec = model_spec(encoder_folder)
    corpus = EncodedCorpus.open(folder)
    states = served_states(spec, folder, corpus.labels)  # its features/, and the encoder that the spec names
    indices = np.arange(6)
    batch = encode_utterances([u.tokens for u in corpus.utterances("test", indices)], corpus.features())
    served, kept = states(batch).inputs, corpus.for_model(spec).batch("test", indices).inputs
    assert isinstance(served, StateInputs)
    assert isinstance(kept, StateInputs)
    assert torch.allclose(served.token_nd, kept.token_nd, atol=5e-3)
    assert torch.allclose(served.sentence_bd, kept.sentence_bd, atol=5e-3)
    assert encoder_of(folder / "features")["digest"] == encoder_digest(load_frozen(spec))
    other = make_encoder("bert", tmp_path / "other", type_vocab_size=3)
    with pytest.raises(UserError, match=r"its weights have SHA-256 .* allowed: the same encoder, or a model"):
        served_states(spec.model_copy(update={"pretrained": str(other)}), folder, corpus.labels)
    take_encoder(spec, tmp_path / "bundle" / "encoder")
    (tmp_path / "bundle" / "features").symlink_to(folder / "features")
    gone = spec.model_copy(update={"pretrained": str(tmp_path / "gone")})
    assert isinstance(served_states(gone, tmp_path / "bundle", corpus.labels), NewStates), "it was taken along"
    pretrained_encoder.cache_clear()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trainable": "all"}, r"model\.features has no meaning with model\.trainable = all; allowed: null, or"),
        ({"pretrained": None}, r"states of a random start hold no information; allowed: "),
        ({"sentence": "mean"}, r"model\.sentence = mean has no meaning with model\.features"),
        ({"features": {"layers": "2+2", "public": [{"name": "health"}]}}, r"names a layer twice; allowed: each once"),
        ({"features": {"layers": "2,4", "public": [{"name": "health"}]}}, r"names no hidden states"),
        ({"features": {"public": []}}, r"at least 1 item"),
    ],
)
def test_settings_that_do_not_fit_are_refused(encoder_folder: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        BERTSpec.model_validate(model_spec(encoder_folder).model_dump() | changes)


def test_the_private_corpus_gives_no_moments(encoder_folder: Path) -> None:
    model = model_spec(encoder_folder, public=[PRIVATE])
    with pytest.raises(ValidationError, match=r"model\.features\.public\.0 = communication: .*must not be the private"):
        trial_spec(model)
