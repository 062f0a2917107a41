"""States of a frozen encoder, computed once a corpus, block by block, by any number of processes."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainables.corpora.labels import Labels
from trainables.data.states import moments_file, state_names
from trainables.spec import BERTSpec, ModelSpec

BLOCK = 4096
"""Utterances that one call of `write_block` takes: what a process is given at a time."""


_PIECES_AT_ONCE = 4096


def all_state_names(models: Iterable[ModelSpec], labels: Labels) -> list[str]:
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
            tokens, sentence = state_names(both, labels)
            found |= {*tokens, sentence}
    return sorted(found)


def missing_states(folder: Path, names: Sequence[str]) -> list[str]:
    """Those of `names` that are not, or not whole, in an encoded corpus' folder."""
    return [
        name
        for name in names
        if not (folder / "states" / f"{name}.npy").is_file() or not moments_file(folder / "features", name).is_file()
    ]


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
    from trainables.data.encoded_corpus import EncodedCorpus
    from trainables.frozen.encoder import hidden_states

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
    from trainables.frozen.encoder import load_frozen

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
    """Arrays one after the other, by way of the disk. Written, not mapped: where a mapped file finds no room the system
    kills the process without a word."""
    opened = [np.load(part, mmap_mode="r") for part in parts]
    shape = (sum(len(part) for part in opened), *opened[0].shape[1:])
    descr = np.lib.format.dtype_to_descr(opened[0].dtype)
    with whole.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
        for part in opened:
            file.write(np.ascontiguousarray(part).data)
