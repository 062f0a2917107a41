"""What ε must do for any run: fall with noise, grow with epochs and decay, and add up."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edp.accounting.epsilon import epsilon
from edp.accounting.selection import composed_epsilon
from edp.ledger import planned_ledger
from edp.spec import EDPSpec

DELTA = 1e-5
# The grid of a privacy loss changes in steps.
SLACK = {"shuffle": 1e-9, "poisson": 2e-3}


def run(sampling, z0, epochs, decay, tau, rate=0.05):
    spec = EDPSpec(z0=z0, decay=decay, tau=tau if decay != "none" else 0.0, sampling=sampling)
    return planned_ledger(spec, epochs=epochs, micro_batches=8, steps_per_epoch=20, rate=rate, single_example=True)


@pytest.mark.stress
@pytest.mark.parametrize("sampling", ["shuffle", "poisson"])
@settings(max_examples=30, deadline=None)
@given(
    z0=st.floats(0.5, 20),
    epochs=st.integers(2, 12),
    split=st.integers(1, 11),
    decay=st.sampled_from(["none", "linear", "exponential"]),
    tau=st.floats(0.01, 0.5),
    rate=st.floats(0.005, 0.5),
)
def test_two_halves_make_the_whole_wherever_a_run_is_split(sampling, z0, epochs, split, decay, tau, rate):
    whole = run(sampling, z0, epochs, decay, tau, rate)
    first = whole.until(min(split, epochs - 1))
    rest = whole.model_copy(update={"entries": whole.entries[len(first.entries) :]})
    # The other way round, or the accountants would be handed what they were handed for the whole.
    both = composed_epsilon([rest, first], DELTA)
    assert both == pytest.approx(epsilon(whole, DELTA), rel=SLACK[sampling])
    larger = max(epsilon(first, DELTA), epsilon(rest, DELTA))
    assert both >= larger * (1 - SLACK[sampling])
    if decay == "none" and both > 0.01:
        assert both > larger, "one of the halves was lost"


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["shuffle", "poisson"])
@settings(max_examples=30, deadline=None)
@given(
    z0=st.floats(0.3, 50),
    factor=st.floats(1.01, 10),
    epochs=st.integers(1, 12),
    decay=st.sampled_from(["linear", "exponential"]),
    tau=st.floats(0.01, 0.5),
)
def test_it_falls_with_noise_and_grows_with_epochs_and_tau(sampling, z0, factor, epochs, decay, tau):
    here, slack = epsilon(run(sampling, z0, epochs, decay, tau), DELTA), SLACK[sampling]
    assert epsilon(run(sampling, z0 * factor, epochs, decay, tau), DELTA) <= here * (1 + slack)
    assert epsilon(run(sampling, z0, epochs + 1, decay, tau), DELTA) >= here * (1 - slack)
    assert epsilon(run(sampling, z0, epochs, decay, tau * factor), DELTA) >= here * (1 - slack)
