"""`edp-sweep repair`: make a study that is missing or broken anew, from the folders of its trials."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from edp.ledger import Ledger
from edp.spec import UserError
from sweeps.commands.console import out, print_json
from sweeps.commands.options import RUNS, Json, Name, Storage, named
from sweeps.config.loading import read_yaml
from sweeps.config.recipe import Recipe
from sweeps.config.space import PAPER_SPACE
from sweeps.store.lock import driver_lock
from sweeps.text.paths import sqlite_url
from sweeps.text.terminal import print_line
from trainables.config import TrialSpec
from trainables.records.epochs import LEDGER, read_curve, write_ledger
from trainables.records.files import BrokenFile

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from sweeps.store.sweep import Sweep

_GONE = "its figures were in the study only, which is gone"
_GAP = 1_000
"""Largest difference of a trial's number from the largest folder's number. Each interruption takes a number."""


def repair_command(name: Name = None, storage: Storage = RUNS, as_json: Json = False) -> None:
    """Make a sweep's study anew from its trials' folders if study.db is missing or broken, and say what is lost."""
    found = repair(named(storage, name, with_end=False))
    if as_json:
        print_json(found)
        return
    counts = ", ".join(f"{n} {state}" for state, n in found["trials"].items()) or "no trials"
    lines = [f"{'rebuilt the study' if found['rebuilt'] else 'the study is whole'}: {counts}"]
    if found["kept"] is not None:
        lines.append(f"the file that was there is now {found['kept']}")
    if found["ledgers"]:
        lines.append(f"wrote back the ledgers of trials {', '.join(map(str, found['ledgers']))}")
    for line in (*lines, *(f"lost: {what}" for what in found["lost"])):
        print_line(out, line)


def repair(sweep: Sweep) -> dict[str, Any]:
    """Make the study of a sweep anew if it is missing or lacks trials. Restore missing ledgers from their copies in it.

    The old study is kept under another name. Configurations that were refused or still wait have no folder. The former
    cost nothing, and `resume` queues the latter again.

    Returns:
        The document that `edp-sweep repair --json` prints: `trials` by state, `rebuilt`, `kept` (the old file's new
        place), `ledgers` (trials whose ledger was restored), and `lost` (what could not be restored, in words).

    Raises:
        UserError: if the sweep runs, its recipe or record is broken, another process has locked the study, it cannot
            be read for want of memory or disk, or it is in a database that others share.
    """
    from sweeps.store.records import number_of
    from sweeps.store.study import check_unlocked

    with driver_lock(sweep.folder, sweep.name):
        recipe = sweep.recipe
        check_unlocked(sweep.study_url(recipe))
        lost = _set_aside(sweep)
        known = _readable(sweep, recipe)
        whole = known is not None and sweep.trial_folders() <= {number_of(trial) for trial in known}
        kept = None
        if not whole:
            trials = _from_folders(sweep, recipe, known or [], lost)
            kept = _replace(sweep, recipe, trials, known is not None)
        ledgers = _write_back(sweep, known or [])
        records = sweep.trials()
        if recipe.search.secret:  # the trials' numbers would reveal how many there are
            lost, ledgers = ["the figures of some trials, or files that their folders held"] if lost else [], []
        lost += [f"trial {t.number}: its ledger; the sweep's ε stays unknown" for t in records if t.ledger is None]
    return {
        "sweep": sweep.name,
        "rebuilt": not whole,
        "trials": dict(Counter(record.state for record in records)),
        "kept": str(kept) if kept is not None else None,
        "ledgers": ledgers,
        "lost": lost,
    }


def _set_aside(sweep: Sweep) -> list[str]:
    """Rename broken files that the sweep can do without, and return what is lost by it.

    They are the list of what MLflow has, which `resume` finds out again, and curves, which no ε depends on.
    """
    folders = [sweep.trial_folder(number) for number in sorted(sweep.trial_folders())]
    reads: list[tuple[Callable[[], object], Path]] = [(sweep.synced_runs, sweep.folder / "tracked.json")]
    reads += [(functools.partial(read_curve, folder), folder / "curve.json") for folder in folders]
    lost = []
    for read, place in reads:
        try:
            read()
        except BrokenFile as broken:
            _aside(place)
            lost.append(str(broken))
    return lost


def _aside(place: Path) -> Path:
    """Rename a file to a free name in the same folder, and return the new path."""
    free = (place.with_name(f"{place.name}.broken-{i}") for i in itertools.count(1))
    return place.rename(next(other for other in free if not other.exists()))


def _readable(sweep: Sweep, recipe: Recipe) -> list[FrozenTrial] | None:
    """Return the study's trials; None if they cannot be read."""
    from sweeps.store.study import StudyGone, read_study

    if sweep.released.is_dir():
        return sweep.told(recipe)
    try:
        found = read_study(sweep.study_url(recipe), sweep.study_name(recipe))
    except StudyGone:
        return None
    try:
        sweep.records(found)
    except UserError:  # of attributes that no driver wrote
        if recipe.search.study is not None:
            raise
        return None
    return found


