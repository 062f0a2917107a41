"""Clips that need not be tuned: held against a literal version, their sensitivity, and what the count costs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from edp.accounting.calibrate import noise_multiplier_for_epsilon
from edp.accounting.epsilon import epsilon, epsilon_paper
from edp.clipping import QUANTILE_RATE, clip_factors, count_noise, count_within, next_clip
from edp.ledger import Ledger, planned_ledger
from edp.mechanism import Mechanism, count_noise_std
from edp.noise.gaussian import alpha_stream, count_stream, stream
from edp.spec import EDPSpec, UserError
from tests.support.edp.adversary import Case, aggregate, in_noise_space, without_first_unit, worst_pair
from tests.support.edp.clip_workers import clips, executed, noise_at
from tests.support.edp.literal import hook_training, literal_training
from tests.support.workers import run_workers

pytestmark = pytest.mark.usefixtures("one_worker")

SHAPE = {"micro_batches": 8, "batch_size": 32, "epochs": 2, "steps": 3}
PLAN = {"micro_batches": 8, "steps_per_epoch": 20, "rate": 0.05, "single_example": False}


@pytest.mark.parametrize(
    "more",
    [
        {"clip": "automatic", "C": 3.0},
        {"clip": "automatic", "C": 3.0, "alpha_noise": "per_layer", "alpha": "paper"},
        {"clip": "quantile"},
        {"clip": "quantile", "clip_quantile": 0.8, "noise": "paper", "decay": "linear", "tau": 0.3},
        {"clip": "quantile", "C": 20.0, "alpha_noise": "per_layer", "alpha": "paper"},
    ],
    ids=lambda more: ",".join(f"{k}={v}" for k, v in more.items()),
)
@pytest.mark.slow
def test_it_agrees_with_the_literal_version_for_every_number_of_workers(more: dict) -> None:
    spec = EDPSpec(**{"C": 0.3, "z0": 0.5, "reproducible_noise": 7} | more)
    expected = literal_training(spec, **SHAPE)
    fixed = literal_training(spec.model_copy(update={"clip": "fixed"}), **SHAPE)
    assert not torch.allclose(expected, fixed, atol=1e-4), "the clip matters"
    for world in (1, 2):
        for weights, ledger in run_workers(hook_training, world, spec, *SHAPE.values()):
            torch.testing.assert_close(weights, expected, rtol=0, atol=3e-6 * spec.C / 0.3)
            assert {entry.mechanism.C for entry in ledger.entries} == {spec.C}
            assert [entry.steps for entry in ledger.entries] == [3, 3], "a clip that moves makes no longer ledger"


norms = st.lists(st.floats(0, 2.0**100, width=32), min_size=1, max_size=6)


@given(norms, st.floats(1e-3, 1e3))
@pytest.mark.slow
def test_no_clipped_gradient_is_longer_than_the_clip_and_an_automatic_one_is_shorter(of: list[float], C: float) -> None:
    norms_g = torch.tensor(of, dtype=torch.float64)
    for clip in ("fixed", "automatic", "quantile"):
        lengths = clip_factors(norms_g, C, clip) * norms_g
        assert bool((lengths <= C * (1 + 1e-12)).all()), clip
        if clip == "automatic":
            assert bool((lengths < C)[norms_g < 1e9].all()), "beyond that γ is lost in rounding"


@pytest.mark.parametrize("clip", ["fixed", "automatic", "quantile"])
def test_a_norm_that_is_not_finite_gives_zero_and_counts_nothing(clip: str) -> None:
    norms_g = torch.tensor([math.nan, math.inf, 0.0, 2.0])
    found = clip_factors(norms_g, 1.0, clip)
    assert found[:2].tolist() == [0, 0]
    assert float(found[2] * 0.0) == 0
    assert float(count_within(norms_g, 1.0)) == -0.5
    assert float(found[3]) == pytest.approx(1 / 2.01 if clip == "automatic" else 0.5)
    assert clip_factors(torch.tensor(2.0), torch.tensor(1.0, dtype=torch.float64), clip).dtype == torch.float32


@pytest.mark.parametrize("clip", ["fixed", "automatic", "quantile"])
def test_factors_count_and_next_clip_wait_for_no_device(clip: str) -> None:
    """A meta tensor has no value: whoever asks for one fails, as he would wait for a GPU."""
    norms_g, C = torch.ones(4, device="meta"), torch.ones((), dtype=torch.float64, device="meta")
    with pytest.raises(RuntimeError):
        float(C)
    assert clip_factors(norms_g, C, clip).shape == clip_factors(norms_g, 1.0, clip).shape == (4,)
    assert next_clip(C, count_within(norms_g, C), 4, 0.5).device.type == "meta"


@given(norms, st.floats(0, 2.0**100, width=32), st.floats(1e-3, 1e3))
def test_a_micro_batch_moves_the_count_by_a_half_and_a_change_of_it_by_1_at_most(
    of: list[float], other: float, C: float
) -> None:
    def count(values: list[float]) -> float:
        return float(count_within(torch.tensor(values), C))

    assert abs(count(of) - count(of[1:])) <= 0.5
    assert abs(count(of) - count([0.0, *of[1:]])) <= 0.5
    assert abs(count(of) - count([other, *of[1:]])) <= 1


CASES = [
    Case(EDPSpec(C=0.6, clip=clip, unit=unit, sampling=sampling, reproducible_noise=1), 4, size, custom_alpha=False)
    for clip, unit, sampling, size in itertools.product(
        ["automatic", "quantile"], ["example", "micro_batch"], ["shuffle", "poisson"], [1, 3]
    )
]
QUANTILE_CASES = [case for case in CASES if case.spec.clip == "quantile"]


def name(case: Case) -> str:
    return f"{case.spec.clip}-{case.spec.unit}-{case.spec.sampling}-{case.size}"


def count_moved(case: Case, here: float, there: float) -> float:
    """By how much two counts differed, from the clips that they led to under the same noise."""
    return abs(math.log(here / there)) * case.micro_batches / QUANTILE_RATE


pulls = st.tuples(*[st.sampled_from([-1e4, -1.0, -0.2, 0.0, 0.2, 1.0, 1e4])] * 2)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=st.sampled_from(CASES), chosen=st.lists(pulls, min_size=12, max_size=12))
def test_no_choice_of_gradients_moves_sum_or_count_farther_than_stated(case: Case, chosen: list) -> None:
    step = [chosen[i * case.size : (i + 1) * case.size] for i in range(case.micro_batches)]
    here, hook = aggregate(0, 1, case, step, 0.0)
    there, other = aggregate(0, 1, case, without_first_unit(case, step), 0.0)
    moved = case.micro_batches * float(in_noise_space(hook, here - there).norm())
    assert moved <= hook.mechanism.sensitivity() * (1 + 1e-5)
    if case.spec.clip == "quantile":
        assert count_moved(case, hook.clip_state, other.clip_state) <= hook.mechanism.count_sensitivity() + 1e-9


@pytest.mark.parametrize("case", QUANTILE_CASES, ids=name)
def test_the_worst_unit_moves_the_count_by_what_is_stated(case: Case) -> None:
    """One that is far beyond the clip, where the others of its micro-batch are within."""
    whole, _ = worst_pair(case)
    whole = [[whole[0][0], *[(0.0, 0.01)] * (case.size - 1)], *whole[1:]]
    (_, hook), (_, other) = (aggregate(0, 1, case, s, 0.0) for s in (whole, without_first_unit(case, whole)))
    moved = count_moved(case, hook.clip_state, other.clip_state)
    assert moved == pytest.approx(hook.mechanism.count_sensitivity(), abs=1e-9)


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_without_noise_the_clip_comes_to_the_quantile_of_the_norms(quantile: float) -> None:
    rng = np.random.default_rng(0)
    C = torch.tensor(30.0, dtype=torch.float64)
    late = []
    for step in range(600):
        count = count_within(torch.tensor(rng.lognormal(0.5, 1.0, 500)), C)
        C = next_clip(C, count, 500, quantile)
        if step >= 300:
            late.append(math.log(float(C)))
    assert np.mean(late) == pytest.approx(0.5 + norm.ppf(quantile), abs=0.02)


@pytest.mark.parametrize("replayable", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 8])
@pytest.mark.slow
def test_the_workers_noise_adds_up_to_the_counts(workers: int, replayable: bool) -> None:
    shares = [range(8 // workers * r, 8 // workers * (r + 1)) for r in range(workers)]
    key = bytes(range(32))
    drawn = [sum(count_noise(key, 8, mine, step, replayable=replayable) for mine in shares) for step in range(3_000)]
    assert np.std(drawn) == pytest.approx(count_noise_std(8), rel=5 / math.sqrt(2 * len(drawn)))
    assert abs(np.mean(drawn)) < 5 * count_noise_std(8) / math.sqrt(len(drawn))


def test_the_noise_of_the_count_is_a_twentieth_of_n_and_at_least_5() -> None:
    assert [count_noise_std(n) for n in (1, 8, 100, 101, 4_000)] == [5, 5, 5, 5.05, 200]
    for unit, single in itertools.product(("example", "micro_batch"), (False, True)):
        at_floor = Mechanism(C=1, z=1, N=8, unit=unit, single_example=single, clip="quantile", count_std=5)
        without = at_floor.model_copy(update={"clip": "fixed"})
        ratio = (without.effective_noise_multiplier() / at_floor.effective_noise_multiplier()) ** 2
        assert ratio == pytest.approx(1.01), "a hundredth of what a step costs at z = 1"


def test_the_count_has_streams_of_its_own() -> None:
    key = bytes(range(32))
    others = [stream(key, i, step) for i in range(3) for step in range(3)]
    streams = [alpha_stream(key), *others, *(count_stream(key, i, step) for i in range(3) for step in range(3))]
    assert len({one.key() for one in streams}) == len(streams) == 19


def gaussian_epsilon(mu: float, delta: float) -> float:
    """ε of one Gaussian mechanism of sensitivity over noise `mu` (Balle & Wang 2018, theorem 8)."""

    def excess(eps: float) -> float:
        return float(norm.cdf(mu / 2 - eps / mu) - math.exp(eps + norm.logcdf(-mu / 2 - eps / mu)) - delta)

    return float(brentq(excess, 0, 1_000))


@pytest.mark.parametrize(
    ("more", "single", "mu_of_an_epoch"),
    [
        ({}, False, math.hypot(2 / 3, 1 / 5)),
        ({"unit": "micro_batch"}, False, math.hypot(1 / 3, 0.5 / 5)),
        ({}, True, math.hypot(1 / 3, 0.5 / 5)),
        ({"noise": "paper"}, False, math.hypot(2 * math.sqrt(8) / 3, 1 / 5)),
    ],
)
def test_sum_and_count_are_priced_as_one_gaussian(more: dict, single: bool, mu_of_an_epoch: float) -> None:
    spec = EDPSpec(z0=3.0, clip="quantile", **more)
    plan = PLAN | {"single_example": single}
    ledger, without = (
        planned_ledger(one, epochs=9, **plan) for one in (spec, spec.model_copy(update={"clip": "automatic"}))
    )
    assert epsilon(ledger, 1e-5) == pytest.approx(gaussian_epsilon(3 * mu_of_an_epoch, 1e-5), rel=1e-6)
    assert epsilon(without, 1e-5) == epsilon(
        planned_ledger(spec.model_copy(update={"clip": "fixed"}), epochs=9, **plan), 1e-5
    )
    assert epsilon_paper(ledger, 1e-5) == epsilon_paper(without, 1e-5)


def test_poisson_steps_are_priced_as_those_of_the_joint_gaussian() -> None:
    """Andrew et al. (2021), Theorem 1: as the fixed clip's at 1/z² = 1/z_Δ² + 1/(2σ)²."""
    plan = PLAN | {"single_example": True}
    moving = planned_ledger(EDPSpec(z0=1.2, clip="quantile", sampling="poisson"), epochs=2, **plan)
    z = (1.2**-2 + (2 * 5) ** -2) ** -0.5
    fixed = planned_ledger(EDPSpec(z0=z, sampling="poisson"), epochs=2, **plan)
    assert epsilon(moving, 1e-5) == pytest.approx(epsilon(fixed, 1e-5), rel=1e-9)


