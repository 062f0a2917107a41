"""An audit finds what a wrong mechanism leaves: bugs are planted in real training steps, and each is caught.

Canaries are the strongest that there are: each pulls at a coordinate of its own in either of two layers, and is scored
by where those went. Steps hold everybody, so that a canary's coordinates show as much as the ledger says of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from edp.accounting.composition import composition_of
from edp.accounting.epsilon import epsilon
from edp.hook import EDPHook, one_bucket_ddp
from edp.ledger import Ledger
from edp.mechanism import Mechanism
from edp.noise.gaussian import reproducible_key
from edp.per_example import record_per_example
from edp.sampling import Epoch, Indices
from edp.spec import EDPSpec
from trainables.measure.attacks.auditing import audit, contradiction

pytestmark = pytest.mark.usefixtures("one_worker")

CANARIES, EPOCHS, DELTA = 8000, 4, 5e-4
LOUD = 100.0
"""How much longer than the clip a canary's gradient is."""
NOISE = 1
"""The noise is always the same, for an audit shows more or less by its luck."""


class Coordinates(nn.Module):
    """The gradient of example (i, pull) is `pull` at coordinate i of both layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Embedding(CANARIES, 1), nn.Embedding(CANARIES, 1)
        for layer in (self.first, self.second):
            nn.init.zeros_(layer.weight)

    def forward(self, coordinate_b: torch.Tensor, pull_b: torch.Tensor) -> torch.Tensor:
        return (self.first(coordinate_b) + self.second(coordinate_b))[:, 0] * pull_b


def train(
    spec: EDPSpec,
    coordinate_e: np.ndarray,
    pull_e: np.ndarray,
    micro_batches: list[Indices],
    tamper: Callable[[EDPHook], None] = lambda hook: None,
) -> tuple[np.ndarray, Ledger]:
    """Where each coordinate went in full-batch epochs, (2, m), and the ledger.

    Args:
        coordinate_e, pull_e: of each example.
        micro_batches: the examples of each.
    """
    model = Coordinates()
    recorder = record_per_example(model)
    ddp = one_bucket_ddp(model)
    single = max(len(examples) for examples in micro_batches) == 1
    hook = EDPHook(ddp, spec, micro_batches=len(micro_batches), single_example=single, rate=1.0, recorder=recorder)
    hook.noise.key = reproducible_key(
        NOISE
    )  # the ledger's ε is that of secret noise, which this is but for being known
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1.0)
    sizes = np.array([len(examples) for examples in micro_batches])
    examples = np.concatenate(micro_batches)
    micro_batch_b = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes))
    weight_b = torch.from_numpy((1 / np.maximum(sizes, 1)).astype(np.float32))[micro_batch_b]
    coordinate_b, pull_b = torch.from_numpy(coordinate_e[examples]), torch.from_numpy(pull_e[examples]).float()
    tamper(hook)
    for number in range(EPOCHS):
        for _ in hook.steps(Epoch(number, "shuffle", len(examples), len(examples), [[micro_batches]])):
            optimizer.zero_grad()
            with recorder.examples(micro_batch_b, len(micro_batches)):
                loss_b = ddp(coordinate_b, pull_b)
            (loss_b * weight_b).sum().backward()
            optimizer.step()
    went = torch.stack([-layer.weight.detach()[:, 0] for layer in (model.first, model.second)])
    return went.double().numpy(), hook.ledger


def coins_of(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(CANARIES) < 0.5


def alone(coins: np.ndarray, z0: float, tamper: Callable[[EDPHook], None] = lambda hook: None) -> tuple:
    """Each included canary is a micro-batch of its own: DP-SGD."""
    inside = np.flatnonzero(coins)
    micro_batches = [np.array([i]) for i in range(len(inside))]
    spec = EDPSpec(C=1.0, z0=z0, alpha="none")
    return train(spec, inside, np.full(len(inside), LOUD), micro_batches, tamper)


def with_a_companion(coins: np.ndarray, z0: float) -> tuple:
    """Each canary shares a micro-batch with an example that pulls the other way, if less: it turns the mean round."""
    inside = np.flatnonzero(coins)
    coordinate_e = np.concatenate([np.arange(CANARIES), inside])
    pull_e = np.concatenate([np.full(CANARIES, -LOUD), np.full(len(inside), 10 * LOUD)])
    of_canary = dict(zip(inside.tolist(), range(CANARIES, CANARIES + len(inside)), strict=True))
    micro_batches = [np.array([i, of_canary[i]] if i in of_canary else [i]) for i in range(CANARIES)]
    return train(EDPSpec(C=1.0, z0=z0, alpha="none"), coordinate_e, pull_e, micro_batches)


def audited(found: tuple[np.ndarray, Ledger], coins: np.ndarray, layers: slice = slice(2)) -> tuple:
    """What the audit shows, what the ledger guarantees, and what is said where the one is above the other."""
    went, ledger = found
    result = audit(went[layers].sum(0), coins, DELTA, composition_of(ledger))
    return result.epsilon, epsilon(ledger, DELTA), contradiction(result.epsilon, ledger, DELTA)


MU = 1.0
Z0 = math.sqrt(EPOCHS) / MU


@pytest.mark.slow
def test_the_right_mechanism_is_not_contradicted_and_the_audit_shows_a_good_part_of_it():
    for found in (alone(coins_of(), Z0), with_a_companion(coins_of(), 2 * Z0)):
        shown, honest, words = audited(found, coins_of())
        assert 0.3 * honest < shown <= honest
        assert words is None


def test_noise_left_out_of_one_layer_is_caught():
    def tamper(hook: EDPHook) -> None:
        set_mechanism = hook._set_mechanism

        def without_the_second_layer() -> None:
            set_mechanism()
            hook.noise.shape[1] = 0.0

        hook._set_mechanism = without_the_second_layer

    found = alone(coins_of(), Z0, tamper)
    shown, honest, words = audited(found, coins_of(), slice(1, 2))
    assert shown > 2 * honest
    assert "the audit contradicts the ledger" in words


def test_a_sensitivity_that_is_halved_is_caught(monkeypatch: pytest.MonkeyPatch):
    """The clipped mean of several examples turns round by one of them: a ledger that forgets the 2 of 2C."""
    monkeypatch.setattr(Mechanism, "can_reverse", False)
    shown, honest, words = audited(with_a_companion(coins_of(), Z0), coins_of())
    assert shown > honest
    assert "the audit contradicts the ledger" in words


def test_one_example_a_step_that_is_not_clipped_is_caught():
    rng = np.random.default_rng(5)

    def tamper(hook: EDPHook) -> None:
        factors = hook.clip.factors

        def all_but_some(norms_g: torch.Tensor) -> torch.Tensor:
            found = factors(norms_g)
            found[rng.permutation(len(found))[: len(found) // 10]] = 1.0
            return found

        hook.clip.factors = all_but_some

    shown, honest, words = audited(alone(coins_of(), Z0, tamper), coins_of())
    assert shown > honest
    assert "the audit contradicts the ledger" in words
