"""ε of a whole sweep."""

import math

import pytest

from edp.accounting.epsilon import epsilon
from edp.accounting.selection import composed_epsilon, random_stopping_epsilon
from edp.ledger import Ledger, planned_ledger
from edp.spec import EDPSpec, UserError


def trial(epochs=1, **spec):
    return planned_ledger(
        EDPSpec(**spec), epochs=epochs, micro_batches=1, steps_per_epoch=1000, rate=0.01, single_example=True
    )


def test_fifty_poisson_trials_composed_and_the_best_of_a_random_number_of_them():
    one = trial(sampling="poisson")
    assert composed_epsilon([one] * 50, 1e-5) == pytest.approx(16.3, abs=0.05)
    assert random_stopping_epsilon(one, 1e-5, 50, 1) == pytest.approx(4.94, abs=0.005)


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


def test_random_stopping_costs_more_than_one_trial_and_more_with_more_trials():
    costs = [random_stopping_epsilon(trial(z0=2.0), 1e-5, mean, 1) for mean in (2, 10, 100)]
    assert epsilon(trial(z0=2.0), 1e-5) < costs[0] < costs[1] < costs[2]
    assert epsilon(trial(z0=2.0), 1e-5) < random_stopping_epsilon(trial(z0=2.0), 1e-5, 1, 1) < costs[0]
    assert epsilon(trial(z0=2.0), 1e-5) < random_stopping_epsilon(trial(z0=2.0), 1e-5, 10, 0) < math.inf
    assert epsilon(trial(z0=2.0), 1e-5) < random_stopping_epsilon(trial(z0=2.0), 1e-5, 10, math.inf) < math.inf
    assert random_stopping_epsilon(Ledger(), 1e-5, 10, 1) == 0


@pytest.mark.parametrize(
    ("base", "mean", "shape", "message"),
    [
        (trial(alpha="paper"), 10, 1, "infinite epsilon"),
        (Ledger(private=False), 10, 1, "infinite epsilon"),
        (trial(), 0.5, 1, "mean = 0.5"),
        (trial(), math.inf, 1, "mean = inf"),
        (trial(), math.nan, 1, "mean = nan"),
        (trial(), 10, -0.5, "shape = -0.5"),
        (trial(), 0.5, math.inf, "mean = 0.5"),
        (trial(), 10, math.nan, "shape = nan"),
    ],
)
def test_random_stopping_refuses_what_its_theorem_does_not_cover(base, mean, shape, message):
    with pytest.raises(UserError, match=message):
        random_stopping_epsilon(base, 1e-5, mean, shape)
