"""Ray for the time of a sweep, and the worker group that its jobs run on."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import ray

from edp.spec import UserError
from sweeps.resources import Plan
from sweeps.store import Sweep
from trainables.trial import OnEpoch, WorkerGroup, run_fresh, run_job
from trainables.worker import TrialJob, TrialResult


@contextmanager
def worker_group(sweep: Sweep, placed: Plan) -> Iterator[tuple[Callable[[TrialJob, OnEpoch], TrialResult], Any | None]]:
    """How jobs are run, and the warm group's mailbox where there is one."""
    storage = sweep.folder / "ray"
    if placed.mode == "fresh":

        def fresh(job: TrialJob, on_epoch: OnEpoch) -> TrialResult:
            return run_fresh(job, placed.group, storage, f"{sweep.name}-{job.output.name}", on_epoch)

        yield fresh, None
        return
    group = WorkerGroup(placed.group, storage, sweep.name)
    try:
        yield functools.partial(run_job, group.mailbox), group.mailbox
    except KeyboardInterrupt:
        raise  # a trial may be running, and waiting for its end is what was not wanted: the processes go with Ray
    except Exception:
        group.close()
        raise
    else:
        group.close()


@contextmanager
def ray_session(log: Path) -> Iterator[None]:
    """Connects to the cluster that RAY_ADDRESS names (`auto`: the one this machine belongs to), or starts one here.

    What Ray and Tune print goes to `log`: they print dozens of lines, also to standard output.
    """
    started = not ray.is_initialized()
    log.parent.mkdir(parents=True, exist_ok=True)
    logger = logging.getLogger("ray")
    before = logger.handlers, logger.propagate
    with log.open("a", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
        logger.handlers, logger.propagate = [logging.StreamHandler(file)], False
        try:
            if started:
                # Not Ray's own default: it would join the local cluster of another sweep, and die with it.
                address = os.environ.get("RAY_ADDRESS", "local")
                try:
                    ray.init(address=address, log_to_driver=False, configure_logging=False)
                except ConnectionError:
                    raise UserError(
                        f"RAY_ADDRESS = {address!r}: no cluster answers there; unset it to start Ray on this machine"
                    ) from None
            yield
        finally:
            if started:
                ray.shutdown()
            logger.handlers, logger.propagate = before
