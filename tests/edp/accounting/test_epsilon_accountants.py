"""What every accountant must do, as one class of tests that each of them passes."""

import itertools
import math
from abc import ABC, abstractmethod

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from edp.accounting.composition import Composition, compose, sampled, unsampled
from edp.accounting.epsilon import epsilon_of
from edp.accounting.gaussian import gaussian_epsilon, participation_epsilon
from edp.accounting.pld import pld_epsilon, pld_epsilon_at
from edp.accounting.rdp import ORDERS, quick_rdp_epsilon, rdp_epsilon

DELTA = 1e-5
# Rounding, relative, that is forgiven when two ways to the same figure are compared.
CLOSE = 1e-6


def delta_of_one_step(epsilon, rate, z):
    """The hockey-stick divergence of one sampled step by its definition, the larger of both directions."""
    x = np.linspace(-12 * z, 1 + 12 * z, 2_000_001)
    without = norm.pdf(x, 0, z)
    with_unit = (1 - rate) * without + rate * norm.pdf(x, 1, z)
    return max(
        np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0), x)
        for p, q in [(with_unit, without), (without, with_unit)]
    )


def simulated_delta(epsilon, c, runs, seed=0):
    """δ of a composition at `epsilon` by Monte-Carlo over its runs with the unit, and its standard error."""
    rng = np.random.default_rng(seed)
    loss = np.zeros(runs)
    for s in c.sampled:
        for _ in range(s.steps):
            x = rng.normal(0, s.z, runs) + (rng.random(runs) < s.rate)
            loss += np.log1p(s.rate * np.expm1((2 * x - 1) / (2 * s.z**2)))
    if c.mu > 0:
        loss += c.mu * rng.normal(0, 1, runs) + c.mu**2 / 2
    share = np.where(loss > epsilon, -np.expm1(np.minimum(epsilon - loss, 0)), 0)
    return share.mean(), share.std() / math.sqrt(runs)


class Conformance(ABC):
    """Subclasses give `epsilon(composition, delta)`, and the noise for which they are meant."""

    z = 1.0
    slack = CLOSE

    @abstractmethod
    def epsilon(self, c, delta): ...

    def test_nothing_executed_costs_nothing(self):
        assert self.epsilon(compose([]), DELTA) == 0

    def test_overwhelming_noise_costs_next_to_nothing(self):
        assert self.epsilon(sampled(0.01, 1e9, 10), DELTA) < 0.02

    @pytest.mark.parametrize("factor", [1.01, 1.3, 2.0, 4.0])
    @pytest.mark.parametrize("rate", [0.01, 0.1])
    def test_more_noise_never_costs_more(self, factor, rate):
        more = self.epsilon(sampled(rate, self.z * factor, 100), DELTA)
        assert more <= self.epsilon(sampled(rate, self.z, 100), DELTA) * (1 + self.slack)

    @pytest.mark.parametrize(("steps", "more"), [(1, 1), (10, 1), (37, 200), (300, 3)])
    def test_more_steps_never_cost_less(self, steps, more):
        few = self.epsilon(sampled(0.02, self.z, steps), DELTA)
        assert few <= self.epsilon(sampled(0.02, self.z, steps + more), DELTA) * (1 + self.slack)

    def test_a_larger_delta_never_costs_more(self):
        costs = [self.epsilon(sampled(0.02, self.z, 100), delta) for delta in (1e-7, 1e-5, 1e-3, 0.1)]
        assert all(later <= earlier * (1 + self.slack) for earlier, later in itertools.pairwise(costs))

    def test_the_order_does_not_matter(self):
        parts = [sampled(0.01, self.z, 50), unsampled(3 * self.z), sampled(0.02, 2 * self.z, 30)]
        there, back = self.epsilon(compose(parts), DELTA), self.epsilon(compose(parts[::-1]), DELTA)
        assert there == pytest.approx(back, rel=1e-6)

    @pytest.mark.slow
    @pytest.mark.parametrize("rate", [0.01, 0.3, 0.99])
    def test_never_below_the_truth_for_one_step(self, rate):
        epsilon = self.epsilon(sampled(rate, self.z, 1), DELTA)
        assert epsilon == 0 or epsilon < 700
        assert delta_of_one_step(epsilon, rate, self.z) <= DELTA * (1 + 1e-4)

    @pytest.mark.parametrize("mu", [0.5, 3.0])
    def test_never_below_the_exact_gaussian_where_nothing_was_sampled(self, mu):
        assert self.epsilon(unsampled(1 / mu), DELTA) >= gaussian_epsilon(mu, DELTA) * (1 - CLOSE)

    @pytest.mark.slow
    def test_never_below_simulation(self):
        c = compose([sampled(0.05, self.z, 20), sampled(0.2, 1.5 * self.z, 10), unsampled(4 * self.z)])
        delta, error = simulated_delta(self.epsilon(c, 1e-3), c, runs=400_000)
        assert delta - 4 * error <= 1e-3


class TestRdp(Conformance):
    slack = 1e-3  # its best order is one of a grid

    def epsilon(self, c, delta):
        return rdp_epsilon(c, delta)


class TestQuickRdp(Conformance):
    slack = 1e-2  # its orders lie farther apart

    def epsilon(self, c, delta):
        return quick_rdp_epsilon(c, delta)


class TestPld(Conformance):
    slack = 2e-3  # its interval changes in steps

    def epsilon(self, c, delta):
        return pld_epsilon(c, delta, near=max(rdp_epsilon(c, delta), 1e-3))


