"""Encoders of other architectures are trained as privately as BERT is, or refused before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AlbertConfig, LlamaConfig, LlamaForCausalLM, T5Config, T5EncoderModel

from edp.per_example import UnsupportedLayer, record_per_example
from edp.spec import UserError
from sweeps.engine.prepare import check_encoders
from tests.conftest import Command
from tests.support.encoder_folders import FROZEN_KINDS, KINDS, make_encoder, make_frozen
from tests.support.gradients import relative
from tests.support.models import EXAMPLES, batch_of, built, literal, spec_of
from tests.support.tiny import SPEC
from trainables.config import BERTSpec, TrialSpec
from trainables.features.encoder import Encoder
from trainables.features.pretrained import pretrained_encoder
from trainables.models.bert import clipping_fault
from trainables.models.trainable import checkpoint_layers
from trainables.training.process import alone
from trainables.training.trainer import Trainer

CLIPPABLE = sorted(KINDS.keys() - {"deberta-v2", "mpnet"})


@pytest.mark.parametrize("kind", CLIPPABLE)
def test_norms_and_sums_are_those_of_a_loop_dropout_too(kind: str, tmp_path: Path) -> None:
    compare_with_a_loop(spec_of(make_encoder(kind, tmp_path / "made"), dropout=0.1), tmp_path)


@pytest.mark.parametrize("kind", [*FROZEN_KINDS, "mpnet", "xlm-roberta", "modernbert"])
@pytest.mark.parametrize("target", ["query_value", "all"])
def test_those_of_adapters_are_too_whatever_they_adapt(kind: str, target: str, tmp_path: Path) -> None:
    folder = (make_frozen if kind in FROZEN_KINDS else make_encoder)(kind, tmp_path / "made")
    spec = spec_of(folder, dropout=0.1, trainable="lora", lora_rank=2, lora_target=target, sentence="last")
    if kind == "gpt2":  # its layers are of the library's own kind
        with pytest.raises(UserError, match=r"GPT2Model has no such layers"):
            built(spec, tmp_path)
        return
    assert clipping_fault(Encoder.read(folder, kind), spec) is None
    compare_with_a_loop(spec, tmp_path)


CHECKPOINTED: dict[str, dict[str, Any]] = {
    **{f"{kind}'s lora": {"trainable": "lora", "lora_target": "all"} for kind in (*FROZEN_KINDS, "mpnet")},
    **{kind: {} for kind in CLIPPABLE},
}


@pytest.mark.parametrize("name", [name for name in CHECKPOINTED if name != "gpt2's lora"])
def test_those_of_layers_that_run_again_are_too(name: str, tmp_path: Path) -> None:
    kind, changes = name.partition("'")[0], CHECKPOINTED[name]
    folder = (make_frozen if kind in FROZEN_KINDS else make_encoder)(kind, tmp_path / "made")
    spec = spec_of(folder, dropout=0.1, sentence="last", **changes)
    compare_with_a_loop(spec, tmp_path, checkpointing=True)


def compare_with_a_loop(spec: BERTSpec, tmp_path: Path, *, checkpointing: bool = False) -> None:
    micro_batch_b = torch.tensor([0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 0])
    corpus, net = built(spec, tmp_path)
    net = net.double().train()
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if name.endswith("up.weight"):  # zero at first, so that the other half has no gradient
                parameter.normal_(std=0.1, generator=torch.Generator().manual_seed(3))
    factor_m = torch.rand(5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    squares_mk, sums = literal(net, corpus, micro_batch_b, factor_m)
    net.recorder = recorder = record_per_example(net)
    if checkpointing:
        checkpoint_layers(net)
    weight_b = 1 / torch.bincount(micro_batch_b).double()[micro_batch_b]
    with recorder.examples(micro_batch_b, 5):
        loss_b = net(batch_of(corpus, EXAMPLES, torch.float64))
    (loss_b * weight_b).sum().backward()
    assert relative([recorder.squared_norms().sqrt()], [squares_mk.sqrt()]) < 1e-9
    found = [torch.empty_like(p) for p in recorder.parameters]
    recorder.write(factor_m, {id(p): x for p, x in zip(recorder.parameters, found, strict=True)})
    together, expected = (torch.cat([x.flatten() for x in tensors]) for tensors in (found, sums))
    assert relative([together], [expected]) < 1e-9


@pytest.mark.slow
def test_what_cannot_be_clipped_apart_is_found_out_by_trying(tmp_path: Path) -> None:
    for kind in KINDS:
        folder = make_encoder(kind, tmp_path / kind)
        fault = clipping_fault(Encoder.read(folder, kind), spec_of(folder))
        assert (fault is None) == (kind in CLIPPABLE), (kind, fault)
    sizes: dict[str, Any] = {"vocab_size": 30, "hidden_size": 8, "embedding_size": 8, "intermediate_size": 8}
    albert = AlbertConfig(**sizes, num_hidden_layers=3, num_attention_heads=2)
    fault = clipping_fault(Encoder("albert", tmp_path, albert), spec_of(tmp_path))
    assert fault is not None, "all of its layers are one"
    assert "was used twice" in fault


def trial_of(folder: Path, **changes: Any) -> TrialSpec:
    model = {"kind": "bert", "pretrained": str(folder), "vocabulary": {"name": "health"}}
    parts = {"model": model, "training": SPEC["training"] | changes.get("training", {}), "edp": changes.get("edp", {})}
    return TrialSpec.model_validate({**SPEC, **parts})


def test_an_encoder_that_cannot_be_clipped_so_is_refused(tmp_path: Path) -> None:
    pretrained_encoder.cache_clear()
    folder = make_encoder("deberta-v2", tmp_path / "made")
    for changes in (
        {"training": {"workers": 2}},
        {"training": {"workers": 8}, "edp": {"sampling": "poisson"}},
        {"training": {"method": "dpsgd", "workers": 1}},
        {"training": {"workers": 8}, "edp": {"alpha": "private"}},
    ):
        with pytest.raises(UserError) as caught:
            check_encoders([trial_of(folder, **changes)])
        said = str(caught.value)
        assert said.startswith(f"model.pretrained = {folder}: several micro-batches of one worker cannot be clipped")
        assert "or shuffled epochs with training.workers = training.micro_batches and edp.alpha = fixed" in said
        assert "\n" not in said
    frozen = trial_of(folder, training={"workers": 2})
    check_encoders([frozen.model_copy(update={"model": spec_of(folder, trainable="heads")})])
    check_encoders(trial_of(folder, training=training) for training in ({"workers": 8}, {"method": "sgd"}))
    check_encoders([trial_of(make_encoder("roberta", tmp_path / "other"), training={"workers": 1})])


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("training.workers=4", "several micro-batches of one worker cannot be clipped with type deberta-v2"),
        ("space.model.layers.choice=[1, 3, 4]", "model.layers = 4: model.pretrained = "),
    ],
)
def test_a_sweep_of_which_a_trial_cannot_run_does_not_start(
    setting: str, says: str, tmp_path: Path, command: Command
) -> None:
    folder = make_encoder("deberta-v2", tmp_path / "made")
    words = ["--set", "corpus={name: communication, utterances: 60}", "--set", f"model.pretrained={folder}"]
    public = ["--set", "model.vocabulary={name: health}", "--set", "shadow.corpus={name: video, utterances: 60}"]
    storage = tmp_path / "runs"
    code, _, said = command("run", "atis_bert", *words, *public, "--set", setting, "--storage", str(storage))
    assert code == 2
    assert said.strip().count("\n") == 0
    assert says in said
    assert not list(storage.glob("*/study.db"))


def bfloat16_spec(folder: Path, **changes: Any) -> TrialSpec:
    model = {"kind": "bert", "pretrained": str(folder), "vocabulary": {"name": "health"}, "dropout": 0.0}
    parts = {"trainable": "lora", "lora_target": "all", "lora_rank": 2, "sentence": "last"}
    training = SPEC["training"] | {"method": "dpsgd", "batch_size": 5, "epochs": 1} | changes
    edp = {"C": 0.01, "z0": 100.0, "reproducible_noise": 3}
    return TrialSpec.model_validate({**SPEC, "model": model | parts, "training": training, "edp": edp})


@pytest.mark.parametrize(("kind", "checkpointing"), [("llama", False), ("gemma3", True)])
def test_adapters_with_bfloat16_products_are_clipped_in_float32(kind: str, checkpointing: bool, tmp_path: Path) -> None:
    """The norms, and the sum that a clip makes of them, are those of a loop with the same products."""
    spec = bfloat16_spec(make_frozen(kind, tmp_path / "made")).model
    assert isinstance(spec, BERTSpec)
    corpus, net = built(spec, tmp_path)
    net.train()
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if name.endswith("up.weight"):
                parameter.normal_(std=0.1, generator=torch.Generator().manual_seed(3))
    parameters = [p for p in net.parameters() if p.requires_grad]

    def loop(low: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """The norm of each utterance's gradient, and the sum of those of length 1."""
        norms, total = [], torch.zeros(sum(p.numel() for p in parameters))
        for example in EXAMPLES:
            with torch.autocast("cpu", torch.bfloat16, enabled=low):
                loss = net(batch_of(corpus, EXAMPLES[[example]], torch.float32)).sum()
            flat = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)])
            norms.append(flat.norm())
            total += flat / norms[-1]
        return torch.stack(norms), total

    (norm_b, expected), (exact_b, exact) = loop(True), loop(False)
    assert relative([expected], [exact]) > 1e-3, "the products are in bfloat16"
    net.recorder = recorder = record_per_example(net)
    if checkpointing:
        checkpoint_layers(net)
    with recorder.examples(torch.arange(12), 12), torch.autocast("cpu", torch.bfloat16):
        loss_b = net(batch_of(corpus, EXAMPLES, torch.float32))
    loss_b.sum().backward()
    squares_mk = recorder.squared_norms()
    found_b = squares_mk.sum(1).sqrt()
    found = [torch.empty_like(p) for p in recorder.parameters]
    recorder.write(1 / found_b, {id(p): x for p, x in zip(recorder.parameters, found, strict=True)})
    assert {x.dtype for x in (squares_mk, *found)} == {torch.float32}
    assert relative([found_b], [norm_b]) < 2**-8
    assert relative([torch.cat([x.flatten() for x in found])], [expected]) < 2**-6
    assert relative([norm_b], [exact_b]) < 0.03, "a loss in bfloat16 is nearly the same loss"


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_noise_on_bfloat16_products_is_that_on_others(kind: str, tmp_path: Path) -> None:
    """In bfloat16 its numbers, of 100 clips each, would be rounded by seven clips together."""
    gradients = {}
    for precision in ("float32", "bfloat16"):
        spec = bfloat16_spec(make_frozen(kind, tmp_path / "made"), precision=precision)
        assert isinstance(spec.model, BERTSpec)
        corpus, net = built(spec.model, tmp_path)
        with alone():
            trainer = Trainer(net, corpus, spec, torch.device("cpu"))
            trainer.ddp.train()
            trainer.train_step(next(trainer.steps_of(0)))
        found = [p.grad for p in net.parameters() if p.requires_grad]
        assert {g.dtype for g in found if g is not None} == {torch.float32}
        gradients[precision] = torch.cat([g.flatten() for g in found if g is not None]) * 5
    clip, difference = spec.edp.C, gradients["bfloat16"] - gradients["float32"]
    assert float(gradients["float32"].norm()) > 1000 * clip, "nearly all of it is noise"
    assert 0 < float(difference.norm()) < 0.2 * clip, "of five clipped gradients, not of the noise"


