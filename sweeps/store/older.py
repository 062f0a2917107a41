"""Trainings that the journal does not have, found by their folders: those that are older, or were copied here.

They are added to what is read, and written to the journal when the next training begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from edp.ledger import Ledger
from edp.spec import UserError
from sweeps.config.canaries import uncovered
from sweeps.config.loading import load_config
from sweeps.store.journal import (
    CONFIRM,
    Begin,
    Corpus,
    Journal,
    Line,
    Release,
    What,
    corpus_of,
    now,
    public_digests,
    read_journal,
)
from sweeps.store.picks import ORIGIN, Origin, read_picks
from sweeps.store.records import known_ledger
from sweeps.store.sweep import Sweep
from trainables.records.epochs import read_curve
from trainables.records.files import read_json_if_any
from trainables.records.journal import read_id, write_id


def whole_journal(storage: Path) -> tuple[Journal, list[tuple[Path, Line]]]:
    """Return the journal with the trainings of folders that it lacks, and the lines and folders of these."""
    places: list[tuple[Path, What]] = [(folder, "train") for folder in sorted(storage.glob("train-*/"))]
    places += [(folder, "trial") for folder in sorted(storage.glob("*/trials/*/"))]
    places += [(folder, "confirm") for folder in sorted(storage.glob(f"*/{CONFIRM}/*/seed-*/"))]
    places = [(folder, what) for folder, what in places if (folder / "config.yaml").is_file()]
    journal, found = read_journal(storage), []  # read last, so that it has what begins meanwhile
    for folder, what in places:
        if id_of(folder, storage) in journal.trainings:
            continue
        try:
            lines = list(_lines(folder, what, storage, journal))
        except (UserError, ValidationError, OSError) as error:
            journal.unread.append(f"cannot be read: {' '.join(str(error).split())}")
            continue
        for line in lines:
            journal.add(line)
            found.append((folder, line))
    return journal, found


def id_of(folder: Path, storage: Path) -> str:
    """Return the id of the training or sweep in a folder; of an older one it follows from the folder's name."""
    return read_id(folder) or f"older-{folder.resolve().relative_to(storage.resolve())}"


def keep_ids(storage: Path, lines: list[tuple[Path, Line]]) -> None:
    """Write the ids of trainings that were taken in, and of their sweeps, so that their folders can be renamed."""
    for folder, line in lines:
        if isinstance(line, Begin):
            sweep = storage / folder.resolve().relative_to(storage.resolve()).parts[0]
            for place, name in ((folder, line.id), (sweep, line.group)):
                if read_id(place) is None:
                    write_id(place, name)


def known_or_none(folder: Path) -> Ledger | None:
    """Return the ledger in a training's folder; None if it is missing, broken or incomplete."""
    try:
        return known_ledger(folder, read_curve(folder))
    except UserError:  # a broken curve
        return None


def _lines(folder: Path, what: What, storage: Path, journal: Journal) -> Iterator[Line]:
    """Yield what the journal would have of the training in `folder`: its corpus, its beginning, and its releases."""
    spec, name = load_config(folder / "config.yaml", []), folder.resolve().relative_to(storage.resolve()).parts[0]
    corpus: Corpus = corpus_of(spec.corpus, journal.corpora, storage)
    if corpus.id not in journal.corpora:
        yield corpus
    own, origin = id_of(folder, storage), read_json_if_any(folder / ORIGIN, Origin)
    models = []
    if origin is not None:
        models = [origin.model or f"final model of {origin.sweep}"]
    elif what == "trial":
        picks = [pick for pick in read_picks(Sweep(storage, name)) if str(pick.trial) == folder.name]
        models = [pick.model for pick in picks if pick.model is not None]
    yield Begin(
        id=own,
        at=now(),
        what=what,
        name=name,
        part="" if what == "train" else f"{what} {folder.name}",
        group=own if what == "train" else id_of(storage / name, storage),
        parents=(id_of(storage / origin.sweep, storage),) if origin is not None else (),
        corpus=corpus.id,
        public=public_digests(spec),
        unit=spec.edp.unit,
        delta=spec.edp.delta,
        ledger=Ledger(private=False) if spec.training.method == "sgd" else known_or_none(folder),
        void=uncovered(spec),
        taken_in=True,
    )
    for model in models:
        yield Release(id=own, at=now(), model=model)