class TestParticipation(Conformance):
    z = 0.2

    def epsilon(self, c, delta):
        return participation_epsilon(c, delta)


class TestLeastOfAll(Conformance):
    slack = 2e-3

    def epsilon(self, c, delta):
        return epsilon_of(c, delta)


def event_of(c: Composition) -> dp_event.DpEvent:
    """Return the composition as an event of dp_accounting."""
    c = c.of_single_units()
    events: list[dp_event.DpEvent] = [
        dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(s.rate, dp_event.GaussianDpEvent(s.z)), s.steps)
        for s in c.sampled
    ]
    if c.mu > 0:
        events.append(dp_event.GaussianDpEvent(1 / c.mu))
    return dp_event.ComposedDpEvent(events)


@pytest.mark.parametrize(
    "c",
    [
        sampled(0.01, 1.0, 1000),
        sampled(0.3, 20.0, 500),
        sampled(0.02, 0.4, 100),
        unsampled(0.5),
        compose([sampled(0.01, 0.3, 50), sampled(0.05, 0.8, 100), unsampled(2.0)]),
        compose([*(sampled(0.05, 0.5 + i / 10, 10 + i % 3) for i in range(35)), unsampled(2.0)]),
    ],
)
@pytest.mark.slow
def test_pld_agrees_with_the_library_at_the_same_interval(c):
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(event_of(c))
    assert pld_epsilon_at(c, DELTA, 1e-3) == pytest.approx(accountant.get_epsilon(DELTA), abs=1e-7)


@pytest.mark.parametrize(("rate", "z"), [(0.01, 1.0), (0.3, 0.4), (0.9, 20.0), (1e-4, 0.1)])
def test_quick_rdp_agrees_with_the_library_at_whole_orders(rate, z):
    accountant = RdpAccountant([order for order in ORDERS if order == int(order)])
    accountant.compose(event_of(sampled(rate, z, 500)))
    assert quick_rdp_epsilon(sampled(rate, z, 500), DELTA) == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-9)


def test_a_divergence_too_small_for_a_float_beside_1_counts_in_many_steps():
    """The library finds 0 or less for one such step. The run is all but one Gaussian of μ = .013."""
    many = sampled(1e-8, 1.0, 10**12)
    assert epsilon_of(many, DELTA) >= gaussian_epsilon(0.013, DELTA) > 0


@pytest.mark.stress
def test_forty_decaying_runs_of_a_sweep_cost_less_than_their_quick_estimate():
    c = compose(sampled(1 / 22, 1 + run / 8 + epoch / 99, 22) for run in range(40) for epoch in range(30))
    assert len(c.sampled) == 1200
    value = epsilon_of(c, DELTA)
    assert 0.8 * quick_rdp_epsilon(c, DELTA) < value < quick_rdp_epsilon(c, DELTA)


def test_pld_tells_a_run_that_goes_on_from_one_that_starts_anew():
    first, second = sampled(0.01, 1.0, 100), sampled(0.01, 0.8, 100)
    memo = {}
    pld_epsilon_at(first, DELTA, 1e-3, memo=memo)
    continued = pld_epsilon_at(compose([first, second]), DELTA, 1e-3, memo=memo)
    anew = pld_epsilon_at(sampled(0.02, 1.0, 70), DELTA, 1e-3, memo=memo)
    assert continued == pytest.approx(pld_epsilon_at(compose([first, second]), DELTA, 1e-3), rel=1e-9)
    assert anew == pytest.approx(pld_epsilon_at(sampled(0.02, 1.0, 70), DELTA, 1e-3), rel=1e-9)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(z=st.floats(0.5, 5), rate=st.floats(0.001, 0.5), steps=st.integers(1, 2000))
def test_pld_is_tighter_than_rdp(z, rate, steps):
    c = sampled(rate, z, steps)
    rdp = rdp_epsilon(c, DELTA)
    assert pld_epsilon(c, DELTA, rdp) <= rdp * 1.002


@pytest.mark.parametrize("z", [1e-2, 1e-4, 1e-8])
def test_with_little_noise_it_is_the_number_of_participations_that_counts(z):
    """P[Bin(100, .01) >= 8] is 8e-6 and P[>= 7] is 7e-5, so at δ = 1e-5 the run is one Gaussian of 7 to 8."""
    low, high = (gaussian_epsilon(math.sqrt(k) / z, 0.5) for k in (6, 8))
    assert low < participation_epsilon(sampled(0.01, z, 100), DELTA) < high * 1.1


def test_a_rate_of_one_is_no_sampling():
    assert sampled(1.0, 2.0, 9) == unsampled(2.0, 9)
    assert unsampled(2.0, 9).mu == 1.5


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 20.0, 900.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
def test_the_gaussian_inverts_its_closed_form(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    first = norm.logcdf(mu / 2 - epsilon / mu)
    second = epsilon + norm.logcdf(-mu / 2 - epsilon / mu)
    found = -math.exp(first) * math.expm1(second - first)
    assert found == pytest.approx(delta, rel=1e-4) or (epsilon == 0 and found <= delta)


def test_the_gaussian_bound_for_large_mu_joins_the_exact_value_from_above():
    exact, bound = gaussian_epsilon(1000.0, DELTA), gaussian_epsilon(1000.0 * (1 + 1e-12), DELTA)
    assert exact < bound < exact * (1 + 1e-4)
    assert gaussian_epsilon(1e12, DELTA) == pytest.approx(5e23, rel=1e-6)
