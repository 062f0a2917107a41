"""The account of a storage folder as it is kept: `account.jsonl`, a line for each thing that happened.

A training has a line before it begins, with its planned ledger, and one when it ends, with its ledger. One that begins
and does not end counts as planned. A training that is resumed keeps its id, so its lines are of one training. Each
released model has a line that names its training. A corpus has one line, with the corpora that share utterances with
it, and with its users as HMACs by a secret key of the folder: the same person is found in another corpus by them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from edp.ledger import Ledger
from edp.spec import Frozen, Unit, UserError
from trainables.config import CorpusSpec, TrialSpec
from trainables.corpora import corpus_digest, is_generated, load_corpus
from trainables.corpora.overlap import hashes_of, is_shared
from trainables.records.files import atomic_write
from trainables.records.journal import JOURNAL, append, cut, locked, read_id

CONFIRM = "confirm"
"""The folder of a sweep's trainings with new seeds."""
KEY = "account.key"
_WHOLE = {"schema": None, "seed": 0, "utterances": None, "split": "paper", "budget": None}
"""Settings of a corpus without schema, sample and split."""

What = Literal["trial", "baseline", "confirm", "train", "attack"]


class Corpus(Frozen):
    """A corpus that was trained on, whatever sample and split."""

    kind: Literal["corpus"] = "corpus"
    id: str
    spec: CorpusSpec
    digest: str
    same: tuple[str, ...] = ()
    """Ids of earlier corpora of which more than 1 % of the utterances of either are in the other one."""
    unknown: tuple[str, ...] = ()
    """Ids of earlier corpora whose files were gone, so that they could not be compared."""
    users: tuple[str, ...] = ()
    """HMACs of its users; () if they are not named."""
    key: str = ""
    """Digest of the key of these HMACs."""
    most_of_a_user: int | None = None


class Begin(Frozen):
    """A training that is about to begin."""

    kind: Literal["begin"] = "begin"
    id: str
    at: str
    """UTC, ISO 8601."""
    what: What
    name: str
    """Name of the sweep, or of the training's folder."""
    part: str = ""
    """The training's name in the sweep."""
    group: str
    """Id of the sweep; of a training without a sweep its own."""
    parents: tuple[str, ...] = ()
    """Ids of the sweeps that its configuration, or the first points of its search, come from."""
    corpus: str
    """Id of the corpus."""
    public: dict[str, str] = Field(default_factory=dict)
    """Digests of the corpora that it reads as public, by field."""
    unit: Unit
    delta: float
    ledger: Ledger
    """The planned ledger."""


class End(Frozen):
    """The end of a training, with the steps that ran and those that were planned and did not."""

    kind: Literal["end"] = "end"
    id: str
    at: str
    ledger: Ledger


class Discarded(Frozen):
    """All steps that a training has lost so far, written as it goes on without them."""

    kind: Literal["discarded"] = "discarded"
    id: str
    ledgers: tuple[Ledger, ...]


class Release(Frozen):
    """A model of a training that was released."""

    kind: Literal["release"] = "release"
    id: str
    at: str
    model: str
    """`models:/NAME/VERSION`, or the reason why it counts as released."""


class Older(Frozen):
    """Folders of trainings that the journal did not have when this line was added: older ones, or copies."""

    kind: Literal["older"] = "older"
    folders: tuple[str, ...]


class Lost(Frozen):
    """A remark that the journal had lost lines when this one was added."""

    kind: Literal["lost"] = "lost"
    text: str


Line = Corpus | Begin | End | Discarded | Release | Older | Lost
_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])


@dataclass
class Training:
    """What the journal says of one training."""

    begin: Begin
    ledger: Ledger
    """The ledger that it counts with."""
    models: list[str] = field(default_factory=list)


@dataclass
class Journal:
    """The contents of a journal."""

    corpora: dict[str, Corpus] = field(default_factory=dict)
    """By id, as are the trainings."""
    trainings: dict[str, Training] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    """What is missing of the journal, in words."""
    older: set[str] = field(default_factory=set)
    """Folders of trainings that it does not have."""

    def add(self, line: Line) -> None:
        """Add what one more line says."""
        if isinstance(line, Corpus):
            self.corpora[line.id] = line
        elif isinstance(line, Older):
            self.older.update(line.folders)
        elif isinstance(line, Lost):
            self.lost.append(line.text)
        elif isinstance(line, Begin):
            known = self.trainings.get(line.id) or Training(line, Ledger())
            ledger = line.ledger.model_copy(update={"discarded": known.ledger.discarded})
            self.trainings[line.id] = Training(line, ledger, known.models)
        elif (training := self.trainings.get(line.id)) is None:
            self.lost.append(f"{JOURNAL}: the line that began training {line.id} is missing")
        elif isinstance(line, End):
            training.ledger = line.ledger
        elif isinstance(line, Release):
            training.models += [line.model] * (line.model not in training.models)
        elif len(line.ledgers) > len(training.ledger.discarded):
            training.ledger = training.ledger.model_copy(update={"discarded": line.ledgers})

    def corpora_like(self, corpus: Corpus, same: Callable[[Corpus, Corpus], bool]) -> list[Corpus]:
        """Return `corpus`, and those that it is linked with by `same`, also through others."""
        found, left = [corpus], [one for one in self.corpora.values() if one.id != corpus.id]
        for known in found:
            more = [one for one in left if same(known, one)]
            found += more
            left = [one for one in left if one not in more]
        return found


