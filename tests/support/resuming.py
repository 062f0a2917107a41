"""Trainings that are cut off, and what they had done."""

from __future__ import annotations

import pytest

from trainables.records.job import TrialJob, TrialResult
from trainables.workers.worker import run_trial


class Killed(Exception):
    """Ends a worker in the middle of a trial, as a signal would."""


def interrupted(rank: int, world: int, job: TrialJob, after: int) -> None:
    def report(epoch: int, metrics: dict[str, float]) -> None:
        if epoch == after:
            raise Killed

    with pytest.raises(Killed):
        run_trial(job, report)


def epochs_run(rank: int, world: int, job: TrialJob) -> tuple[list[int], TrialResult | None]:
    seen: list[int] = []
    return seen, run_trial(job, lambda epoch, metrics: seen.append(epoch))
