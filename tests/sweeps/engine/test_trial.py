"""What the driver answers to an epoch reaches the workers that wait for it, and no others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from edp.ledger import Ledger
from sweeps.engine.driver import Driver
from sweeps.engine.trial import TrialContext
from sweeps.engine.trials import _tuner
from sweeps.store.prepared import locate
from tests.support import studies
from trainables.records.job import EpochResult, Stop, TrialJob, TrialResult
from trainables.workers.client import GroupSpec, Leases
from trainables.workers.job_queue import JobQueue, StopSignal, colocated_actor

EPOCHS = 3
FIGURES = studies.METRICS | {"epoch_seconds": 0.0, "train_loss": 1.0, "epsilon_executed": 1.0}
FIGURES |= {f"valid_{name}": FIGURES[name] for name in ("ser", "mia_auc")}


class RankZero(threading.Thread):
    """Serves the jobs of a queue with made-up figures, and keeps the answers to its epochs."""

    def __init__(self, queue: Any) -> None:
        super().__init__(daemon=True)
        self.queue, self.answers, self.waited = queue, list[tuple[str, int, Stop | None]](), 0.0

    def run(self) -> None:
        while (item := ray.get(self.queue.next_job.remote(0, 1))) is not None:
            job_id, job = item
            end: tuple[str, Any] = ("result", TrialResult(FIGURES, Ledger(), {}, (EpochResult(EPOCHS, FIGURES),)))
            for epoch in range(1, EPOCHS + 1):
                began = time.monotonic()
                answer = ray.get(self.queue.epoch.remote(job_id, 1, epoch, FIGURES))
                self.waited = max(self.waited, time.monotonic() - began)
                self.answers.append((job.output.name, epoch, answer))
                if answer is not None:
                    end = end if answer.measure else ("stopped", answer.reason)
                    break
            ray.get(self.queue.post.remote(job_id, 1, end))


@pytest.fixture
def searched(ray_cluster: str, tmp_path: Path) -> Callable[..., tuple[RankZero, Driver]]:
    def run(trials: int, judge: Callable[[int, int], str | None], signal: StopSignal) -> tuple[RankZero, Driver]:
        sweep, recipe = studies.sweep(tmp_path, f"search.trials={trials}")
        queue, leases = colocated_actor(JobQueue), colocated_actor(Leases)
        ray.get([queue.begin.remote(1), leases.sync.remote({0: (queue, True)})])
        prepared = locate(recipe.baseline(), sweep.cache)
        job = TrialJob(recipe.baseline(), prepared.corpus, sweep.folder / "trials", prepared.attack)
        stopper: Any = SimpleNamespace(after_epoch=lambda number, epoch, point, others: judge(number, epoch))
        driver = studies.driver(sweep, recipe, stopper=stopper, stop_signal=signal, max_running=lambda: 1)
        rank_0 = RankZero(queue)
        rank_0.start()
        context = TrialContext(job, sweep.folder / "ray", sweep.name, GroupSpec(workers=1, cpus_per_worker=1), leases)
        _tuner(sweep, context, driver, trials, 1).fit()
        ray.get(queue.close.remote("done"))
        rank_0.join()
        for actor in (queue, leases):
            ray.kill(actor)
        return rank_0, driver

    return run


def test_early_stopping_ends_a_trial_at_the_epoch_that_it_judged(searched: Callable[..., Any]) -> None:
    rank_0, driver = searched(2, lambda number, epoch: "too bad" if (number, epoch) == (0, 2) else None, StopSignal())
    assert rank_0.answers == [
        ("0", 1, None),
        ("0", 2, Stop("too bad")),
        *(("1", epoch, None) for epoch in range(1, EPOCHS + 1)),
    ]
    assert rank_0.waited < 10, "an epoch without an answer waits for 20 seconds"
    assert driver.stopped is None


def test_the_stop_signal_reaches_the_running_trial_and_leaves_it_to_resume(searched: Callable[..., Any]) -> None:
    signal = StopSignal()

    def judge(number: int, epoch: int) -> None:
        if epoch == 2:
            signal.send("stopped by Ctrl-C")

    rank_0, driver = searched(2, judge, signal)
    assert rank_0.answers == [("0", 1, None), ("0", 2, Stop("stopped by Ctrl-C", measure=False))]
    assert (driver.stopped, signal.reason) == ("stopped by Ctrl-C", "stopped by Ctrl-C")
