"""ε of a whole sweep."""

import math

import pytest

from edp.accounting.epsilon import epsilon
from edp.accounting.selection import composed_epsilon
from edp.ledger import Ledger, planned_ledger
from edp.spec import EDPSpec


def trial(epochs=1, **spec):
    return planned_ledger(
        EDPSpec(**spec), epochs=epochs, micro_batches=1, steps_per_epoch=1000, rate=0.01, single_example=True
    )


def test_fifty_poisson_trials_composed():
    one = trial(sampling="poisson")
    assert composed_epsilon([one] * 50, 1e-5) == pytest.approx(16.3, abs=0.05)


def test_shuffled_trials_add_up_like_epochs():
    trials = [trial(epochs) for epochs in (3, 0, 1, 6)]
    assert composed_epsilon(trials, 1e-5) == pytest.approx(epsilon(trial(10), 1e-5), rel=1e-9)


def test_shuffled_and_poisson_trials_compose():
    shuffled, poisson = trial(z0=3.0), trial(sampling="poisson")
    both = composed_epsilon([shuffled, poisson], 1e-5)
    assert max(epsilon(shuffled, 1e-5), epsilon(poisson, 1e-5)) < both < math.inf
    assert both == pytest.approx(composed_epsilon([poisson, shuffled], 1e-5), rel=1e-6)


def test_a_sweep_of_one_trial_costs_that_trial_and_one_of_none_nothing():
    assert composed_epsilon([trial(5)], 1e-5) == epsilon(trial(5), 1e-5)
    assert composed_epsilon([], 1e-5) == 0


def test_plain_sgd_on_the_private_corpus_makes_a_sweep_infinite():
    assert composed_epsilon([trial(), Ledger(private=False)], 1e-5) == math.inf