def read_journal(storage: Path) -> Journal:
    """Return what the file says, and which trainings it lacks. Lines that cannot be read are among what is lost."""
    trained = ("train-*/", "*/trials/*/", f"*/{CONFIRM}/*/seed-*/")
    folders = [one for where in trained for one in storage.glob(where) if (one / "config.yaml").is_file()]
    found = Journal()  # the file is read last, so that it has what begins meanwhile
    if (noted := cut(storage)) is not None:
        found.lost.append(noted)
    path = storage / JOURNAL
    text = path.read_bytes() if path.exists() else b""
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            found.add(_LINE.validate_json(line))
        except ValidationError:
            found.lost.append(f"{JOURNAL}: line {number} is cut or broken")
    found.older |= {str(one.relative_to(storage)) for one in folders if read_id(one) not in found.trainings}
    return found


def write(storage: Path, handle: int, lines: Iterable[Line]) -> None:
    """Append lines under the journal's lock (`locked`)."""
    append(
        storage,
        handle,
        [json.dumps({"kind": line.kind} | line.model_dump(mode="json", exclude_defaults=True)) for line in lines],
    )


def now() -> str:
    """Return the time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def release(folder: Path, model: str) -> None:
    """Record that the model in a folder was released: of a training that the journal has, or of a kept epoch of it."""
    place = folder.parent.parent if folder.parent.name == "epochs" else folder
    storage = next((one for one in place.absolute().parents if (one / JOURNAL).is_file()), None)
    if storage is not None and (name := read_id(place)) is not None:
        with locked(storage) as handle:
            write(storage, handle, [Release(id=name, at=now(), model=model)])


def corpus_of(spec: CorpusSpec, known: Mapping[str, Corpus], storage: Path, new_key: bool = False) -> Corpus:
    """Return the line of a corpus: the one that is known, or a new one, for which all utterances are read.

    Args:
        known: the corpora of the journal. Those whose files are there are compared with a new one.
        new_key: True to make the key of the storage folder if it has none. The journal's lock must be free.

    Raises:
        UserError: if its files are gone and it is not known.
    """
    path = None if spec.path is None else str(Path(spec.path).expanduser().resolve())
    whole = spec.model_copy(update=_WHOLE | {"path": path})
    place = (whole.name, path)
    try:
        digest = corpus_digest(whole)
    except UserError:
        if had := [one for one in known.values() if (one.spec.name, one.spec.path) == place]:
            return had[-1]
        raise
    name = hashlib.sha256(repr((digest, place)).encode()).hexdigest()[:16]
    if name in known:
        return known[name]
    if is_generated(whole):
        return Corpus(id=name, spec=whole, digest=digest)
    utterances = load_corpus(whole).utterances
    mine = hashes_of(utterances)
    others = {one.id: _hashes(one) for one in known.values() if not is_generated(one.spec) and one.digest != digest}
    times = Counter(utterance.user for utterance in utterances if utterance.user)
    key = _key(storage, new_key) if times else None
    return Corpus(
        id=name,
        spec=whole,
        digest=digest,
        same=tuple(other for other, theirs in others.items() if theirs is not None and is_shared(mine, theirs)),
        unknown=tuple(other for other, theirs in others.items() if theirs is None),
        users=tuple(sorted(_hmac(key, user) for user in times)) if key is not None else (),
        key=hashlib.sha256(key).hexdigest()[:16] if key is not None else "",
        most_of_a_user=max(times.values(), default=None),
    )


def _hashes(corpus: Corpus) -> np.ndarray | None:
    """Return the hashes of a corpus' utterances; None if its files are gone or have changed."""
    try:
        if corpus_digest(corpus.spec) == corpus.digest:
            return hashes_of(load_corpus(corpus.spec).utterances)
    except UserError:
        pass
    return None


def _key(storage: Path, new: bool) -> bytes | None:
    """Return the storage folder's key, which its owner alone can read; None if there is none for this process."""
    path = storage / KEY
    if new and not path.exists():
        with locked(storage):
            if not path.exists():
                with atomic_write(path) as partial:
                    partial.touch(mode=0o600)
                    partial.write_bytes(secrets.token_bytes(32))
    return path.read_bytes() if os.access(path, os.R_OK) else None


def _hmac(key: bytes, user: str) -> str:
    return hmac.new(key, user.encode(), "sha256").hexdigest()[:16]


def same_utterances(one: Corpus, other: Corpus) -> bool:
    """Return True if two corpora hold the same people's utterances, as far as they could be compared."""
    if (one.spec.name, one.spec.path) == (other.spec.name, other.spec.path) or one.digest == other.digest:
        return True
    return other.id in one.same or one.id in other.same


def same_people(one: Corpus, other: Corpus) -> bool:
    """Return True if two corpora share utterances, or a user by name."""
    named = one.key == other.key and not set(one.users).isdisjoint(other.users)
    return named or same_utterances(one, other)


def public_digests(spec: TrialSpec) -> dict[str, str]:
    """Return the digests of the corpora that a training reads as public, by field."""
    found = spec.public_corpora.items()
    return {name: corpus_digest(one.model_copy(update=_WHOLE), name) for name, one in found}
