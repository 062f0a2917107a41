"""An encoded corpus, mapped into memory, and its batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from edp.keyed import Ids, digests
from edp.spec import Unit, UserError
from trainables.config import ModelSpec
from trainables.corpora.labels import LabelCounts, Labels
from trainables.corpora.types import UNKNOWN, UNKNOWN_TAGS, Utterance
from trainables.features.batch import Batch
from trainables.features.states import States, has_states
from trainables.features.token_features import Features, load_features, make_batch, open_table, pad
from trainables.records.files import load_array, read_json, reading

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
        if self._states is not None:
            return self._state_batch(self._states, split, indices)
        words_n, lengths_b = self._flat(split, "tokens", indices)
        return make_batch(
            self._table,
            words_n,
            lengths_b,
            *self._gold(split, indices),
        )

    def _gold(self, split: Split, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the tags and intents of utterances as a model learns them, with 0 for unknown ones."""
        tags_n, intent_b = self._flat(split, "tags", indices)[0], self._arrays[split, "intents"][indices]
        return (
            np.where(tags_n < len(self.labels.tags), tags_n, 0),
            np.where(intent_b < len(self.labels.intents), intent_b, 0),
        )

    def _state_batch(self, states: States, split: Split, indices: np.ndarray) -> Batch:
        """Return a batch of states; tokens that the encoder had no room for are left out."""
        number_b = self._arrays[split, "numbers"][indices]
        first_b = self._arrays[split, "rows"][self._arrays[split, "offsets"][indices]]
        read_b = states.read_u[number_b]
        step_t = np.arange(int(read_b.max()))
        mask_bt = step_t < read_b[:, None]
        lengths_b = self.lengths(split)[indices]
        tags_n, intent_b = self._gold(split, indices)
        return Batch(
            states.inputs((first_b[:, None] + step_t)[mask_bt], number_b),
            torch.from_numpy(read_b.astype(np.int64)),
            torch.from_numpy(mask_bt),
            torch.from_numpy(np.where(mask_bt, pad(tags_n, lengths_b)[:, : len(step_t)], 0)),
            torch.from_numpy(intent_b.astype(np.int64)),
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
