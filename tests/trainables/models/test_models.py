"""Both models: the same loss in any batch, a gradient for every weight, predictions that add up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.models import build, double
from tests.support.toy import BERT, CLC, TRAIN, encoded, utterance
from trainables.config import BERTSpec, ModelSpec
from trainables.corpora.types import Splits
from trainables.features.token_features import Batch
from trainables.measure.predictions import collect_predictions, utility_metrics
from trainables.models import JointModel

CPU = torch.device("cpu")
MODELS = pytest.mark.parametrize("model", [CLC, BERT], ids=["clc", "bert"])


def gradients(model: JointModel, batches: list[Batch]) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    losses = [model(double(batch)) for batch in batches]
    torch.cat(losses).sum().backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return torch.cat(losses).detach(), found


@MODELS
def test_padding_changes_neither_loss_nor_gradient(model: ModelSpec, tmp_path: Path) -> None:
    corpus = encoded(model, tmp_path)
    net = build(model, corpus).double().eval()  # without dropout, which draws differently for other shapes
    together = gradients(net, [corpus.batch("train", np.arange(5))])
    alone = gradients(net, [corpus.batch("train", np.array([i])) for i in range(5)])
    torch.testing.assert_close(together[0], alone[0], rtol=0, atol=1e-9)
    assert together[1].keys() == alone[1].keys()
    for name, gradient in together[1].items():
        torch.testing.assert_close(gradient, alone[1][name], rtol=0, atol=1e-9, msg=name)


@MODELS
def test_every_weight_has_a_gradient_in_every_backward_pass(model: ModelSpec, tmp_path: Path) -> None:
    corpus = encoded(model, tmp_path)
    net = build(model, corpus)
    for indices in (np.arange(5), np.array([1])):  # also a batch of one utterance of one token
        net.zero_grad()
        net(corpus.batch("train", indices)).mean().backward()
        assert [name for name, p in net.named_parameters() if p.grad is None] == []
        assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
        assert all(p.grad is None or not p.grad.is_sparse for p in net.parameters())


@MODELS
def test_bfloat16_products_give_nearly_the_same_loss_and_gradients_in_float32(model: ModelSpec, tmp_path: Path) -> None:
    corpus = encoded(model, tmp_path)
    net = build(model, corpus).eval()
    found = []
    for enabled in (False, True):
        net.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss_b = net(corpus.batch("train", np.arange(5)))
        loss_b.mean().backward()
        assert loss_b.dtype == torch.float32
        assert {p.grad.dtype for p in net.parameters() if p.grad is not None} == {torch.float32}
        found.append((loss_b.detach(), torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])))
    (exact, right), (rough, near) = found
    torch.testing.assert_close(rough, exact, rtol=0.02, atol=0.02)
    assert not torch.equal(rough, exact)
    assert float((near - right).norm() / right.norm()) < 0.05


@pytest.mark.slow
@MODELS
def test_a_few_steps_learn_a_few_utterances(model: ModelSpec, tmp_path: Path) -> None:
    corpus = encoded(model, tmp_path)
    net = build(model, corpus)
    torch.manual_seed(1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.03)
    for _ in range(60):
        optimizer.zero_grad()
        net(corpus.batch("train", np.arange(5))).mean().backward()
        optimizer.step()
    predictions = collect_predictions(net, corpus, "train", device=CPU)
    assert predictions is not None
    found = utility_metrics(predictions, corpus.labels)
    assert (found["ser"], found["intent_accuracy"], found["slot_f1"]) == (0, 1, 1)
    assert predictions.outcomes is not None
    assert predictions.outcomes["errors"].tolist() == [0] * 5
    assert predictions.outcomes["slots"].tolist() == [3, 1, 2, 3, 1]
    assert predictions.features is None
    assert net.training


@MODELS
def test_predictions_add_up(model: ModelSpec, tmp_path: Path) -> None:
    corpus = encoded(model, tmp_path)
    net = build(model, corpus).eval()
    batch = corpus.batch("train", np.arange(5))
    predicted = net.predict(batch)
    output = net.outputs(batch)
    assert output.emissions_btk.shape == (5, 8, len(corpus.labels.tags))
    torch.testing.assert_close(predicted.intent_probs_bi.sum(1), torch.ones(5))
    torch.testing.assert_close(predicted.slot_marginals_btk.sum(2), batch.mask_bt.float())
    torch.testing.assert_close(predicted.loss_b, net(batch).double(), rtol=1e-5, atol=1e-5)
    assert predicted.intents_b.equal(predicted.intent_probs_bi.argmax(1))
    assert [len(tags) for tags in predicted.tags()] == batch.lengths_b.tolist()
    assert not predicted.intent_probs_bi.requires_grad


@MODELS
def test_the_seed_makes_the_weights_and_nothing_else_is_drawn(model: ModelSpec, tmp_path: Path) -> None:
    corpus = encoded(model, tmp_path)
    before = torch.random.get_rng_state()
    one, same, other = (build(model, corpus, seed) for seed in (1, 1, 2))
    assert torch.random.get_rng_state().equal(before)
    weights = [torch.cat([p.flatten() for p in net.parameters()]) for net in (one, same, other)]
    assert weights[0].equal(weights[1])
    assert not weights[0].equal(weights[2])


def test_evaluation_takes_what_a_model_cannot_read_for_o(tmp_path: Path) -> None:
    long = utterance("song " * 600, "O " * 599 + "B-song", "play")
    corpus = encoded(BERT, tmp_path, Splits([TRAIN[0]], [TRAIN[1]], [long, TRAIN[3]]))
    net = build(BERT, corpus)
    with torch.no_grad():
        net.crf.start_k[0] = 100
        net.crf.transitions_jk[:, 0] = 100  # all O
        net.intent_head.bias[corpus.labels.intents.index("play")] = 100
    predictions = collect_predictions(net, corpus, "test", device=CPU)
    second = collect_predictions(net, corpus, "test", np.array([1]), device=CPU)
    assert predictions is not None
    assert predictions.outcomes is not None
    assert predictions.outcomes.tolist() == [(1, 2, True, 0, 0), (2, 3, True, 0, 0)]
    assert utility_metrics(predictions, corpus.labels)["ser"] == pytest.approx(3 / 5)
    assert second is not None
    assert second.outcomes is not None
    assert second.outcomes.tolist() == predictions.outcomes.tolist()[1:]


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="allowed: 1, 2, 5"):
        BERTSpec(vocabulary=BERT.vocabulary, pretrained=None, hidden_size=10, heads=3)
