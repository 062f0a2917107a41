"""Everything in a storage folder that was trained on some corpus: sweeps, confirmations and final trainings."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from edp.ledger import Ledger
from edp.spec import UserError
from sweeps.config.loading import load_config
from sweeps.store.corpora import CORPORA
from sweeps.store.picks import ORIGIN, Origin, read_picks
from sweeps.store.records import known_ledger
from sweeps.store.same_corpus import KnownCorpus
from sweeps.store.sweep import Sweep, all_sweeps
from sweeps.text.figures import enumerated
from trainables.config import TrialSpec
from trainables.corpora.overlap import public_corpora
from trainables.records.epochs import read_curve
from trainables.records.files import read_json_if_any

CONFIRM = "confirm"
"""The folder of a sweep's trainings with new seeds."""
CHECKPOINT = "checkpoint.pt"  # `trainables.training.checkpoint.NAME`, which imports PyTorch
_MAX_NAMED = 5
"""Trainings that a line names; it counts the others."""


@dataclass(frozen=True)
class Activity:
    """Trainings on one corpus that belong together."""

    kind: Literal["sweep", "confirm", "training"]
    name: str
    """Name of the sweep, or of the training's folder."""
    began: float
    """Seconds since the epoch."""
    corpus: KnownCorpus
    public: Mapping[str, KnownCorpus]
    """The corpora that it read as public, by field."""
    delta: float
    """The δ of its recipe."""
    ledgers: tuple[Ledger, ...]
    trainings: int
    """The number of trainings with privacy."""
    """Why no ε covers its trainings, in words; None if one does."""
    lost: str = ""
    """What is unknown of its costs, in words; "" if nothing is."""
    without_privacy: tuple[str, ...] = ()
    """Trainings on the corpus that have no ε, in words."""
    released: tuple[str, ...] = ()
    """Models that were released, in words."""
    chosen_by: str | None = None
    """The sweep that the configuration was picked from."""
    run_ids: frozenset[str] = frozenset()
    """MLflow runs of the models."""
    plain_run_id: str | None = None
    """MLflow run of the baseline."""


def activities(storage: Path, going_on: str | None = None) -> tuple[list[Activity], list[str]]:
    """Return all activities of a storage folder, and the folders that cannot be read, with the reasons.

    Args:
        going_on: name of a sweep or training that is about to go on. Its trainings that are not done continue from
            their checkpoints, so their steps in the checkpoint are left out: they belong to what is planned.
    """
    found: list[Activity] = []
    unreadable: list[str] = []
    places = [functools.partial(_of_sweep, sweep, sweep.name == going_on) for sweep in all_sweeps(storage)]
    for folder in sorted(storage.glob("train-*/")):
        if (folder / "config.yaml").is_file():
            places.append(functools.partial(_of_training, folder, folder.name == going_on))
    for read in places:
        try:
            found += read()
        except (UserError, ValidationError, OSError) as error:
            unreadable.append(" ".join(str(error).split()))
    return found, unreadable


def _of_sweep(sweep: Sweep, going_on: bool) -> Iterator[Activity]:
    """Yield the trials of a sweep, and the trainings of its confirmation."""
    record, recipe = sweep.record, sweep.recipe
    corpus, public = _corpora(sweep.folder, recipe.baseline())
    shared: dict[str, Any] = {"corpus": corpus, "public": public, "delta": recipe.edp.delta}
    try:
        records = sweep.trials()
        trials = {trial.number: trial.ledger for trial in records if trial.state != "refused"}
        open_trials = {trial.number for trial in records if trial.state in ("running", "interrupted")}
        runs = {trial.run_id for trial in records}
        unread = ""
    except UserError:  # its study is gone, but not the ledgers in the trials' folders
        trials = {n: _known_ledger(sweep.trial_folder(n)) for n in sorted(sweep.trial_folders())}
        open_trials, runs, unread = set(), set(), "its study cannot be read, so trials may be missing"
    if going_on:
        trials |= {n: _without_checkpoint(trials[n], sweep.trial_folder(n)) for n in open_trials & trials.keys()}
    lost = [str(number) for number, ledger in trials.items() if ledger is None]
    plain = ["baseline"] if record.baseline is not None or (sweep.folder / "baseline").is_dir() else []
    picks = [f"trial {pick.trial} as {pick.model}" for pick in read_picks(sweep) if pick.model is not None]
    yield Activity(
        kind="sweep",
        name=sweep.name,
        began=sweep.began,
        ledgers=tuple(ledger for ledger in trials.values() if ledger is not None),
        trainings=len(trials),
        lost="; ".join(filter(None, [_missing(f"trial {enumerated(lost, _MAX_NAMED)}" if lost else ""), unread])),
        without_privacy=(*plain, *_attacked(sweep.folder)),
        released=tuple(picks),
        run_ids=frozenset(run for run in runs if run),
        plain_run_id=record.baseline_run_id,
        **shared,
    )
    again = sorted((sweep.folder / CONFIRM).glob("*/seed-*/"))
    if again:
        yield _of_confirmation(sweep, again, going_on, shared)


