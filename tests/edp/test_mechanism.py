"""What a step's mechanism guarantees: PRIVACY table of factors, one by one, and by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edp.mechanism import Mechanism


def mechanism(**settings):
    return Mechanism(**{"C": 0.5, "z": 3.0, "N": 8} | settings)


mechanisms = st.builds(
    Mechanism,
    C=st.floats(1e-3, 1e3),
    z=st.floats(0, 1e3),
    N=st.integers(1, 64),
    noise=st.sampled_from(["corrected", "paper"]),
    alpha=st.sampled_from(["fixed", "public", "private"]),
    alpha_noise=st.sampled_from(["isotropic", "per_layer"]),
    max_alpha=st.floats(0.1, 10),
    unit=st.sampled_from(["example", "micro_batch"]),
    single_example=st.booleans(),
)


def test_one_example_among_several_can_turn_a_clipped_mean_round():
    assert mechanism().sensitivity() == 2 * 0.5


@pytest.mark.parametrize("settings", [{"unit": "micro_batch"}, {"single_example": True}])
def test_what_fills_a_micro_batch_alone_moves_the_sum_by_the_clip(settings):
    assert mechanism(**settings).sensitivity() == 0.5


def test_isotropic_noise_must_hide_the_largest_scale():
    assert mechanism(max_alpha=3.0).kappa() == 3 * mechanism().kappa()
    assert mechanism(max_alpha=3.0, alpha_noise="per_layer").kappa() == mechanism().kappa()


def test_noise_as_printed_loses_the_square_root_of_n():
    assert mechanism().noise_std() == pytest.approx(0.5 * 3 / 8)
    assert mechanism().micro_batch_noise_std() == pytest.approx(0.5 * 3 / math.sqrt(8))
    assert mechanism(noise="paper").noise_std() == pytest.approx(0.5 * 3 / 8**1.5)
    assert mechanism(noise="paper").micro_batch_noise_std() == pytest.approx(0.5 * 3 / 8)
    assert mechanism(noise="paper").kappa() == pytest.approx(2 * math.sqrt(8))


@pytest.mark.parametrize("settings", [{"alpha": "paper"}, {"replayable": True}])
def test_no_guarantee_has_an_infinite_kappa_and_a_multiplier_of_zero(settings):
    assert mechanism(**settings).kappa() == math.inf
    assert mechanism(**settings).effective_noise_multiplier() == 0


def test_no_noise_has_a_multiplier_of_zero():
    assert mechanism(z=0.0).effective_noise_multiplier() == 0


@given(mechanisms)
def test_the_multiplier_is_noise_over_sensitivity_on_the_aggregate(m):
    assert m.effective_noise_multiplier() == pytest.approx(m.noise_std() * m.N / m.sensitivity(), rel=1e-12)


@pytest.mark.parametrize("noise", ["corrected", "paper"])
def test_simulated_aggregates_have_the_stated_noise(noise):
    m = mechanism(noise=noise)
    draws = np.random.default_rng(0).normal(0, m.micro_batch_noise_std(), (200_000, m.N)).mean(axis=1)
    assert draws.std() == pytest.approx(m.noise_std(), rel=0.01)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=6), st.floats(0.1, 3))
def test_no_example_moves_a_clipped_mean_by_more_than_the_stated_sensitivity(gradients, clip):
    """One coordinate, a mean over a fixed batch size, the last example zeroed out."""

    def clipped(values):
        mean = sum(values) / len(gradients)
        return max(-clip, min(clip, mean))

    moved = abs(clipped(gradients) - clipped([*gradients[:-1], 0.0]))
    assert moved <= mechanism(C=clip).sensitivity() + 1e-12
