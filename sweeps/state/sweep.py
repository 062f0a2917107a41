"""A sweep on disk: its folder, its recipe, and the Optuna study that is the truth about its trials."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState
from pydantic import ValidationError

from edp.spec import UserError
from sweeps.formatting.errors import one_line
from sweeps.formatting.names import check_name, is_name, sqlite_url
from sweeps.formatting.secrets import HIDDEN, redacted
from sweeps.formatting.shell import called, command_line
from sweeps.recipes.loading import read_yaml, write_yaml
from sweeps.recipes.recipe import Recipe
from sweeps.state.lock import is_free, is_held
from sweeps.state.places import relative_store, store_here
from sweeps.state.records import SweepRecord, TrialRecord, number_of, renamed, trial_record
from sweeps.state.storage import brought_down
from sweeps.state.study import StudyGone, read_study
from trainables.records.files import atomic_write, read_json

RECORD, RECIPE = "sweep.json", "recipe.yaml"


class Sweep:
    """The folder `storage/name`.

    Args:
        storage: where sweeps live.
        name: of the sweep.

    Raises:
        UserError: for what cannot be a name.
    """

    def __init__(self, storage: Path, name: str) -> None:
        self.name = check_name("name", name)
        brought_down(storage)
        self.folder = storage.resolve() / name
        self.cache = storage.resolve() / "cache"
        self.log = storage.resolve() / "logs" / f"{name}.log"

    @classmethod
    def new(cls, storage: Path, name: str) -> Sweep:
        """A sweep that is not there yet; nothing is made.

        Raises:
            UserError: when the name is taken or cannot be a folder's.
        """
        if name in ("cache", "encoders", "logs", "mlflow-artifacts"):
            raise UserError(f"name = {name!r} is a folder of the storage's own; choose another")
        sweep = cls(storage, name)
        check_storage(storage)
        if not is_free(sweep.folder):
            way = command_line("resume", name, storage=storage)
            raise UserError(f"name = {name!r}: {sweep.folder} exists; choose another --name, or go on with: {way}")
        return sweep

    @classmethod
    def existing(cls, storage: Path, name: str) -> Sweep:
        """A sweep that was started before.

        Raises:
            UserError: naming the sweeps that there are.
        """
        sweep = cls(storage, name)
        if not any((sweep.folder / file).exists() for file in (RECORD, RECIPE)):
            names, start = [s.name for s in all_sweeps(storage)], command_line("run", "quickstart", storage=storage)
            raise UserError(
                f"name = {name!r}: no sweep of this name in {called(storage)}; "
                f"allowed: {', '.join(names) or f'none yet (start one with: {start})'}"
            )
        return sweep

    @property
    def record(self) -> SweepRecord:
        """What is known of the sweep, read anew: another process may drive it.

        Raises:
            BrokenFile: for a file that is not whole.
        """
        found = read_json(self.folder / RECORD, SweepRecord)
        return found.model_copy(update={"tracking_uri": store_here(found.tracking_uri, self.folder.parent)})

    def save(self, record: SweepRecord) -> None:
        """Replaces the record, in one step. A store in the storage folder moves with it."""
        kept = record.model_copy(update={"tracking_uri": relative_store(record.tracking_uri, self.folder.parent)})
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.folder / RECORD) as partial:
            partial.write_text(kept.model_dump_json(indent=1))

    def update(self, **changes: Any) -> None:
        """Changes some of the record."""
        self.save(self.record.model_copy(update=changes))

    @functools.cached_property
    def recipe(self) -> Recipe:
        """The recipe with all its settings, as it was started.

        Raises:
            UserError: for a file that is not whole.
        """
        path = self.folder / RECIPE
        try:
            return Recipe.model_validate(read_yaml(path))
        except ValidationError as error:
            raise UserError(f"{path} is broken ({one_line(error)}); allowed: the file that was written there") from None

    def save_recipe(self, recipe: Recipe) -> None:
        """Keeps the recipe, with what the command line set."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_yaml(recipe, self.folder / RECIPE, f"The recipe of sweep {self.name}, as it was started.")
        self.recipe = recipe

    def trial_folder(self, number: int) -> Path:
        """Model, ledger and attack features of a trial."""
        return self.folder / "trials" / str(number)

    @property
    def state(self) -> str:
        """That of its record; `interrupted` where that says running, and whoever drove the sweep is gone."""
        state = self.record.state
        return "interrupted" if state == "running" and not is_held(self.folder) else state

    def command(self, command: str, *words: str | Path, tracking_uri: str | None = None) -> str:
        """`edp-sweep COMMAND NAME WORDS…`, to be typed next.

        Args:
            tracking_uri: of the store, where it has moved since the sweep.
        """
        kept = self.record.tracking_uri
        lost = HIDDEN in kept and not os.environ.get("MLFLOW_TRACKING_URI")
        moved = tracking_uri is not None and redacted(tracking_uri) != kept
        told = tracking_uri if moved else kept if lost else None
        return command_line(command, self.name, *words, storage=self.folder.parent, tracking_uri=told)

    def study_url(self, recipe: Recipe) -> str:
        """Of the study's database; variables of the environment are not replaced yet."""
        return recipe.search.study or sqlite_url(self.folder / "study.db")

    def study_name(self, recipe: Recipe) -> str:
        """The study's: in a shared database, other storage folders may have sweeps of this name."""
        return self.name if recipe.search.study is None else f"{self.name}-{self.record.run_id[:8]}"

    def trials(self) -> list[TrialRecord]:
        """All trials, by number. Where nobody drives the sweep, none of them runs: they were interrupted.

        Raises:
            UserError: when the study's database cannot be opened.
        """
        recipe = self.recipe
        records = self.records(self.told(recipe))
        if not is_held(self.folder):
            records = [replace(r, state="interrupted") if r.state == "running" else r for r in records]
        return self._released(records) if recipe.search.secret else records

    def records(self, trials: list[FrozenTrial]) -> list[TrialRecord]:
        """What is known of trials of the study; of those that have not started, nothing is.

        Raises:
            UserError: for what no driver has told the study.
        """
        waiting = {number_of(trial) for trial in trials if trial.state == TrialState.WAITING}
        found = [trial for trial in trials if trial.state != TrialState.WAITING]
        # An interrupted trial goes on as another one of the study, as soon as that is asked for. Of one that was
        # interrupted more than once, the last try says what is known.
        own = [t for t in found if t.user_attrs.get("state") != "interrupted" or number_of(t) in waiting]
        own = list({number_of(t): t for t in own}.values())
        try:
            records = [trial_record(trial, self.trial_folder(number_of(trial)), self.recipe) for trial in own]
        except StudyGone as broken:
            raise self._gone(f"{broken}") from None
        # A run that MLflow took only after the trial had ended is not in the study.
        late = self.synced_runs()
        records = [r if r.run_id else replace(r, run_id=late.get(r.number)) for r in records]
        return sorted(records, key=lambda record: record.number)

    def told(self, recipe: Recipe) -> list[FrozenTrial]:
        """All trials as Optuna keeps them; none where there is no study yet.

        Raises:
            UserError: where the study cannot be read, or lacks trials that have left a folder.
        """
        folders = self.trial_folders()
        try:
            found = read_study(self.study_url(recipe), self.study_name(recipe))
        except StudyGone as gone:
            if not folders and self.record.examples is None:
                return []  # not made yet
            raise self._gone(f"{gone}, but trials were run") from None
        if lacking := sorted(folders - {number_of(trial) for trial in found}):
            some = ", ".join(map(str, lacking[:8])) + (", …" if len(lacking) > 8 else "")
            raise self._gone(f"its study lacks trials that have left a folder ({some})")
        return found

    def _gone(self, what: str) -> UserError:
        way = command_line("repair", self.name, storage=self.folder.parent)
        return UserError(f"name = {self.name!r}: {what}; rebuild the study from the trials' folders with: {way}")

    def trial_folders(self) -> set[int]:
        """Numbers of the folders that trials have left."""
        found = (self.folder / "trials").glob("*/")
        return {int(place.name) for place in found if re.fullmatch(r"0|[1-9]\d{0,8}", place.name)}

    def synced_runs(self) -> dict[int, str]:
        """Return the MLflow run ids of the trials that MLflow has completely, by number (`sweeps.tracking.backfill`).

        Raises:
            BrokenFile: if the file is incomplete.
        """
        path = self.folder / "tracked.json"
        return read_json(path, dict[int, str]) if path.exists() else {}

    def _released(self, records: list[TrialRecord]) -> list[TrialRecord]:
        """The best trial alone, and that only when all have ended: what the bound on its ε assumes.

        Its validation SER chose it: a test SER that chooses is no longer a test.
        """
        if self.record.state != "finished":
            return []
        complete = [record for record in records if record.state == "complete"]
        best = sorted(complete, key=lambda record: record.curve[-1]["valid_ser"])[:1]
        # Its number would say something of how many there were.
        return [renamed(record, 0, self.record.released_run_id) for record in best]


def check_storage(storage: Path) -> None:
    """Makes a storage folder, where it is not there.

    Raises:
        UserError: when it cannot be made.
    """
    brought_down(storage)
    try:
        (storage / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"storage = {str(storage)!r}: {error.strerror}; allowed: a folder that can be written"
        ) from None


def all_sweeps(storage: Path) -> list[Sweep]:
    """Every sweep in `storage`, by name, also one that has lost a file."""
    brought_down(storage)
    names = {path.parent.name for file in (RECORD, RECIPE) for path in storage.glob(f"*/{file}")}
    return [Sweep(storage, name) for name in sorted(names) if is_name(name)]


def newest(storage: Path) -> Sweep | None:
    """The sweep that was started last; None where there is none."""

    def started(sweep: Sweep) -> float:
        recipe = sweep.folder / RECIPE  # is written once
        return recipe.stat().st_mtime if recipe.is_file() else 0.0

    return max(all_sweeps(storage), key=started, default=None)
