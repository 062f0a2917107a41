"""States of a frozen encoder, computed once per corpus and mapped into memory; only heads are trained on them.

The folder of an encoded corpus holds `states/NAME.npy`: float16, rows of tokens or utterances, of all splits in turn.
`trainables.features.compute_states` explains the names. `features/moments/NAME.npz` are public moments, and
`features/encoder.json` identifies the encoder: both are part of a released model. Trials choose among the names, and
whiten the states that they read. Mean and covariance come only from public corpora, so whitening costs no privacy.

Shapes: n states, h hidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from trainables.config import BERTSpec, ModelSpec
from trainables.corpora.labels import Labels
from trainables.features.token_features import StateInputs
from trainables.records.files import load_array, reading, save_arrays

RIDGE = 1e-3
"""A share of the mean eigenvalue that is added to each, so that directions with little variance are not blown up."""
CONSTANT = 0.5
"""The last number of a whitened vector; its weight is the heads' bias."""


@dataclass(frozen=True)
class Moments:
    """The mean (H,) of states, and eigenvalues (H,) and eigenvectors (H, H; columns) of their covariance; float64."""

    mean_h: Tensor
    values_h: Tensor
    vectors_hh: Tensor

    @classmethod
    def of(cls, corpora: Iterable[tuple[int, Tensor, Tensor]]) -> Moments:
        """Return the moments of several corpora with equal weights.

        Args:
            corpora: for each corpus its number of states x, the sum of x (H,), and the sum of x xᵀ (H, H).
        """
        firsts, seconds = zip(*((sum_h / n, sum_hh / n) for n, sum_h, sum_hh in corpora), strict=True)
        mean_h = torch.stack(firsts).mean(0)
        covariance_hh = torch.stack(seconds).mean(0) - torch.outer(mean_h, mean_h)
        values_h, vectors_hh = torch.linalg.eigh(covariance_hh)
        return cls(mean_h, values_h.clamp_min(0), vectors_hh)

    def save(self, path: Path) -> None:
        """Write a file that `load` reads, in one step."""
        save_arrays(path, mean=self.mean_h, values=self.values_h, vectors=self.vectors_hh)

    @classmethod
    def load(cls, path: Path) -> Moments:
        """Read a file that `save` wrote."""
        with reading(path), np.load(path) as saved:
            return cls(*(torch.from_numpy(saved[name]) for name in ("mean", "values", "vectors")))

    def whitener(self, exponent: float) -> Whitener:
        """Return the map that divides each eigendirection by its standard deviation to the power of `exponent`.

        A common factor gives the public states an average squared length of 1.
        """
        ridged_h = self.values_h + RIDGE * self.values_h.mean()
        projection_hh = self.vectors_hh * ridged_h.pow(-exponent / 2)
        projection_hh = projection_hh / (self.values_h * ridged_h.pow(-exponent)).sum().sqrt()
        return Whitener(self.mean_h.float(), projection_hh.float())


@dataclass(frozen=True)
class Whitener:
    """The map `x → (x - mean) P`."""

    mean_h: Tensor
    projection_hh: Tensor

    def __call__(self, x_nh: Tensor) -> Tensor:
        """Return the whitened states (N, H)."""
        return (x_nh - self.mean_h) @ self.projection_hh


def whitened(whiteners: Sequence[Whitener], parts: Sequence[Tensor]) -> Tensor:
    """Whiten parts (…, H), scale them to equal shares of the squared length, and join them and the constant.

    The result has the shape (…, parts·H + 1).
    """
    blocks = [whitener(part) / sqrt(len(parts)) for whitener, part in zip(whiteners, parts, strict=True)]
    return torch.cat([*blocks, torch.full_like(blocks[0][..., :1], CONSTANT)], -1)


NAME_SCORES = Path("public") / "names.npz"
"""The scores of labels' names (`trainables.training.public_heads`) in the folder of an encoded corpus."""


def has_name_scores(folder: Path) -> bool:
    """Return True if the folder of an encoded corpus has scores of names."""
    return (folder / NAME_SCORES).is_file()


_IN_MEMORY = 1 << 30
_ROWS_AT_ONCE = 1 << 12


def has_states(model: ModelSpec) -> TypeGuard[BERTSpec]:
    """Return True if the heads of `model` read states that are computed beforehand."""
    return isinstance(model, BERTSpec) and model.features is not None


