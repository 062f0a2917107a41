"""The time of a training step, as a ratio to plain SGD's in the same round of the same processes.

Methods take turns within a round, in an order that rotates from round to round, so that other load on the machine
affects all of them alike. On a CPU the ratio is of *process CPU time*, summed over the workers, which a busy machine
disturbs less than wall time; both are reported. On CUDA it is of wall time.
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

from tests.benchmarks.methods import compared_with, stepper
from tests.benchmarks.peers import CannotRun, Step
from trainables.config import TrialSpec
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.training.process import keep_freed_memory

SLOW = 4.0
SLOW_ROUNDS = 3
"""The number of rounds in which a method is measured that takes more than SLOW times SGD's time."""
_WARM_UP = 2
"""Steps of each method before the first round."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Cell:
    """A model, its batch size and its workers, which are measured in one process group."""

    model: str
    batch_size: int
    workers: int
    device: str


@dataclass(frozen=True)
class Row:
    """A method in a cell. Ratios are to SGD of the same part of the model; None if the method could not run."""

    model: str
    method: str
    batch_size: int
    workers: int
    device: str
    ratio: float | None = None
    ratio_q1: float | None = None
    ratio_q3: float | None = None
    ratio_wall: float | None = None
    utterances_per_second: float | None = None
    rounds: int = 0
    reason: str | None = None
    """Why the method could not run, or a remark on its result."""


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
    """Measure the methods in a cell; return a row for each.

    Args:
        steps: training steps of a turn.
        notes: returns a remark on a method that did run, or None.
        say: called with a line after each round.

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
    """One worker's seconds by method and round, and the reasons why other methods did not run."""

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
    """End this process with exit code 1 once its parent has ended, even if the parent was killed."""
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
    warnings.simplefilter("ignore")  # warnings of Opacus and torch would break the progress line
    try:
        if cell.device == "cpu":
            # Workers share the cores; a single one uses one core, as on a cluster. More threads would only wait.
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
        except CannotRun as error:  # all workers raise it alike
            times.reasons[method] = str(error)
            continue
        _turn(step, 1, device)
        step_of[method] = step
        times.wall[method], times.cpu[method] = {}, {}
    for r in range(-1, rounds):  # round -1 fills caches and is not counted
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
    """Return whether a method is slow. All workers use the clock of rank 0, so that they agree."""
    first = times.wall[method][0] / times.wall[compared_with(method)][0]
    agreed = [first]
    dist.broadcast_object_list(agreed, src=0)
    return agreed[0] > SLOW


def _turn(step: Step, steps: int, device: torch.device) -> tuple[float, float]:
    """Take `steps` steps; return this worker's wall and CPU seconds."""
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
            rows.append(Row(method=method, reason=workers[0].reasons[method], **asdict(cell)))
            continue
        taken, base = sorted(workers[0].wall[method]), compared_with(method)
        wall, wall_sgd = (np.array([max(w.wall[m][r] for w in workers) for r in taken]) for m in (method, base))
        cpu, cpu_sgd = (np.array([sum(w.cpu[m][r] for w in workers) for r in taken]) for m in (method, base))
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
