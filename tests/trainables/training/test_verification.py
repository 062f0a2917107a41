"""A configuration's own steps are held against its ledger: the right mechanism passes, each planted bug is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import BaseModel
from torch import Tensor

from edp.clipping import Clip
from edp.hook import EDPHook
from edp.mechanism import Mechanism
from edp.noise.source import NoiseSource
from tests.support.tiny import SPEC
from tests.support.toy import BERT, CLC, SPLITS, features
from trainables.config import CorpusSpec, ModelSpec, TrialSpec
from trainables.corpora import load_corpus
from trainables.corpora.labels import labels_of
from trainables.features.encoded_corpus import EncodedCorpus, encode
from trainables.features.token_features import Batch
from trainables.models import JointModel
from trainables.training import batches, trainer
from trainables.training.batches import Chunk
from trainables.training.process import alone
from trainables.training.verification import Verified, verify

EDP = {"method": "edp", "batch_size": 4, "micro_batches": 2}
DPSGD = {"method": "dpsgd", "batch_size": 4}


def spec(model: ModelSpec, training: dict[str, Any], **edp: Any) -> TrialSpec:
    training = {"workers": 1, "learning_rate": 0.1, **training}
    settings = {"C": 0.3, "z0": 0.7, **edp}
    corpus = {"name": "toy", "path": "toy", "split": "published"}
    given = {"corpus": corpus, "model": model.model_dump(), "training": training, "edp": settings}
    return TrialSpec.model_validate(SPEC | given)


def verified(folder: Path, model: ModelSpec = CLC, training: dict[str, Any] = EDP, **edp: Any) -> Verified:
    def read(corpus: CorpusSpec, place: Path) -> EncodedCorpus:
        return encode(load_corpus(corpus), model, place, labels=labels_of(SPLITS), features=features(model))

    with alone():
        return verify(spec(model, training, **edp), SPLITS, read, folder, lambda done, total: None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "training", "edp"),
    [
        (BERT, EDP, {}),
        (BERT, DPSGD, {"sampling": "poisson"}),
        (CLC, EDP, {}),
        (CLC, EDP, {"noise": "paper", "alpha_noise": "per_layer"}),
        (CLC, EDP, {"unit": "micro_batch", "alpha": "none", "clip": "quantile"}),
        (CLC, EDP, {"sampling": "poisson", "alpha": "public"}),
        (CLC, EDP, {"alpha": "private", "z0": 50.0}),
        (CLC, DPSGD, {}),
        (CLC, DPSGD, {"sampling": "poisson", "alpha_noise": "per_layer"}),
        (CLC, {**DPSGD, "batch_size": "full"}, {"alpha": "none"}),
    ],
    ids=lambda value: value.kind if isinstance(value, BaseModel) else str(value),
)
def test_what_the_ledger_says_is_what_is_measured_and_the_sensitivity_is_reached(
    model: ModelSpec, training: dict[str, Any], edp: dict[str, Any], tmp_path: Path
) -> None:
    found = verified(tmp_path, model, training, **edp)
    assert found.violations == []
    assert 0.6 * found.declared_sensitivity <= found.measured_sensitivity <= 1.001 * found.declared_sensitivity
    assert found.measured_std == pytest.approx(found.declared_std, rel=0.2)
    assert found.steps >= 8


def test_scales_that_are_read_off_the_data_bound_nobody(tmp_path: Path) -> None:
    found = verified(tmp_path, alpha="paper")
    assert (found.declared_sensitivity, found.violations) == (float("inf"), [])


def named(found: Verified) -> dict[str, str]:
    return {one.parameter: one.what for one in found.violations}


@pytest.mark.slow
def test_noise_left_out_of_one_layer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_mechanism = EDPHook._set_mechanism

    def without_the_intent_head(hook: EDPHook) -> None:
        set_mechanism(hook)
        hook.noise.shape = [
            0.0 if "intent" in hook.layer_names[k] else one
            for k, one in zip(hook.layer.tolist(), hook.noise.shape, strict=True)
        ]

    monkeypatch.setattr(EDPHook, "_set_mechanism", without_the_intent_head)
    found = named(verified(tmp_path))
    assert found
    assert all("intent" in name and "without noise" in what for name, what in found.items())


@pytest.mark.slow
def test_noise_that_is_too_small_or_always_the_same_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Mechanism, "micro_batch_noise_std", lambda self: 0.5 * self.C * self.z / self.N**0.5)
        patch.setattr(Mechanism, "noise_std", lambda self: self.C * self.z / self.N)
        assert any("instead of" in what for what in named(verified(tmp_path / "small")).values())
    monkeypatch.setattr("edp.noise.source.secret_key", lambda: bytes(32))
    assert "two runs have correlated noise" in named(verified(tmp_path / "same"))["all"]


@pytest.mark.slow
def test_a_sensitivity_that_is_halved_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mechanism, "can_reverse", False)
    found = verified(tmp_path)
    assert found.measured_sensitivity > 1.2 * found.declared_sensitivity
    assert any("one unit can move" in what for what in named(found).values())


@pytest.mark.parametrize("training", [EDP, DPSGD], ids=["edp", "dpsgd"])
@pytest.mark.slow
def test_one_gradient_of_a_step_that_is_not_clipped_is_named(
    training: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    factors = Clip.factors

    def all_but_one(clip: Clip, norms_g: Tensor) -> Tensor:
        found = factors(clip, norms_g)
        found[len(found) // 2] = 1.0
        return found

    monkeypatch.setattr(Clip, "factors", all_but_one)
    assert any(
        "all units of a step together can move" in what
        for what in named(verified(tmp_path, training=training)).values()
    )


@pytest.mark.slow
def test_a_parameter_that_gets_a_gradient_and_no_noise_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw: Callable[..., None] = NoiseSource._draw

    def all_but_the_last(share: NoiseSource, tensors: list[Tensor], std: float, step: int, factor: float) -> None:
        whole, share.shape = share.shape, share.shape[:-1]
        draw(share, tensors[:-1], std, step, factor)
        share.shape = whole
        tensors[-1].mul_(factor)

    monkeypatch.setattr(NoiseSource, "_draw", all_but_the_last)
    assert named(verified(tmp_path)) == {"lstm.bias_hh_l1_reverse": "its gradient is released without noise"}


@pytest.mark.slow
def test_a_buffer_that_moves_with_the_data_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forward, init = JointModel.forward, JointModel.__init__

    def with_a_mean(model: JointModel, *args: Any, **named: Any) -> None:
        init(model, *args, **named)
        model.register_buffer("mean_loss", torch.zeros(()))

    def counting(model: JointModel, batch: Batch) -> Tensor:
        loss_b = forward(model, batch)
        model.mean_loss += loss_b.detach().mean()
        return loss_b

    monkeypatch.setattr(JointModel, "__init__", with_a_mean)
    monkeypatch.setattr(JointModel, "forward", counting)
    assert named(verified(tmp_path)) == {"mean_loss": "it changes with the data, without clip and noise"}


def _divided(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide each loss by the number of tokens of its batch."""
    forward, cut = JointModel.forward, batches.chunks

    def by_tokens(model: JointModel, batch: Batch) -> Tensor:
        return forward(model, batch) / batch.mask_bt.sum()

    def by_a_mean(model: JointModel, batch: Batch) -> Tensor:
        return forward(model, batch) * len(batch) / batch.mask_bt.sum()

    def weighted(micro_batches: Any, most: int, length_e: np.ndarray, **options: Any) -> list[Chunk]:
        found = cut(micro_batches, most, length_e, **options)
        return [replace(chunk, weight_b=chunk.weight_b / length_e[chunk.indices].sum()) for chunk in found]

    if where == "the training loop":
        monkeypatch.setattr(batches, "chunks", weighted)
    else:
        monkeypatch.setattr(JointModel, "forward", {"the model": by_tokens, "a mean": by_a_mean}[where])


@pytest.mark.parametrize(
    ("where", "training"),
    [
        ("the model", EDP),
        ("the model", DPSGD),
        ("a mean", DPSGD),
        ("the training loop", EDP),
        ("the training loop", {**DPSGD, "batch_size": "full"}),
    ],
    ids=str,
)
@pytest.mark.slow
def test_a_loss_that_is_divided_by_the_batchs_number_of_tokens_is_named(
    training: dict[str, Any], where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clip is so short that all gradients are beyond it, which no factor of the loss changes."""
    _divided(where, monkeypatch)
    found = named(verified(tmp_path, training=training, C=1e-3))
    assert any("one unit without a loss can move" in what for what in found.values())
    assert not any("one unit can move" in what for what in found.values()), "no other comparison shows it"


@pytest.mark.parametrize("sampling", ["shuffle", "poisson"])
@pytest.mark.slow
def test_masks_that_follow_an_utterances_place_are_named(
    sampling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "dropout_keys", lambda key, step, ids_b: torch.arange(len(ids_b), dtype=torch.int32))
    found = named(verified(tmp_path, CLC.model_copy(update={"dropout": 0.5}), DPSGD, sampling=sampling))
    assert any("in a step that it is not in" in what or "without a loss" in what for what in found.values())