@pytest.mark.parametrize("settings", [{"count_std": 0.0}, {"z": 0.0}, {"replayable": True}, {"alpha": "paper"}])
def test_without_noise_on_both_there_is_no_guarantee(settings: dict) -> None:
    mechanism = Mechanism(**{"C": 1.0, "z": 2.0, "N": 8, "clip": "quantile", "count_std": 5.0} | settings)
    assert mechanism.effective_noise_multiplier() == 0
    assert epsilon(Ledger().record(0, mechanism), 1e-5) == math.inf


@pytest.mark.parametrize("clip", ["fixed", "automatic", "quantile"])
@pytest.mark.slow
def test_a_run_costs_what_was_planned(clip: str) -> None:
    spec = EDPSpec(clip=clip)
    plan = planned_ledger(spec, epochs=1, micro_batches=2, steps_per_epoch=1, rate=1.0, single_example=True)
    for world in (1, 2):
        assert run_workers(executed, world, spec) == [plan] * world
    assert Ledger.model_validate_json(plan.model_dump_json()) == plan


@pytest.mark.parametrize("sampling", ["shuffle", "poisson"])
@pytest.mark.parametrize("clip", ["fixed", "automatic", "quantile"])
@pytest.mark.slow
def test_the_noise_found_for_a_target_pays_for_the_count_too(clip: str, sampling: str) -> None:
    spec = EDPSpec(clip=clip, sampling=sampling, decay="linear", tau=0.2)
    z0 = noise_multiplier_for_epsilon(8.0, spec, epochs=4, **PLAN)
    cost = epsilon(planned_ledger(spec.model_copy(update={"z0": z0}), epochs=4, **PLAN), spec.delta)
    assert 8.0 - 1e-4 <= cost <= 8.0
    assert (z0 > noise_multiplier_for_epsilon(8.0, spec.model_copy(update={"clip": "fixed"}), epochs=4, **PLAN)) == (
        clip == "quantile"
    )


