"""One backward pass gives what a loop over micro-batches gives: norms and clipped sums, layer by layer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing import assert_close

from edp import EDPHook, EDPSpec, one_bucket_ddp, shuffled_epoch
from edp.per_example import (
    GradientRecorder,
    Rows,
    UnsupportedLayer,
    autograd_rule,
    layer_of_parameter,
    record_per_example,
    register_layer,
)
from tests.support.gradients import filled_up, relative
from trainables.training.process import alone

VOCABULARY, LENGTH, WIDTH = 11, 5, 6


class Tagger(nn.Module):
    """Words and positions, a bottleneck as LoRA has it, norms, and a head a token and one an utterance."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.down, self.up = nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.tags, self.intent = nn.Linear(WIDTH, 4), nn.Linear(WIDTH, 3)

    def forward(self, word_bt: Tensor) -> Tensor:
        """Loss of each utterance, (B,)."""
        steps = torch.arange(word_bt.shape[1])[None]
        x = self.words(word_bt) + self.positions(steps)
        mixed = torch.softmax(self.query(x) @ self.key(x).transpose(1, 2), 2) @ x
        x = self.norm(mixed + self.up(self.down(x)).tanh())
        real = (word_bt > 0)[:, :, None]
        tags = self.tags(x).log_softmax(2)[:, :, 0] * real[:, :, 0]
        return -tags.sum(1) - self.intent((x * real).sum(1)).log_softmax(1)[:, 0]


