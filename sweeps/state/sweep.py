"""A sweep on disk: its folder, its recipe, and the Optuna study that is the truth about its trials."""

from __future__ import annotations

import functools
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from edp.spec import UserError
from sweeps.formatting.secrets import redacted
from sweeps.recipes.loading import read_yaml, write_yaml
from sweeps.recipes.parts import objective_values
from sweeps.recipes.recipe import Recipe
from sweeps.state.records import SweepRecord, TrialRecord, folder_number, renamed, trial_record
from trainables.records.files import atomic_write

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Sweep:
    """The folder `storage/name`.

    Args:
        storage: where sweeps live.
        name: of the sweep.
    """

    def __init__(self, storage: Path, name: str) -> None:
        self.name, self.folder = name, storage.resolve() / name
        self.cache = storage.resolve() / "cache"
        self.log = storage.resolve() / "logs" / f"{name}.log"

    @classmethod
    def new(cls, storage: Path, name: str) -> Sweep:
        """A sweep that is not there yet; nothing is made.

        Raises:
            UserError: when the name is taken or cannot be a folder's.
        """
        if not _NAME.fullmatch(name):
            raise UserError(f"name = {name!r}: allowed: letters, digits, '.', '_' and '-', at most 100")
        if name in ("cache", "encoders", "logs", "mlflow-artifacts"):
            raise UserError(f"name = {name!r} is a folder of the storage's own; choose another")
        sweep = cls(storage, name)
        check_storage(storage)
        if sweep.folder.exists():
            raise UserError(
                f"name = {name!r}: {sweep.folder} exists; choose another --name, or go on with: edp-sweep resume {name}"
            )
        return sweep

    @classmethod
    def existing(cls, storage: Path, name: str) -> Sweep:
        """A sweep that was started before.

        Raises:
            UserError: naming the sweeps that there are.
        """
        sweep = cls(storage, name)
        if not (sweep.folder / "sweep.json").is_file():
            names = [s.name for s in all_sweeps(storage)]
            raise UserError(
                f"name = {name!r}: no sweep of this name in {storage}; "
                f"allowed: {', '.join(names) or 'none yet (start one with: edp-sweep run quickstart)'}"
            )
        return sweep

    @property
    def record(self) -> SweepRecord:
        """What is known of the sweep."""
        return SweepRecord.model_validate_json((self.folder / "sweep.json").read_text())

    def save(self, record: SweepRecord) -> None:
        """Replaces the record, in one step."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.folder / "sweep.json") as partial:
            partial.write_text(record.model_dump_json(indent=1))

    def update(self, **changes: Any) -> None:
        """Changes some of the record."""
        self.save(self.record.model_copy(update=changes))

    @functools.cached_property
    def recipe(self) -> Recipe:
        """The recipe with all its settings, as it was started."""
        return Recipe.model_validate(read_yaml(self.folder / "recipe.yaml"))

    def save_recipe(self, recipe: Recipe) -> None:
        """Keeps the recipe, with what the command line set."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_yaml(recipe, self.folder / "recipe.yaml", f"The recipe of sweep {self.name}, as it was started.")
        self.recipe = recipe

    def trial_folder(self, number: int) -> Path:
        """Model, ledger and attack features of a trial."""
        return self.folder / "trials" / str(number)

    def study_url(self, recipe: Recipe) -> str:
        """Of the study's database; variables of the environment are not replaced yet."""
        return recipe.search.study or f"sqlite:///{self.folder / 'study.db'}"

    def study_name(self, recipe: Recipe) -> str:
        """The study's: in a shared database, other storage folders may have sweeps of this name."""
        return self.name if recipe.search.study is None else f"{self.name}-{self.record.run_id[:8]}"

    def trials(self) -> list[TrialRecord]:
        """All trials, by number.

        Raises:
            UserError: when the study's database cannot be opened.
        """
        recipe = self.recipe
        records = self.records(self.told(recipe))
        return self._released(records) if recipe.search.secret else records

    def records(self, trials: list[FrozenTrial]) -> list[TrialRecord]:
        """What is known of trials of the study; of those that have not started, nothing is."""
        found = [trial for trial in trials if trial.state != TrialState.WAITING]
        # An interrupted trial goes on under a new number.
        own = [trial for trial in found if trial.user_attrs.get("state") != "interrupted"]
        records = [trial_record(trial, self.trial_folder(folder_number(trial))) for trial in own]
        # A run that MLflow took only after the trial had ended is not in the study.
        late = self.late_runs()
        return [r if r.run_id else replace(r, run_id=late.get(str(r.number))) for r in records]

    def told(self, recipe: Recipe) -> list[FrozenTrial]:
        """All trials as Optuna keeps them; none where the study is not there yet.

        Raises:
            UserError: when the study's database cannot be opened.
        """
        if recipe.search.study is None and not (self.folder / "study.db").is_file():
            return []
        try:
            storage = study_storage(self.study_url(recipe))
            study = optuna.load_study(study_name=self.study_name(recipe), storage=storage)
        except KeyError:  # not created yet
            return []
        return study.get_trials(deepcopy=False)

    def late_runs(self) -> dict[str, str]:
        """Run ids of the trials that MLflow has whole, by number (`sweeps.tracking.backfill`)."""
        path = self.folder / "tracked.json"
        found: dict[str, str] = json.loads(path.read_text()) if path.is_file() else {}
        return found

    def _released(self, records: list[TrialRecord]) -> list[TrialRecord]:
        """The best trial alone, and that only when all have ended: what the bound on its ε assumes."""
        if self.record.state != "finished":
            return []
        (objective,) = self.recipe.search.objectives
        complete = [record for record in records if record.state == "complete"]
        best = sorted(complete, key=lambda record: objective_values((objective,), record.metrics))[:1]
        # Its number would say something of how many there were.
        return [renamed(record, 0, self.record.released_run_id) for record in best]


def study_storage(url: str) -> RDBStorage:
    """The database behind `url`, in which variables of the environment are replaced; its tables are made where missing.

    Raises:
        UserError: when it cannot be opened.
    """
    try:
        return RDBStorage(os.path.expandvars(url), heartbeat_interval=None, engine_kwargs={"pool_pre_ping": True})
    except (ImportError, SQLAlchemyError) as error:
        reason = redacted(" ".join(str(error).split()), os.path.expandvars(url))[:200]
        raise UserError(
            f"search.study = {url!r} cannot be opened; allowed: a database URL whose driver is installed ({reason})"
        ) from None


def check_storage(storage: Path) -> None:
    """Makes a storage folder, where it is not there.

    Raises:
        UserError: when it cannot be made.
    """
    try:
        (storage / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"storage = {str(storage)!r}: {error.strerror}; allowed: a folder that can be written"
        ) from None


def folder_name(text: str) -> str:
    """`text` as part of a sweep's name: what may not stand there becomes a dash."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:60].strip("-.") or "sweep"


def all_sweeps(storage: Path) -> list[Sweep]:
    """Every sweep in `storage`, by name."""
    return [Sweep(storage, path.parent.name) for path in sorted(storage.glob("*/sweep.json"))]
