"""All that `edp-sweep` takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer


def commands() -> list[tuple[tuple[str, ...], Any]]:
    """The words of each command, and the command."""
    from dashboards.cli import app

    return list(_below(typer.main.get_command(app)))


def _below(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from _below(command, (*words, name))
        else:
            yield (*words, name), command
