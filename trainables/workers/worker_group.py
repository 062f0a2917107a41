"""A trial under Ray Train: one `TorchTrainer` a trial, or one warm worker group that serves trials in turn.

Both are the same worker group, which runs `trainables.workers.worker.run_trial` in every worker. A fresh group serves
one job. Fresh groups isolate trials best and suit a cluster. A warm group starts the next trial at once and suits a
laptop, where starting eight processes takes longer than a small trial. A pool has as many warm groups as jobs wait for,
and as its owner may have: a job goes to one that is free.
"""

from __future__ import annotations

import gc
import itertools
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import ray
import ray.train
import torch
from ray.train.torch import TorchConfig, TorchTrainer

from trainables.records.files import cause_of, disk_full
from trainables.records.job import GROUP_THREAD, Stop, TrialFailed, TrialJob, TrialLeft, TrialResult
from trainables.records.pareto import Metrics
from trainables.training.process import keep_freed_memory
from trainables.workers.client import SHORT_OF_MEMORY, Demand, GroupSpec, Leases, OnEpoch, death_in, run_job
from trainables.workers.job_queue import BEAT_S, PATIENCE_S, Death, JobQueue, Kind, colocated_actor
from trainables.workers.ray_internals import remove_orphans
from trainables.workers.worker import run_trial

# Ray Train's reports and teardown wait for its health check. Its default of a second is long beside a short trial.
os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")
# The watcher is one more process a group. Without it, a lost node shows by its workers' death, which costs an epoch.
os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")
# A cloud needs minutes to start a node. After this many seconds a group asks for its resources again.
os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "900")

# A worker raises these when it has lost a peer or has run out of GPU memory. Unlike mistakes in the code or the recipe,
# such errors may not occur again. The peer's own death may be noticed later, or never if a network broke.
_MAY_PASS = (RuntimeError, OSError)


class WorkerGroup:
    """A Ray Train worker group that serves the jobs of its queue, one after the other.

    A group that dies is started again, and its job resumes from its checkpoint, at most
    `trainables.workers.job_queue.RETRIES` times. The group is a context manager, which closes it at the end of the
    block. After a KeyboardInterrupt, or the SystemExit that follows Ray's end, it does not wait for the group: its job
    may take long, and its processes end with this one.

    Args:
        patience_s: seconds of a worker's silence before it is reported.
    """

    def __init__(self, group: GroupSpec, storage: Path, name: str, *, patience_s: float = PATIENCE_S) -> None:
        self.queue: Any = colocated_actor(JobQueue, patience_s)
        self._group, self._storage, self._name = group, storage, name
        self._left = self._closing = False
        self._thread = threading.Thread(target=self._keep_alive, name=f"{GROUP_THREAD}{name}", daemon=True)
        self._thread.start()

    def __enter__(self) -> WorkerGroup:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, Exception):
            self.close()
        else:
            self._left = True

    def _keep_alive(self) -> None:
        """Run the group, and start it again while the queue asks for it; runs in a thread of its own."""
        reason = "the worker group has ended"
        try:
            for generation in itertools.count(1):
                if self._gone or self._closing or not ray.get(self.queue.begin.remote(generation)):
                    return
                try:
                    self._trainer(generation).fit()
                except Exception as error:
                    if self._gone:
                        return
                    ray.get(self.queue.died.remote(_death(error)))
                    remove_orphans()
        except Exception as error:
            reason = f"the worker group could not go on: {_one_line(error)}"
        finally:
            if not self._gone:
                with suppress(ray.exceptions.RayError):
                    # An answer that is still to come when `close` ends the queue is a line of Ray's on standard output.
                    ray.get(self.queue.abandon.remote(reason))

    @property
    def ended(self) -> bool:
        """True if the group has ended, and is not started again."""
        return not self._thread.is_alive()

    @property
    def _gone(self) -> bool:
        """True if Ray must not be called any more: it would end this process in its shutdown, or start again."""
        return self._left or not ray.is_initialized()

    def _trainer(self, generation: int) -> TorchTrainer:
        group = self._group
        return TorchTrainer(
            _serve,
            train_loop_config={
                "queue": self.queue,
                "generation": generation,
                "threads": max(1, int(group.cpus_per_worker)),
            },
            torch_config=TorchConfig(backend=group.backend),
            scaling_config=ray.train.ScalingConfig(
                num_workers=group.workers,
                use_gpu=group.gpus_per_worker > 0,
                resources_per_worker=group.bundle,
                placement_strategy="STRICT_PACK" if group.one_node else "PACK",
            ),
            run_config=ray.train.RunConfig(
                # Ray Train would silently resume an old run of the same name.
                name=f"{self._name}-{uuid.uuid4().hex[:8]}",
                storage_path=str(self._storage),
                # The job queue counts deaths instead: it knows whether a job makes progress between them.
                failure_config=ray.train.FailureConfig(max_failures=0),
            ),
        )

    def close(self) -> None:
        """Let the workers leave, and wait until their processes are gone."""
        self._closing = True  # a queue that is started again would not know it
        ray.get(self.queue.close.remote("the sweep has ended"))
        self._thread.join()
        ray.kill(self.queue)


