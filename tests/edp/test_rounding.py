"""A bound is never shown better than it is: an upper bound rounded up, a lower bound down, by less than a digit."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edp.rounding import rounded_down, rounded_up

BOUNDS = st.one_of(st.floats(0, 1e30), st.floats(0, 100), st.decimals(0, 100, places=2).map(float))


def last_digit(value: float, digits: int) -> Decimal:
    """Return the unit of the last digit that is shown: of `digits` digits, and below 10,000 at most 1."""
    unit = Decimal(10) ** (Decimal(repr(value)).adjusted() + 1 - digits)
    return min(unit, Decimal(1)) if value < 1e4 else unit


@given(BOUNDS, st.integers(2, 10))
def test_a_bound_is_rounded_to_its_safe_side_by_less_than_a_unit_of_the_last_digit(bound: float, digits: int) -> None:
    up, down = rounded_up(bound, digits), rounded_down(bound, digits)
    assert down <= bound <= up
    exact, unit = Decimal(repr(bound)), last_digit(bound, digits)
    assert Decimal(repr(up)) - exact < unit or bound == 0
    assert exact - Decimal(repr(down)) < unit or bound == 0


@given(st.integers(1, 999), st.integers(-6, 6))
def test_a_bound_of_few_digits_stays_as_it_is_written(digits: int, exponent: int) -> None:
    bound = float(f"{digits}e{exponent}")
    assert rounded_up(bound) == rounded_down(bound) == bound


def test_bounds_that_are_no_numbers_stay_so() -> None:
    assert rounded_up(math.inf) == rounded_down(math.inf) == math.inf
    assert math.isnan(rounded_up(math.nan))
    assert math.isnan(rounded_down(math.nan))


@pytest.mark.parametrize("bound", [0.0, 5e-324, 1.7976931348623157e308])
def test_the_ends_of_the_range_are_bounds_too(bound: float) -> None:
    assert rounded_down(bound) <= bound <= rounded_up(bound)
