"""`edp-sweep epsilon` prints what the mechanism guarantees."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from edp.accounting.epsilon import epsilon
from edp.sampling import steps_at_rate, steps_per_epoch
from sweeps.config.loading import load_recipe
from sweeps.config.target_epsilon import planned
from tests.conftest import Command

WORDS = ("epsilon", "--z0", "1", "--epochs", "30", "--decay", "none", "--delta", "5e-4", "--json")


def gaussian_epsilon(mu: float, delta: float) -> float:
    """ε of one Gaussian mechanism of sensitivity over noise `mu` (Balle & Wang 2018, theorem 8)."""

    def excess(eps: float) -> float:
        return float(norm.cdf(mu / 2 - eps / mu) - math.exp(eps + norm.logcdf(-mu / 2 - eps / mu)) - delta)

    return float(brentq(excess, 0, 1_000))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (("--micro-batches", "8"), 95.1729),
        (("--micro-batches", "8", "--noise", "paper"), 581.003),
        (("--set", "edp.clip=automatic"), 95.1729),
        (("--set", "edp.clip=quantile"), gaussian_epsilon(math.sqrt(30) * math.hypot(2, 1 / 5), 5e-4)),
        (("--method", "dpsgd", "--micro-batches", "64"), gaussian_epsilon(math.sqrt(30), 5e-4)),
        (("--unit", "user", "--micro-batches", "64"), gaussian_epsilon(math.sqrt(30), 5e-4)),
    ],
)
def test_the_mechanisms_of_one_configuration(command: Command, more: tuple[str, ...], expected: float) -> None:
    code, out, err = command(*WORDS, *more)
    assert code == 0, err
    document = json.loads(out)
    assert document["epsilon"] == pytest.approx(expected, rel=1e-5)
    assert document["epsilon_paper"] == pytest.approx(36.3554, abs=5e-5)
    assert [row["epoch"] for row in document["per_epoch"]] == list(range(1, 31))
    assert document["per_epoch"][-1]["epsilon"] == document["epsilon"]


@pytest.mark.parametrize("batch_size", [64, 600, 1_200, 2_000])
def test_it_says_what_a_poisson_trial_of_that_rate_will_cost(command: Command, batch_size: int) -> None:
    _, recipe = load_recipe("quickstart_paper", ["edp.sampling=poisson", f"training.batch_size={batch_size}"])
    trial = planned(recipe.trial({"C": 1.0, "z0": 4.0, "decay": "none", "tau": 0.0}), 1_350)
    rate = str(trial.entries[0].mechanism.rate)
    words = ("--z0", "4", "--epochs", str(len(trial.entries)), "--sampling", "poisson", "--rate", rate, "--json")
    code, out, err = command("epsilon", *words)
    assert code == 0, err
    assert json.loads(out)["epsilon"] == pytest.approx(epsilon(trial, 5e-4), rel=1e-9)


@given(examples=st.integers(1, 10**9), batch_size=st.integers(1, 10**5))
def test_a_rate_has_as_many_steps_as_the_training_it_comes_from(examples: int, batch_size: int) -> None:
    assert steps_at_rate(min(1.0, batch_size / examples)) == steps_per_epoch(examples, batch_size)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--set", "edp.clip=Automatic"), "'fixed', 'automatic' or 'quantile'"),
        (("--set", "training.epochs=2"), "--set training: allowed without a recipe: edp.…"),
        (("--sampling", "poisson", "--rate", "0"), "should be greater than or equal to"),
        (("--set", "edp.unit=user", "--method", "edp"), "unit = user: each user is clipped alone"),
        (("--unit", "user", "--method", "edp"), "unit = user: each user is clipped alone"),
        (("--rate", "0.3"), "rate = 0.3 has no meaning with sampling = shuffle"),
        (("--set", "edp.band=3"), "band = 3 has no meaning with noise_correlation = none"),
    ],
)
def test_a_mistake_is_one_line(command: Command, words: tuple[str, ...], says: str) -> None:
    code, out, err = command("epsilon", "--z0", "1", "--epochs", "2", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err
