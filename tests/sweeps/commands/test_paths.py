"""Every path that any command takes is looked at before the command runs."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from tests.conftest import Command
from tests.support.command_line import commands


def _paths() -> list[tuple[tuple[str, ...], str | None]]:
    """Each command with each of its options that is a path; None: its argument is."""
    found: list[tuple[tuple[str, ...], str | None]] = []
    for words, command in commands():
        for parameter in command.params:
            if parameter.metavar in ("PATH", "FILE"):
                found.append((words, parameter.opts[0] if parameter.opts[0].startswith("-") else None))
    return found


def test_the_paths_are_found() -> None:
    paths = _paths()
    assert (("list",), "--storage") in paths
    assert (("train",), None) in paths
    assert (("report",), "--output") in paths
    assert len(paths) >= 15


@pytest.mark.slow
@pytest.mark.parametrize("path", ["", "x" * 300])
@pytest.mark.parametrize(("words", "option"), _paths())
def test_what_is_no_path_is_a_mistake_of_one_line(
    words: tuple[str, ...],
    option: str | None,
    path: str,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    needed = {"epsilon": ["--z0", "1", "--epochs", "1"], "make": ["health"], "attack": ["s/1"], "init": ["aws"]}
    one = {"list", "step", "fetch", "train", "epsilon", "make", "attack", "init"}
    more = needed.get(words[-1], [] if words[-1] in one else ["name"])
    code, out, err = command(*words, *more, *([option] if option else []), path)
    assert code == 2, err
    assert out == ""
    assert len(err.splitlines()) == 1, err
    assert "allowed: " in err
    assert not list(tmp_path.iterdir())


def test_every_path_that_a_command_takes_is_one_of_these() -> None:
    """An option added without the check would be missing from `_paths`."""
    takes = [
        hint
        for _, command in commands()
        for hint in get_type_hints(inspect.unwrap(command.callback)).values()
        if hint is Path or Path in get_args(hint)
    ]
    assert len(takes) == len(_paths())
