"""`bench step`: the time of a training step, as a ratio to plain SGD's in the same round of the same processes.

Methods take turns within a round, in an order that moves on from round to round, so that what else a machine does falls
on all alike. On a CPU the ratio is of *process CPU time*, summed over the workers, which a busy machine disturbs less
than wall time; both are reported. On CUDA it is of wall time.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from sweeps.bench.methods import compared_with, stepper
from sweeps.bench.peers import CannotRun, Step
from trainables.config import TrialSpec
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.training.process import keep_freed_memory

SLOW = 4.0
SLOW_ROUNDS = 3
"""A method that takes more than SLOW times SGD's time is measured in the first SLOW_ROUNDS rounds only."""
_WARM_UP = 2
Say = Callable[[str], None]


@dataclass(frozen=True)
class Cell:
    """What is measured in one process group."""

    model: str
    batch_size: int
    workers: int
    device: str


@dataclass(frozen=True)
class Row:
    """A method in a cell. Ratios are to SGD of the same part; None where it could not run, which `reason` explains."""

    model: str
    method: str
    batch_size: int
    workers: int
    device: str
    ratio: float | None
    ratio_q1: float | None
    ratio_q3: float | None
    ratio_wall: float | None
    utterances_per_second: float | None
    rounds: int
    reason: str | None


def measure(
    cell: Cell,
    methods: list[str],
    spec: TrialSpec,
    corpus: Path,
    *,
    rounds: int,
    steps: int,
    notes: Callable[[str], str | None],
    say: Say,
) -> list[Row]:
    """Return the rows of a cell.

    Args:
        steps: a turn's training steps.
        notes: a remark on a method that did run, or None.

    Raises:
        RuntimeError: with a worker's traceback.
    """
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        processes = [
            context.Process(
                target=_work, args=(rank, cell, methods, spec, corpus, rounds, steps, store, answers), daemon=True
            )
            for rank in range(cell.workers)
        ]
        try:
            for process in processes:
                process.start()
            found: dict[int, _Times] = {}
            while len(found) < cell.workers:
                rank, kind, payload = _next(answers, processes)
                if kind == "error":
                    raise RuntimeError(f"worker {rank}:\n{payload}")
                if kind == "say":
                    say(payload)
                else:
                    found[rank] = payload
        finally:
            for process in processes:
                if process.is_alive() and len(found) < cell.workers:
                    process.kill()
                process.join()
    return _rows(cell, methods, [found[rank] for rank in range(cell.workers)], steps, notes)


@dataclass(frozen=True)
class _Times:
    """Of one worker: seconds of each method's turn in each round it took part in, and why others did not run."""

    wall: dict[str, dict[int, float]]
    cpu: dict[str, dict[int, float]]
    reasons: dict[str, str]


def _next(answers: Any, processes: list[Any]) -> Any:
    while True:
        try:
            return answers.get(timeout=1)
        except queue.Empty:
            for rank, process in enumerate(processes):
                if process.exitcode not in (None, 0):
                    raise RuntimeError(f"worker {rank} died with exit code {process.exitcode}") from None


