"""Users as the unit: how their examples are grouped, what the hook refuses, and the sum that it makes of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from edp.hook import EDPHook, one_bucket_ddp
from edp.keyed import derived_key, digests
from edp.per_example import layer_of_parameter, record_per_example
from edp.sampling import Epoch, Indices, group_by_user, poisson_examples, shuffled_epoch
from edp.spec import Clipping, EDPSpec, Sampling
from edp.steps import HookUsageError
from tests.support.edp.literal import CLASSES, INPUTS, small_model
from tests.support.workers import run_workers

USERS = np.array([3, 0, 0, 1, 2, 0, 1, 3, 0, 0, 2, 0])
"""Six examples of user 0, two of each other one."""


def shuffled(number: int = 0, users: Indices = USERS, most: int | None = 2, seed: int = 5, at_once: int = 2) -> Epoch:
    drawn = shuffled_epoch(4, batch_size=at_once, micro_batches=at_once, seed=seed, epoch=number)
    ids = digests(f"{user}".encode() for user in users)  # of a user, examples are alike
    return group_by_user(drawn, users, key=derived_key(bytes(32), seed), ids=ids, max_examples=most)


def held(epoch: Epoch, users: Indices = USERS) -> dict[int, list[int]]:
    """The examples of each user in an epoch, whose micro-batches are one user's each."""
    found: dict[int, list[int]] = {}
    for step in epoch:
        for examples in (one for share in step for one in share if len(one)):
            (user,) = set(users[examples].tolist())
            assert user not in found
            found[user] = examples.tolist()
    return found


@pytest.mark.parametrize("at_once", [1, 2, 4])
@pytest.mark.parametrize("most", [None, 1, 2, 5, 100])
def test_an_epoch_holds_every_user_once_with_the_examples_that_the_cap_leaves(most: int | None, at_once: int) -> None:
    found = held(shuffled(most=most, at_once=at_once))
    assert {user: len(examples) for user, examples in found.items()} == {
        0: min(6, most or 6),
        **dict.fromkeys((1, 2, 3), min(2, most or 2)),
    }
    assert all(len(set(examples)) == len(examples) for examples in found.values())


def test_which_examples_a_user_has_is_a_function_of_seed_and_epoch_and_all_come_equally_often() -> None:
    assert held(shuffled(3)) == held(shuffled(3))
    often = Counter(example for number in range(600) for example in held(shuffled(number))[0])
    assert set(often) == set(np.flatnonzero(USERS == 0))
    assert all(abs(n - 200) < 5 * np.sqrt(600 * 2 / 9) for n in often.values())
    assert {tuple(held(shuffled(seed=seed))[0]) for seed in range(40)} > {tuple(held(shuffled())[0])}


@pytest.mark.parametrize("gone", [0, 1, 2, 3])
def test_a_user_who_goes_moves_no_other_one(gone: int) -> None:
    places = np.flatnonzero(gone != USERS)  # of those who stay, in the corpus with everybody
    for number in range(5):
        full, without = shuffled(number, most=1), shuffled(number, USERS[places], most=1)
        for step, other in zip(full, without, strict=True):
            for examples, fewer in zip(step[0], other[0], strict=True):
                stay = examples[USERS[examples] != gone]
                assert places[fewer].tolist() == stay.tolist()


def test_what_one_user_adds_moves_no_other_ones_examples() -> None:
    more = np.concatenate([USERS, np.full(7, 1)])
    for number in range(5):
        fewer_found, more_found = held(shuffled(number, most=1)), held(shuffled(number, more, most=1), more)
        assert all(fewer_found[user] == more_found[user] for user in (0, 2, 3))


@pytest.mark.slow
def test_poisson_draws_users_independently_at_the_rate_and_with_all_that_the_cap_leaves_of_each() -> None:
    key, epochs, rate = bytes(32), 1000, 0.25
    together: Counter[tuple[bool, ...]] = Counter()
    for number in range(epochs):
        drawn = poisson_examples(4, batch_size=1, workers=2, key=key, epoch=number)
        own: dict[int, set[int]] = {}
        for step in group_by_user(drawn, USERS, key=key, max_examples=2):
            examples = [one for share in step for one in share]
            assert all(len(one) == 2 and len(set(USERS[one])) == 1 for one in examples)
            there = {int(USERS[one[0]]) for one in examples}
            assert len(there) == len(examples)
            together[tuple(user in there for user in range(4))] += 1
            for one in examples:
                own.setdefault(int(USERS[one[0]]), set()).update(one.tolist())
        assert all(len(one) == 2 for one in own.values()), "the same examples in all steps of an epoch"
    steps = 4 * epochs
    assert sum(together.values()) == steps
    for outcome in np.ndindex(2, 2, 2, 2):
        expected = rate ** sum(outcome) * (1 - rate) ** (4 - sum(outcome))
        n = together[tuple(bool(x) for x in outcome)]
        assert abs(n - steps * expected) < 5 * np.sqrt(steps * expected) + 1


