"""What a person sees of a sweep: a table in a terminal, plain lines elsewhere, and what waits for its workers."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from sweeps.engine.progress import Progress
from tests.support.terminal import RESULT

PARAMS = {"C": 1.0, "z0": 0.1, "decay": "none", "tau": 0.0}
EPOCH = {"valid_ser": 0.25, "epsilon": 12.0, "epsilon_paper": 3.0, "gpu_seconds": 33.0, "worker_seconds": 33.0}
WITHOUT_GUARANTEE = RESULT | {"epsilon": 3e12, "epsilon_paper": 7.5e11}


def watched(terminal: bool) -> str:
    written = io.StringIO()
    progress = Progress(Console(file=written, force_terminal=terminal, width=140))
    progress.expect(2, 0, 3)
    with progress:
        progress.trial(0, "running", PARAMS)
        assert set(progress.waiting) == {"trial 0"}
        progress.waits_no_more("trial 0")
        progress.trial_epoch(0, 1, EPOCH)
        progress.trial(0, "complete", metrics=RESULT)
        progress.trial(1, "running", PARAMS)
        progress.trial(1, "interrupted")
        assert not progress.waiting
    return written.getvalue()


def test_elsewhere_there_are_plain_lines() -> None:
    lines = watched(terminal=False).splitlines()
    assert lines[0].startswith("trial 0 running: C 1, z0 0.1, decay none")
    assert lines[1].startswith("trial 0 complete: validation SER 20.0%, MIA AUC 0.550, ε honest 15, ε paper 4, 40 s; 1")
    assert lines[3] == "trial 1 interrupted: saved after epoch 0 of 3"


def test_a_result_says_its_epsilons_also_of_a_trial_that_was_stopped_early() -> None:
    written = io.StringIO()
    progress = Progress(Console(file=written, width=80))
    progress.trial(0, "stopped", PARAMS, WITHOUT_GUARANTEE, reason="after 2 epochs dominated")
    progress.trial(1, "failed", PARAMS, reason="a worker died")
    first, second = written.getvalue().splitlines()
    assert first.startswith(
        "trial 0 stopped: after 2 epochs dominated; validation SER 20.0%, MIA AUC 0.550, ε honest 3.00e+12 "
        "(no formal guarantee), ε paper 7.50e+11 (no formal guarantee), 40 s"
    )
    assert second == "trial 1 failed: a worker died"


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_table_has_the_epsilons_and_cuts_nothing(width: int) -> None:
    written = io.StringIO()
    progress = Progress(Console(file=written, width=width))
    progress.expect(8, 0, 30)
    progress.console.quiet = True
    for number, params in enumerate((PARAMS, {"C": 0.25, "z0": 1.66e-06, "decay": "exponential", "tau": 0.35})):
        progress.trial(number, "running", params)
        progress.trial_epoch(number, 12, EPOCH)
    progress.trial(0, "complete", metrics=RESULT)
    progress.console.quiet = False
    progress.console.print(progress._table())
    progress.console.quiet = True
    progress.trial(0, "complete", metrics=WITHOUT_GUARANTEE)
    progress.console.quiet = False
    progress.console.print(progress._table())
    shown = written.getvalue()
    assert "†: ε of 1e4 or more is no formal guarantee." in shown
    for part in ("ε honest", "ε paper", "3.0e+12 †", "7.5e+11 †", "12/30"):
        assert part in shown, part
    for word in ("0.25,", "1.66e-06,", "exponential,", "0.35"):
        assert shown.count(word) == 2, word