def end_with_parent() -> None:
    """End this process with exit code 1 once the one that spawned it is gone, also if it was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, name="end with parent", daemon=True).start()


def _work(
    rank: int,
    cell: Cell,
    methods: list[str],
    spec: TrialSpec,
    corpus: Path,
    rounds: int,
    steps: int,
    store: str,
    answers: Any,
) -> None:
    end_with_parent()
    os.environ["LOCAL_RANK"] = str(rank)
    warnings.simplefilter("ignore")  # Opacus' and torch's remarks would break the progress line
    try:
        if cell.device == "cpu":
            # A worker a core, as on a cluster: threads would only wait for each other.
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // cell.workers) if cell.workers > 1 else 1)
            keep_freed_memory()
            device = torch.device("cpu")
        else:
            device = torch.device("cuda", rank % torch.cuda.device_count())
            torch.cuda.set_device(device)
        own_gpu = cell.device == "cuda" and cell.workers <= torch.cuda.device_count()
        dist.init_process_group(
            "nccl" if own_gpu else "gloo", init_method=f"file://{store}", rank=rank, world_size=cell.workers
        )
        times = _take_turns(cell, methods, spec, EncodedCorpus.open(corpus), device, rounds, steps, answers)
        dist.barrier()
        dist.destroy_process_group()
        answers.put((rank, "done", times))
    except Exception:
        answers.put((rank, "error", traceback.format_exc()))


def _take_turns(
    cell: Cell,
    methods: list[str],
    spec: TrialSpec,
    corpus: EncodedCorpus,
    device: torch.device,
    rounds: int,
    steps: int,
    answers: Any,
) -> _Times:
    times = _Times({}, {}, {})
    step_of: dict[str, Step] = {}
    for method in methods:
        try:
            torch.manual_seed(0)
            step = stepper(method, spec, corpus, device)
        except CannotRun as error:  # on all workers alike
            times.reasons[method] = str(error)
            continue
        _turn(step, 1, device)
        step_of[method] = step
        times.wall[method], times.cpu[method] = {}, {}
    for r in range(-1, rounds):  # the first one is for caches, and to tell the slow ones
        names = list(step_of)
        names = names[r % len(names) :] + names[: r % len(names)]
        for method in names:
            if r < 0 or r < SLOW_ROUNDS or not _is_slow(method, times):
                wall, cpu = _turn(step_of[method], steps if r >= 0 else _WARM_UP, device)
                if r >= 0:
                    times.wall[method][r], times.cpu[method][r] = wall, cpu
        if dist.get_rank() == 0 and r >= 0:
            answers.put((0, "say", f"{cell.model}, batch {cell.batch_size}, {cell.workers} x {cell.device}: {r + 1}"))
    return times


def _is_slow(method: str, times: _Times) -> bool:
    """Return whether a method is slow, by the clock of rank 0, so that all workers agree."""
    first = times.wall[method][0] / times.wall[compared_with(method)][0]
    agreed = [first]
    dist.broadcast_object_list(agreed, src=0)
    return agreed[0] > SLOW


def _turn(step: Step, steps: int, device: torch.device) -> tuple[float, float]:
    """Return wall and CPU seconds of `steps` steps of this worker."""
    dist.barrier()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - wall, time.process_time() - cpu


def _rows(
    cell: Cell, methods: list[str], workers: list[_Times], steps: int, notes: Callable[[str], str | None]
) -> list[Row]:
    rows = []
    for method in methods:
        if method in workers[0].reasons:
            reason = workers[0].reasons[method]
            rows.append(
                Row(
                    method=method,
                    ratio=None,
                    ratio_q1=None,
                    ratio_q3=None,
                    ratio_wall=None,
                    utterances_per_second=None,
                    rounds=0,
                    reason=reason,
                    **asdict(cell),
                )
            )
            continue
        taken, base = sorted(workers[0].wall[method]), compared_with(method)
        wall, wall_sgd, cpu, cpu_sgd = (
            np.array([combine(getattr(w, clock)[name][r] for w in workers) for r in taken])
            for combine, clock, name in (
                (max, "wall", method),
                (max, "wall", base),
                (sum, "cpu", method),
                (sum, "cpu", base),
            )
        )
        ratios = cpu / cpu_sgd if cell.device == "cpu" else wall / wall_sgd
        q1, median, q3 = (float(x) for x in np.quantile(ratios, (0.25, 0.5, 0.75)))
        busy = cpu / cell.workers if cell.device == "cpu" else wall
        rows.append(
            Row(
                method=method,
                ratio=median,
                ratio_q1=q1,
                ratio_q3=q3,
                ratio_wall=float(np.median(wall / wall_sgd)),
                utterances_per_second=cell.batch_size * steps / float(np.median(busy)),
                rounds=len(taken),
                reason=notes(method),
                **asdict(cell),
            )
        )
    return rows
