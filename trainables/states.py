"""States of a frozen encoder, computed once a corpus and mapped into memory; the heads are trained on them alone.

An encoded corpus' folder holds `states/NAME.npy` (`trainables.models.frozen` says what names mean): float16, one row a
token, or one an utterance, of all splits in turn. `features/moments/NAME.npz` are public moments, and
`features/encoder.json` says which encoder it was: both go with a released model. Trials choose among the names, and
whiten what they read.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from edp.spec import UserError
from trainables.batch import Batch, StateInputs
from trainables.spec import BERTSpec, ModelSpec
from trainables.whitening import Moments, whitened

BLOCK = 4096
"""Utterances that one call of `write_block` takes: what a process is given at a time."""
_PIECES_AT_ONCE = 4096
_IN_MEMORY = 1 << 30
_ROWS_AT_ONCE = 1 << 12


def has_states(model: ModelSpec) -> TypeGuard[BERTSpec]:
    """Whether the heads of `model` read states that are computed beforehand."""
    return isinstance(model, BERTSpec) and model.features is not None


def state_names(model: BERTSpec) -> tuple[tuple[str, ...], str]:
    """What the features of `model` are made of: of a token, layer by layer, and of a sentence."""
    features = model.features
    assert features is not None, "asked for"
    last = model.layers or "last"
    tokens = tuple(f"token_{features.pieces}_{layer}" for layer in features.layer_numbers)
    return tokens, f"sentence_{features.sentence}_{last}"


def all_state_names(models: Iterable[ModelSpec]) -> list[str]:
    """What models together may read, in every combination: layers, pieces and sentences of one and of another."""
    chosen = [m for m in models if isinstance(m, BERTSpec) and m.features is not None]
    found = set()
    for model in chosen:
        for layers in chosen:
            assert model.features is not None
            assert layers.features is not None
            both = model.model_copy(
                update={"features": model.features.model_copy(update={"layers": layers.features.layers})}
            )
            tokens, sentence = state_names(both)
            found |= {*tokens, sentence}
    return sorted(found)


def missing_states(folder: Path, names: Sequence[str]) -> list[str]:
    """Those of `names` that are not, or not whole, in an encoded corpus' folder."""
    return [
        name
        for name in names
        if not (folder / "states" / f"{name}.npy").is_file() or not moments_file(folder / "features", name).is_file()
    ]


def moments_file(features: Path, name: str) -> Path:
    """Where the public moments of a state are."""
    return features / "moments" / f"{name}.npz"


def blocks(sizes: dict[str, int]) -> list[tuple[str, int, int]]:
    """Split, first and last utterance (excluded) of each block of a corpus."""
    return [(s, a, min(a + BLOCK, size)) for s, size in sizes.items() for a in range(0, size, BLOCK)]


def write_block(
    folder: Path, model: BERTSpec, names: Sequence[str], block: tuple[str, int, int], out: Path, number: int
) -> int:
    """Computes the states of a block of an encoded corpus; returns how many utterances that were.

    Args:
        out: where `NAME-NUMBER.npy` goes, for each name and for `read`, the tokens that the encoder had room for.
    """
    from trainables.encoded_corpus import EncodedCorpus
    from trainables.models.frozen import hidden_states

    corpus, encoder = EncodedCorpus.open(folder), frozen_encoder(model)
    split: Any = block[0]
    rows = np.arange(block[1], block[2])
    lengths_n = corpus.lengths(split)[rows]
    first_n = lengths_n.cumsum() - lengths_n
    hidden = encoder.config.hidden_size
    found = {
        name: np.zeros((int(lengths_n.sum()) if name.startswith("token") else len(rows), hidden), np.float16)
        for name in names
    }
    read_n = np.zeros(len(rows), np.int32)
    for places in alike(lengths_n):
        batch = corpus.batch(split, rows[places])
        read_n[places] = batch.lengths_b.numpy()
        row_bt = first_n[places][:, None] + np.arange(batch.mask_bt.shape[1])
        for name, state in zip(names, hidden_states(encoder, batch, names), strict=True):
            half = state.half().cpu()
            if name.startswith("token"):
                found[name][row_bt[batch.mask_bt.numpy()]] = half[batch.mask_bt].numpy()
            else:
                found[name][places] = half.numpy()
    for name, array in {**found, "read": read_n}.items():
        np.save(out / f"{name}-{number}.npy", array)
    return len(rows)


