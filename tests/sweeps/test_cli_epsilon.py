"""`edp-sweep epsilon` prints what the mechanism guarantees."""

from __future__ import annotations

import json
import math

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from tests.conftest import Command

WORDS = ("epsilon", "--z0", "1", "--epochs", "30", "--decay", "none", "--delta", "5e-4", "--json")


def gaussian_epsilon(mu: float, delta: float) -> float:
    """ε of one Gaussian mechanism of sensitivity over noise `mu` (Balle & Wang 2018, theorem 8)."""

    def excess(eps: float) -> float:
        return float(norm.cdf(mu / 2 - eps / mu) - math.exp(eps + norm.logcdf(-mu / 2 - eps / mu)) - delta)

    return float(brentq(excess, 0, 1_000))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (("--micro-batches", "8"), 95.1729),
        (("--micro-batches", "8", "--noise", "paper"), 581.003),
        (("--method", "dpsgd", "--micro-batches", "64"), gaussian_epsilon(math.sqrt(30), 5e-4)),
    ],
)
def test_the_three_mechanisms_of_one_configuration(command: Command, more: tuple[str, ...], expected: float) -> None:
    code, out, err = command(*WORDS, *more)
    assert code == 0, err
    document = json.loads(out)
    assert document["epsilon"] == pytest.approx(expected, rel=1e-5)
    assert document["epsilon_paper"] == pytest.approx(36.3554, abs=5e-5)
    assert [row["epoch"] for row in document["per_epoch"]] == list(range(1, 31))
    assert document["per_epoch"][-1]["epsilon"] == document["epsilon"]
