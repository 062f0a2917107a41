"""An encoded corpus, mapped into memory, and its batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from edp.spec import Unit, UserError
from trainables.config import BERTSpec, ModelSpec
from trainables.corpora.labels import Labels
from trainables.corpora.types import Utterance
from trainables.features.batch import Batch
from trainables.features.states import States
from trainables.features.token_features import Features, load_features, make_batch, open_table, pad
from trainables.records.files import load_array, read_json, reading

Split = Literal["train", "valid", "test", "canaries"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
"""Those that every corpus has; `canaries` only where some were made."""


class EncodedCorpus:
    """A folder that `encode` wrote, mapped into memory; cheap to open, and to pickle as its path."""

    def __init__(self, folder: Path, meta: dict[str, Any]) -> None:
        self.folder = folder
        self.labels = Labels.from_dict(meta["labels"])
        self.digest: str = meta["digest"]
        self.planted: int = meta.get("planted", 0)
        """Number of canaries, which are the last utterances of train."""
        self.vocabulary_size: int | None = meta["vocabulary_size"]  # pieces, for `build_model`; None for CLC
        self._table = open_table(folder)
        self._states: States | None = None
        kinds = ("offsets", "tokens", "tags", "intents", *(["users"] if meta.get("users") else []))
        self._arrays = {
            (split, kind): load_array(folder / f"{split}_{kind}.npy") for split in meta["sizes"] for kind in kinds
        }

    @classmethod
    def open(cls, folder: Path) -> EncodedCorpus:
        """Map a folder.

        Raises:
            UserError: for a folder that holds no whole corpus.
        """
        meta = folder / "meta.json"
        if not meta.is_file():
            raise UserError(f"encoded corpus = {folder} is not there or not whole; allowed: a folder that encode wrote")
        with reading(meta):
            return cls(folder, json.loads(meta.read_text(encoding="utf-8")))

    def for_model(self, model: ModelSpec) -> EncodedCorpus:
        """Return the corpus as `model` reads it: batches of a frozen encoder's states where the model has features.

        It is for the process that it is made in, as that of `with_train`.
        """
        if not isinstance(model, BERTSpec) or model.features is None:
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
        """Width of a token's vector and of a sentence's, for `build_model`; None where batches hold no states."""
        return self._states.sizes if self._states is not None else None

    @property
    def states_in_memory(self) -> bool:
        """True where batches hold states, of a corpus so small that it is whitened whole."""
        return self._states is not None and self._states.in_memory

    def __reduce__(self) -> tuple[Callable[[Path], EncodedCorpus], tuple[Path]]:
        return EncodedCorpus.open, (self.folder,)

    def with_valid_in_train(self) -> EncodedCorpus:
        """Return the corpus with the validation utterances before the training ones, and an empty validation split.

        Before, since the last ones of train may be canaries. It is for the process that it is made in: pickled, it
        travels as the folder, which knows nothing of it.
        """
        joined = self._copy()
        for kind in self._kinds("tokens", "tags", "intents", "users", "rows", "numbers"):
            joined._arrays["train", kind] = np.concatenate([self._arrays[s, kind] for s in ("valid", "train")])
            joined._arrays["valid", kind] = self._arrays["valid", kind][:0]
        first, second = self._arrays["valid", "offsets"], self._arrays["train", "offsets"]
        joined._arrays["train", "offsets"] = np.concatenate([first, first[-1] + second[1:]])
        joined._arrays["valid", "offsets"] = first[:1]
        return joined

    def features(self) -> Features:
        """Return the features that words were encoded with, for serving and for encoding another corpus alike."""
        with reading(self.folder / "features"):
            return load_features(self.folder / "features")

    def words(self) -> list[str]:
        """Return the word of each token id."""
        return read_json(self.folder / "words.json", list[str])

    def size(self, split: Split) -> int:
        """Return the number of utterances; 0 for the split `canaries` where there is none."""
        return len(self._arrays[split, "intents"]) if (split, "intents") in self._arrays else 0

    def lengths(self, split: Split) -> np.ndarray:
        """Return the number of tokens of each utterance, (size,) int64."""
        return np.diff(self._arrays[split, "offsets"])

    @property
    def train_users(self) -> np.ndarray | None:
        """The user of each training utterance, numbers from 0 without gaps, (size,) int64; None: users are not known.

        Equal numbers are one user, in train and in what `with_valid_in_train` puts before it.
        """
        if ("train", "users") not in self._arrays:
            return None
        return np.unique(self._arrays["train", "users"], return_inverse=True)[1]

    @property
    def most_of_a_user(self) -> int | None:
        """Largest number of training utterances of one user; None where users are not known."""
        users = self.train_users
        return None if users is None else int(np.bincount(users).max())

    @property
    def number_of_users(self) -> int | None:
        """Users of the training split; None where they are not known."""
        users = self.train_users
        return None if users is None else int(users.max()) + 1

    @property
    def own_users(self) -> int | None:
        """Users of the training split without the canaries; each canary is a user of its own."""
        users = self.number_of_users
        return None if users is None else users - self.planted

    def units(self, unit: Unit) -> int:
        """Return the number of units that training draws from: users where they are the unit, and known, else
        utterances."""
        return (self.number_of_users if unit == "user" else None) or self.size("train")

    def batch(self, split: Split, indices: np.ndarray) -> Batch:
        """Return the utterances at `indices`, in that order, with their labels."""
        if self._states is not None:
            return self._state_batch(self._states, split, indices)
        words_n, lengths_b = self._flat(split, "tokens", indices)
        return make_batch(
            self._table,
            words_n,
            lengths_b,
            tags_n=self._flat(split, "tags", indices)[0],
            intent_b=self._arrays[split, "intents"][indices],
        )

    def _state_batch(self, states: States, split: Split, indices: np.ndarray) -> Batch:
        number_b = self._arrays[split, "numbers"][indices]
        first_b = self._arrays[split, "rows"][self._arrays[split, "offsets"][indices]]
        read_b = states.read_u[number_b]
        step_t = np.arange(int(read_b.max()))
        mask_bt = step_t < read_b[:, None]
        tags_n, lengths_b = self._flat(split, "tags", indices)
        return Batch(
            states.inputs((first_b[:, None] + step_t)[mask_bt], number_b),
            torch.from_numpy(read_b.astype(np.int64)),
            torch.from_numpy(mask_bt),
            torch.from_numpy(np.where(mask_bt, pad(tags_n, lengths_b)[:, : len(step_t)], 0)),
            torch.from_numpy(self._arrays[split, "intents"][indices].astype(np.int64)),
        )

    def token_ids(self, split: Split, indices: np.ndarray) -> list[np.ndarray]:
        """Return the word ids of each utterance; equal words have equal ids, in every split."""
        return self._rows(split, "tokens", indices)

    def tag_ids(self, split: Split, indices: np.ndarray) -> list[np.ndarray]:
        """Return the tag ids of each utterance, of all its tokens, also those beyond a model's limit."""
        return self._rows(split, "tags", indices)

    def intent_ids(self, split: Split, indices: np.ndarray) -> np.ndarray:
        """Return the intent id of each utterance, (B,)."""
        return np.asarray(self._arrays[split, "intents"][indices])

    def utterances(self, split: Split, indices: np.ndarray) -> list[Utterance]:
        """Return the utterances as they were read, without their users, of whom only numbers are kept."""
        words, labels = self.words(), self.labels
        return [
            Utterance(tuple(words[w] for w in word_ids), tuple(labels.tags[t] for t in tag_ids), labels.intents[i])
            for word_ids, tag_ids, i in zip(
                self.token_ids(split, indices),
                self.tag_ids(split, indices),
                self.intent_ids(split, indices),
                strict=True,
            )
        ]

    def with_train(self, chosen: Mapping[Split, np.ndarray]) -> EncodedCorpus:
        """Return the corpus with another training split: the utterances at the given indices of its splits.

        Held in this process's memory: pickled, it would be the corpus in its folder again.
        """
        other = self._copy()
        lengths_n = np.concatenate([self.lengths(split)[rows] for split, rows in chosen.items()])
        intents_n = np.concatenate([self.intent_ids(split, rows) for split, rows in chosen.items()])
        flat = {
            ("train", kind): np.concatenate([self._flat(split, kind, rows)[0] for split, rows in chosen.items()])
            for kind in self._kinds("tokens", "tags", "rows")
        }
        for kind in self._kinds("numbers", "users"):
            flat["train", kind] = np.concatenate([self._arrays[split, kind][rows] for split, rows in chosen.items()])
        offsets = {("train", "offsets"): np.concatenate([[0], lengths_n.cumsum()]), ("train", "intents"): intents_n}
        other._arrays = self._arrays | flat | offsets
        other.planted = 0
        return other

    def _copy(self) -> EncodedCorpus:
        """Return a copy with the same arrays; pickling and other copies keep only the folder."""
        other = object.__new__(EncodedCorpus)
        other.__dict__.update(self.__dict__)
        other._arrays = dict(self._arrays)
        return other

    def _kinds(self, *kinds: str) -> list[str]:
        return [kind for kind in kinds if ("train", kind) in self._arrays]

    def _flat(self, split: Split, kind: str, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        offsets = self._arrays[split, "offsets"]
        starts_b = offsets[indices]
        lengths_b = offsets[np.asarray(indices) + 1] - starts_b
        first_b = lengths_b.cumsum() - lengths_b
        positions_n = np.arange(lengths_b.sum()) + np.repeat(starts_b - first_b, lengths_b)
        return self._arrays[split, kind][positions_n], lengths_b

    def _rows(self, split: Split, kind: str, indices: np.ndarray) -> list[np.ndarray]:
        values_n, lengths_b = self._flat(split, kind, indices)
        return np.split(values_n, lengths_b.cumsum()[:-1]) if len(lengths_b) else []
