"""What a ledger permits attacks: closed forms of Gaussian mechanisms, simulations of Poisson samples, limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from edp.accounting.composition import Composition, SampledSteps, composition_of
from edp.accounting.epsilon import epsilon
from edp.accounting.gaussian import gaussian_epsilon
from edp.accounting.tradeoff import Gaussian, attack_trade_off, both_trade_offs, gaussian_mu, max_tpr
from edp.ledger import Ledger, planned_ledger
from edp.spec import EDPSpec

DELTA = 5e-4
RATES = (1e-3, 0.01, 0.1, 0.5)


def ledger(z0: float = 1.0, epochs: int = 10, *, single: bool = True, rate: float = 0.1, **spec: object) -> Ledger:
    return planned_ledger(
        EDPSpec(z0=z0, **spec),
        epochs=epochs,
        micro_batches=8,
        steps_per_epoch=round(1 / rate),
        rate=rate,
        single_example=single,
    )


@pytest.mark.parametrize(
    ("settings", "mu"), [({}, math.sqrt(10)), ({"single": False}, 2 * math.sqrt(10)), ({"z0": 4.0}, math.sqrt(10) / 4)]
)
def test_shuffled_epochs_are_one_gaussian_mechanism(settings, mu):
    found = ledger(**settings)
    assert gaussian_mu(found, DELTA) == pytest.approx(mu, rel=1e-12)
    for fpr in RATES:
        assert max_tpr(found, fpr, DELTA) == pytest.approx(ndtr(ndtri(fpr) + mu), rel=1e-9)
    assert epsilon(found, DELTA) == pytest.approx(gaussian_epsilon(gaussian_mu(found, DELTA), DELTA))


@pytest.mark.parametrize("spec", [{"sampling": "shuffle"}, {"sampling": "poisson"}, {"z0": 3.0, "sampling": "poisson"}])
def test_the_curves_give_the_delta_of_every_epsilon(spec):
    found = ledger(**spec)
    curves, fprs = both_trade_offs(composition_of(found), 1e-6), np.logspace(-24, 0, 10_000)
    for delta in (1e-6, 1e-3, 0.1):
        # δ is the dual of the curve (Dong, Roth and Su 2022).
        at = math.exp(epsilon(found, delta))
        largest = max(curve.max_tpr(fpr) - at * fpr for curve in curves for fpr in fprs)
        assert largest == pytest.approx(delta, rel=0.02)


def test_a_ledger_without_noise_permits_everything_and_one_without_steps_nothing():
    assert max_tpr(Ledger(private=False), 0.01, DELTA) == 1
    assert gaussian_mu(Ledger(private=False), DELTA) == math.inf
    assert max_tpr(Ledger(), 0.01, DELTA) == pytest.approx(0.01)
    assert gaussian_mu(Ledger(), DELTA) == 0


@pytest.mark.parametrize("spec", [{"sampling": "shuffle"}, {"sampling": "poisson"}])
def test_more_noise_permits_less_and_a_higher_false_positive_rate_more(spec):
    noisy, quiet = (ledger(z0, **spec) for z0 in (2.0, 1.0))
    by_rate = [max_tpr(quiet, fpr, DELTA) for fpr in RATES]
    assert by_rate == sorted(by_rate)
    for fpr, tpr in zip(RATES, by_rate, strict=True):
        assert fpr < max_tpr(noisy, fpr, DELTA) < tpr < 1
    assert gaussian_mu(noisy, DELTA) < gaussian_mu(quiet, DELTA)


def simulated(c: Composition, runs: int) -> tuple[np.ndarray, np.ndarray]:
    """The log likelihood ratio of a run's outputs without the unit, and with it."""
    rng, (s,) = np.random.default_rng(0), c.sampled

    def ratios(there: bool) -> np.ndarray:
        drawn = (rng.random((runs, s.steps)) < s.rate) & there
        x = rng.normal(drawn, s.z)
        return np.log(1 - s.rate + s.rate * np.exp((2 * x - 1) / (2 * s.z**2))).sum(1)

    return ratios(False), ratios(True)


@pytest.mark.parametrize("step", [SampledSteps(0.1, 0.8, 60), SampledSteps(0.5, 2.0, 30), SampledSteps(0.02, 0.5, 50)])
@pytest.mark.slow
def test_poisson_samples_permit_what_the_best_test_reaches_and_hardly_more(step):
    c, runs = Composition(sampled=(step,)), 100_000
    without, with_it = simulated(c, runs)
    curve = attack_trade_off(c, DELTA)
    for fpr in (0.003, 0.01, 0.1, 0.5):
        reached = float((with_it > np.quantile(without, 1 - fpr)).mean())
        # Five standard errors of the quantile and of the share, the curve's slope being TPR/FPR at most.
        error = 5 * (math.sqrt(fpr / runs) * reached / fpr + math.sqrt(reached / runs))
        assert reached - error <= curve.max_tpr(fpr) <= reached + error + 2e-3


def test_a_unit_that_is_always_drawn_leaves_a_gaussian_curve_whichever_way_round():
    """On the grid of the privacy loss: an unsampled part and one at a rate of nearly 1."""
    c = Composition(mu=0.7, sampled=(SampledSteps(1 - 1e-9, 2.0, 5),))
    exact = Gaussian(c.mu_if_always_drawn)
    for curve in both_trade_offs(c, DELTA):
        for fpr in RATES:
            assert exact.max_tpr(fpr) - 1e-6 <= curve.max_tpr(fpr) <= 1.01 * exact.max_tpr(fpr)


@pytest.mark.parametrize("rate", [0.02, 0.2])
def test_the_gaussian_mu_of_poisson_samples_permits_what_they_permit_and_no_less_would(rate):
    found = ledger(1.0, 3, rate=rate, sampling="poisson")
    mu = gaussian_mu(found, DELTA)
    slack = [Gaussian(mu).max_tpr(fpr) - max_tpr(found, fpr, DELTA) for fpr in ndtr(np.linspace(-3.2, 3.2, 60))]
    assert min(slack) >= -1e-9
    less = [Gaussian(0.98 * mu).max_tpr(fpr) - max_tpr(found, fpr, DELTA) for fpr in ndtr(np.linspace(-3.2, 3.2, 60))]
    assert min(less) < 0


def test_where_the_grid_would_be_too_large_nobody_is_promised_less_than_if_always_drawn():
    found = ledger(1e-3, 10, rate=0.01, sampling="poisson")
    assert max_tpr(found, 0.01, DELTA) == 1
    assert gaussian_mu(found, DELTA) == pytest.approx(math.sqrt(1000) * 1e3)
