"""A session of a sweep: Ray, and the worker group of its jobs."""

from __future__ import annotations

import faulthandler
import functools
import logging
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    redirect_stderr,
    redirect_stdout,
    suppress,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import ray

from edp.spec import UserError
from sweeps.config.parts import ResourcesSpec
from sweeps.engine.address import (
    asks_for_token,
    check_address,
    folder_options,
    no_cluster,
    ray_address,
    token,
    usable_cores,
)
from sweeps.engine.dying import own_answer
from sweeps.engine.placement import Placement, at_once
from sweeps.engine.progress import Progress
from sweeps.engine.watch import notice, stall_reporter
from sweeps.store.storage import Place
from sweeps.text.secrets import redacted
from trainables.records.job import GROUP_THREAD, TrialError, TrialJob, TrialResult, still_waits
from trainables.training.checkpoint import discard_checkpoint
from trainables.workers.client import OnEpoch, run_in_pool
from trainables.workers.job_queue import StopSignal
from trainables.workers.ray_internals import keep_folder_here, take_own_token, under_name
from trainables.workers.worker_group import WorkerGroup, WorkerPool, run_fresh

_TRIES = 3
"""Attempts to start Ray, which gives up after half a minute. A busy machine may need longer."""
_START_S = 300.0
"""Seconds that Ray may take to start, or to be joined: ten times what it takes on a machine with too much to do."""
_UV = "RAY_ENABLE_UV_RUN_RUNTIME_ENV"
"""Ray's variable. Unless it is off, a driver below `uv run` sends the current folder, private files too, to every node,
which keeps it, and a folder of more than 512 MiB ends the sweep."""
_ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": f"{1 << 40}", "MALLOC_ARENA_MAX": "1"}
"""Environment variables with which a worker keeps the memory that a step has used. By default glibc returns the memory
of a large tensor at once, and the system clears each page of the next one: an epoch of BERT in two workers on CPUs took
120 s instead of 73 s."""


@dataclass(frozen=True)
class Workers:
    """The workers of a session."""

    run: Callable[[TrialJob, OnEpoch], TrialResult]
    """The function that runs one job to its end. Several threads may call it at once."""
    at_once: Callable[[], int]
    """The function that returns how many jobs may run at once now."""
    stop_signal: StopSignal
    leases: Any | None
    """The leases of the pool of warm groups. None: every job has a group of its own."""


@contextmanager
def worker_group(place: Place, placed: Placement, resources: ResourcesSpec, progress: Progress) -> Iterator[Workers]:
    """Yield the workers of a placement while the block runs.

    Args:
        progress: shows what waits for its workers, now and then how long, and news of the workers.
    """
    storage, most = place.folder / "ray", at_once(placed, resources, progress.say)

    def run(job: TrialJob, on_epoch: OnEpoch) -> TrialResult:
        name = job.output.name
        progress.waits(name)
        on_news = functools.partial(progress.news, name)
        if pool is not None:
            result = run_in_pool(pool.leases, job, on_epoch, on_news=on_news)
        else:
            where = f"{place.name}-{name}"
            result = run_fresh(job, placed.group, storage, where, on_epoch, on_queue=stop_signal.add, on_news=on_news)
        discard_checkpoint(job.output)
        return result

    def start(number: int) -> AbstractContextManager[WorkerGroup]:
        return WorkerGroup(placed.group, storage, f"{place.name}-group-{number}" if number else place.name)

    stop_signal = StopSignal()
    with (
        WorkerPool(start, most, stop_signal.add) if placed.mode == "warm" else nullcontext() as pool,
        stall_reporter(progress, placed.group),
    ):
        yield Workers(run, most, stop_signal, pool.leases if pool is not None else None)


@contextmanager
def side_by_side(count: int) -> Iterator[ThreadPoolExecutor]:
    """Yield threads for jobs that run at once. If the block raises, do not wait for those that run."""
    threads = ThreadPoolExecutor(count, thread_name_prefix=f"{GROUP_THREAD}job-")
    try:
        yield threads
    except BaseException:
        threads.shutdown(wait=False, cancel_futures=True)
        raise
    threads.shutdown()