def test_an_epoch_of_users_counts_users() -> None:
    epoch = shuffled()
    assert (epoch.examples, epoch.batch_size, epoch.rate) == (4, 2, 0.5)


def _steps_taken(rank: int, world: int, epoch: Epoch, unit: str) -> str:
    spec = EDPSpec(C=0.1, unit=unit, sampling=epoch.sampling)
    model = small_model()
    ddp = one_bucket_ddp(model)
    hook = EDPHook(ddp, spec, micro_batches=2, single_example=False, rate=0.5)
    try:
        for step in hook.steps(epoch):
            mine = step[rank]
            ddp.zero_grad()
            for i in range(max(1, len(mine))):
                last = i >= len(mine) - 1
                with torch.enable_grad() if last else ddp.no_sync():
                    ddp(torch.ones(1, INPUTS)).sum().backward()
                if not last:
                    hook.accumulate()
    except HookUsageError as error:
        return str(error)
    return "went on"


def epoch_of(*steps: list[list[int]], sampling: Sampling = "shuffle", users: Indices | None = USERS) -> Epoch:
    every = [[[np.array(one, np.int64) for one in step]] for step in steps]
    return Epoch(0, sampling, 4, 2, every, users)


@pytest.mark.parametrize(
    ("epoch", "unit", "said"),
    [
        (epoch_of([[1, 2], [3, 6]], [[4], [0]]), "user", "went on"),
        (epoch_of([[1, 2], [3, 6]], [[], [0]]), "user", "went on"),
        (epoch_of([[1, 2], [3, 6], [0]], [], sampling="poisson"), "user", "went on"),
        (epoch_of([[1, 3], [4, 10]]), "user", "a micro-batch of several users"),
        (epoch_of([[1, 2], [5, 8]]), "user", "a step holds a user twice"),
        (epoch_of([[1, 2], [5]], sampling="poisson"), "user", "a step holds a user twice"),
        (epoch_of([[1, 2], [3]], [[0], [5]]), "user", "a shuffled epoch holds a user twice"),
        (epoch_of([[1, 2], [3]], users=None), "user", "does not say whose examples they are"),
        (epoch_of([[1], [3]]), "example", "the sampler draws users; allowed with unit = example: examples"),
    ],
)
@pytest.mark.slow
def test_a_loop_that_breaks_what_the_accounting_for_users_assumes_is_refused(
    epoch: Epoch, unit: str, said: str
) -> None:
    (words,) = run_workers(_steps_taken, 1, epoch, unit)
    assert said in words


def of_all_data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(len(USERS), INPUTS, generator=generator).double()
    return x, torch.randint(CLASSES, (len(USERS),), generator=generator)


def literal_sum(micro_batches: list[Indices], C: float, N: int) -> torch.Tensor:
    """Slowly: each user's gradients, an example at a time, summed; the sum clipped; the clipped sums over N."""
    model, (x, y) = small_model().double(), of_all_data()
    parameters, layer, names = layer_of_parameter(model)
    sizes = [sum(p.numel() for p, k in zip(parameters, layer, strict=True) if k == j) for j in range(len(names))]
    alpha = [np.sqrt(d / sum(sizes)) for d in sizes]
    # The hook's scales are of single precision.
    alpha = [float(torch.tensor(a / max(alpha), dtype=torch.float32)) for a in alpha]
    total = [torch.zeros_like(p) for p in parameters]
    for examples in micro_batches:
        of_user = [torch.zeros_like(p) for p in parameters]
        for i in examples.tolist():
            model.zero_grad()
            nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1]).backward()
            for g, p in zip(of_user, parameters, strict=True):
                g += p.grad
        squares = sum(float((g / alpha[k]).square().sum()) for g, k in zip(of_user, layer, strict=True))
        factor = min(1.0, C / np.sqrt(squares)) if squares > 0 else 0.0
        for t, g in zip(total, of_user, strict=True):
            t += factor * g
    return torch.cat([t.flatten() for t in total]) / N


