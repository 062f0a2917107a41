"""ε of a run from its ledger: reference values, invariants, and the cases without a guarantee."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian
from hypothesis import given
from hypothesis import strategies as st

from edp.accounting.composition import Composition, SampledSteps, composition_of
from edp.accounting.epsilon import epsilon, epsilon_curve, epsilon_paper, log10_epsilon_paper
from edp.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu, participation_epsilon
from edp.accounting.pld import pld_epsilon_at
from edp.accounting.rdp import rdp_epsilon
from edp.ledger import AlphaRelease, Ledger, LedgerEntry, planned_ledger
from edp.mechanism import Mechanism
from edp.spec import EDPSpec, UserError


def plan(z0=1.0, epochs=30, *, decay="none", tau=0.0, micro_batches=8, steps=10, rate=0.01, single=False, **spec):
    return planned_ledger(
        EDPSpec(z0=z0, decay=decay, tau=tau, **spec),
        epochs=epochs,
        micro_batches=micro_batches,
        steps_per_epoch=steps,
        rate=rate,
        single_example=single,
    )


def entry(epoch=0, steps=1, **mechanism):
    return LedgerEntry(epoch=epoch, steps=steps, mechanism=Mechanism(**{"C": 1.0, "z": 1.0, "N": 8} | mechanism))


class TestPaper:
    @pytest.mark.parametrize(("delta", "expected"), [(5e-4, 36.355424), (5e-5, 39.376408)])
    def test_without_decay(self, delta, expected):
        assert epsilon_paper(plan(), delta) == pytest.approx(expected, abs=5e-7)

    def test_with_linear_decay_counted_from_epoch_0(self):
        assert epsilon_paper(plan(decay="linear", tau=0.02), 5e-4) == pytest.approx(53.206434, abs=5e-7)

    def test_with_exponential_decay_it_reaches_1e24(self):
        ledger = plan(5e-6, 33, decay="exponential", tau=0.5)
        assert epsilon_paper(ledger, 5e-4) == pytest.approx(2.498351e24, rel=5e-7)

    def test_rho_of_the_demo_of_yu_et_al_which_decays_linearly(self):
        """The reference table calls this decay exponential; 0.756660 comes out with 1/(1 + .0285 t) alone."""
        ledger = plan(12.0, 60, decay="linear", tau=0.0285)
        rho = 0.756660
        for delta in (5e-4, 1e-5):
            expected = rho + 2 * math.sqrt(rho * math.log(1 / delta))
            assert epsilon_paper(ledger, delta) == pytest.approx(expected, rel=1e-6)

    @pytest.mark.parametrize(
        ("z0", "epochs", "decay", "tau", "delta", "log10", "published"),
        [
            (0.03, 39, "none", 0.0, 5e-4, 4.35, 4.4),
            (0.008, 39, "linear", 0.02, 5e-4, 5.78, 5.8),
            (1e-4, 39, "exponential", 0.5, 5e-4, 24.40, 24.4),
            (0.7, 34, "none", 0.0, 5e-5, 1.86, 1.9),
            (1.0, 34, "linear", 0.02, 5e-5, 1.82, 1.8),
            (0.5, 34, "exponential", 0.02, 5e-5, 2.34, 2.3),
        ],
    )
    def test_cells_of_table_1(self, z0, epochs, decay, tau, delta, log10, published):
        value = log10_epsilon_paper(plan(z0, epochs, decay=decay, tau=tau), delta)
        assert round(value, 2) == pytest.approx(log10)
        assert value == pytest.approx(published, abs=0.0501)

    @given(z=st.floats(1e-300, 1e300), delta=st.floats(1e-12, 0.99))
    def test_it_never_overflows(self, z, delta):
        value = epsilon_paper(plan(z, 2), delta)
        assert value >= 0
        logarithm = log10_epsilon_paper(plan(z, 2), delta)
        assert math.isfinite(logarithm)
        assert (value == math.inf) == (logarithm > 308)

    def test_it_looks_at_z_alone(self):
        plain = epsilon_paper(plan(), 5e-4)
        for other in (plan(noise="paper"), plan(alpha="paper"), plan(sampling="poisson"), plan(reproducible_noise=1)):
            assert epsilon_paper(other, 5e-4) == plain


class TestShuffled:
    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({"single": True}, 32.242817),
            ({"unit": "micro_batch"}, 32.242817),
            ({}, 95.172860),
            ({"noise": "paper"}, 581.003124),
        ],
    )
    def test_reference_values_of_kappa(self, settings, expected):
        assert epsilon(plan(**settings), 5e-4) == pytest.approx(expected, abs=5e-7)

    def test_one_gaussian(self):
        assert epsilon(plan(1.0, 1, single=True), 1e-5) == pytest.approx(4.377178, abs=5e-7)

    @pytest.mark.parametrize(
        ("single", "rdp", "pld"), [(True, 10.8602036, 10.1224946), (False, 26.2880374, 24.7160779)]
    )
    @pytest.mark.slow
    def test_tf_privacy_cases_of_two_epochs_begun(self, single, rdp, pld):
        ledger = plan(0.7, 2, single=single)
        assert rdp_epsilon(composition_of(ledger), 1e-5) == pytest.approx(rdp, abs=5e-7)
        assert pld_epsilon_at(composition_of(ledger), 1e-5, 1e-4) == pytest.approx(pld, abs=5e-7)
        assert epsilon(ledger, 1e-5) == pytest.approx(pld, abs=1e-6)

    def test_an_epoch_counts_once_however_many_of_its_steps_ran(self):
        assert epsilon(plan(steps=1), 5e-4) == epsilon(plan(steps=100), 5e-4)

    @pytest.mark.parametrize(("steps", "epochs"), [(101, 2), (200, 2), (3000, 30)])
    def test_an_epoch_of_more_steps_than_its_rate_leaves_room_for_counts_as_the_epochs_that_are_in_it(
        self, steps, epochs
    ):
        """Thirty epochs in one cost 95.17, not 7.99."""
        assert epsilon(plan(epochs=1, steps=steps), 5e-4) == epsilon(plan(epochs=epochs), 5e-4)
        assert epsilon_paper(plan(epochs=1, steps=steps), 5e-4) == pytest.approx(
            epsilon_paper(plan(epochs=epochs), 5e-4)
        )

    def test_an_epoch_whose_rate_changes_counts_once_for_each(self):
        changed = Ledger(entries=(entry(rate=0.5), entry(rate=0.25)))
        assert epsilon(changed, 5e-4) == epsilon(Ledger(entries=(entry(0), entry(1))), 5e-4)

    def test_an_epoch_whose_mechanism_changed_counts_at_its_least_noise(self):
        changed = Ledger(entries=tuple(entry(z=z, rate=0.25) for z in (2.0, 1.0, 3.0)))
        assert epsilon(changed, 1e-5) == epsilon(Ledger(entries=(entry(z=1.0),)), 1e-5)

    def test_an_epoch_number_that_comes_back_is_an_epoch_more(self):
        again = Ledger(entries=(entry(0), entry(1), entry(0)))
        assert epsilon(again, 1e-5) == epsilon(Ledger(entries=(entry(0), entry(1), entry(2))), 1e-5)

    @given(z0=st.floats(0.01, 50), noise=st.sampled_from(["corrected", "paper"]), n=st.integers(1, 32))
    @pytest.mark.slow
    def test_it_is_never_below_the_value_of_kappa_1(self, z0, noise, n):
        least = epsilon(plan(z0, single=True), 1e-5)
        assert epsilon(plan(z0, noise=noise, micro_batches=n), 1e-5) >= least


class TestPoisson:
    @pytest.mark.parametrize(("single", "rdp", "pld"), [(True, 3.2392676, 2.4612381), (False, 22.6248601, 18.6977407)])
    @pytest.mark.slow
    def test_tf_privacy_cases_of_120_steps(self, single, rdp, pld):
        ledger = plan(0.7, 2, steps=60, single=single, sampling="poisson")
        c = composition_of(ledger)
        assert rdp_epsilon(c, 1e-5) == pytest.approx(rdp, abs=5e-7)
        assert pld_epsilon_at(c, 1e-5, 1e-4) == pytest.approx(pld, abs=5e-7)
        assert epsilon(ledger, 1e-5) == pytest.approx(pld, rel=1e-3)

    def test_a_thousand_steps(self):
        ledger = plan(1.0, 10, steps=100, single=True, sampling="poisson")
        assert rdp_epsilon(composition_of(ledger), 1e-5) == pytest.approx(2.1013665, abs=5e-7)
        assert pld_epsilon_at(composition_of(ledger), 1e-5, 1e-4) == pytest.approx(1.82824, abs=5e-6)
        assert epsilon(ledger, 1e-5) == pytest.approx(1.82824, rel=1e-3)

    def test_amplification_is_for_examples_not_for_micro_batches(self):
        """Sampling draws examples: every step has its micro-batches, whatever the rate."""
        by_unit = plan(20.0, 2, steps=50, unit="micro_batch", sampling="poisson")
        assert composition_of(by_unit).sampled == ()
        assert composition_of(by_unit).mu == pytest.approx(10 / 20)

    def test_shuffled_and_sampled_epochs_compose(self):
        sampled = entry(0, 100, sampling="poisson", rate=0.01, single_example=True)
        shuffled = entry(1, 100, z=2.0, single_example=True)
        both = epsilon(Ledger(entries=(sampled, shuffled)), 1e-5)
        alone = [epsilon(Ledger(entries=(e,)), 1e-5) for e in (sampled, shuffled)]
        assert max(alone) < both < sum(alone) + 1

    @pytest.mark.slow
    def test_a_hundred_thousand_steps_at_fifty_noise_levels(self):
        ledger = plan(1.0, 50, decay="exponential", tau=0.02, steps=2000, single=True, sampling="poisson")
        assert epsilon(ledger, 1e-5) == pytest.approx(210.155, abs=5e-4)

    def test_little_noise_has_a_finite_epsilon_far_below_the_unsampled_one(self):
        ledger = plan(1e-6, 10, decay="exponential", tau=0.5, single=True, sampling="poisson")
        unsampled = plan(1e-6, 10, decay="exponential", tau=0.5, single=True, steps=1)
        assert epsilon(unsampled, 1e-5) / 10 < epsilon(ledger, 1e-5) < epsilon(unsampled, 1e-5) * 100


class TestEdges:
    def test_nothing_executed_costs_nothing(self):
        assert epsilon(Ledger(), 1e-5) == epsilon_paper(Ledger(), 1e-5) == 0
        assert epsilon_curve(Ledger(), 1e-5) == []

    def test_plain_sgd_has_no_guarantee(self):
        plain = Ledger(private=False, entries=(entry(),))
        assert epsilon(plain, 1e-5) == epsilon_paper(plain, 1e-5) == math.inf
        assert epsilon_curve(plain, 1e-5) == [(0, math.inf, math.inf)]

    @pytest.mark.parametrize("sampling", ["shuffle", "poisson"])
    @pytest.mark.parametrize("settings", [{"alpha": "paper"}, {"reproducible_noise": 7}, {"z0": 0.0}])
    def test_what_leaves_no_guarantee(self, settings, sampling):
        assert epsilon(plan(**settings, sampling=sampling), 1e-5) == math.inf

    def test_a_private_estimate_of_the_scales_must_be_on_record(self):
        entries = (entry(alpha="private"),)
        assert epsilon(Ledger(entries=entries), 1e-5) == math.inf
        assert epsilon(Ledger(entries=entries, alpha_release=AlphaRelease(z=5.0)), 1e-5) < math.inf

    @pytest.mark.parametrize("sampling", ["shuffle", "poisson"])
    def test_an_alpha_release_is_one_gaussian_more(self, sampling):
        release = Ledger(alpha_release=AlphaRelease(z=2.0))
        assert composition_of(release).mu == 0.5
        ledger = plan(alpha="private", sampling=sampling, single=True)
        assert composition_of(ledger).mu ** 2 == pytest.approx((30 if sampling == "shuffle" else 0) + 0.01)
        assert epsilon(ledger, 1e-5) > epsilon(plan(sampling=sampling, single=True), 1e-5)

    @pytest.mark.parametrize("sampling", ["shuffle", "poisson"])
    @pytest.mark.parametrize("z0", [1e-300, 1e-200, 1e-100, 1e-5, 1e5, 1e100, 1e300])
    def test_extreme_noise(self, z0, sampling):
        value = epsilon(plan(z0, 3, sampling=sampling), 1e-5)
        assert (value == math.inf) if z0 < 1e-150 else (value < 1e-3) if z0 > 1e4 else (1e8 < value < math.inf)

    @pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan, 2.0])
    @pytest.mark.parametrize("figure", [epsilon, epsilon_paper, log10_epsilon_paper, epsilon_curve])
    def test_a_delta_outside_0_to_1_is_refused(self, figure, delta):
        with pytest.raises(UserError, match="delta"):
            figure(plan(), delta)

    def test_a_tiny_delta_still_has_an_epsilon(self):
        ledger = plan(2.0, 3, sampling="poisson", single=True)
        assert epsilon(ledger, 1e-5) < epsilon(ledger, 1e-15) < 100


class TestCurve:
    @pytest.mark.parametrize("sampling", ["shuffle", "poisson"])
    @pytest.mark.parametrize("settings", [{}, {"decay": "exponential", "tau": 0.3}, {"alpha": "private"}])
    @pytest.mark.slow
    def test_each_point_is_the_epsilon_of_the_run_up_to_there(self, settings, sampling):
        ledger = plan(0.8, 5, single=True, sampling=sampling, **settings)
        curve = epsilon_curve(ledger, 1e-5)
        assert [epoch for epoch, _, _ in curve] == list(range(5))
        for epoch, honest, paper in curve:
            upto = ledger.model_copy(update={"entries": ledger.entries[: epoch + 1]})
            assert honest == pytest.approx(epsilon(upto, 1e-5), rel=1e-7)
            assert paper == pytest.approx(epsilon_paper(upto, 1e-5), rel=1e-12)

    @pytest.mark.slow
    def test_it_grows(self):
        curve = epsilon_curve(plan(0.8, 8, decay="linear", tau=0.1, single=True, sampling="poisson"), 1e-5)
        assert all(a[1] < b[1] and a[2] < b[2] for a, b in itertools.pairwise(curve))


def test_a_plan_is_what_a_run_records():
    spec = EDPSpec(z0=0.5, decay="exponential", tau=0.1, noise="paper", sampling="poisson", unit="micro_batch")
    planned = planned_ledger(
        spec, epochs=2, micro_batches=4, steps_per_epoch=3, rate=0.2, single_example=False, max_alpha=0.9
    )
    recorded = Ledger()
    for epoch in range(2):
        mechanism = Mechanism(
            C=1.0, z=0.5 * math.exp(-0.1 * epoch), N=4, noise="paper", max_alpha=0.9, unit="micro_batch",
            sampling="poisson", rate=0.2,
        )  # fmt: skip
        for _ in range(3):
            recorded = recorded.record(epoch, mechanism)
    assert recorded == planned


def test_the_command_line_example():
    """`edp-sweep epsilon --z0 1 --epochs 30 --decay none --micro-batches 8 --delta 5e-4`"""
    assert epsilon_paper(plan(), 5e-4) == pytest.approx(36.3554, abs=5e-5)
    assert epsilon(plan(), 5e-4) == pytest.approx(95.1729, abs=5e-5)
    assert epsilon(plan(noise="paper"), 5e-4) == pytest.approx(581.003, abs=5e-4)


@given(mu=st.floats(1e-3, 999), delta=st.floats(1e-12, 0.5))
@pytest.mark.slow
def test_the_gaussian_mechanism_costs_what_the_library_says(mu: float, delta: float) -> None:
    assert gaussian_epsilon(mu, delta) == pytest.approx(get_epsilon_gaussian(1 / mu, delta), rel=1e-9, abs=1e-9)


@pytest.mark.slow
def test_a_curve_is_the_same_at_the_epochs_that_are_wanted() -> None:
    spec = EDPSpec(z0=1.0, decay="linear", tau=0.1, sampling="poisson")
    run = {"epochs": 9, "micro_batches": 8, "steps_per_epoch": 10, "rate": 0.1, "single_example": True}
    ledger = planned_ledger(spec, **run)
    whole, seen = epsilon_curve(ledger, 1e-5), list[int]()

    def each(epochs):
        for one in epochs:
            seen.append(one[0])
            yield one

    some = epsilon_curve(ledger, 1e-5, wanted={3, 8}, each=each)
    assert [epoch for epoch, _, _ in some] == [3, 8]
    for epoch, honest, paper in some:
        assert whole[epoch][1:] == (pytest.approx(honest, rel=2e-3), pytest.approx(paper))
    assert seen == list(range(9))


def test_a_sum_that_rounding_leaves_nothing_of_has_no_bound_rather_than_an_error() -> None:
    c = Composition(sampled=(SampledSteps(rate=0.038, z=8.5e37, steps=43_200),), mu=0.63)
    assert pld_epsilon_at(c, 5e-4, 0.0625) == math.inf


@pytest.mark.parametrize("mu", [1e-20, 1e-12, 1e-3, 5.0])
@pytest.mark.parametrize("epsilon", [0.0, 1e-12, 1e-3])
def test_a_delta_is_never_below_the_truth_where_rounding_takes_its_digits(mu: float, epsilon: float) -> None:
    """Total variation less `e^ε - 1` is a lower bound of it."""
    assert gaussian_delta(epsilon, np.array([mu]))[0] >= math.erf(mu / math.sqrt(8)) - math.expm1(epsilon)


@pytest.mark.parametrize(("mu", "delta"), [(1e-20, 1e-25), (1e-30, 1e-40), (1e-10, 1e-12)])
def test_hardly_any_privacy_loss_at_hardly_any_delta_has_an_epsilon(mu: float, delta: float) -> None:
    assert 0 < gaussian_epsilon(mu, delta) < 20 * mu
    sampled = Composition(sampled=(SampledSteps(rate=1e-3, z=1 / mu, steps=1000),))
    assert 0 < participation_epsilon(sampled, delta / 1e3) < 1e5 * mu


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0, 1e4])
@pytest.mark.parametrize("delta", [1e-9, 5e-4, 0.4])
def test_the_mechanism_of_an_epsilon_costs_it(epsilon: float, delta: float) -> None:
    assert epsilon <= gaussian_epsilon(gaussian_mu(epsilon, delta), delta) <= epsilon * (1 + 1e-9)
