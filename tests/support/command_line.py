"""All that `edp-sweep` takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def commands() -> list[tuple[tuple[str, ...], Any]]:
    """The words of each command, and the command; all of their modules are imported."""
    from sweeps.commands.app import COMMANDS, command

    names = sorted(name for group in COMMANDS.values() for name in group)
    return [one for name in names for one in _below(command(name), (name,))]


def _below(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "commands"):
        yield words, command
        return
    for name, below in sorted(command.commands.items()):
        yield from _below(below, (*words, name))