def run_fresh(
    job: TrialJob,
    group: GroupSpec,
    storage: Path,
    name: str,
    on_epoch: OnEpoch,
    *,
    on_queue: Callable[[Any], None] = lambda queue: None,
    **options: Any,
) -> TrialResult:
    """Run `job` as `run_job` does, which gets `options`, in a `TorchTrainer` of its own that ends with it.

    Args:
        on_queue: called with the group's queue before the job is submitted.

    Raises:
        TrialError: as `run_job` does.
    """
    with WorkerGroup(group, storage, name) as workers:
        on_queue(workers.queue)
        return run_job(workers.queue, job, on_epoch, **options)


def _serve(config: dict[str, Any]) -> None:
    """Serve jobs as one worker of a group until the queue is closed."""
    queue, generation = config["queue"], config["generation"]
    torch.set_num_threads(config["threads"])
    keep_freed_memory()
    rank = ray.train.get_context().get_world_rank()
    threading.Thread(target=_beat, args=(queue, rank, generation), name="heartbeat", daemon=True).start()
    gc.freeze()  # so that a collection looks at no library
    while (item := ray.get(queue.next_job.remote(rank, generation))) is not None:
        job_id, job = item

        def post(kind: Kind, payload: Any, job_id: str = job_id) -> None:
            if rank == 0:
                ray.get(queue.post.remote(job_id, generation, (kind, payload)))

        def report(epoch: int, metrics: Metrics, job_id: str = job_id) -> Stop | None:
            return ray.get(queue.epoch.remote(job_id, generation, epoch, metrics)) if rank == 0 else None

        try:
            result = run_trial(job, report)
        except TrialLeft as error:
            post("stopped", str(error))
        except TrialFailed as error:
            post("failed", str(error))
        except BaseException as error:
            # The other workers may be waiting in a collective operation, so only a new group can serve the next job.
            if (full := disk_full(error)) is not None:
                ray.get(queue.stop.remote(full, at_once=True))
            ray.get(queue.note.remote(generation, f"worker {rank}: {_one_line(error)}"))
            raise
        else:
            post("result", result)
        gc.collect()  # a trainer refers to itself, and would keep its memory beside that of the next one


def _beat(queue: Any, rank: int, generation: int) -> None:
    """Report to the queue that this process runs, until the process or its group ends."""
    place = f"process {os.getpid()} on {socket.gethostname()}"
    with suppress(ray.exceptions.RayError):  # the queue has ended, and its workers will end too
        while ray.get(queue.beat.remote(rank, generation, place)):
            time.sleep(BEAT_S)


def _death(error: Exception) -> Death:
    """Return the cause of a group's end. The death of a process comes first, since its peers' errors follow from it."""
    failures: dict[int, Exception] = {
        rank: getattr(failure, "health_check_failure", failure)
        for rank, failure in getattr(error, "worker_failures", {}).items()
    }
    cause = getattr(error, "controller_failure", error)
    if any(death_in(one) == SHORT_OF_MEMORY for one in (*failures.values(), cause)):
        return Death(SHORT_OF_MEMORY, process=True, memory=True)
    for rank, failure in sorted(failures.items()):
        if isinstance(failure, ray.exceptions.RayActorError):
            return Death(f"worker {rank} has died", process=True)
    for rank, failure in sorted(failures.items()):
        raised = getattr(failure, "_base_exc", failure)
        return Death(f"worker {rank}: {_one_line(raised)}", process=False, again=isinstance(raised, _MAY_PASS))
    return Death(f"the worker group could not go on: {_one_line(cause)}", process=True)


def _one_line(error: BaseException) -> str:
    error = cause_of(error)
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


