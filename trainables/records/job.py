"""What goes into a trial and what comes out of it: plain data, small enough to send by value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edp.ledger import Ledger
from trainables.records.pareto import TRADE_OFF, Metrics, Objectives
from trainables.spec import TrialSpec


@dataclass(frozen=True)
class Stop:
    """A trial is to end at the end of this epoch."""

    reason: str
    measure: bool = True
    """Whether it ends well, measured as it stands; else it leaves its checkpoint, to go on from another time."""


@dataclass(frozen=True)
class News:
    """What happens to a job's workers, in a line; an empty one: they are there."""

    line: str = ""
    waits: bool = False
    """Whether the job waits for workers from now on."""


Report = Callable[[int, Metrics], Stop | None]


class TrialFailed(RuntimeError):
    """This trial cannot go on, and every worker knows it: the group may serve the next one."""


class TrialLeft(TrialFailed):
    """The trial was told to leave off; its checkpoint is there to go on from."""


@dataclass(frozen=True)
class TrialJob:
    """What a worker group needs to know of a trial: plain data, small enough to send by value."""

    spec: TrialSpec
    corpus: Path
    """Folder of the encoded corpus, seen by all workers."""
    output: Path
    """Folder for model, ledger and attack features, seen by all workers."""
    attack: Path | None = None
    """A fitted attack; None: no membership inference is measured."""
    coins: Path | None = None
    """Which canaries are trained on; read when training is over. None: no audit."""
    with_valid: bool = False
    """Whether the validation utterances are trained on too; nothing is validated then."""
    keep: int = 1
    """How many epochs' models are kept and measured, the last among them. Takes an attack, and a private method."""
    objectives: Objectives = TRADE_OFF
    """What epochs are kept for."""
    gpus_per_worker: float = 1.0
    """What a worker on a GPU has of it: its share of the cost."""


@dataclass(frozen=True)
class EpochResult:
    """A kept epoch: how many epochs were done then, and what its model comes to on the test split."""

    epoch: int
    metrics: Metrics


@dataclass(frozen=True)
class TrialResult:
    """What came of a trial. `metrics` are of the last epoch on the test split; see DESIGN for their names."""

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
