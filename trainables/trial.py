"""A trial under Ray Train: one `TorchTrainer` a trial, or one warm worker group that serves trials in turn.

Both are the same worker group, which runs `trainables.worker.run_trial` in every worker: a fresh one serves one job.
Fresh groups isolate best and suit a cluster; a warm one starts the next trial at once and suits a laptop, where
starting eight processes takes longer than a small trial.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import ray
import ray.train
import torch
from ray.train.torch import TorchConfig, TorchTrainer

from edp.spec import Frozen
from trainables.epochs import Metrics
from trainables.mailbox import Mailbox
from trainables.memory import keep_freed_memory
from trainables.worker import Stop, TrialFailed, TrialJob, TrialResult, run_trial

OnEpoch = Callable[[int, Metrics], Stop | None]
"""Hears of an epoch, and answers whether the job is to stop at its end."""

# Reports and teardown wait for Ray Train's health check: a second by default, which a short trial notices.
os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")

# A warm group is restarted this often in a sweep: each restart has cost a trial, so a group that cannot start ends.
_RESTARTS = 100


class GroupSpec(Frozen):
    """The processes that one trial needs."""

    workers: int
    cpus_per_worker: float
    gpus_per_worker: float = 0.0
    backend: Literal["gloo", "nccl"] = "gloo"


class TrialError(RuntimeError):
    """The trial ended without a result; its text is the reason, in one line."""


class WorkerGroup:
    """A Ray Train worker group that serves the jobs of its mailbox, one after the other.

    Args:
        group: its processes.
        storage, name: of the Train run; a pair that was used before would silently resume the old run.
        restarts: how often the group is started again after it died over a job.
    """

    def __init__(self, group: GroupSpec, storage: Path, name: str, *, restarts: int = _RESTARTS) -> None:
        self.mailbox: Any = Mailbox.remote()
        self._trainer = TorchTrainer(
            _serve,
            train_loop_config={"mailbox": self.mailbox, "threads": max(1, int(group.cpus_per_worker))},
            torch_config=TorchConfig(backend=group.backend),
            scaling_config=ray.train.ScalingConfig(
                num_workers=group.workers,
                use_gpu=group.gpus_per_worker > 0,
                resources_per_worker={
                    "CPU": group.cpus_per_worker,
                    **({"GPU": group.gpus_per_worker} if group.gpus_per_worker > 0 else {}),
                },
            ),
            run_config=ray.train.RunConfig(
                name=f"{name}-{uuid.uuid4().hex[:8]}",
                storage_path=str(storage),
                failure_config=ray.train.FailureConfig(max_failures=restarts),
            ),
        )
        self._thread = threading.Thread(target=self._fit, name=f"worker-group-{name}", daemon=True)
        self._thread.start()

    def _fit(self) -> None:
        reason = "the worker group has ended"
        try:
            self._trainer.fit()
        except Exception as error:
            reason = f"the worker group could not go on: {_one_line(error)}"
        finally:
            self.mailbox.abandon.remote(reason)

    def close(self) -> None:
        """Lets the workers leave, and waits until their processes are gone."""
        ray.get(self.mailbox.close.remote("the sweep has ended"))
        self._thread.join()


def run_job(mailbox: Any, job: TrialJob, on_epoch: OnEpoch) -> TrialResult:
    """Runs `job` on the worker group behind `mailbox`, and waits for its end.

    Raises:
        TrialError: with the reason.
    """
    job_id = uuid.uuid4().hex
    ray.get(mailbox.submit.remote(job_id, job))
    while True:
        kind, payload = ray.get(mailbox.next_message.remote(job_id))
        match kind:
            case "epoch":
                stop = on_epoch(*payload)
                ray.get(mailbox.answer.remote(job_id, payload[0], stop))
            case "result":
                return payload
            case "failed":
                raise TrialError(payload)


def run_fresh(job: TrialJob, group: GroupSpec, storage: Path, name: str, on_epoch: OnEpoch) -> TrialResult:
    """Runs `job` in a `TorchTrainer` of its own.

    Raises:
        TrialError: with the reason.
    """
    workers = WorkerGroup(group, storage, name, restarts=0)
    try:
        return run_job(workers.mailbox, job, on_epoch)
    finally:
        workers.close()


def _serve(config: dict[str, Any]) -> None:
    """What each worker of a group does until the mailbox is closed."""
    mailbox = config["mailbox"]
    torch.set_num_threads(config["threads"])
    keep_freed_memory()
    rank = ray.train.get_context().get_world_rank()
    ray.get(mailbox.join.remote(rank))
    torch.distributed.barrier()  # nobody takes a job before all have joined: a group of restarted workers starts level
    while (item := ray.get(mailbox.next_job.remote(rank))) is not None:
        job_id, job = item

        def report(epoch: int, metrics: Metrics, job_id: str = job_id) -> Stop | None:
            return ray.get(mailbox.epoch.remote(job_id, epoch, metrics)) if rank == 0 else None

        try:
            result = run_trial(job, report)
        except TrialFailed as error:
            if rank == 0:
                ray.get(mailbox.post.remote(job_id, ("failed", str(error))))
        except BaseException as error:
            # The other workers may be waiting in a collective: only a new group is sure to be sound.
            ray.get(mailbox.note.remote(f"worker {rank}: {_one_line(error)}"))
            raise
        else:
            if rank == 0:
                ray.get(mailbox.post.remote(job_id, ("result", result)))


def _one_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