@pytest.mark.parametrize("alpha", ["fixed", "private"])
def test_a_target_that_the_count_alone_exceeds_is_refused_in_one_line(alpha: str) -> None:
    alone = gaussian_epsilon(math.sqrt(30) / 5, 5e-4)
    spec = EDPSpec(clip="quantile", alpha=alpha)
    with pytest.raises(UserError, match=f"clip = quantile: counting .* costs {alone:.4g} alone") as refused:
        noise_multiplier_for_epsilon(0.99 * alone, spec, epochs=30, **PLAN)
    assert "\n" not in str(refused.value)
    assert noise_multiplier_for_epsilon(1.1 * alone, spec, epochs=30, **PLAN) > 1


@pytest.mark.parametrize(("field", "value"), [("clip", "Automatic"), ("clip_quantile", 0.0), ("clip_quantile", 1.0)])
def test_only_what_is_listed_is_allowed(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        EDPSpec.model_validate({field: value})


@pytest.mark.parametrize("seed", [3, None])
@pytest.mark.slow
def test_all_workers_hold_the_same_clip_in_every_step(seed: int | None) -> None:
    (one, weights), (other, others) = run_workers(
        clips, 2, EDPSpec(C=0.3, clip="quantile", reproducible_noise=seed), 5, None
    )
    assert one == other
    assert len(set(one)) == 5, "it moves"
    assert torch.equal(weights, others)


@pytest.mark.slow
def test_secret_counts_differ_between_runs() -> None:
    spec = EDPSpec(C=0.3, clip="quantile")
    assert run_workers(clips, 1, spec, 3, None)[0][0] != run_workers(clips, 1, spec, 3, None)[0][0]


@pytest.mark.slow
def test_a_resumed_run_goes_on_with_the_clip_that_it_had() -> None:
    spec = EDPSpec(C=0.3, clip="quantile", reproducible_noise=3)
    (whole, weights), (cut, resumed) = (run_workers(clips, 1, spec, 5, after)[0] for after in (None, 3))
    assert cut == whole
    torch.testing.assert_close(resumed, weights, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("clip", "stretch"), [("quantile", 10.0), ("fixed", 1.0)])
@pytest.mark.slow
def test_the_noise_follows_a_clip_that_moves(clip: str, stretch: float) -> None:
    spec = EDPSpec(C=0.4, z0=1.5, clip=clip)
    for drawn in run_workers(noise_at, 2, spec, 10 * spec.C):
        assert float(drawn.std()) == pytest.approx(stretch * 0.4 * 1.5 / 2, rel=5 / math.sqrt(2 * len(drawn)))
