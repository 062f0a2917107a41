"""What a person sees of a sweep: a table in a terminal, plain lines elsewhere, and what waits for its workers."""

from __future__ import annotations

import io

from rich.console import Console

from sweeps.watch import Watch

PARAMS = {"C": 1.0, "z0": 0.1, "decay": "none", "tau": 0.0}
EPOCH = {"valid_ser": 0.25, "epsilon": 12.0, "gpu_seconds": 33.0, "worker_seconds": 33.0}
RESULT = {"ser": 0.2, "mia_auc": 0.55, "epsilon": 15.0, "trial_seconds": 40.0, "gpu_seconds": 66.0}


def watched(terminal: bool) -> str:
    written = io.StringIO()
    watch = Watch(Console(file=written, force_terminal=terminal, width=140))
    watch.expect(2, 0, 3)
    with watch:
        watch.trial(0, "running", PARAMS)
        assert set(watch.waiting) == {"trial 0"}
        watch.waits_no_more("trial 0")
        watch.trial_epoch(0, 1, EPOCH)
        watch.trial(0, "complete", metrics=RESULT)
        watch.trial(1, "running", PARAMS)
        watch.trial(1, "interrupted")
        assert not watch.waiting
    return written.getvalue()


def test_a_terminal_shows_states_objectives_and_gpu_seconds() -> None:
    shown = watched(terminal=True)
    for part in ("trial", "gpu seconds", "complete", "20.0%", "0.550", "66", "interrupted", "1 to go, about"):
        assert part in shown, part


def test_elsewhere_there_are_plain_lines() -> None:
    lines = watched(terminal=False).splitlines()
    assert lines[0].startswith("trial 0 running: C 1, z0 0.1, decay none")
    assert lines[1].startswith("trial 0 complete: SER 20.0%, MIA AUC 0.550, ε 15, 40 s; 1 to go, about")
    assert lines[3] == "trial 1 interrupted: saved after epoch 0 of 3"
