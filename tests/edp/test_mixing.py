"""A model whose examples change each other's gradients is refused: by the name of a layer, or by its first steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from edp import (
    EDPHook,
    EDPSpec,
    HookUsageError,
    UnsupportedLayer,
    mixing,
    one_bucket_ddp,
    record_per_example,
    shuffled_epoch,
)
from trainables.training.process import alone

WIDTH, N = 6, 8


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with alone():
        yield


class Model(nn.Module):
    """A loss for each example, from a layer between two linear ones."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.between, self.last = nn.Linear(WIDTH, WIDTH), between, nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(self.last(self.between(self.first(x).tanh()))).flatten(1).sum(1)


class Raw(Model):
    """The layer comes before anything that is trained, where no gradient shows that it mixes."""

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(self.between(x)).tanh()).square().flatten(1).sum(1)


class Steep(nn.Module):
    """Nearly all gradients are longer than the clip."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.between, self.last = between, nn.Linear(WIDTH, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return 10 * self.last(self.between(x)).flatten()


class ZeroHead(Model):
    """Its loss is the same for every example until the first step has moved the head."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__(between)
        nn.init.zeros_(self.last.weight)


class Mixup(nn.Module):
    """Draws at random, and mixes in training alone."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * (x + x[torch.randperm(len(x)).roll(1)] + x.mean(0)) if self.training else x


class TimeFirst(nn.Module):
    """A frozen recurrent layer that takes the examples for the steps of time."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.RNN(WIDTH, WIDTH).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0]


class ByTokens(Model):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / x.abs().sum()


class BySize(Model):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / len(x)