def alike(lengths_n: np.ndarray) -> list[np.ndarray]:
    """Places of utterances of like length, so many at once that little is padding and caches hold them."""
    order = np.argsort(lengths_n, kind="stable")
    size_n = lengths_n[order] + 2
    found, first = [], 0
    for end in range(1, len(order) + 1):
        if end == len(order) or size_n[end] * (end + 1 - first) > _PIECES_AT_ONCE:
            found.append(order[first:end])
            first = end
    return found


_loaded: dict[str, Any] = {}


def frozen_encoder(model: BERTSpec) -> Any:
    """The encoder, kept for the next block of this process."""
    from trainables.models.frozen import load_frozen

    key = f"{model.pretrained} {model.layers}"
    if key not in _loaded:
        _loaded.clear()
        encoder: Any = load_frozen(model)
        _loaded[key] = encoder.to("cuda" if torch.cuda.is_available() else "cpu")
    return _loaded[key]


RunBlocks = Callable[[Callable[[int], int], int], Iterable[int]]
"""Runs a function of 0 to n - 1 and yields what it returns, in any order: in this process, or spread over others."""


def in_turn(work: Callable[[int], int], blocks: int) -> Iterable[int]:
    """One block after the other, here."""
    return map(work, range(blocks))


def write_states(
    folder: Path,
    model: BERTSpec,
    names: Sequence[str],
    *,
    progress: Callable[[int, int], None] | None = None,
    run: RunBlocks = in_turn,
) -> None:
    """Adds states to an encoded corpus' folder, each whole or not at all; a block at a time is in memory.

    Raises:
        UserError: for an encoder that cannot be had, or lacks a layer.
    """
    sizes = json.loads((folder / "meta.json").read_text(encoding="utf-8"))["sizes"]
    todo, total, done = blocks(sizes), sum(sizes.values()), 0
    (folder / "states").mkdir(exist_ok=True)
    out = Path(tempfile.mkdtemp(prefix=".building-", dir=folder / "states"))
    out.chmod(0o755)
    try:

        def work(number: int) -> int:
            return write_block(folder, model, names, todo[number], out, number)

        for utterances in run(work, len(todo)):
            done += utterances
            if progress is not None:
                progress(done, total)
        for name in ("read", *names):
            _join([out / f"{name}-{number}.npy" for number in range(len(todo))], out / f"{name}.npy")
            os.replace(out / f"{name}.npy", folder / "states" / f"{name}.npy")
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _join(parts: list[Path], whole: Path) -> None:
    """Arrays one after the other, by way of the disk."""
    opened = [np.load(part, mmap_mode="r") for part in parts]
    shape = (sum(len(part) for part in opened), *opened[0].shape[1:])
    out = np.lib.format.open_memmap(whole, mode="w+", dtype=opened[0].dtype, shape=shape)
    first = 0
    for part in opened:
        out[first : first + len(part)] = part
        first += len(part)
    out.flush()


class States:
    """The whitened states that a model's heads read, of every token and utterance of an encoded corpus."""

    def __init__(self, folder: Path, model: BERTSpec) -> None:
        """Maps what `write_states` wrote."""
        assert model.features is not None, "asked for"
        names, sentence = state_names(model)
        exponent = model.features.whiten
        of = {
            name: Moments.load(moments_file(folder / "features", name)).whitener(exponent)
            for name in (*names, sentence)
        }
        self.read_u = np.load(folder / "states" / "read.npy")
        self._tokens = _Whitened(folder, names, [of[name] for name in names], exponent)
        self._sentences = _Whitened(folder, [sentence], [of[sentence]], exponent)

    @property
    def sizes(self) -> tuple[int, int]:
        """Width of a token's vector and of a sentence's."""
        return self._tokens.width, self._sentences.width

    @property
    def in_memory(self) -> bool:
        """Whether all of them are held in memory, whitened."""
        return self._tokens.small

    def inputs(self, row_n: np.ndarray, number_b: np.ndarray) -> StateInputs:
        """Of tokens at rows (N,), counted over the whole corpus, and of the utterances they belong to."""
        return StateInputs(self._tokens.rows(row_n), self._sentences.rows(number_b))


