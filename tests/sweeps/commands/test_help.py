"""`--help` groups the commands, and names the recipes where a recipe's name is asked for."""

from __future__ import annotations

import pytest

from dashboards.cli import app
from sweeps.commands.app import CHOOSING, DATA, GUARANTEE, OTHER, REMOVED, RUNNING
from sweeps.config.loading import recipe_names
from tests.conftest import Command


def test_every_command_is_in_a_group() -> None:
    every = [*app.registered_commands, *app.registered_groups]
    assert {one.rich_help_panel for one in every} == {RUNNING, CHOOSING, GUARANTEE, DATA, OTHER}


def test_help_shows_the_groups_in_order(command: Command) -> None:
    code, shown, _ = command("--help")
    assert code == 0
    places = [shown.index(group) for group in (RUNNING, CHOOSING, GUARANTEE, DATA, OTHER)]
    assert places == sorted(places)
    assert "─ Commands ─" not in shown


def test_run_lists_the_recipes(command: Command) -> None:
    shown = command("run", "--help")[1]
    assert all(name in shown for name in recipe_names())


@pytest.mark.parametrize("name", REMOVED)
def test_a_command_or_option_that_was_removed_says_what_to_take_instead(name: str, command: Command) -> None:
    for words in ((name,), (name, "--json"), (name, "--help")):
        assert command(*words) == (2, "", f"edp-sweep: {name}: removed; use {REMOVED[name]}\n")
