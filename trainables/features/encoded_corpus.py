"""Encode a corpus as arrays, once per sweep; every worker maps them into memory, and takes its batches from them.

A folder holds flat arrays for each split (`offsets`, `tokens`, `tags`, `intents`, `ids` and, if users are known,
`users`, which are numbers from 0), a table of unique words, `words.json`, `meta.json` and `features/`. A released model
needs only `features/` to encode new utterances. That is public; the rest is the private corpus.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np

from edp.keyed import Ids, digests
from edp.spec import Unit, UserError
from trainables.config import ModelSpec
from trainables.corpora.labels import LabelCounts, Labels, labels_of
from trainables.corpora.types import UNKNOWN, UNKNOWN_TAGS, Splits, Utterance
from trainables.features.states import States, has_states
from trainables.features.token_features import (
    Batch,
    Features,
    as_batch,
    features_for,
    load_features,
    make_batch,
    make_table,
    open_table,
    write_table,
)
from trainables.features.word_pieces import WordPieces
from trainables.records.files import load_array, read_json, reading, unfinished_folder

Split = Literal["train", "valid", "test", "canaries", "schema"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
"""The splits that every corpus has; some have `canaries`, and `schema`, the public text of their schema."""


class EncodedCorpus:
    """A folder that `encode` wrote, mapped into memory; cheap to open, and pickled as its path.

    The numbers after those of the labels mean `UNKNOWN_TAGS` and the intent `UNKNOWN`. Only valid and test have them. A
    batch has 0 in their place, the tag `O` and the first intent: nothing is predicted of them that needs a true label.
    """

    def __init__(self, folder: Path, meta: dict[str, Any]) -> None:
        self.folder = folder
        self.labels = Labels.from_dict(meta["labels"])
        self.digest: str = meta["digest"]
        self.planted: int = meta["planted"]
        """The number of canaries, which are the last utterances of train."""
        self.vocabulary_size: int | None = meta["vocabulary_size"]
        """The number of sub-words, for `build_model`; None for CLC."""
        self.label_counts = LabelCounts(**meta["label_counts"])
        """Counts for the holder of the data."""
        self._table = open_table(folder)
        self._states: States | None = None
        kinds = ("offsets", "tokens", "tags", "intents", "ids", *(["users"] if meta["users"] else []))
        self._arrays = {
            (split, kind): load_array(folder / f"{split}_{kind}.npy") for split in meta["sizes"] for kind in kinds
        }

    @classmethod
    def open(cls, folder: Path) -> EncodedCorpus:
        """Map a folder.

        Raises:
            UserError: for a folder without a whole corpus.
        """
        meta = folder / "meta.json"
        if not meta.is_file():
            raise UserError(f"encoded corpus = {folder} is missing or not whole; allowed: a folder that encode wrote")
        with reading(meta):
            return cls(folder, json.loads(meta.read_text(encoding="utf-8")))

    def for_model(self, model: ModelSpec) -> EncodedCorpus:
        """Return the corpus as `model` reads it: with batches of a frozen encoder's states if the model has features.

        Like that of `with_train`, it is only for this process.
        """
        if not has_states(model):
            return self
        other = self._copy()
        other._states = States(self.folder, model, self.labels)
        first_row = first_number = 0
        for split in dict.fromkeys(split for split, _ in self._arrays):
            rows, numbers = len(self._arrays[split, "tokens"]), len(self._arrays[split, "intents"])
            other._arrays[split, "rows"] = np.arange(first_row, first_row + rows)
            other._arrays[split, "numbers"] = np.arange(first_number, first_number + numbers)
            first_row, first_number = first_row + rows, first_number + numbers
        return other

    @property
    def state_sizes(self) -> tuple[int, int] | None:
        """The width of a token's vector and of a sentence's, for `build_model`; None if batches hold no states."""
        return self._states.sizes if self._states is not None else None

    @property
    def states_in_memory(self) -> bool:
        """True if batches hold states that were all whitened beforehand, since the corpus is small."""
        return self._states is not None and self._states.in_memory

    def __reduce__(self) -> tuple[Callable[[Path], EncodedCorpus], tuple[Path]]:
        return EncodedCorpus.open, (self.folder,)

    def with_valid_in_train(self) -> EncodedCorpus:
        """Return the corpus with the validation utterances before the training ones, and an empty validation split.

        Utterances with an unknown intent are left out, as in train. The others come before, since canaries must stay
        the last ones of train. Like that of `with_train`, it is only for this process.
        """
        chosen: tuple[Split, ...] = ("valid", "train")
        joined = self.with_train({split: self.known(split) for split in chosen})
        joined.planted = self.planted
        for kind in self._kinds("tokens", "tags", "intents", "ids", "users", "rows", "numbers"):
            joined._arrays["valid", kind] = self._arrays["valid", kind][:0]
        joined._arrays["valid", "offsets"] = self._arrays["valid", "offsets"][:1]
        return joined

    def features(self) -> Features:
        """Return the features that words were encoded with, to serve a model or to encode another corpus with them."""
        with reading(self.folder / "features"):
            return load_features(self.folder / "features")

    def words(self) -> list[str]:
        """Return the word of each token id."""
        return read_json(self.folder / "words.json", list[str])

    def size(self, split: Split) -> int:
        """Return the number of utterances in a split; 0 if there is none."""
        return len(self._arrays[split, "intents"]) if (split, "intents") in self._arrays else 0

    def known(self, split: Split) -> np.ndarray:
        """Return the utterances of a split whose intents the schema has, sorted indices; of train these are all."""
        return np.flatnonzero(self._arrays[split, "intents"] < len(self.labels.intents))

    def lengths(self, split: Split) -> np.ndarray:
        """Return the number of tokens of each utterance, (size,) int64."""
        return np.diff(self._arrays[split, "offsets"])

    @property
    def train_users(self) -> np.ndarray | None:
        """The user of each training utterance, a number from 0 without gaps, (size,) int64; None if not known."""
        if ("train", "users") not in self._arrays:
            return None
        return np.unique(self._arrays["train", "users"], return_inverse=True)[1]

    @property
    def most_of_a_user(self) -> int | None:
        """The largest number of training utterances of one user; None if users are not known."""
        users = self.train_users
        return None if users is None else int(np.bincount(users).max())

    @property
    def number_of_users(self) -> int | None:
        """The number of users in the training split; None if they are not known."""
        users = self.train_users
        return None if users is None else int(users.max()) + 1

    @property
    def own_users(self) -> int | None:
        """The number of users in the training split, without canaries: each canary is a user of its own."""
        users = self.number_of_users
        return None if users is None else users - self.planted

    def units(self, unit: Unit) -> int:
        """Return the number of units in the training split: users if they are the unit and known, else utterances."""
        return (self.number_of_users if unit == "user" else None) or self.size("train")

    def ids(self, unit: Unit) -> Ids:
        """Return an id of each training utterance, or user if users are the unit: a digest of what it holds.

        The key of an utterance counts equal utterances of its user, so that ids are all different.
        """
        ids, users = self._arrays["train", "ids"], self.train_users if unit == "user" else None
        if users is None:
            return ids
        of_users = np.zeros((int(users.max()) + 1, ids.shape[1]), ids.dtype)
        np.bitwise_xor.at(of_users, users, ids)
        return of_users

    def batch(self, split: Split, indices: np.ndarray) -> Batch:
        """Return the utterances at `indices`, in this order, with their labels."""
        if self._states is None:
            return make_batch(self._table, *self._flat(split, "tokens", indices), *self._gold(split, indices))
        lengths_b = self.lengths(split)[indices]
        # Tokens that the encoder had no room for are left out.
        number_b = self._arrays[split, "numbers"][indices]
        first_b = self._arrays[split, "rows"][self._arrays[split, "offsets"][indices]]
        read_b = self._states.read_u[number_b]
        step_t = np.arange(int(read_b.max()))
        inputs = self._states.inputs((first_b[:, None] + step_t)[step_t < read_b[:, None]], number_b)
        return as_batch(inputs, read_b, lengths_b, *self._gold(split, indices))

    def _gold(self, split: Split, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the tags and intents of utterances as a model learns them, with 0 for unknown ones."""
        tags_n, intent_b = self._flat(split, "tags", indices)[0], self._arrays[split, "intents"][indices]
        return (
            np.where(tags_n < len(self.labels.tags), tags_n, 0),
            np.where(intent_b < len(self.labels.intents), intent_b, 0),
        )

    def token_ids(self, split: Split, indices: np.ndarray) -> list[np.ndarray]:
        """Return the word ids of each utterance; a word has the same id in every split."""
        return self._rows(split, "tokens", indices)

    def tag_ids(self, split: Split, indices: np.ndarray) -> list[np.ndarray]:
        """Return the tag ids of each utterance, also for tokens beyond a model's limit."""
        return self._rows(split, "tags", indices)

    def intent_ids(self, split: Split, indices: np.ndarray) -> np.ndarray:
        """Return the intent id of each utterance, (B,)."""
        return np.asarray(self._arrays[split, "intents"][indices])

    def utterances(self, split: Split, indices: np.ndarray) -> list[Utterance]:
        """Return the utterances as they were read, without users."""
        words, tags, intents = self.words(), self.tag_names, (*self.labels.intents, UNKNOWN)
        return [
            Utterance(tuple(words[w] for w in word_ids), tuple(tags[t] for t in tag_ids), intents[i])
            for word_ids, tag_ids, i in zip(
                self.token_ids(split, indices),
                self.tag_ids(split, indices),
                self.intent_ids(split, indices),
                strict=True,
            )
        ]

    @property
    def tag_names(self) -> tuple[str, ...]:
        """The tag of each number, with those of unknown slot types."""
        return *self.labels.tags, *UNKNOWN_TAGS

    def with_train(self, chosen: Mapping[Split, np.ndarray]) -> EncodedCorpus:
        """Return the corpus with another training split: the utterances at the given indices of its splits.

        It is only for this process: pickling keeps the folder alone, and so the original corpus.
        """
        other = self._copy()
        lengths_n = np.concatenate([self.lengths(split)[rows] for split, rows in chosen.items()])
        intents_n = np.concatenate([self.intent_ids(split, rows) for split, rows in chosen.items()])
        flat = {
            ("train", kind): np.concatenate([self._flat(split, kind, rows)[0] for split, rows in chosen.items()])
            for kind in self._kinds("tokens", "tags", "rows")
        }
        for kind in self._kinds("numbers", "users", "ids"):
            flat["train", kind] = np.concatenate([self._arrays[split, kind][rows] for split, rows in chosen.items()])
        flat["train", "ids"] = digests(map(bytes, flat["train", "ids"]))  # two splits may have the same utterance
        offsets = {("train", "offsets"): np.concatenate([[0], lengths_n.cumsum()]), ("train", "intents"): intents_n}
        other._arrays = self._arrays | flat | offsets
        other.planted = 0
        return other

    def _copy(self) -> EncodedCorpus:
        """Return a copy with the same arrays."""
        other = object.__new__(EncodedCorpus)  # `copy.copy` would open the folder again, as pickling does
        other.__dict__.update(self.__dict__)
        other._arrays = dict(self._arrays)
        return other

    def _kinds(self, *kinds: str) -> list[str]:
        """Return those of `kinds` whose arrays this corpus has."""
        return [kind for kind in kinds if ("train", kind) in self._arrays]

    def _flat(self, split: Split, kind: str, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the values of the tokens of utterances, in turn, and the number of tokens of each utterance."""
        offsets = self._arrays[split, "offsets"]
        starts_b = offsets[indices]
        lengths_b = offsets[np.asarray(indices) + 1] - starts_b
        first_b = lengths_b.cumsum() - lengths_b
        positions_n = np.arange(lengths_b.sum()) + np.repeat(starts_b - first_b, lengths_b)
        return self._arrays[split, kind][positions_n], lengths_b

    def _rows(self, split: Split, kind: str, indices: np.ndarray) -> list[np.ndarray]:
        """Return the values of the tokens of each utterance."""
        values_n, lengths_b = self._flat(split, kind, indices)
        return np.split(values_n, lengths_b.cumsum()[:-1]) if len(lengths_b) else []


Progress = Callable[[int, int], None]
_PROGRESS_EVERY = 10_000


def encode(
    splits: Splits,
    model: ModelSpec,
    folder: Path,
    *,
    labels: Labels | None = None,
    features: Features | None = None,
    text: Sequence[Utterance] = (),
    progress: Progress | None = None,
) -> EncodedCorpus:
    """Write the corpus to `folder`, whole or not at all, in the form that `model` reads, and replace an earlier one.

    Args:
        labels: the labels of the model; None: those of the splits.
        features: the features of another corpus, such as that of the attacked model for its shadow corpus; None: make
            them.
        text: public text with the labels of the model, as the split `schema`.
        progress: a function that is called with the number of encoded utterances and of all.

    Raises:
        UserError: for labels that leave nothing to learn.
    """
    every: dict[Split, list[Utterance]] = {name: getattr(splits, name) for name in SPLITS}
    if splits.canaries:
        every["canaries"] = splits.canaries
    if text:
        every["schema"] = list(text)
    if labels is None:
        labels = labels_of(splits)
    _ = labels.task  # raises for labels that leave nothing to learn
    features = features or features_for(model)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside the folder, so that the rename is atomic: a crash leaves nothing that `open` would take for a corpus.
    building = unfinished_folder(folder.parent, f".{folder.name}-")
    try:
        words, digest = _write_splits(every, labels, building, progress)
        features.save(building / "features")
        write_table(make_table(features, words), building)
        (building / "words.json").write_text(json.dumps(words), encoding="utf-8")
        meta = {
            "labels": labels.to_dict(),
            "sizes": {name: len(utterances) for name, utterances in every.items()},
            "planted": splits.planted,
            "label_counts": asdict(LabelCounts.of(splits)),
            "users": any(utterance.user for utterance in every["train"]),
            "vocabulary_size": features.size if isinstance(features, WordPieces) else None,
            "digest": digest,
        }
        (building / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")
        _move(building, folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return EncodedCorpus.open(folder)


def _move(building: Path, folder: Path) -> None:
    """Move a finished corpus to its folder; if another process is faster, its corpus stays."""
    if folder.exists():
        # Moved away in one step: readers can go on with the files that they have open.
        before = building.with_name(f"{building.name}-before")
        with suppress(FileNotFoundError):
            os.replace(folder, before)
        shutil.rmtree(before, ignore_errors=True)
    try:
        os.replace(building, folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _write_splits(
    every: dict[Split, list[Utterance]], labels: Labels, folder: Path, progress: Progress | None
) -> tuple[list[str], str]:
    """Write the arrays of each split; return the unique words in the order of their ids, and a digest of the corpus."""
    words: dict[str, int] = {}
    users: dict[str, int] = {}
    known = any(utterance.user for utterance in every["train"])
    tag_ids = {tag: index for index, tag in enumerate((*labels.tags, *UNKNOWN_TAGS))}
    intent_ids = {intent: index for index, intent in enumerate((*labels.intents, UNKNOWN))}
    total, done = sum(len(utterances) for utterances in every.values()), 0
    digest = hashlib.sha256(json.dumps(labels.to_dict()).encode())
    for split, utterances in every.items():
        tokens = np.empty(sum(len(u.tokens) for u in utterances), np.int32)
        tags = np.empty(len(tokens), np.int16)
        intents = np.empty(len(utterances), np.int16)
        user_ids = np.empty(len(utterances), np.int32)
        offsets = np.zeros(len(utterances) + 1, np.int64)
        for row, utterance in enumerate(utterances):
            start, end = offsets[row], offsets[row] + len(utterance.tokens)
            tags[start:end] = [tag_ids[tag] for tag in utterance.tags]
            intents[row] = intent_ids[utterance.intent]
            tokens[start:end] = [words.setdefault(word, len(words)) for word in utterance.tokens]
            offsets[row + 1] = end
            user_ids[row] = users.setdefault(utterance.user, len(users))
            done += 1
            if progress and (done % _PROGRESS_EVERY == 0 or done == total):
                progress(done, total)
        arrays: dict[str, np.ndarray] = {"offsets": offsets, "tokens": tokens, "tags": tags, "intents": intents}
        if known:
            arrays["users"] = user_ids
        arrays["ids"] = digests(repr(utterance).encode(errors="surrogatepass") for utterance in utterances)
        for kind, array in arrays.items():
            np.save(folder / f"{split}_{kind}.npy", array)
            digest.update(array.tobytes())
    digest.update(json.dumps(list(words)).encode())
    return list(words), digest.hexdigest()
