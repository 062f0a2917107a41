"""The examples in the docstrings of `edp` run, and print what stands there."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import edp

MODULES = [found.name for found in pkgutil.walk_packages(edp.__path__, "edp.")]
WITH_EXAMPLES = {
    "edp.accounting.audit",
    "edp.accounting.calibrate",
    "edp.accounting.epsilon",
    "edp.accounting.selection",
    "edp.ledger",
    "edp.mechanism",
    "edp.per_example.registry",
    "edp.sampling",
    "edp.spec",
}
"""Those that a user of the package starts from."""


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_stands_below_them(name: str) -> None:
    found = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS)
    assert found.failed == 0
    assert found.attempted > 0 or name not in WITH_EXAMPLES


def test_the_modules_that_users_start_from_are_all_there() -> None:
    assert set(MODULES) >= WITH_EXAMPLES