class Named(nn.Module):
    """Inputs and outputs as Hugging Face's models have them."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model = Model(between)

    def forward(self, *, batch: dict[str, Tensor]) -> dict[str, Tensor | None]:
        return {"loss": None, "scores": self.model(batch["x"])}


def centred(x: Tensor) -> Tensor:
    return x - x.mean(0)


def hooked(model: nn.Module, *, z0: float = 0.01, **options: Any) -> tuple[DistributedDataParallel, EDPHook]:
    """A hook on full batches of N examples, each clipped to 1."""
    recorder, ddp = record_per_example(model), one_bucket_ddp(model)
    spec = EDPSpec(C=1.0, z0=z0, alpha="none", reproducible_noise=0)
    return ddp, EDPHook(ddp, spec, micro_batches=N, single_example=True, rate=1.0, recorder=recorder, **options)


def train(model: nn.Module, x: Tensor, steps: int, **options: Any) -> list[Tensor]:
    """The noisy sums of `steps` epochs of one step each."""
    ddp, hook = hooked(model, **options)
    optimizer, found, first = torch.optim.SGD(ddp.parameters(), lr=0.5), [], hook.ledger.steps
    for number in range(first, first + steps):
        for _ in hook.steps(shuffled_epoch(N, batch_size=N, micro_batches=N, seed=0, epoch=number)):
            optimizer.zero_grad()
            assert hook.recorder is not None
            with hook.recorder.examples(torch.arange(N), N):
                output = ddp(batch={"x": x})["scores"] if isinstance(model, Named) else ddp(x)
            output.sum().backward()
            found.append(N * torch.cat([p.grad.flatten() for p in ddp.parameters() if p.grad is not None]))
            optimizer.step()
    return found


def examples(*between: int) -> Tensor:
    return torch.randn(N, *between, WIDTH, generator=torch.Generator().manual_seed(1))


NORMS = [
    nn.BatchNorm1d(WIDTH),
    nn.BatchNorm1d(WIDTH, affine=False),
    nn.BatchNorm1d(WIDTH, affine=False, track_running_stats=False),
    nn.BatchNorm1d(WIDTH).requires_grad_(False).eval(),
    nn.BatchNorm2d(WIDTH),
    nn.LazyBatchNorm1d(),
    nn.SyncBatchNorm(WIDTH),
    nn.InstanceNorm1d(WIDTH, track_running_stats=True),
]


@pytest.mark.parametrize("norm", NORMS, ids=str)
def test_batch_norm_and_running_statistics_are_refused_by_name(norm: nn.Module) -> None:
    words = rf"between \({type(norm).__name__}\) .* which no clip bounds; allowed: nn.GroupNorm"
    with pytest.raises(UnsupportedLayer, match=words):
        record_per_example(Model(norm))
    if not isinstance(norm, nn.LazyBatchNorm1d | nn.SyncBatchNorm):  # DDP refuses them here
        with pytest.raises(UnsupportedLayer, match=words):
            EDPHook(one_bucket_ddp(Model(norm)), EDPSpec(), micro_batches=1, single_example=False, rate=1.0)


MIXING = {
    "centred": lambda: Model(centred),
    "centred by a constant": lambda: Model(lambda x: x - x.mean(0).detach()),
    "inputs centred": lambda: Raw(centred),
    "before a head of zeros": lambda: ZeroHead(lambda x: x + x.mean(0)),
    "a batch norm without a module": lambda: Raw(lambda x: F.batch_norm(x, None, None, training=True)),
    "added up": lambda: Model(lambda x: x.cumsum(0)),
    "time first": lambda: Model(TimeFirst()),
    "mixup": lambda: Model(Mixup()),
    "after dropout": lambda: Model(nn.Sequential(nn.Dropout(), Mixup())),
    "attention over the batch": lambda: Model(lambda x: (x @ x.T).softmax(1) @ x),
    "divided by tokens": lambda: ByTokens(nn.Identity()),
    "divided by examples": lambda: BySize(nn.Identity()),
    "named inputs and outputs": lambda: Named(centred),
}


@pytest.mark.parametrize("made", MIXING.values(), ids=MIXING.keys())
def test_a_model_that_mixes_examples_ends_with_its_first_steps(made: Callable[[], nn.Module]) -> None:
    with pytest.raises(HookUsageError, match=r"depends on the other examples|without the others.*may mix"):
        train(made(), examples(), 2)
    train(made(), examples(), 2, check_mixing=False)


SEPARATE = {
    "nothing": (lambda: Model(nn.Identity()), ()),
    "dropout": (lambda: Model(nn.Dropout()), ()),
    "dropout in a head of zeros": (lambda: ZeroHead(nn.Dropout()), ()),
    "a layer norm": (lambda: Model(nn.LayerNorm(WIDTH)), (4,)),
    "a group norm": (lambda: Model(nn.GroupNorm(2, WIDTH, affine=False)), ()),
    "an instance norm": (lambda: Raw(nn.InstanceNorm1d(4)), (4,)),
    "a mean over an example's own rows": (lambda: Model(lambda x: x - x.mean(1, keepdim=True)), (4,)),
    "as many rows as examples": (lambda: Model(lambda x: x.cumsum(1)), (N,)),
    "named inputs and outputs": (lambda: Named(nn.Dropout()), ()),
}


@pytest.mark.parametrize(("made", "between"), SEPARATE.values(), ids=SEPARATE.keys())
def test_the_check_changes_nothing_for_a_model_that_does_not_mix(
    made: Callable[[], nn.Module], between: tuple[int, ...]
) -> None:
    checked, unchecked = (train(made(), examples(*between), 3, check_mixing=check) for check in (True, False))
    assert all(map(torch.equal, checked, unchecked)), "not even the random numbers of its dropout"


def test_an_infinite_loss_of_one_example_ends_nothing() -> None:
    for place in (0, 3, N - 1):
        x = examples()
        x[place] = torch.inf
        assert all(bool(found.isfinite().all()) for found in train(Model(nn.Identity()), x, 2))


def test_why_one_example_of_a_mixing_model_moves_the_sum_of_clipped_gradients_farther_than_the_ledger_says() -> None:
    x = torch.ones(N, WIDTH) + 0.1 * examples()
    sums = []
    for last in (100.0, -100.0):  # the content of one example; the worst that replacing it can do is 2
        x[-1] = last
        (found,) = train(Steep(centred), x, 1, z0=0.0, check_mixing=False)
        sums.append(found)
    assert float((sums[0] - sums[1]).norm()) > 3 * 2
    sums = []
    for last in (100.0, -100.0):
        x[-1] = last
        (found,) = train(Steep(nn.Identity()), x, 1, z0=0.0)
        sums.append(found)
    assert float((sums[0] - sums[1]).norm()) <= 2 * (1 + 1e-5)


class Follower(nn.Module):
    """Keeps a mean of its inputs, from some epoch on, and does not use it."""

    def __init__(self, first_call: int) -> None:
        super().__init__()
        self.first_call, self.calls = first_call, 0
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > self.first_call:
            self.mean.lerp_(x.detach().mean(0), 0.1)
        return x


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("first_epoch", [0, 2])
def test_a_buffer_that_follows_the_data_is_refused_before_its_step_is_released(
    first_epoch: int, recorded: bool
) -> None:
    model = Model(Follower(first_epoch * 100))
    recorder = record_per_example(model) if recorded else None
    ddp = one_bucket_ddp(model)
    hook = EDPHook(ddp, EDPSpec(z0=1.0), micro_batches=1, single_example=False, rate=1.0, recorder=recorder)
    for epoch in range(3):
        for _ in hook.steps(shuffled_epoch(N, batch_size=N, micro_batches=1, seed=0, epoch=epoch)):
            if epoch == first_epoch:
                model.between.calls = first_epoch * 100
                with pytest.raises(HookUsageError, match=r"buffer between.mean: it changed .* without clip and noise"):
                    ddp(examples()).sum().backward()
                assert hook.ledger.steps == epoch
                return
            ddp(examples()).sum().backward()
            ddp.zero_grad()


def test_a_step_counter_is_refused_unless_the_check_is_off() -> None:
    class Counting(Model):
        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return super().forward(x)

    def counting() -> nn.Module:
        model = Counting(nn.Identity())
        model.register_buffer("calls", torch.zeros(()))
        return model

    with pytest.raises(HookUsageError, match="buffer calls"):
        train(counting(), examples(), 1)
    train(counting(), examples(), 1, check_mixing=False)


def test_a_run_that_is_resumed_was_checked_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its outputs may be so large that rounding changes them."""
    monkeypatch.setattr(mixing, "_draw", lambda: False)
    _, hook = hooked(Model(nn.Identity()))
    before = hook.planned(range(2))
    train(Model(centred), examples(), 1, ledger=before)
    monkeypatch.setattr(mixing, "_draw", lambda: True)
    with pytest.raises(HookUsageError, match="depends on the other examples"):
        train(Model(centred), examples(), 1, ledger=before)
