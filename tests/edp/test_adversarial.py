"""Noise over sensitivity as stated against as measured, for a worst-case unit, in every combination of options."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edp.alpha import VOTE_NORM, noisy_sum_of_votes, private_alpha, votes
from edp.noise.gaussian import secret_key
from edp.spec import EDPSpec
from tests.support.edp.adversary import (
    SIZES,
    Case,
    Example,
    aggregate,
    in_noise_space,
    measured_and_stated,
    moved_and_noise,
    without_first_unit,
    worst_pair,
)
from tests.support.workers import run_workers

pytestmark = pytest.mark.usefixtures("one_worker")

TOLERANCE = 0.03


CASES = [
    Case(
        EDPSpec(C=0.6, noise=noise, alpha_noise=alpha_noise, unit=unit, sampling=sampling),
        micro_batches,
        size,
        custom_alpha,
    )
    for noise, alpha_noise, unit, sampling, (micro_batches, size), custom_alpha in itertools.product(
        ["corrected", "paper"],
        ["isotropic", "per_layer"],
        ["example", "micro_batch", "user"],
        ["shuffle", "poisson"],
        [(1, 1), (4, 1), (1, 3), (4, 3)],
        [False, True],
    )
]


def name(case: Case) -> str:
    s = case.spec
    alpha = "custom" if case.custom_alpha else s.alpha
    return f"{s.noise}-{s.alpha_noise}-{alpha}-{s.unit}-{s.sampling}-{case.micro_batches}x{case.size}"


@pytest.mark.parametrize("case", CASES, ids=name)
def test_noise_over_sensitivity_is_as_stated(case: Case) -> None:
    measured, stated = measured_and_stated(0, 1, case)
    assert measured == pytest.approx(stated, rel=TOLERANCE)


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c.micro_batches == 4 and not c.custom_alpha and c.spec.unit == "example"][::3],
    ids=name,
)
@pytest.mark.slow
def test_it_is_the_same_on_several_workers(workers: int, case: Case) -> None:
    for measured, stated in run_workers(measured_and_stated, workers, case):
        assert measured == pytest.approx(stated, rel=TOLERANCE)


@pytest.mark.parametrize("case", [case for case in CASES if case.spec.unit == "example"], ids=name)
def test_the_ledger_says_how_much_noise_the_weights_saw(case: Case) -> None:
    step, _ = worst_pair(case)
    quiet, _ = aggregate(0, 1, case, step, 0.0)
    noisy, hook = aggregate(0, 1, case, step, 1.7)
    measured = max(float(layer.std()) for layer in (noisy - quiet).double().split(SIZES))
    (entry,) = hook.ledger.entries
    assert measured == pytest.approx(entry.noise_std, rel=TOLERANCE)


gradients = st.tuples(*[st.sampled_from([-1e4, -1.0, -0.2, 0.0, 0.2, 1.0, 1e4])] * 2)


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    case=st.sampled_from([c for c in CASES if c.spec.noise == "corrected" and c.micro_batches == 4]),
    chosen=st.lists(gradients, min_size=12, max_size=12),
)
def test_no_choice_of_gradients_moves_the_sum_farther_than_stated(case: Case, chosen: list[Example]) -> None:
    step = [chosen[i * case.size : (i + 1) * case.size] for i in range(case.micro_batches)]
    here, hook = aggregate(0, 1, case, step, 0.0)
    there, _ = aggregate(0, 1, case, without_first_unit(case, step), 0.0)
    moved = case.micro_batches * float(in_noise_space(hook, here - there).norm())
    assert moved <= hook.mechanism.sensitivity() * (1 + 1e-5)


def test_scales_read_off_a_private_gradient_have_no_sensitivity() -> None:
    """`alpha = paper`: one example decides where all others' gradients may go, whatever the noise."""
    case = Case(EDPSpec(alpha="paper"), 4, 3, custom_alpha=False)
    _, _, stated = moved_and_noise(0, 1, case, 1, 1.7)
    assert stated == 0


LAYERS = 40_000


@pytest.mark.parametrize("z", [0.5, 10.0])
def test_noise_over_sensitivity_of_the_layer_scales_is_as_stated(z: float) -> None:
    generator = torch.Generator().manual_seed(0)
    others = torch.rand(30, LAYERS, generator=generator)
    loudest = torch.zeros(1, LAYERS)
    loudest[0, 7] = 1e30
    key = secret_key()
    with_it, without_it, zeroed = (
        noisy_sum_of_votes(norms, 0.0, key)
        for norms in (torch.cat([loudest, others]), others, torch.cat([0 * loudest, others]))
    )
    moved = max(float((with_it - w).norm()) for w in (without_it, zeroed))
    noise = float((noisy_sum_of_votes(others, z, key) - without_it).std())
    assert noise / moved == pytest.approx(z, rel=TOLERANCE)
    _, release = private_alpha(others, z=z)
    assert release.z == z


@given(
    st.lists(
        st.lists(
            st.floats(0, 2.0**127, width=32) | st.sampled_from([float("nan"), float("inf")]), min_size=3, max_size=3
        ),
        min_size=1,
        max_size=5,
    )
)
@pytest.mark.slow
def test_no_vote_is_longer_than_stated_whatever_the_gradient(rows: list[list[float]]) -> None:
    lengths = votes(torch.tensor(rows)).norm(dim=1)
    assert bool((lengths <= VOTE_NORM * (1 + 1e-12)).all())
