"""Bounds as they are shown: an upper bound (every ε) is never shown smaller than it is, a lower bound never larger."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

_WHOLE = 4
"""Digits before the point that are never rounded away: below 10,000 a bound is exact to 1."""


def rounded_up(bound: float, digits: int = 3) -> float:
    """Return the smallest number of `digits` digits that is at least `bound`; below 10,000, to 1 or finer.

    Examples:
        >>> rounded_up(8.0049), rounded_up(8.0), rounded_up(1002.16), rounded_up(12345.6)
        (8.01, 8.0, 1003.0, 12400.0)
    """
    return _rounded(bound, digits, ROUND_CEILING)


def rounded_down(bound: float, digits: int = 3) -> float:
    """Return the largest number of `digits` digits that is at most `bound`; below 10,000, to 1 or finer.

    Examples:
        >>> rounded_down(0.2979), rounded_down(6.8)
        (0.297, 6.8)
    """
    return _rounded(bound, digits, ROUND_FLOOR)


def _rounded(bound: float, digits: int, direction: str) -> float:
    # The shortest decimal that names the float: 0.1 stays 0.1, although the float lies a little above it.
    exact = Decimal(repr(float(bound)))
    whole = exact.adjusted() + 1
    return float(Context(max(digits, whole) if whole <= _WHOLE else digits, direction).plus(exact))