def test_a_tied_embedding_that_would_be_trained_twice_is_named() -> None:
    sizes: dict[str, Any] = {"vocab_size": 30, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    whole = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=2, tie_word_embeddings=True))
    with pytest.raises(
        UnsupportedLayer,
        match=r"lm_head\.weight is the same tensor as model\.embed_tokens\.weight: .*; allowed: freeze",
    ):
        record_per_example(whole)
    t5 = T5EncoderModel(T5Config(vocab_size=30, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2))
    with pytest.raises(UnsupportedLayer, match=r"encoder\.embed_tokens\.weight is the same tensor as shared\.weight: "):
        record_per_example(t5)


@pytest.mark.parametrize("kind", [kind for kind in FROZEN_KINDS if kind != "gpt2"])
def test_no_adapter_trains_a_tensor_that_is_tied(kind: str, tmp_path: Path) -> None:
    folder = make_frozen(kind, tmp_path / "made", tie_word_embeddings=True)
    net = built(spec_of(folder, trainable="lora", lora_target="all", sentence="last"), tmp_path)[1]
    every = [(name, p) for name, p in net.named_parameters(remove_duplicate=False) if p.requires_grad]
    assert len({id(p) for _, p in every}) == len(every)
    assert not any("embed" in name or "shared" in name or "lm_head" in name for name, _ in every)
