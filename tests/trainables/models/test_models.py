"""Both models: the same loss in any batch, a gradient for every weight, predictions that add up."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.models import build, double
from tests.support.toy import BERT, CLC, SPLITS, TRAIN, encoded, features, utterance
from trainables.config import BERTSpec, ModelSpec
from trainables.corpora.types import Splits
from trainables.features.batch import Batch
from trainables.features.encoding import encode
from trainables.features.pretrained import pretrained_encoder
from trainables.features.token_features import encode_utterances
from trainables.features.word_pieces import WordPieces
from trainables.measure.predictions import collect_predictions, utility_metrics
from trainables.models import JointModel, build_model

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
        net.loss(corpus.batch("train", np.arange(5))).mean().backward()
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
    torch.testing.assert_close(predicted.loss_b, net.loss(batch).double(), rtol=1e-5, atol=1e-5)
    assert predicted.intents_b.equal(predicted.intent_probs_bi.argmax(1))
    assert [len(tags) for tags in predicted.tags()] == batch.lengths_b.tolist()
    assert not predicted.intent_probs_bi.requires_grad


@MODELS
def test_a_model_serves_utterances_that_are_in_no_corpus(model: ModelSpec, tmp_path: Path) -> None:
    corpus = encoded(model, tmp_path)
    predicted = build(model, corpus).eval().predict(encode_utterances([["hi"], ["dial", "0199"]], corpus.features()))
    assert [len(tags) for tags in predicted.tags()] == [1, 2]
    assert predicted.loss_b is None


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


@pytest.fixture
def bert_folder(tmp_path: Path) -> Iterator[Path]:
    """A pretrained BERT as one would keep it, of another size than the spec says."""
    from transformers import BertConfig, BertModel

    pieces = WordPieces.train([list(u.tokens) for u in SPLITS.train])
    folder = tmp_path / "pretrained"
    config = BertConfig(
        vocab_size=pieces.size,
        hidden_size=12,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    BertModel(config).save_pretrained(folder)
    pieces._tokenizer.save(str(folder / "tokenizer.json"))
    pretrained_encoder.cache_clear()
    yield folder
    pretrained_encoder.cache_clear()


def test_a_pretrained_folder_gives_weights_and_vocabulary(bert_folder: Path, tmp_path: Path) -> None:
    from transformers import BertModel

    spec = BERT.model_copy(update={"pretrained": str(bert_folder), "layers": None})
    corpus = encode(SPLITS, spec, tmp_path / "c")
    net = build(spec, corpus)
    assert net.pretrained_source == str(bert_folder)
    stored = BertModel.from_pretrained(bert_folder).state_dict()
    loaded = net.get_submodule("encoder").state_dict()
    assert all(loaded[name].equal(stored[name]) for name in loaded)
    assert not any("pooler" in name for name in loaded)
    net(corpus.batch("train", np.arange(5))).mean().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_weights_of_another_vocabulary_are_not_used(bert_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    spec = BERT.model_copy(update={"pretrained": str(bert_folder), "layers": None})
    labels = encoded(BERT, bert_folder.parent).labels
    net = build_model(spec, labels, seed=0, vocabulary_size=77)
    assert "77" in net.pretrained_source
    assert "does not fit" in caplog.text


def test_a_hub_that_does_not_answer_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[bool] = []

    def snapshot_download(name: str, *, local_files_only: bool, etag_timeout: float, allow_patterns: list[str]) -> str:
        asked.append(local_files_only)
        assert etag_timeout < 10
        raise FileNotFoundError("cannot reach the hub\nat its address")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    pretrained_encoder.cache_clear()
    spec = BERT.model_copy(update={"pretrained": "someone/some-bert"})
    with caplog.at_level(logging.WARNING):
        net = build_model(spec, encoded(BERT, tmp_path).labels, seed=0)
    assert net.pretrained_source == "random start (cannot reach the hub at its address)"
    assert "someone/some-bert is not available" in caplog.text
    assert asked == [True, False], "the cache is asked before the network, and each once a process"
    pretrained_encoder.cache_clear()


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="allowed: 1, 2, 5"):
        BERTSpec(vocabulary=BERT.vocabulary, pretrained=None, hidden_size=10, heads=3)


def test_a_model_says_when_it_is_given_the_other_models_inputs(tmp_path: Path) -> None:
    clc, bert = encoded(CLC, tmp_path), encoded(BERT, tmp_path)
    with pytest.raises(AssertionError, match="CLC reads words"):
        build(CLC, clc)(bert.batch("train", np.arange(2)))
    with pytest.raises(AssertionError, match="BERT reads sub-words"):
        build(BERT, bert)(clc.batch("train", np.arange(2)))
    assert features(CLC).size == 8


@pytest.mark.slow
def test_a_clc_does_not_import_transformers() -> None:
    """It takes seconds, in each of a sweep's workers."""
    script = "import sys, trainables.models.clc; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