class _Whitened:
    def __init__(self, folder: Path, names: Sequence[str], whiteners: Sequence[Any], exponent: float) -> None:
        self._parts = [np.load(folder / "states" / f"{name}.npy", mmap_mode="r") for name in names]
        self._whiteners, self._key = whiteners, (str(folder.resolve()), *names, exponent)
        self.width = sum(part.shape[1] for part in self._parts) + 1
        self.small = 4 * len(self._parts[0]) * self.width <= _IN_MEMORY
        self._whole: Tensor | None = None

    def rows(self, row_n: np.ndarray) -> Tensor:
        """Rows (N,) as (N, width)."""
        if not self.small:
            return self._read(row_n)
        if self._whole is None:
            self._whole = _kept.pop(self._key, None)
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
"""What this process has whitened, by folder, states and exponent, for the trials after this one: what was used last, up
to `_IN_MEMORY` together. Whoever reads one of them holds it, whatever is dropped here meanwhile."""


class NewStates:
    """The same of utterances that are in no corpus: what a server needs beside the heads."""

    def __init__(self, model: BERTSpec, features: Path, encoder: Any) -> None:
        assert model.features is not None, "asked for"
        names, sentence = state_names(model)
        self._names, self._encoder = [*names, sentence], encoder
        self._whiteners = [
            Moments.load(moments_file(features, name)).whitener(model.features.whiten) for name in self._names
        ]

    def __call__(self, batch: Batch) -> Batch:
        """A batch of sub-words as one of states."""
        from dataclasses import replace

        from trainables.models.frozen import hidden_states

        found = [state.half().float().cpu() for state in hidden_states(self._encoder, batch, self._names)]
        tokens = [state[batch.mask_bt] for state in found[:-1]]
        inputs = StateInputs(whitened(self._whiteners[:-1], tokens), whitened(self._whiteners[-1:], found[-1:]))
        return replace(batch, inputs=inputs)


def state_sizes(model: BERTSpec, features: Path) -> tuple[int, int]:
    """Width of a token's vector and of a sentence's, from the moments in `features`."""
    names, sentence = state_names(model)
    tokens = sum(len(Moments.load(moments_file(features, name)).mean_h) for name in names)
    return tokens + 1, len(Moments.load(moments_file(features, sentence)).mean_h) + 1


def served_states(model: BERTSpec, bundle: Path) -> NewStates:
    """What makes states of new utterances, with the encoder in the bundle, or else the one that the spec names.

    Raises:
        UserError: for an encoder that cannot be had, or is not the one that the heads were trained on.
    """
    from trainables.models.frozen import encoder_digest, load_frozen

    about = encoder_of(bundle / "features")
    taken = bundle / "encoder"
    encoder = load_frozen(model, taken if taken.is_dir() else None)
    digest = encoder_digest(encoder)
    if digest != about["digest"]:
        raise UserError(
            f"model.pretrained = {model.pretrained}: its weights have SHA-256 {digest}, the heads were trained on "
            f"{about['digest']}; allowed: the same encoder, or a model that is registered with its encoder"
        )
    return NewStates(model, bundle / "features", encoder)


def encoder_of(features: Path) -> dict[str, Any]:
    """Which encoder the states beside these features are of: `pretrained`, `digest`, `weights`, `architecture`."""
    about: dict[str, Any] = json.loads((features / "encoder.json").read_text(encoding="utf-8"))
    return about


def take_encoder(model: BERTSpec, folder: Path) -> None:
    """Saves the encoder that `model` names, as a folder that `served_states` reads."""
    from trainables.models.encoders import quiet

    with quiet():
        frozen_encoder(model).save_pretrained(folder)
