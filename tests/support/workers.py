"""Runs a function in several gloo processes and brings their results back."""

from __future__ import annotations

import multiprocessing
import pickle
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

_CONTEXT = multiprocessing.get_context("forkserver")
# Imported once and forked with: each worker would spend seconds on what training and its measurements import.
_CONTEXT.set_forkserver_preload(
    [
        "torch._dynamo",
        "tests.support.tiny",
        "trainables.models.bert",
        "trainables.models.clc",
        "trainables.measure.attacks.canary",
        "trainables.measure.attacks.shadow",
        "dp_accounting.pld",
        "dp_accounting.rdp",
        "scipy.stats",
    ]
)


def _main(function: Callable, rank: int, world: int, store: str, results: Any, args: tuple) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    try:
        # pickled here: a queue would share tensors through a process that is about to end
        results.put((rank, pickle.dumps(function(rank, world, *args)), None))
        dist.barrier()
        dist.destroy_process_group()
    except Exception:
        results.put((rank, None, traceback.format_exc()))


def run_to_its_death(function: Callable, *args: Any, timeout: float = 400) -> int | None:
    """The exit code of a process of `function(0, 1, *args)`, the one worker of its group."""
    results = _CONTEXT.Queue()
    with tempfile.TemporaryDirectory() as folder:
        process = _CONTEXT.Process(
            target=_main, args=(function, 0, 1, str(Path(folder) / "store"), results, args), daemon=True
        )
        process.start()
        process.join(timeout)
        process.kill()
        process.join()
    return process.exitcode


def run_workers(function: Callable, world: int, *args: Any, timeout: float = 400) -> list[Any]:
    """`[function(rank, world, *args) for each rank]`, each in its own process of one gloo group.

    Raises:
        AssertionError: with a worker's traceback, when one raised.
    """
    results = _CONTEXT.Queue()
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        processes = [
            _CONTEXT.Process(target=_main, args=(function, rank, world, store, results, args), daemon=True)
            for rank in range(world)
        ]
        try:
            for process in processes:
                process.start()
            found: dict[int, Any] = {}
            for _ in processes:
                rank, value, error = results.get(timeout=timeout)
                assert error is None, f"worker {rank}:\n{error}"
                found[rank] = pickle.loads(value)
            for process in processes:
                process.join(timeout=30)
        finally:
            for process in processes:
                if process.is_alive():
                    process.kill()
                process.join()
    return [found[rank] for rank in range(world)]