def _from_folders(sweep: Sweep, recipe: Recipe, known: list[FrozenTrial], lost: list[str]) -> list[FrozenTrial]:
    """Return all trials, ordered by number: from the folders, else from the study, else an empty placeholder."""
    from optuna.trial import TrialState, create_trial

    folders = sorted(sweep.trial_folders())
    found: dict[int, FrozenTrial] = {}
    for number in folders:
        trial = _from_folder(sweep, recipe, number, folders[-1] + _GAP, lost)
        found[trial.number] = trial
    for trial in known:
        found.setdefault(trial.number, trial)
    empty = create_trial(state=TrialState.FAIL, user_attrs={"state": "interrupted"})
    return [found.get(number, empty) for number in range(max(found, default=-1) + 1)]


def _from_folder(sweep: Sweep, recipe: Recipe, number: int, most: int, lost: list[str]) -> FrozenTrial:
    """Return the trial of a folder, without its figures if its file is missing or broken.

    Args:
        most: largest number that the trial may have.
        lost: gets a line for each loss.
    """
    from optuna.trial import TrialState, create_trial

    from sweeps.store.records import known_ledger, number_of
    from sweeps.store.trial_file import read_trial

    folder = sweep.trial_folder(number)
    trial: FrozenTrial | None = None
    try:
        trial = read_trial(folder)
        if trial is not None and not (number_of(trial) == number <= trial.number <= most and _fits(trial, recipe)):
            raise BrokenFile(f"{folder} holds the file of another trial")
    except BrokenFile as broken:
        trial = None
        lost.append(f"trial {number}: {broken}")
    if trial is None:
        lost.append(f"trial {number}: {_GONE}; its ledger counts in the sweep's ε")
        trial = create_trial(state=TrialState.FAIL, user_attrs=_configuration(folder, recipe) | {"reason": _GONE})
        trial.number = number
    curve = read_curve(folder)
    if trial.state != TrialState.RUNNING:
        trial.user_attrs["epochs"] = curve
        ledger = known_ledger(folder, curve, trial.user_attrs.get("digests", {}).get(LEDGER))
        if ledger is not None:
            trial.user_attrs["ledger"] = ledger.model_dump_json()
    return trial


def _fits(trial: FrozenTrial, recipe: Recipe) -> bool:
    """Return True if a complete trial has a value for each objective."""
    return trial.state.name != "COMPLETE" or len(trial.values) == len(recipe.search.objectives)


def _configuration(folder: Path, recipe: Recipe) -> dict[str, Any]:
    """Return a trial's searched parameters and, if it was an initial point, the point's place, from `config.yaml`."""
    from sweeps.run.study import INITIAL_POINT

    try:
        spec = TrialSpec.model_validate(read_yaml(folder / "config.yaml"))
        names = {name: f"edp.{name}" for name in PAPER_SPACE} | {n: n for n in recipe.dimensions if "." in n}
        params = {name: attrgetter(path)(spec) for name, path in names.items()}
    except (UserError, ValidationError, AttributeError):
        return {}
    points = [{name.partition("_")[0]: value for name, value in p.items()} for p in recipe.initial_points()]
    place = next((i for i, point in enumerate(points) if point.items() <= params.items()), None)
    return {"params": params} | ({} if place is None else {INITIAL_POINT: place})


def _replace(sweep: Sweep, recipe: Recipe, trials: list[FrozenTrial], there: bool) -> Path | None:
    """Put a study of `trials` in place of the sweep's study, and return the old file's new place."""
    if recipe.search.study is not None:
        if there:
            raise UserError(
                f"name = {sweep.name!r}: its study in {recipe.search.study} lacks trials, and other sweeps may use "
                "this database, so it is not replaced; allowed: restore the database from a backup"
            )
        _fill(recipe.search.study, sweep.study_name(recipe), recipe, trials)
        return None
    place, made = sweep.folder / "study.db", sweep.folder / "study.db.rebuilt"
    made.unlink(missing_ok=True)
    _fill(sqlite_url(made), sweep.study_name(recipe), recipe, trials)
    kept = _aside(place) if place.exists() or place.is_symlink() else None
    for rest in (
        "-journal",
        "-wal",
        "-shm",
    ):  # they belong to the old file, and SQLite would replay them into the new one
        place.with_name(place.name + rest).unlink(missing_ok=True)
    made.rename(place)
    return kept


def _fill(url: str, name: str, recipe: Recipe, trials: list[FrozenTrial]) -> None:
    """Make a study of `trials` in a database."""
    import optuna

    from sweeps.store.study import study_storage

    storage = study_storage(url)
    study = optuna.create_study(
        study_name=name, storage=storage, directions=["minimize"] * len(recipe.search.objectives)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.add_trials(trials)
    storage.engine.dispose()


def _write_back(sweep: Sweep, known: list[FrozenTrial]) -> list[int]:
    """Write the study's copy of a ledger to each folder that has lost its own, and return the trials' numbers."""
    from sweeps.store.records import known_ledger, number_of

    found = []
    for trial in known:
        copy, folder = trial.user_attrs.get("ledger"), sweep.trial_folder(number_of(trial))
        wrote = trial.user_attrs.get("digests", {}).get(LEDGER)
        if copy is None or known_ledger(folder, trial.user_attrs.get("epochs", []), wrote) is not None:
            continue
        write_ledger(Ledger.model_validate_json(copy), folder)
        found.append(trial.number)
    return found
