"""Of what a process was doing when it was killed, nothing is missing from the ledger of the run that goes on."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from edp.accounting.epsilon import epsilon, epsilon_curve, epsilon_paper
from edp.accounting.selection import composed_epsilon
from edp.hook import EDPHook
from edp.ledger import PRIVATE_ALPHA_Z, AlphaRelease, Ledger, LedgerEntry
from edp.mechanism import Mechanism
from tests.support.tiny import corpus, run, spec, trial
from tests.support.workers import run_to_its_death, run_workers
from trainables.records.epochs import read_ledger
from trainables.records.job import TrialJob
from trainables.records.journal import JOURNAL, write_id
from trainables.training import scales

__all__ = ["corpus"]

DELTA = 5e-4
STEPS = 4
"""Of an epoch: 54 utterances, 16 a step."""


def _killed_after(rank: int, world: int, job: TrialJob, log: Path, last: str) -> None:
    """Runs a trial that writes down all it releases, and is killed with what makes `log` end in `last`."""
    record, estimate = EDPHook._record_step, scales.private_alpha

    def write(what: str) -> None:
        with log.open("a") as lines:
            lines.write(f"{what}\n")
        if log.read_text().endswith(last):
            os.kill(os.getpid(), signal.SIGKILL)

    def recorded(hook: EDPHook, buffer: torch.Tensor) -> None:
        record(hook, buffer)
        write(str(hook.epoch))

    def estimated(*args: Any, **kwargs: Any) -> Any:
        found = estimate(*args, **kwargs)
        write("scales")
        return found

    EDPHook._record_step = recorded
    scales.private_alpha = estimated
    trial(rank, world, job)


def _kill(job: TrialJob, log: Path, last: str) -> list[str]:
    """What was released by a run that was killed."""
    before = log.read_text() if log.exists() else ""
    assert run_to_its_death(_killed_after, job, log, last) == -signal.SIGKILL
    return log.read_text().removeprefix(before).split()


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 2])
def test_whatever_ran_and_was_thrown_away_counts(every: int, corpus: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "training": {"epochs": 4, "validate_every": every},
        "edp": {"alpha": "private", "z0": 2.0, "reproducible_noise": None},
    }
    job, log = TrialJob(spec(**settings), corpus, tmp_path / "out"), tmp_path / "released"
    job.output.mkdir()
    (tmp_path / JOURNAL).touch()
    write_id(job.output, "mine")
    thrown = _kill(job, log, "scales\n")
    assert thrown == ["scales"]
    (whole,) = run(corpus, tmp_path / "whole", 1, **settings)
    first = read_ledger(job.output)
    assert first is not None
    assert epsilon(first, DELTA) == epsilon(whole.ledger, DELTA), "the plan counts before the first step"
    thrown += _kill(job, log, "scales\n0\n0\n")
    # Killed two steps past the first checkpoint, then, on the way from there, in the very next step.
    lived = _kill(job, log, f"{every}\n" * 2)
    assert Counter(lived) == Counter({"scales": 1} | {str(t): STEPS for t in range(every)} | {str(every): 2})
    thrown += [str(every)] * 2
    thrown += _kill(job, log, f"{every}\n" * 3)
    standing = read_ledger(job.output)
    assert standing is not None

    (result,) = run_workers(trial, 1, job)
    ledger = result.ledger
    assert [(entry.epoch, entry.steps) for entry in ledger.entries] == [(t, STEPS) for t in range(4)]
    assert ledger.alpha_release == AlphaRelease(z=PRIVATE_ALPHA_Z)
    assert len(ledger.discarded) == 4, "one a kill"
    noted = json.loads((tmp_path / JOURNAL).read_text().splitlines()[-1])
    assert noted["id"] == "mine"
    assert tuple(map(Ledger.model_validate, noted["ledgers"])) == ledger.discarded, "the account has them, too"
    counted: Counter[str] = Counter()
    for lost in ledger.discarded:
        counted["scales"] += lost.alpha_release is not None
        counted.update({str(entry.epoch): entry.steps for entry in lost.entries})
    assert counted >= Counter(thrown)
    assert set(counted) == set(thrown) | {str(t) for t in range(2 * every)}, "and what was planned with it"

    # A run in which all of it happened one after the other costs the same.
    entries = [e for part in (whole.ledger, *ledger.discarded) for e in part.entries]
    apart = tuple(LedgerEntry(epoch=i, steps=e.steps, mechanism=e.mechanism) for i, e in enumerate(entries))
    both = (Ledger(alpha_release=whole.ledger.alpha_release, entries=apart), Ledger(alpha_release=ledger.alpha_release))
    assert epsilon(ledger, DELTA) == pytest.approx(composed_epsilon([*both, both[1]], DELTA), rel=1e-6)
    assert epsilon(ledger, DELTA) > 1.2 * epsilon(whole.ledger, DELTA)
    assert composed_epsilon([ledger], DELTA) == pytest.approx(epsilon(ledger, DELTA), rel=1e-6)
    assert epsilon_curve(ledger, DELTA)[-1][1:] == pytest.approx((epsilon(ledger, DELTA), epsilon_paper(ledger, DELTA)))
    # What stood there after each kill, had nobody gone on: the whole plan, once, and what had been lost before.
    assert [(entry.epoch, entry.steps) for entry in standing.counted] == [(t, STEPS) for t in range(4)]
    assert epsilon(whole.ledger, DELTA) < epsilon(standing, DELTA) <= epsilon(ledger, DELTA)
    assert read_ledger(job.output) == ledger


def test_an_epoch_that_was_kept_is_not_counted_as_lost() -> None:
    mechanism = Mechanism(C=1.0, z=1.0, N=8)
    kept = Ledger().record(0, mechanism)
    planned = kept.record(1, mechanism)
    assert kept.after_loss(kept) == kept
    lost = kept.after_loss(planned)
    assert lost.entries == kept.entries
    assert [[entry.epoch for entry in one.entries] for one in lost.discarded] == [[1]]
    # Written down again before the next attempt, and killed again.
    assert len(lost.after_loss(lost.record(1, mechanism)).discarded) == 2
    # Killed between the checkpoint and the line that says the epoch is done.
    assert planned.after_loss(planned) == planned
