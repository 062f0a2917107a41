"""A sweep on disk: its folder, its recipe, and the Optuna study that is the truth about its trials."""

from __future__ import annotations

import functools
import logging
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

import optuna
from optuna.trial import FrozenTrial, TrialState
from pydantic import ValidationError

from edp.ledger import Ledger
from edp.spec import UserError
from sweeps.config.loading import read_yaml, write_yaml
from sweeps.config.recipe import Recipe
from sweeps.store.lock import is_held
from sweeps.store.records import REPEATED, SweepRecord, TrialRecord, known_ledger, number_of, trial_record
from sweeps.store.storage import Place, relative_store, store_here
from sweeps.store.study import StudyGone, read_study, restore
from sweeps.store.unchanged import check_settings
from sweeps.text.errors import one_line
from sweeps.text.paths import is_name, sqlite_url
from sweeps.text.secrets import HIDDEN, redacted
from sweeps.text.terminal import command_line
from trainables.records.epochs import LEDGER, write_ledger
from trainables.records.files import BrokenFile, read_json, write_json

RECORD, RECIPE = "sweep.json", "recipe.yaml"

Used = TypeVar("Used")
_note_once = functools.cache(logging.getLogger(__name__).warning)


class Sweep(Place):
    """A sweep's folder."""

    def __init__(self, storage: Path, name: str) -> None:
        super().__init__(storage, name)
        self.study_copy = self.folder / "study-copy.db"
        """The second copy of `study.db`: before each trial's folder is made, and after each trial's end."""

    def __repr__(self) -> str:
        """Return the sweep's name, folder and state. It must not raise: debuggers and notebooks call it."""
        try:
            state = self.state
        except UserError:
            state = "unreadable"
        return f"<Sweep {self.name}: {state}, in {self.folder}>"

    @classmethod
    def existing(cls, storage: Path, name: str) -> Self:
        """Return a sweep that was started before.

        Raises:
            UserError: naming the sweeps of the storage folder, if this one is not among them.
        """
        sweep = cls(storage, name)
        if not any((sweep.folder / file).exists() for file in (RECORD, RECIPE)):
            names, start = [s.name for s in all_sweeps(storage)], command_line("run", "quickstart", storage=storage)
            raise UserError(
                f"name = {name!r}: no sweep of this name in {storage}; "
                f"allowed: {', '.join(names) or f'none yet (start one with: {start})'}"
            )
        return sweep

    @property
    def record(self) -> SweepRecord:
        """The sweep's record, read each time: another process may drive the sweep.

        Raises:
            BrokenFile: for a file that is incomplete.
        """
        found = read_json(self.folder / RECORD, SweepRecord)
        return found.model_copy(update={"tracking_uri": store_here(found.tracking_uri, self.folder.parent)})

    def save(self, record: SweepRecord) -> None:
        """Replace the record, in one step. A tracking store in the storage folder is kept by its relative path."""
        kept = record.model_copy(update={"tracking_uri": relative_store(record.tracking_uri, self.folder.parent)})
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / RECORD, kept)

    def update(self, **changes: Any) -> None:
        """Change fields of the record."""
        self.save(self.record.model_copy(update=changes))

    @functools.cached_property
    def recipe(self) -> Recipe:
        """The recipe with the settings that the sweep was started with.

        Raises:
            UserError: for a file that is incomplete, or was changed since the sweep began.
        """
        path = self.folder / RECIPE
        try:
            recipe = Recipe.model_validate(read_yaml(path))
        except ValidationError as error:
            raise UserError(f"{path} is broken ({one_line(error)}); allowed: the file that was written there") from None
        with suppress(BrokenFile):  # reported where the record itself is read
            check_settings(self.record.settings, recipe, path)
        return recipe

    def save_recipe(self, recipe: Recipe) -> None:
        """Write the recipe, with the settings of the command line."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_yaml(recipe, self.folder / RECIPE, f"The recipe of sweep {self.name}, as it was started.")
        self.recipe = recipe

    @property
    def began(self) -> float:
        """The time at which the sweep was started, in seconds since the epoch; 0 if its recipe is lost."""
        recipe = self.folder / RECIPE  # is written once
        return recipe.stat().st_mtime if recipe.is_file() else 0.0

    def trial_folder(self, number: int) -> Path:
        """Return the folder of a trial's model, ledger and attack features."""
        return self.folder / "trials" / str(number)

    @property
    def state(self) -> str:
        """The record's state; `interrupted` if that is `running` but the sweep has no driver."""
        state = self.record.state
        return "interrupted" if state == "running" and not is_held(self.folder) else state

    def command(self, command: str, *words: str | Path, tracking_uri: str | None = None) -> str:
        """Return `edp-sweep COMMAND NAME WORDS…` as a next step.

        Args:
            tracking_uri: of the store, if it has moved since the sweep.
        """
        kept = self.record.tracking_uri
        lost = HIDDEN in kept and not os.environ.get("MLFLOW_TRACKING_URI")  # the record keeps no password
        moved = tracking_uri is not None and redacted(tracking_uri) != kept
        named = tracking_uri if moved else kept if lost else None
        return command_line(command, self.name, *words, storage=self.folder.parent, tracking_uri=named)

    def study_url(self, recipe: Recipe) -> str:
        """Return the URL of the study's database, without replacing its environment variables."""
        return recipe.search.study or sqlite_url(self._study_file)

    @property
    def _study_file(self) -> Path:
        return self.folder / "study.db"

    def study_name(self, recipe: Recipe) -> str:
        """Return the study's name, unique in a database that several storage folders share."""
        if recipe.search.study is None:
            return self.name
        record = self.record
        return record.study or f"{self.name}-{record.run_id[:8]}"

    def trials(self) -> list[TrialRecord]:
        """Return all trials by number. A running trial of a sweep without a driver is `interrupted`.

        Raises:
            UserError: as `told`.
        """
        records = self._read(lambda _, trials: self.records(trials))
        if not is_held(self.folder):
            records = [replace(r, state="interrupted") if r.state == "running" else r for r in records]
        return records

    def records(self, trials: list[FrozenTrial]) -> list[TrialRecord]:
        """Return the records of a study's trials that have started.

        Raises:
            StudyGone: for attributes that no driver wrote.
        """
        waiting = {number_of(trial) for trial in trials if trial.state == TrialState.WAITING}
        # An interrupted trial resumes as another trial of the study. The latest try of each number has the record.
        own = [t for t in _started(trials) if t.user_attrs.get("state") != "interrupted" or number_of(t) in waiting]
        own = list({number_of(t): t for t in own}.values())
        runs = self.record.runs
        records = [trial_record(trial, self.trial_folder(number_of(trial)), self.recipe, runs) for trial in own]
        return sorted(records, key=lambda record: record.number)

    def told(self) -> list[FrozenTrial]:
        """Return all trials as Optuna stores them; none if there is no study yet.

        A study that is missing, broken or lacks trials that have left a folder is read from its copy, with one note.

        Raises:
            UserError: if neither can be read.
        """
        return self._read(lambda _, trials: trials)

    @property
    def study(self) -> optuna.Study:
        """Optuna's study of the trials, to be read: the sweep's driver alone writes to it.

        Raises:
            UserError: as `told`, and before the first trial.
        """
        if (found := self._read(lambda study, _: study)) is None:
            raise UserError(f"name = {self.name!r} has no study yet; allowed: a sweep whose trials have begun")
        return found

    def _read(self, use: Callable[[optuna.Study | None, list[FrozenTrial]], Used], *, restored: bool = False) -> Used:
        """Return what `use` makes of the study and its trials; of None and no trials if there is no study yet.

        Args:
            restored: whether to write a study that is gone again from its copy.
        """
        try:
            return use(*self._study_in(self.study_url(self.recipe)))
        except StudyGone as gone:
            if not self.trial_folders() and self.record.examples is None:
                return use(None, [])
            try:
                found = use(*self._study_in(sqlite_url(self.study_copy)))
            except StudyGone:
                raise self._gone(f"{gone}") from None
            _note_once(f"{gone}: its copy {self.study_copy.name} is read; `{self.command('resume')}` writes it again")
            if restored:
                restore(self._study_file, self.study_copy)
            return found

    def _study_in(self, url: str) -> tuple[optuna.Study, list[FrozenTrial]]:
        """Return the study in a database, and its trials.

        Raises:
            StudyGone: also if it lacks trials that have left a folder.
        """
        study, found = read_study(url, self.study_name(self.recipe))
        if lacking := sorted(self.trial_folders() - {number_of(trial) for trial in _started(found)}):
            some = ", ".join(map(str, lacking[:8])) + (", …" if len(lacking) > 8 else "")
            raise StudyGone(f"its study lacks trials that have left a folder ({some})")
        return study, found

    def _gone(self, what: str) -> UserError:
        place = self.recipe.search.study
        allowed = f"{self._study_file} from a backup" if place is None else f"{place} from its database's own backup"
        return UserError(f"name = {self.name!r}: {what}; allowed: {allowed}")

    def trial_folders(self) -> set[int]:
        """Return the numbers of the trials' folders."""
        found = (self.folder / "trials").glob("*/")
        return {int(place.name) for place in found if re.fullmatch(r"0|[1-9]\d{0,8}", place.name)}

    def restore(self) -> None:
        """Restore a lost study from its copy, and lost ledgers from the study.

        Raises:
            UserError: as `told`.
        """
        self._read(lambda _, trials: self.records(trials), restored=True)
        for trial in self.told():
            copy, folder = trial.user_attrs.get("ledger"), self.trial_folder(number_of(trial))
            wrote = trial.user_attrs.get("digests", {}).get(LEDGER)
            if copy is not None and known_ledger(folder, trial.user_attrs.get("epochs", []), wrote) is None:
                write_ledger(Ledger.model_validate_json(copy), folder)


def _started(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials that have begun to run, or were refused."""
    return [t for t in trials if t.state != TrialState.WAITING and t.user_attrs.get("state") != REPEATED]


def all_sweeps(storage: Path) -> list[Sweep]:
    """Return every sweep in `storage` by name, including those that have lost a file."""
    names = {path.parent.name for file in (RECORD, RECIPE) for path in storage.glob(f"*/{file}")}
    return [Sweep(storage, name) for name in sorted(names) if is_name(name)]


def newest(storage: Path) -> Sweep | None:
    """Return the sweep that was started last, None if there is none."""
    return max(all_sweeps(storage), key=lambda sweep: sweep.began, default=None)
