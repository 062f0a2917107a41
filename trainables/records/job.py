"""Jobs and results of a trial, as plain data that is small enough to send by value; threads that wait for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edp.ledger import Ledger
from trainables.config import TrialSpec
from trainables.records.pareto import TRADE_OFF, Metrics, Objectives


@dataclass(frozen=True)
class Stop:
    """A trial is to end at the end of this epoch."""

    reason: str
    measure: bool = True
    """True: it ends well, measured as it stands; False: it leaves its checkpoint, to be resumed another time."""


@dataclass(frozen=True)
class News:
    """A line about a job's workers; an empty one: they are there."""

    line: str = ""
    waits: bool = False
    """True where the job waits for workers from now on."""


Report = Callable[[int, Metrics], Stop | None]


class TrialFailed(RuntimeError):
    """This trial cannot go on, and every worker knows it: the group may serve the next one."""


class TrialLeft(TrialFailed):
    """The trial was asked to stop; its checkpoint is there to resume from."""


@dataclass(frozen=True)
class TrialJob:
    """A worker group's input for a trial: plain data, small enough to send by value."""

    spec: TrialSpec
    corpus: Path
    """Folder of the encoded corpus, seen by all workers."""
    output: Path
    """Folder for model, ledger and attack features, seen by all workers."""
    attack: Path | None = None
    """A fitted attack; None: no membership inference is measured."""
    coins: Path | None = None
    """The file of the trained canaries, read after training. None: no audit."""
    with_valid: bool = False
    """True: train on the validation utterances too, and validate nothing."""
    keep: int = 1
    """Number of epochs whose models are kept and measured, the last among them. Needs an attack, and a private
    method."""
    objectives: Objectives = TRADE_OFF
    """The objectives that decide which epochs are kept."""
    gpus_per_worker: float = 1.0
    """A worker's share of its GPU, which is its share of the cost."""


@dataclass(frozen=True)
class EpochResult:
    """A kept epoch: how many epochs were done then, and what its model comes to on the test split."""

    epoch: int
    metrics: Metrics


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial. `metrics` are of the last epoch on the test split; see DESIGN for their names."""

    metrics: Metrics
    ledger: Ledger
    tags: dict[str, str]
    epochs: tuple[EpochResult, ...] = ()
    """The kept epochs, the last one last."""
    stopped: str | None = None
    """Why the trial ended before its last planned epoch."""


Outcome = TrialResult | str
"""A trial's result, or the reason why it has none."""


class TrialError(RuntimeError):
    """The trial ended without a result; its text is the reason, in one line."""


class TrialStopped(TrialError):
    """The trial was ended before its end, by a person or for want of disk space; it may go on from its checkpoint."""


GROUP_THREAD = "worker-group-"
"""Beginning of the names of threads that wait for a worker group."""


def still_waits() -> bool:
    """Return True if a thread still waits for a worker group, which Ctrl-C may have left in the middle of an epoch.

    Ray must not be shut down then, and this process must leave by `os._exit`: Ray ends a process whose thread it finds
    waiting with exit code 1. Its processes go when this one has gone.
    """
    return any(thread.name.startswith(GROUP_THREAD) for thread in threading.enumerate())
