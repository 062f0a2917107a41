"""Noise for a target ε, and epochs within a budget: both are the inverse of `epsilon`."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edp.accounting.calibrate import noise_multiplier_for_epsilon
from edp.accounting.epsilon import epsilon, epsilon_curve
from edp.accounting.selection import composed_epsilon
from edp.ledger import planned_ledger
from edp.spec import EDPSpec, UserError

PLAN = {"micro_batches": 8, "steps_per_epoch": 100, "rate": 0.01, "single_example": False}


def cost(spec, epochs, z0=None, delta=None):
    spec = spec if z0 is None else spec.model_copy(update={"z0": z0})
    return epsilon(planned_ledger(spec, epochs=epochs, **PLAN), delta or spec.delta)


@settings(max_examples=30, deadline=None)
@given(
    target=st.floats(0.05, 1e5),
    epochs=st.integers(1, 40),
    decay=st.sampled_from([("none", 0.0), ("linear", 0.3), ("exponential", 0.1)]),
    noise=st.sampled_from(["corrected", "paper"]),
)
def test_the_noise_found_costs_the_target_and_not_more(target, epochs, decay, noise):
    spec = EDPSpec(decay=decay[0], tau=decay[1], noise=noise)
    z0 = noise_multiplier_for_epsilon(target, spec, epochs=epochs, **PLAN)
    assert target - 1e-4 <= cost(spec, epochs, z0) <= target


@pytest.mark.parametrize(
    ("target", "tau", "epochs"), [(8.0, 0.5, 60), (8.0, 0.5, 100), (1.0, 0.35, 80), (1e24, 0.5, 1), (1e-3, 0.01, 1)]
)
def test_the_fastest_decays_of_the_papers_space_are_within_reach(target, tau, epochs):
    spec = EDPSpec(decay="exponential", tau=tau)
    z0 = noise_multiplier_for_epsilon(target, spec, epochs=epochs, **PLAN)
    assert target * (1 - 1e-6) <= cost(spec, epochs, z0) <= target


@settings(max_examples=30, deadline=None)
@given(target=st.floats(0.05, 1e4), epochs=st.integers(1, 40), tau=st.floats(1e-3, 0.3), trials=st.integers(1, 50))
@pytest.mark.stress
def test_a_target_is_met_whatever_the_order_in_which_a_run_is_added_up(target, epochs, tau, trials):
    spec = EDPSpec(decay="linear", tau=tau)
    z0 = noise_multiplier_for_epsilon(target, spec, epochs=epochs, **PLAN)
    ledger = planned_ledger(spec.model_copy(update={"z0": z0}), epochs=epochs, **PLAN)
    backwards = ledger.model_copy(update={"entries": ledger.entries[::-1]})
    found = [epsilon(backwards, spec.delta), epsilon_curve(ledger, spec.delta)[-1][1]]
    one = noise_multiplier_for_epsilon(target, EDPSpec(), epochs=trials * epochs, **PLAN)
    apart = planned_ledger(EDPSpec(z0=one), epochs=epochs, **PLAN)
    found.append(composed_epsilon([apart] * trials, spec.delta))
    assert max(found) <= target, "or an ε of 8 would read 8.01, since it is rounded up"


@pytest.mark.parametrize("target", [0.5, 8.0, 300.0])
@pytest.mark.slow
def test_the_noise_found_for_poisson_samples(target):
    spec = EDPSpec(sampling="poisson", decay="linear", tau=0.2)
    z0 = noise_multiplier_for_epsilon(target, spec, epochs=4, **PLAN)
    ledger = planned_ledger(spec.model_copy(update={"z0": z0}), epochs=4, **PLAN)
    assert target - 1e-4 <= epsilon(ledger, spec.delta) <= target
    assert epsilon_curve(ledger, spec.delta)[-1][1] <= target


def test_delta_is_the_specs_unless_given():
    spec = EDPSpec(delta=1e-3)
    strict, loose = (noise_multiplier_for_epsilon(5.0, spec, epochs=5, delta=d, **PLAN) for d in (1e-6, None))
    assert strict > loose
    assert cost(spec, 5, strict, delta=1e-6) == pytest.approx(5.0, abs=1e-4)


def test_a_private_estimate_of_the_scales_takes_its_share():
    with_release = noise_multiplier_for_epsilon(5.0, EDPSpec(alpha="private"), epochs=5, **PLAN)
    assert with_release > noise_multiplier_for_epsilon(5.0, EDPSpec(), epochs=5, **PLAN)
    with pytest.raises(UserError, match=r"out of reach.*layer scales"):
        noise_multiplier_for_epsilon(0.1, EDPSpec(alpha="private"), epochs=5, delta=1e-6, **PLAN)


@pytest.mark.parametrize(
    ("spec", "target", "epochs", "message"),
    [
        (EDPSpec(alpha="paper"), 8.0, 5, "alpha = paper"),
        (EDPSpec(reproducible_noise=1), 8.0, 5, "reproducible_noise = 1"),
        (EDPSpec(), 0.0, 5, "target epsilon = 0"),
        (EDPSpec(), math.inf, 5, "target epsilon = inf"),
        (EDPSpec(), math.nan, 5, "target epsilon = nan"),
        (EDPSpec(), 8.0, 0, "epochs = 0"),
        (EDPSpec(), 1e290, 5, "out of reach"),
        (EDPSpec(decay="exponential", tau=0.5), 8.0, 1000, "out of reach.*decay"),
    ],
)
@pytest.mark.slow
def test_what_no_noise_can_give_is_refused(spec, target, epochs, message):
    with pytest.raises(UserError, match=message):
        noise_multiplier_for_epsilon(target, spec, epochs=epochs, **PLAN)
