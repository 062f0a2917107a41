"""A terminal shows at any time what is being done, and no library breaks into it."""

from __future__ import annotations

import sys

import pytest
from rich.console import Console

from sweeps.engine.progress import Progress
from tests.support.terminal import RESULT, Terminal
from tests.support.waiting import wait_for

PARAMS = {"C": 0.25, "z0": 1.66e-06, "decay": "exponential", "tau": 0.35}


def _progress(columns: int) -> tuple[Terminal, Progress]:
    terminal = Terminal(columns)
    progress = Progress(Console(file=terminal, force_terminal=True, width=columns, height=40, color_system=None))
    progress.expect(30, 0, 3)
    return terminal, progress


def _draw(progress: Progress) -> None:
    assert progress._display is not None
    progress._display.refresh()


def _count(terminal: Terminal, text: str) -> int:
    return "\n".join(terminal.rows).count(text)


def test_what_is_being_done_is_shown_until_it_ends_and_then_erased() -> None:
    terminal, progress = _progress(80)
    with progress.doing("reading the corpora"):
        assert "reading the corpora, 0 s" in terminal.rows[0]
        progress.say("a line")
        progress.step("starting Ray")
        wait_for(lambda: "starting Ray, 1 s" in "\n".join(terminal.rows))  # it is drawn without anyone's help
        progress.waits("trial 3")
        wait_for(lambda: "trial 3: waiting for its workers" in "\n".join(terminal.rows))
        with progress:
            _draw(progress)
            assert "waiting" not in "\n".join(terminal.rows)
            assert "trials (30 to go)" in terminal.rows[1]
        progress.waits_no_more("trial 3")
    assert [row.rstrip() for row in terminal.rows if "honest" not in row][:2] == ["a line", "trials (30 to go)"]
    assert "starting Ray" not in "\n".join(terminal.rows)


def test_what_libraries_print_to_a_log_does_not_break_in(capsys: pytest.CaptureFixture[str]) -> None:
    terminal, progress = _progress(80)
    with progress.doing("running trials"), progress:
        print("+-- a box of Ray's --+")
        sys.stderr.write("a warning of Ray's\n")
    assert "Ray's" not in "\n".join(terminal.rows)
    out, err = capsys.readouterr()
    assert (out, err) == ("+-- a box of Ray's --+\n", "a warning of Ray's\n")


def test_a_display_that_another_thread_ends_leaves_the_table() -> None:
    terminal, progress = _progress(80)
    with progress.doing("running trials"), progress:
        progress.trial(0, "complete", PARAMS, metrics=RESULT)
        progress.close()
        progress.last_words("Ray is gone")
        shown = list(terminal.rows)
    assert _count(terminal, "complete") == 1
    assert "edp-sweep: Ray is gone" in shown[-2]