@contextmanager
def _output_to(log: Path) -> Iterator[TextIO]:
    """Append to `log` what this process prints, also through file descriptor 2, as Ray's C++ code does."""
    file, kept = log.open("a", encoding="utf-8"), os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        with redirect_stdout(file), redirect_stderr(file):
            yield file
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        with suppress(OSError):  # on a full disk the log loses its last lines
            file.close()


@contextmanager
def ray_session(log: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Connect to the cluster that RAY_ADDRESS names (`auto`: the one on this machine), or start one here.

    Everything that Ray and Tune print, which is dozens of lines, goes to `log`, whose stem names the session. `say`
    shows a line if the start takes more than a minute.
    """
    started = not ray.is_initialized()
    log.parent.mkdir(parents=True, exist_ok=True)
    logger = logging.getLogger("ray")
    before = logger.handlers, logger.propagate
    # Tune writes no result files here (`sweeps.engine.trials`), and would warn at the end that it finds none.
    logging.getLogger("ray.tune.analysis.experiment_analysis").setLevel(logging.ERROR)
    with _output_to(log) as file:
        logger.handlers, logger.propagate = [logging.StreamHandler(file)], False
        try:
            if started:
                # Ray installs a handler of SIGTERM that ends the process without a message.
                with own_answer(signal.SIGTERM), notice("starting Ray", say, patience_s=60):
                    connect(ray_address(), job_config=under_name(log.stem))
            yield
        finally:
            if started and not still_waits():
                ray.shutdown()
            logger.handlers, logger.propagate = before


@contextmanager
def _inherited(variables: dict[str, str]) -> Iterator[None]:
    """Pass these environment variables to processes that start within the block, unless this process has them."""
    own = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(own)
    try:
        yield
    finally:
        for name in own:
            os.environ.pop(name, None)


@contextmanager
def _mortal() -> Iterator[None]:
    """Let Ctrl-C end this process within the block, and end it after `_START_S`, whatever Ray does meanwhile.

    Ray's start holds Python's lock, so it would keep this process from every handler and thread. It may wait for ever,
    for a process of Ray that has died.
    """
    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGINT)):
            stack.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.SIG_DFL))
        faulthandler.dump_traceback_later(_START_S, exit=True, file=2)  # the session's log, where there is one
        stack.callback(faulthandler.cancel_dump_traceback_later)
        yield


def connect(address: str, **options: Any) -> Any:
    """Connect to a cluster, or start one here (`local`), and return the result of `ray.init`, which gets `options`.

    Raises:
        UserError: if no cluster can be or answers at `address`.
        TrialError: if no cluster can be started.
    """
    check_address(address)
    if _UV not in os.environ:
        keep_folder_here()
    if address == "local":
        options = {"num_cpus": usable_cores()} | folder_options() | options
        if token() is None and not os.access(os.path.expanduser("~"), os.W_OK):  # where Ray keeps a new cluster's
            os.environ["RAY_AUTH_TOKEN"] = uuid.uuid4().hex
    elif "RAY_AUTH_MODE" not in os.environ and asks_for_token(address):
        take_own_token()
    for _ in range(_TRIES):
        try:
            with _inherited(_ALLOCATOR), _mortal():
                return ray.init(address=address, log_to_driver=False, configure_logging=False, **options)
        except ConnectionError:
            raise no_cluster(address) from None
        except Exception as error:
            if "Version mismatch" in str(error):  # it names both versions of Ray and of Python, in several lines
                raise UserError(
                    f"RAY_ADDRESS = {redacted(address)!r}: {' '.join(str(error).split())}; allowed: the same versions"
                ) from None
            # Also "Timed out waiting for file …": a process of Ray has died before it wrote its port.
            if "timed out" not in str(error).lower():
                raise
            ray.shutdown()
    raise TrialError("Ray does not start on this machine, which may be overloaded; try again later")
