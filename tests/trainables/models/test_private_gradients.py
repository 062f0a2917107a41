"""The recorder finds what a loop over micro-batches finds, for both models and every trainable part of them."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import Tensor

from edp.per_example import Rows, record_per_example
from tests.support.gradients import filled_up, relative
from tests.support.models import EXAMPLES, batch_of, build, literal
from tests.support.toy import BERT, CLC, encoded
from trainables.config import ModelSpec

MICRO_BATCHES = {
    "one example each": torch.arange(12),
    "some of several": torch.tensor([0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 0]),
    "two large ones": torch.arange(12) // 6,
    "one without any": torch.tensor([0, 0, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3]),
}


PARTS: dict[str, ModelSpec] = {
    "clc": CLC,
    "bert": BERT,
    "clc's heads": CLC.model_copy(update={"trainable": "heads"}),
    **{f"bert's {part}": BERT.model_copy(update={"trainable": part}) for part in ("heads", "lora")},
    "bert's mean": BERT.model_copy(update={"sentence": "mean"}),
    "bert's lora, all": BERT.model_copy(update={"trainable": "lora", "lora_target": "all", "lora_rank": 2}),
}


@pytest.mark.slow
@pytest.mark.parametrize("micro_batch_b", MICRO_BATCHES.values(), ids=MICRO_BATCHES.keys())
@pytest.mark.parametrize(("dtype", "within"), [(torch.float64, 1e-9), (torch.float32, 1e-5)], ids=["64", "32"])
@pytest.mark.parametrize("model", PARTS.values(), ids=PARTS.keys())
def test_norms_and_sums_are_those_of_a_loop(
    model: ModelSpec, dtype: torch.dtype, within: float, micro_batch_b: Tensor, tmp_path: Path
) -> None:
    corpus = encoded(model, tmp_path)
    net = build(model, corpus).to(dtype).train()
    factor_m = torch.rand(int(micro_batch_b.max()) + 1, dtype=dtype, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():  # adapters begin as zero, and so would half of their gradients
        for parameter in net.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    squares_mk, sums = literal(net, corpus, micro_batch_b, factor_m)
    net.recorder = recorder = record_per_example(net)
    weight_b = 1 / torch.bincount(micro_batch_b).to(dtype)[micro_batch_b]
    with recorder.examples(micro_batch_b, len(factor_m)):
        loss_b = net(batch_of(corpus, EXAMPLES, dtype))
    (loss_b * weight_b).sum().backward()
    found_mk, found = recorder.squared_norms(), [torch.empty_like(p) for p in recorder.parameters]
    assert all(p.grad is None for p in net.parameters()), "an unclipped gradient was made"
    recorder.write(factor_m, {id(p): x for p, x in zip(recorder.parameters, found, strict=True)})
    least = 1e-3 * squares_mk.sqrt().norm()  # a key's bias cancels in the softmax: its gradient is rounding
    for k, name in enumerate(recorder.layer_names):
        error = (found_mk[:, k].sqrt() - squares_mk[:, k].sqrt()).norm()
        assert error / squares_mk[:, k].sqrt().norm().clamp_min(least) < within, name
    together, expected = (torch.cat([x.flatten() for x in tensors]) for tensors in (found, sums))
    assert relative([together], [expected]) < within


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("micro_batch_b", MICRO_BATCHES.values(), ids=MICRO_BATCHES.keys())
@pytest.mark.parametrize("model", PARTS.values(), ids=PARTS.keys())
def test_an_utterance_whose_gradient_is_not_finite_changes_nothing_for_the_others(
    model: ModelSpec, micro_batch_b: Tensor, on_gpu: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if on_gpu:
        monkeypatch.setattr(Rows, "of", filled_up)
    corpus = encoded(model, tmp_path)
    net = build(model, corpus).double().train()
    net.recorder = recorder = record_per_example(net)
    weight_b = 1 / torch.bincount(micro_batch_b).double()[micro_batch_b]

    def recorded(weight_b: Tensor) -> Tensor:
        with recorder.examples(micro_batch_b, int(micro_batch_b.max()) + 1):
            loss_b = net(batch_of(corpus, EXAMPLES, torch.float64))
        (loss_b * weight_b).sum().backward()
        return recorder.squared_norms()

    def written(factor_m: Tensor) -> Tensor:
        sums = [torch.empty_like(p) for p in recorder.parameters]
        recorder.write(factor_m, {id(p): x for p, x in zip(recorder.parameters, sums, strict=True)})
        return torch.cat([x.flatten() for x in sums])

    bad = int(micro_batch_b[0])  # the first, whose rows fill up the others' on a GPU
    factor_m = torch.ones(int(micro_batch_b.max()) + 1, dtype=torch.float64).index_fill(0, torch.tensor([bad]), 0.0)
    expected_mk, expected = recorded(weight_b), written(factor_m)
    found_mk = recorded(weight_b.index_fill(0, torch.tensor([0]), torch.nan))
    finite_m = found_mk.sum(1).isfinite()
    assert finite_m.tolist() == (factor_m != 0).tolist()
    torch.testing.assert_close(found_mk[finite_m], expected_mk[finite_m])
    torch.testing.assert_close(written(factor_m), expected)


@pytest.mark.parametrize("model", [CLC, BERT], ids=["clc", "bert"])
def test_no_rounding_of_bfloat16_products_lets_an_utterance_exceed_the_clip(model: ModelSpec, tmp_path: Path) -> None:
    corpus = encoded(model, tmp_path)
    net = build(model, corpus).train()
    net.recorder = recorder = record_per_example(net)
    clip = 0.1
    for one in range(4):
        with recorder.examples(torch.arange(12), 12), torch.autocast("cpu", torch.bfloat16):
            loss_b = net(batch_of(corpus, EXAMPLES, torch.float32))
        loss_b.sum().backward()
        squares_mk = recorder.squared_norms()
        assert squares_mk.dtype == torch.float32
        norm_m = squares_mk.sum(1).sqrt()
        assert float(norm_m.min()) > clip
        factor_m = torch.zeros(12).index_fill(0, torch.tensor([one]), float(clip / norm_m[one]))
        sums = [torch.empty_like(p) for p in recorder.parameters]
        recorder.write(factor_m, {id(p): x for p, x in zip(recorder.parameters, sums, strict=True)})
        alone = torch.cat([x.flatten().double() for x in sums]).norm()
        assert float(alone) == pytest.approx(clip, rel=1e-5)


@pytest.mark.parametrize("model", [CLC, BERT], ids=["clc", "bert"])
def test_nothing_of_a_pass_waits_for_the_device(
    model: ModelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the meta device, which has no numbers, whatever asks for one raises: so would a GPU be waited for."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # which meta tensors do not know
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: False)
    corpus = encoded(model, tmp_path)
    net = build(model, corpus).train().to("meta")
    net.recorder = recorder = record_per_example(net)
    batch = batch_of(corpus, EXAMPLES, torch.float32).to("meta")
    with recorder.examples(MICRO_BATCHES["some of several"], 5):
        loss_b = net(batch)
    loss_b.sum().backward()
    assert recorder.squared_norms().shape == (5, len(recorder.layer_names))
    sums = {id(p): torch.empty_like(p) for p in recorder.parameters}
    recorder.write(torch.empty(5, device="meta"), sums)