def hooked_sums(rank: int, world: int, spec: EDPSpec, epoch: Epoch, with_recorder: bool) -> list[torch.Tensor]:
    """The aggregate of each step, through DDP and the hook, without noise."""
    model, (x, y) = small_model().double(), of_all_data()
    recorder = record_per_example(model) if with_recorder else None
    ddp = one_bucket_ddp(model)
    hook = EDPHook(ddp, spec, micro_batches=epoch.batch_size, single_example=False, rate=epoch.rate, recorder=recorder)
    found = []
    for step in hook.steps(epoch):
        ddp.zero_grad(set_to_none=True)
        mine = step[rank]
        if recorder is not None and mine:
            examples = np.concatenate(mine)
            micro_batch_b = torch.arange(len(mine)).repeat_interleave(torch.tensor([len(one) for one in mine]))
            with recorder.examples(micro_batch_b, len(mine)):
                loss_b = nn.functional.cross_entropy(ddp(x[examples]), y[examples], reduction="none")
            loss_b.sum().backward()
        else:
            for i, examples in enumerate(mine or [np.zeros(0, np.int64)]):
                last = i >= len(mine) - 1
                with torch.enable_grad() if last else ddp.no_sync():
                    nn.functional.cross_entropy(ddp(x[examples]), y[examples], reduction="sum").backward()
                if not last:
                    hook.accumulate()
        found.append(torch.cat([p.grad.flatten() for p in ddp.module.parameters()]).clone())
    return found


@pytest.mark.parametrize("with_recorder", [False, True])
@pytest.mark.parametrize("most", [None, 2])
@pytest.mark.parametrize("sampling", ["shuffle", "poisson", "full"])
@pytest.mark.slow
def test_the_clipped_sum_of_users_gradients_is_that_of_a_slow_literal_version(
    sampling: str, most: int | None, with_recorder: bool
) -> None:
    for world in (1, 2):
        at_once = 4 if sampling == "full" else 2
        sizes = {"batch_size": at_once, "workers": world, "epoch": 1}
        drawn = (
            poisson_examples(4, key=bytes(32), **sizes)
            if sampling == "poisson"
            else shuffled_epoch(4, micro_batches=at_once, seed=0, **sizes)
        )
        epoch = group_by_user(drawn, USERS, key=bytes(32), max_examples=most)
        epoch = replace(epoch, steps=list(epoch))
        spec = EDPSpec(C=1.0, z0=0.0, unit="user", sampling=epoch.sampling)
        literal = [literal_sum([one for share in step for one in share], 1.0, at_once) for step in epoch]
        assert any(float(one.norm()) > 0.2 for one in literal)
        for found in run_workers(hooked_sums, world, spec, epoch, with_recorder):
            for here, there in zip(found, literal, strict=True):
                assert float((here - there).norm()) <= 1e-9 * float(there.norm())


def test_a_cap_without_users_is_refused_in_one_line() -> None:
    with pytest.raises(
        ValueError, match="user_utterances = 3 has no meaning with unit = example; allowed: unit = user"
    ):
        EDPSpec(user_utterances=3)
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        EDPSpec(unit="user", user_utterances=0)


@pytest.mark.slow
@pytest.mark.usefixtures("one_worker")
@pytest.mark.parametrize("clip", ["fixed", "automatic"])
def test_a_user_moves_the_sum_by_the_clip_at_most_however_much_they_said(clip: Clipping) -> None:
    """One of 6,000 examples that are alike, beside 1,200 of five, as heads on states see them."""
    generator = torch.Generator().manual_seed(0)
    users = np.concatenate([np.zeros(6_000, int), 1 + np.repeat(np.arange(1_200), 5)])
    x_bi = torch.randn(len(users), 385, generator=generator) / 385**0.5
    x_bi[:6_000] = x_bi[0]
    label_b = torch.randint(21, (len(users),), generator=generator)
    label_b[:6_000] = 0

    def summed(present: Indices) -> torch.Tensor:
        """N times what a step makes of the users that are there; the place of one that is not stays empty."""
        model = nn.Linear(385, 21, bias=False)
        nn.init.zeros_(model.weight)
        recorder, ddp = record_per_example(model), one_bucket_ddp(model)
        hook = EDPHook(ddp, EDPSpec(z0=0.0, alpha="none", unit="user", clip=clip), micro_batches=1_201, rate=1.0,
                       single_example=False, recorder=recorder)  # fmt: skip
        epoch = shuffled_epoch(1_201, batch_size=1_201, micro_batches=1_201, seed=0, epoch=0)
        for step in hook.steps(group_by_user(epoch, users[present])):
            places = np.concatenate(step[0])
            micro_batch_b = torch.from_numpy(np.repeat(np.arange(1_201), [len(one) for one in step[0]]))
            with recorder.examples(micro_batch_b, 1_201):
                loss_b = nn.functional.cross_entropy(
                    ddp(x_bi[present][places]), label_b[present][places], reduction="none"
                )
            loss_b.sum().backward()
        assert model.weight.grad is not None
        return 1_201 * model.weight.grad.clone()

    moved = summed(np.arange(len(users))) - summed(np.flatnonzero(users))
    assert float(moved.norm()) == pytest.approx(1, rel=1e-3)