_LOOK_S = 0.5
"""Seconds between two looks at the demand."""
_AGAIN_S = 60.0
"""Seconds after the end of a group that could not go on before another one is started beside those that run."""
_STARVED_S = 30.0
"""Seconds without workers after which a group that has a job gets the place of one that has none."""
_RENEW_AFTER = 500
"""Jobs after which a group is replaced, and with it whatever its processes have gathered."""

Start = Callable[[int], AbstractContextManager[WorkerGroup]]
"""Starts the group of a number, which counts the groups of a pool. The context ends it."""


class _Member:
    """A group of the pool."""

    def __init__(self, context: AbstractContextManager[WorkerGroup]) -> None:
        self._context = context
        self.group = context.__enter__()
        self.ready = False
        self._seen = time.monotonic()

    def look(self, served: bool) -> None:
        """Note whether the workers run."""
        self.ready = self.ready or served
        self._seen = time.monotonic() if served else self._seen

    @property
    def starved(self) -> bool:
        """True if the workers have died, and no others have started for long: their place may be gone."""
        return self.ready and time.monotonic() - self._seen > _STARVED_S

    def leave(self, kind: type[BaseException] | None = None, error: BaseException | None = None) -> None:
        self._context.__exit__(kind, error, error.__traceback__ if error is not None else None)


class WorkerPool:
    """A pool that starts its first group at once. It is a context manager, which ends its groups as `WorkerGroup` does.

    Args:
        start: starts a group.
        most: returns how many groups the pool may have now; it has at least one. If the number falls, a group that is
            free is ended; none is taken from its job.
        on_queue: called with the queue of each group that is started.
    """

    def __init__(self, start: Start, most: Callable[[], int], on_queue: Callable[[Any], None]) -> None:
        self.leases: Any = colocated_actor(Leases)
        self._start, self._most, self._on_queue = start, most, on_queue
        self._numbers = itertools.count()
        self._members: dict[int, _Member] = {}
        self._failed_at = float("-inf")
        self._ended = threading.Event()
        self._leavers = ThreadPoolExecutor(thread_name_prefix="leaving")
        self._add()
        self._thread = threading.Thread(target=self._tend, name="worker pool", daemon=True)
        self._thread.start()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        patient = kind is None or issubclass(kind, Exception)
        self._thread.join(None if patient else _LOOK_S)
        leaving = [self._leavers.submit(member.leave, kind, error) for member in self._members.values()]
        self._leavers.shutdown(wait=patient)
        if patient:
            for one in leaving:
                one.result()
            ray.kill(self.leases)

    def _tend(self) -> None:
        """Fit the pool to its demand, until it ends; runs in a thread of its own."""
        while not self._ended.wait(_LOOK_S):
            if not ray.is_initialized():
                return
            with suppress(ray.exceptions.RayError):  # of a process that Ray starts again, or of Ray's own end
                self._look()

    def _look(self) -> None:
        served = ray.get([member.group.queue.is_served.remote() for member in self._members.values()])
        for member, runs in zip(self._members.values(), served, strict=True):
            member.look(runs)
        state = {number: (member.group.queue, member.ready) for number, member in self._members.items()}
        demand: Demand = ray.get(self.leases.sync.remote(state))
        most = max(1, self._most())
        for number in [number for number, member in self._members.items() if member.group.ended]:
            if len(self._members) > 1:  # the end of the last one is told to its jobs
                self._failed_at = time.monotonic()
                self._retire(number)
        free = [number for number in demand.free if number in self._members]
        worn = [number for number in free if demand.served[number] >= _RENEW_AFTER]
        starved = [member for number, member in self._members.items() if number not in free and member.starved]
        spare = sorted(demand.free, reverse=True) if starved or len(self._members) > most else []
        for number in [*worn[:1], *spare[:1]]:
            self._retire(number)
        if starved and spare:
            starved[0].look(served=True)  # its workers have as long to start in the place that has become free
        starting = sum(not member.ready for member in self._members.values())
        room = most - len(self._members) if time.monotonic() - self._failed_at > _AGAIN_S else 0
        for _ in range(min(room, max(demand.waiting - starting, not self._members))):
            self._add()

    def _add(self) -> None:
        number = next(self._numbers)
        self._members[number] = member = _Member(self._start(number))
        self._on_queue(member.group.queue)

    def _retire(self, number: int) -> None:
        """End a group in a thread of its own, unless it has got a job."""
        if number in self._members and ray.get(self.leases.retire.remote(number)):
            self._leavers.submit(self._members.pop(number).leave)