def _of_confirmation(sweep: Sweep, folders: list[Path], going_on: bool, shared: dict[str, Any]) -> Activity:
    """Return the trainings of `edp-sweep confirm` in `folders`."""
    ledgers = {folder: _known_ledger(folder) for folder in folders}
    if going_on:
        undone = [folder for folder in folders if not (folder / "result.json").is_file()]
        ledgers |= {folder: _without_checkpoint(ledgers[folder], folder) for folder in undone}
    gone = [str(folder.relative_to(sweep.folder)) for folder, ledger in ledgers.items() if ledger is None]
    return Activity(
        kind="confirm",
        name=sweep.name,
        began=min(_changed(folder / "config.yaml") for folder in folders),
        ledgers=tuple(ledger for ledger in ledgers.values() if ledger is not None),
        trainings=len(folders),
        lost=_missing(enumerated(gone, _MAX_NAMED)),
        **shared,
    )


def _of_training(folder: Path, going_on: bool) -> Iterator[Activity]:
    spec = load_config(folder / "config.yaml", [])
    corpus, public = _corpora(folder, spec)
    plain = spec.training.method == "sgd"
    ledger = Ledger() if plain else _known_ledger(folder)
    if going_on:
        ledger = _without_checkpoint(ledger, folder)
    origin = read_json_if_any(folder / ORIGIN, Origin)
    released = ""
    if any(folder.parent.glob(f"*/{folder.name.removeprefix('train-')}.yaml")):
        released = "by its plan"  # `sweeps.commands.release.release` keeps the configuration in the search's folder
    elif origin is not None:
        released = f"as {origin.model}" if origin.model is not None else f"final model of {origin.sweep}"
    yield Activity(
        kind="training",
        name=folder.name,
        began=_changed(folder / CORPORA, folder / "config.yaml"),
        corpus=corpus,
        public=public,
        delta=spec.edp.delta,
        ledgers=(ledger,) if ledger is not None and not plain else (),
        trainings=0 if plain else 1,
        lost="" if ledger is not None else _missing("the training"),
        without_privacy=(*(["training without privacy (sgd)"] if plain else []), *_attacked(folder)),
        released=(released,) if released else (),
        chosen_by=origin.sweep if origin is not None else None,
    )


def _missing(what: str) -> str:
    """Return a clause about trainings whose ledgers are unknown; "" for no trainings."""
    return f"the ledger of {what} is missing, broken or incomplete" if what else ""


def _known_ledger(folder: Path) -> Ledger | None:
    """Return the ledger of a training; None if it is unknown."""
    try:
        return known_ledger(folder, read_curve(folder))
    except UserError:  # a broken curve
        return None


def _without_checkpoint(ledger: Ledger | None, folder: Path) -> Ledger | None:
    """Return what a training that goes on has cost beside its plan: lost steps, and all without a checkpoint."""
    if ledger is None or not (folder / CHECKPOINT).is_file():
        return ledger and ledger.executed
    return ledger.model_copy(update={"entries": (), "not_executed": (), "alpha_release": None})


def _corpora(folder: Path, spec: TrialSpec) -> tuple[KnownCorpus, dict[str, KnownCorpus]]:
    """Return the corpus of a sweep or training, and those that it took as public, with the digests that it kept."""
    kept = read_json_if_any(folder / CORPORA, dict[str, str]) or {}
    public = {field: KnownCorpus(one, kept.get(field)) for field, one in public_corpora(spec).items()}
    return KnownCorpus(spec.corpus, kept.get("corpus")), public


def _attacked(folder: Path) -> list[str]:
    """Return the models that attacks on a sweep or training compared with, in words."""
    kinds = Counter[tuple[int, str]]()
    for file in sorted(folder.rglob("attacks.json")):
        found = read_json_if_any(file, dict[str, Any]) or {}
        kinds[found.get("references", 0), found.get("reference_training", "sgd")] += 1
    how = {"sgd": "without privacy", "own": "as the attacked model, and without a ledger"}
    return [
        f"{models} reference models of {count} attack{'s' * (count > 1)}, trained {how.get(kind, kind)}, and a shadow "
        "model; their losses are kept, not their weights"
        for (models, kind), count in sorted(kinds.items())
    ]


def _changed(*files: Path) -> float:
    """Return when the first of `files` that exists was written, in seconds since the epoch; 0 if none exists."""
    return next((file.stat().st_mtime for file in files if file.is_file()), 0.0)
