"""The job and the result of a trial, as plain data that is small enough to send by value."""

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
    """A request to end a trial at the end of its current epoch."""

    reason: str
    measure: bool = True
    """True: measure the model as it is and end with a result; False: keep the checkpoint, to resume from later."""


@dataclass(frozen=True)
class News:
    """A line about a job's workers; an empty line means that they run."""

    line: str = ""
    waits: bool = False
    """True if the job waits for workers from now on."""


Report = Callable[[int, Metrics], Stop | None]


class TrialFailed(RuntimeError):
    """A trial cannot go on, and each of its workers knows it: the group can serve the next trial."""


class TrialLeft(TrialFailed):
    """A trial stopped on request; it can be resumed from its checkpoint."""


@dataclass(frozen=True)
class TrialJob:
    """The input of a worker group for a trial."""

    spec: TrialSpec
    corpus: Path
    """The folder of the encoded corpus, which all workers can read."""
    output: Path
    """The folder for model, ledger and attack features, which all workers can read."""
    attack: Path | None = None
    """The folder of a fitted attack; None: measure no membership inference."""
    coins: Path | None = None
    """The file that says which canaries are trained, read after training; None: no audit."""
    with_valid: bool = False
    """True: train on the validation utterances too, and do not validate."""
    public: bool = False
    """True: the corpus is public, and a training on a private one follows. That one is planned to end at the chosen
    epoch, so each epoch states the ε of its own steps. False: each epoch states the ε of all planned epochs."""
    keep: int = 1
    """The number of epochs whose models are kept and measured, including the last. Needs an attack and a private method
    if it is more than 1."""
    objectives: Objectives = TRADE_OFF
    """The objectives that decide which epochs are kept."""
    gpus_per_worker: float = 1.0
    """A worker's share of its GPU, which is its share of the cost."""


@dataclass(frozen=True)
class EpochResult:
    """A kept epoch, by number (1 is the first), and the metrics of its model on validation (`valid_…`) and test."""

    epoch: int
    metrics: Metrics


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial; `metrics` are those of the last epoch on validation (`valid_…`) and test."""

    metrics: Metrics
    ledger: Ledger
    tags: dict[str, str]
    epochs: tuple[EpochResult, ...] = ()
    """The kept epochs in order, including the last."""
    stopped: str | None = None
    """The reason why the trial ended before its last planned epoch; None if it did not."""


Outcome = TrialResult | str
"""A trial's result, or the reason why there is none."""


class TrialError(RuntimeError):
    """A trial ended without a result; the text is the reason, in one line."""


class TrialStopped(TrialError):
    """A trial was stopped by a user or by a full disk; it can be resumed from its checkpoint."""


GROUP_THREAD = "worker-group-"
"""The prefix of the names of threads that wait for a worker group."""


def still_waits() -> bool:
    """Return True if a thread still waits for a worker group, as after Ctrl-C in the middle of an epoch.

    If so, do not shut Ray down, and leave the process by `os._exit`: Ray would end a process with a waiting thread with
    exit code 1. Ray's own processes end after this one.
    """
    return any(thread.name.startswith(GROUP_THREAD) for thread in threading.enumerate())
