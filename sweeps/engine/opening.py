"""The opening of a command that trains: what its trainings need, checked, then opened in order and closed in order.

1. `Opening` reads the corpora and checks models and batches. Nothing is made by then, so that it can refuse.
2. `Opening.on_ray` starts Ray; `fit` fits the trainings into the cluster; `encode` encodes the corpora.
3. `sweeps.engine.session.worker_group` lends workers; `teach` trains the shadow model, which teaches the attack.
4. `begin` and `run` run one `Training`: recorded in the account before it begins, in MLflow while it runs, and in the
   account after its end. The trials of a search are run by Ray Tune instead (`sweeps.engine.trials`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edp.spec import UserError
from sweeps.config.parts import ResourcesSpec, SearchSpec
from sweeps.config.target_epsilon import check_batches
from sweeps.engine.dying import print_if_killed
from sweeps.engine.placement import Placement, placement
from sweeps.engine.prepare import RunJob, check_encoders, encode_missing, ensure_attack, num_privacy_units, open_corpora
from sweeps.engine.progress import Progress
from sweeps.engine.recorder import Recorder
from sweeps.engine.session import ray_session
from sweeps.store.journal import What
from sweeps.store.storage import Place
from sweeps.tracking.job_run import ARTIFACTS, JobRun
from trainables.config import TrainingSpec, TrialSpec
from trainables.records.epochs import read_ledger
from trainables.records.job import TrialError, TrialJob, TrialResult, TrialStopped
from trainables.records.pareto import Metrics


@dataclass(frozen=True)
class Training:
    """One training, in its own folder: a baseline, one of `train`, or one with a new seed."""

    what: What
    spec: TrialSpec
    folder: Path
    open_run: Callable[[], JobRun]
    """Opens its MLflow run."""
    part: str = ""
    """Its name in its sweep."""
    model: str | None = None
    """Why its model counts as released, in words; None if it does not."""
    artifacts: tuple[str, ...] = ARTIFACTS


class Opening:
    """The corpora and the account of a sweep, or of one training, and the ways to open what its trainings need.

    Args:
        spec: the baseline of the sweep, or the training.
        trials: the trainings whose models and batches are checked.
        with_valid: True to train on the validation utterances too.
        parents: names of the sweeps that the configuration, or the first points of the search, come from.
        alone: True for a training of its own.

    Attributes:
        prepared: paths of the encoded corpora and of the attack.
        read: the corpora that are not encoded yet, by the folder that they will have.
        recorder: writes the account, and refuses what is over the corpus' budget.
        units: training utterances of the corpus, or users if they are the unit.

    Raises:
        UserError: as `sweeps.engine.prepare.open_corpora`; for a batch that does not fit.
    """

    def __init__(
        self,
        place: Place,
        spec: TrialSpec,
        progress: Progress,
        *,
        trials: Sequence[TrialSpec] = (),
        with_valid: bool = False,
        parents: Iterable[str] = (),
        alone: bool = False,
    ) -> None:
        self.place, self.spec, self.progress, self.with_valid = place, spec, progress, with_valid
        check_encoders(trials)
        progress.step("reading the corpora")
        self.prepared, self.read = open_corpora(spec, place.cache, place.folder, progress.say)
        self.units = num_privacy_units(spec, self.prepared, self.read, with_valid)
        if not with_valid:
            check_batches(trials, self.units)
        self.recorder = Recorder(place.folder, spec, progress.say, parents=parents, alone=alone)

    @contextmanager
    def on_ray(self) -> Iterator[None]:
        """Connect to Ray, or start it, while the block runs."""
        self.progress.step("starting Ray")
        again = "this process ended while Ray started; type the command again"
        with print_if_killed(again, self.progress.console) as cancel, ray_session(self.place.log, self.progress.say):
            cancel()
            yield

    def fit(self, what: str, training: TrainingSpec, resources: ResourcesSpec, search: SearchSpec) -> Placement:
        """Fit the trainings into the cluster, and say how.

        Raises:
            UserError: as `sweeps.engine.placement.placement`.
        """
        placed = placement(training, resources, search)
        self.progress.say(f"{what}: {placed.line}; Ray's log: {self.place.log}")
        return placed

    def encode(self, trials: Iterable[TrialSpec] = ()) -> None:
        """Encode the corpora that are not encoded yet, with the frozen states that `trials` read."""
        self.progress.step("encoding the corpora")
        encode_missing(self.spec, self.prepared, self.read, self.progress.say, trials)

    def teach(self, run: RunJob) -> None:
        """Train the shadow model and fit the attack, unless it is fitted."""
        self.progress.step("training the shadow model")
        ensure_attack(self.spec, self.prepared, self.place.folder / "shadow", run, self.progress.epoch)

    def begin(self, training: Training) -> None:
        """Record in the account that a training is about to begin.

        Raises:
            UserError: if another process has spent the corpus' budget since it was checked.
        """
        why = self.recorder.begin(
            training.what, training.spec, units=self.units, folder=training.folder, part=training.part
        )
        if why is not None:
            raise UserError(why)

    def run(self, training: Training, run: RunJob, show: Callable[[int, Metrics], None]) -> tuple[TrialResult, JobRun]:
        """Run a training that `begin` has recorded; return its result and its MLflow run, which has ended.

        Args:
            show: called with each epoch and its metrics.

        Raises:
            TrialError: if it failed.
            TrialStopped: if it was stopped.
        """
        spec, folder, at = training.spec, training.folder, self.prepared
        job = TrialJob(spec, at.corpus, folder, at.attack, at.coins, self.with_valid)
        try:
            with training.open_run() as tracked:

                def on_epoch(epoch: int, metrics: Metrics) -> None:
                    show(epoch, metrics)
                    tracked.epoch(epoch, metrics)

                result = run(job, on_epoch)
                tracked.close(spec, folder, result, artifacts=training.artifacts)
        except TrialStopped:
            raise
        except TrialError:
            self.recorder.end(folder, read_ledger(folder))
            raise
        self.recorder.end(folder, result.ledger, training.model)
        return result, tracked