def state_names(model: BERTSpec, labels: Labels) -> tuple[tuple[str, ...], str]:
    """Return the names of the states that the heads of `model` read: those of a token, and that of a sentence.

    Without slots in the labels, no states of tokens are read.
    """
    features = model.features
    assert features is not None, "the model has features"
    last = model.layers or "last"
    way = "_both" if features.attention == "both" else ""
    tokens = tuple(f"token_{features.word}_{layer}{way}" for layer in features.layer_numbers)
    return tokens if labels.has_slots else (), f"sentence_{features.sentence}_{last}{way}"


def moments_file(features: Path, name: str) -> Path:
    """Return the path of the public moments of a state."""
    return features / "moments" / f"{name}.npz"


class States:
    """The whitened states that the heads of a model read, for all tokens and utterances of an encoded corpus."""

    def __init__(self, folder: Path, model: BERTSpec, labels: Labels) -> None:
        assert model.features is not None, "the model has features"
        names, sentence = state_names(model, labels)
        exponent = model.features.whiten
        of = {
            name: Moments.load(moments_file(folder / "features", name)).whitener(exponent)
            for name in (*names, sentence)
        }
        self.read_u = load_array(folder / "states" / "read.npy", mapped=False)
        self._tokens = _Whitened(folder, names, [of[name] for name in names], exponent) if names else None
        self._sentences = _Whitened(folder, [sentence], [of[sentence]], exponent)

    @property
    def sizes(self) -> tuple[int, int]:
        """The width of a token's vector, 0 if it is not read, and of a sentence's."""
        return self._tokens.width if self._tokens else 0, self._sentences.width

    @property
    def in_memory(self) -> bool:
        """True if all whitened states are held in memory."""
        return (self._tokens or self._sentences).small

    def inputs(self, row_n: np.ndarray, number_b: np.ndarray) -> StateInputs:
        """Return the inputs for tokens, by row in the whole corpus (N,), and for utterances, by number (B,)."""
        token_nd = self._tokens.rows(row_n) if self._tokens else torch.empty(len(row_n), 0)
        return StateInputs(token_nd, self._sentences.rows(number_b))


class _Whitened:
    """The whitened vectors of tokens or of utterances; held in memory if they are small."""

    def __init__(self, folder: Path, names: Sequence[str], whiteners: Sequence[Any], exponent: float) -> None:
        self._parts = [load_array(folder / "states" / f"{name}.npy") for name in names]
        self._whiteners, self._key = whiteners, (str(folder.resolve()), *names, exponent)
        self.width = sum(part.shape[1] for part in self._parts) + 1
        self.small = 4 * len(self._parts[0]) * self.width <= _IN_MEMORY
        self._whole: Tensor | None = None

    def rows(self, row_n: np.ndarray) -> Tensor:
        """Return the vectors at rows (N,), as (N, width)."""
        if not self.small:
            return self._read(row_n)
        if self._whole is None:
            self._whole = _kept.pop(self._key, None)  # and put back at the end, as the last one used
            if self._whole is None:
                self._whole = self._read_all()
            while _kept and sum(4 * x.numel() for x in (self._whole, *_kept.values())) > _IN_MEMORY:
                del _kept[next(iter(_kept))]
            _kept[self._key] = self._whole
        return self._whole.index_select(0, torch.from_numpy(row_n))

    def _read(self, rows: Any) -> Tensor:
        return whitened(self._whiteners, [torch.from_numpy(np.array(part[rows])).float() for part in self._parts])

    def _read_all(self) -> Tensor:
        rows = len(self._parts[0])
        whole = torch.empty(rows, self.width)
        for first in range(0, rows, _ROWS_AT_ONCE):
            part = slice(first, min(first + _ROWS_AT_ONCE, rows))
            whole[part] = self._read(part)
        return whole


_kept: dict[tuple[Any, ...], Tensor] = {}
"""The whitened states in this process by folder, names and exponent, for later trials: those used last, of at most
`_IN_MEMORY` bytes together."""


def state_sizes(model: BERTSpec, features: Path, labels: Labels) -> tuple[int, int]:
    """Return `States.sizes` of a model, from the moments in the folder `features` alone."""
    names, sentence = state_names(model, labels)
    tokens = sum(len(Moments.load(moments_file(features, name)).mean_h) for name in names)
    return tokens + 1 if names else 0, len(Moments.load(moments_file(features, sentence)).mean_h) + 1
