"""`--help` groups the commands, and names the recipes where a recipe's name is asked for."""

from __future__ import annotations

from dashboards.cli import app
from sweeps.commands.app import CHOOSING, DATA, GUARANTEE, OTHER, RUNNING
from sweeps.config.loading import PRETRAINING, recipe_names
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


def test_run_and_pretrain_list_their_recipes(command: Command) -> None:
    for words, folder in ((("run",), None), (("plan",), None), (("pretrain",), PRETRAINING)):
        shown = command(*words, "--help")[1]
        names = recipe_names() if folder is None else recipe_names(folder)
        assert all(name in shown for name in names), words