def words(examples: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    word_bt = torch.randint(1, VOCABULARY, (examples, LENGTH), generator=generator)
    length_b = torch.randint(2, LENGTH + 1, (examples,), generator=generator)
    return word_bt.where(torch.arange(LENGTH) < length_b[:, None], 0)


def literal(model: nn.Module, batch: Tensor, micro_batch_b: Tensor, factor_m: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Squared norms (M, K) and the weighted sum of gradients, by one backward pass a micro-batch."""
    parameters, layer, names = layer_of_parameter(model)
    squares_mk = torch.zeros(len(factor_m), len(names), dtype=parameters[0].dtype)
    sums = [torch.zeros_like(p) for p in parameters]
    for m, factor in enumerate(factor_m):
        mine = batch[micro_batch_b == m]
        if len(mine) == 0:
            continue
        gradient = torch.autograd.grad(model(mine).sum(), parameters)
        for g, k, total in zip(gradient, layer, sums, strict=True):
            squares_mk[m, k] += g.square().sum()
            total += factor * g
    return squares_mk, sums


def recorded(
    recorder: GradientRecorder, model: nn.Module, batch: Tensor, micro_batch_b: Tensor, factor_m: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """The same from the recorder."""
    with recorder.examples(micro_batch_b, len(factor_m)):
        loss = model(batch).sum()
    loss.backward()
    squares_mk, sums = recorder.squared_norms(), [torch.empty_like(p) for p in recorder.parameters]
    assert all(p.grad is None for p in recorder.parameters), "an unclipped gradient was made"
    recorder.write(factor_m, {id(p): x for p, x in zip(recorder.parameters, sums, strict=True)})
    return squares_mk, sums


MICRO_BATCHES = {
    "one example each": torch.arange(12),
    "some of several": torch.arange(12) % 5,
    "two large ones": torch.arange(12) // 6,
    "one of all": torch.zeros(12, dtype=torch.long),
    "one without any": torch.tensor([0, 0, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3]),
}


@pytest.mark.parametrize("micro_batch_b", MICRO_BATCHES.values(), ids=MICRO_BATCHES.keys())
@pytest.mark.parametrize(("dtype", "within"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_norms_and_sums_are_those_of_a_loop_over_micro_batches(
    micro_batch_b: Tensor, dtype: torch.dtype, within: float
) -> None:
    model, batch = Tagger().to(dtype), words(12)
    factor_m = torch.rand(int(micro_batch_b.max()) + 1, dtype=dtype, generator=torch.Generator().manual_seed(2))
    expected = literal(model, batch, micro_batch_b, factor_m)
    found = recorded(record_per_example(model), model, batch, micro_batch_b, factor_m)
    assert relative([found[0]], [expected[0]]) < within
    assert relative(found[1], expected[1]) < within


class Scale(nn.Module):
    """A layer without a rule."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class Written(Scale):
    """Its rule is a formula."""

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class Derived(Scale):
    """Its rule is `autograd_rule`."""

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


@register_layer(Written)
def written(recorder: GradientRecorder, layer: Written, x: Tensor) -> Tensor:
    kept = x.detach()

    def record(g: Tensor) -> None:
        recorder.record_gradient(layer.weight, recorder.by_micro_batch((g * kept).sum(tuple(range(1, g.dim() - 1)))))

    return recorder.hook(x * layer.weight.detach(), [layer.weight], record)


register_layer(Derived)(autograd_rule)


class Small(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.own, self.last = nn.Linear(3, WIDTH), layer, nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.own(self.first(x).tanh())).square().flatten(1).sum(1)


@pytest.mark.parametrize("kind", [Written, Derived])
def test_a_layer_of_ones_own_can_be_taught(kind: type[Scale]) -> None:
    model, batch = Small(kind(WIDTH)).double(), torch.randn(12, 4, 3, dtype=torch.float64)
    for micro_batch_b in MICRO_BATCHES.values():
        factor_m = torch.rand(int(micro_batch_b.max()) + 1, dtype=torch.float64)
        expected = literal(model, batch, micro_batch_b, factor_m)
        found = recorded(record_per_example(model), model, batch, micro_batch_b, factor_m)
        assert relative([found[0]], [expected[0]]) < 1e-12
        assert relative(found[1], expected[1]) < 1e-12


def test_a_layer_without_a_rule_is_named_before_the_first_step() -> None:
    with pytest.raises(
        UnsupportedLayer, match=r"own \(Scale\) has trainable parameters.*allowed: .*Linear.*register_layer"
    ):
        record_per_example(Small(Scale(WIDTH)))
    frozen = Small(Scale(WIDTH))
    frozen.own.requires_grad_(False)
    record_per_example(frozen)


class Doubled(nn.Linear):
    """Inherits the class, and not the method that was registered."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.read, self.write = nn.Linear(3, 3), nn.Linear(3, 3)
        self.write.weight = self.read.weight


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Doubled(3, 3), "Doubled"),
        (Tied(), r"write\.weight is the same tensor as read\.weight: .* allowed: freeze it, or"),
        (nn.LSTM(3, 3), "LSTM"),
        (nn.MultiheadAttention(4, 2), "MultiheadAttention"),
        (nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))), r"0 \(ParametrizedLinear\)"),
    ],
)
def test_what_only_looks_like_a_taught_layer_is_refused(model: nn.Module, reason: str) -> None:
    with pytest.raises(UnsupportedLayer, match=reason):
        record_per_example(model)


@pytest.mark.filterwarnings("ignore:.*pre_backward.*|.*FSDP.*:UserWarning")
@pytest.mark.parametrize("first", ["sharded", "recorded"])
def test_sharded_parameters_are_refused(first: str) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    with alone():
        recorder = record_per_example(model) if first == "recorded" else None
        for layer in (*model, model):
            fully_shard(layer, mesh=init_device_mesh("cpu", (1,)))
        recorder = recorder or record_per_example(model)
        with recorder.examples(torch.arange(2), 2):
            loss = model(torch.ones(2, 5, 3)).sum()
        with pytest.raises(
            RuntimeError, match=r"a parameter of shape \(2, 4\) is none .* sharding \(FSDP\) does; allowed:"
        ):
            loss.backward()


def test_layers_with_the_same_input_share_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    query, value = nn.Linear(40, 40), nn.Linear(40, 40)
    model = nn.ModuleList([query, value])
    recorder, x_btd = record_per_example(model), torch.randn(3, 7, 40)
    taken: list[Tensor] = []
    take = Rows.take
    monkeypatch.setattr(Rows, "take", lambda self, x: (taken.append(x), take(self, x))[1])
    with recorder.examples(torch.tensor([0, 0, 1]), 2):
        found = query(x_btd) + value(x_btd) + query.weight.new_zeros(())
    found.sum().backward()
    assert len(taken) == 3, "two gradients and one input"


class Reuses(Small):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.first(x)[..., :3])


class Skips(Small):
    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x)).flatten(1).sum(1)


class TimeFirst(Small):
    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.own(self.first(x.transpose(0, 1)).tanh())).square().sum((0, 2))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Reuses, "first.weight was used twice"),
        (Skips, "own.weight left no record"),
        (TimeFirst, "the 5 examples as the first axis"),
    ],
)
def test_a_gradient_that_the_book_would_get_wrong_is_refused(kind: type[Small], reason: str) -> None:
    model = kind(Derived(WIDTH))
    recorder = record_per_example(model)

    def squares() -> Tensor:
        with recorder.examples(torch.arange(5), 5):
            model(torch.randn(5, 4, 3)).sum().backward()
        return recorder.squared_norms()

    with pytest.raises(RuntimeError, match=reason):
        squares()


def test_while_the_book_is_closed_a_model_is_what_it_was() -> None:
    model, batch = Tagger(), words(6)
    plain = torch.autograd.grad(model(batch).sum(), list(model.parameters()))
    recorder = record_per_example(model)
    assert all(map(torch.equal, plain, torch.autograd.grad(model(batch).sum(), list(model.parameters()))))
    with torch.no_grad(), recorder.examples(torch.arange(6), 6):
        model(batch)
    assert not recorder.has_records


def test_notes_that_were_not_written_are_not_forgotten_silently() -> None:
    model, batch = Tagger(), words(6)
    recorder = record_per_example(model)
    with recorder.examples(torch.arange(6), 6):
        model(batch).sum().backward()
    with pytest.raises(RuntimeError, match="were not written"), recorder.examples(torch.arange(6), 6):
        pass


def test_an_adapter_and_a_bias_alone_are_trained_with_the_rest_frozen() -> None:
    model, batch = Tagger().double(), words(12)
    model.requires_grad_(False)
    for parameter in (model.down.weight, model.up.weight, model.query.bias, model.norm.bias, model.tags.weight):
        parameter.requires_grad_(True)
    factor_m = torch.rand(12, dtype=torch.float64)
    expected = literal(model, batch, torch.arange(12), factor_m)
    found = recorded(record_per_example(model), model, batch, torch.arange(12), factor_m)
    assert relative([found[0]], [expected[0]]) < 1e-12
    assert relative(found[1], expected[1]) < 1e-12


@pytest.mark.parametrize("micro_batch_b", MICRO_BATCHES.values(), ids=MICRO_BATCHES.keys())
def test_rows_filled_up_for_a_gpu_are_the_same_rows(micro_batch_b: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = Tagger().double(), words(12)
    factor_m = torch.rand(int(micro_batch_b.max()) + 1, dtype=torch.float64)
    expected = literal(model, batch, micro_batch_b, factor_m)
    monkeypatch.setattr(Rows, "of", filled_up)
    found = recorded(record_per_example(model), model, batch, micro_batch_b, factor_m)
    assert relative([found[0]], [expected[0]]) < 1e-12
    assert relative(found[1], expected[1]) < 1e-12


def square_of_linear(x_btd: Tensor, g_bto: Tensor, micro_batch_b: Tensor) -> tuple[Tensor, Tensor]:
    """Squared norms of a linear layer's gradient by micro-batch, (M,): by the recorder, and literally in float64."""
    layer = nn.Linear(x_btd.shape[2], g_bto.shape[2], bias=False)
    recorder, micro_batches = record_per_example(layer), int(micro_batch_b.max()) + 1
    with recorder.examples(micro_batch_b, micro_batches):
        output = layer(x_btd)
    (output * g_bto).sum().backward()
    gradient_boi = g_bto.double().transpose(1, 2) @ x_btd.double()
    gradient_moi = torch.zeros(micro_batches, *gradient_boi.shape[1:], dtype=torch.float64)
    return recorder.squared_norms()[:, 0], gradient_moi.index_add_(0, micro_batch_b, gradient_boi).square().sum((1, 2))


@pytest.mark.parametrize("kinds", [60, 2])
@pytest.mark.parametrize("spread", [0.0, 1e-5, 1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("scale", [0.04, 30.0])
def test_a_norm_is_never_too_small_where_the_rows_of_an_utterance_cancel(
    kinds: int, spread: float, scale: float
) -> None:
    """Tokens that are nearly alike, all or two of them that take turns, and whose gradients pull both ways."""
    generator = torch.Generator().manual_seed(0)
    other_btd = torch.randn(20, kinds, 768, generator=generator).repeat(1, 60 // kinds, 1)
    x_btd = torch.randn(20, 1, 768, generator=generator) + spread * other_btd
    sign_t = torch.tensor([1.0, -1.0]).repeat(30)[:, None]
    g_bto = scale * torch.randn(20, 1, 100, generator=generator) * sign_t
    found, true = square_of_linear(x_btd, g_bto, torch.arange(20))
    most = true * (1 + 1e-5) + 4e-6 * (x_btd.norm(dim=2) * g_bto.norm(dim=2)).sum(1) ** 2
    assert bool((found >= true * (1 - 1e-5)).all())
    assert bool((found <= most).all())


def test_the_norm_of_many_rows_does_not_come_to_a_halt() -> None:
    """One user of 6,000 utterances that are alike beside 900 users of one: 36 million equal products."""
    generator = torch.Generator().manual_seed(0)
    x_b1d = torch.randn(6900, 1, 40, generator=generator)
    g_b1o = torch.randn(6900, 1, 30, generator=generator)
    x_b1d[:6000], g_b1o[:6000] = x_b1d[0].clone(), g_b1o[0].clone()
    found, true = square_of_linear(x_b1d, g_b1o, torch.cat([torch.zeros(6000).long(), torch.arange(1, 901)]))
    assert torch.allclose(found.double(), true, rtol=1e-4)


def test_indices_whose_gradients_cancel_leave_nothing_among_the_others() -> None:
    class Difference(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(3, 4)

        def forward(self, pair_b2: Tensor, x_bd: Tensor) -> Tensor:
            vector_b2d = self.table(pair_b2)
            return ((vector_b2d[:, 0] - vector_b2d[:, 1]) * x_bd).sum(1)

    model = Difference()
    pair_b2, x_bd = torch.tensor([[1, 2]] * 7 + [[1, 1]]), torch.full((8, 4), 0.3)
    x_bd[-1] = 1e10
    spec = EDPSpec(C=1.0, z0=0.0, alpha="none")
    with alone():
        recorder, ddp = record_per_example(model), one_bucket_ddp(model)
        hook = EDPHook(ddp, spec, micro_batches=8, single_example=True, rate=1.0, recorder=recorder)
        for _ in hook.steps(shuffled_epoch(8, batch_size=8, micro_batches=8, seed=0, epoch=0)):
            with recorder.examples(torch.arange(8), 8):
                ddp(pair_b2, x_bd).sum().backward()
    assert model.table.weight.grad is not None
    assert_close(model.table.weight.grad * 8, torch.tensor([[0.0] * 4, [2.1] * 4, [-2.1] * 4]))
