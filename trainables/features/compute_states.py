"""Compute states of a frozen encoder: of an encoded corpus, their moments on public corpora, and of new utterances.

Functions import the encoder themselves: `transformers` takes seconds to import.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edp.spec import UserError
from trainables.config import BERTSpec, CorpusSpec, ModelSpec
from trainables.corpora import load_corpus
from trainables.corpora.labels import Labels
from trainables.features.batch import Batch, StateInputs
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.features.states import Moments, moments_file, state_names, whitened
from trainables.features.token_features import Features, encode_utterances
from trainables.records.files import atomic_write

BLOCK = 4096
"""Utterances that one call of `write_block` takes: what a process is given at a time."""


_PIECES_AT_ONCE = 4096


def all_state_names(models: Iterable[ModelSpec], labels: Labels) -> list[str]:
    """Return the names of all states that the models may read, in every combination of their layers and sentences."""
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
    """Return those of `names` that are not, or not whole, in an encoded corpus' folder."""
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
    """Compute the states of a block of an encoded corpus; return its number of utterances.

    Args:
        out: where `NAME-NUMBER.npy` goes, for each name and for `read`, the tokens that the encoder had room for.
    """
    from trainables.features.frozen_encoder import hidden_states

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
    """Group the places of utterances by length: little padding, and batches that fit into caches."""
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
    """Return the encoder, kept for the next block of this process."""
    from trainables.features.frozen_encoder import load_frozen

    key = f"{model.pretrained} {model.layers}"
    if key not in _loaded:
        _loaded.clear()
        encoder: Any = load_frozen(model)
        _loaded[key] = encoder.to("cuda" if torch.cuda.is_available() else "cpu")
    return _loaded[key]


RunBlocks = Callable[[Callable[[int], int], int], Iterable[int]]
"""Runs a function of 0 to n - 1 and yields what it returns, in any order: in this process, or spread over others."""


def in_turn(work: Callable[[int], int], blocks: int) -> Iterable[int]:
    """Run one block after the other, in this process."""
    return map(work, range(blocks))


def write_states(
    folder: Path,
    model: BERTSpec,
    names: Sequence[str],
    *,
    progress: Callable[[int, int], None] | None = None,
    run: RunBlocks = in_turn,
) -> None:
    """Add states to an encoded corpus' folder, each whole or not at all; a block at a time is in memory.

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
    """Join arrays by way of the disk. They are written, not mapped: where a mapped file finds no room the system kills
    the process without a message."""
    opened = [np.load(part, mmap_mode="r") for part in parts]
    shape = (sum(len(part) for part in opened), *opened[0].shape[1:])
    descr = np.lib.format.dtype_to_descr(opened[0].dtype)
    with whole.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
        for part in opened:
            file.write(np.ascontiguousarray(part).data)


UTTERANCES = 4_000
"""Most of a public corpus that are read: its sentences then give 384 directions their scale to within a sixth."""


def write_moments(
    folder: Path, model: BERTSpec, names: Sequence[str], progress: Callable[[int, int], None] | None = None
) -> None:
    """Add the public moments of states to an encoded corpus' folder, and `features/encoder.json`."""
    from trainables.features.encoder_architecture import config_to_json
    from trainables.features.frozen_encoder import encoder_digest

    features = folder / "features"
    (features / "moments").mkdir(exist_ok=True)
    for name, moments in public_moments(model, names, EncodedCorpus.open(folder).features(), progress).items():
        with atomic_write(moments_file(features, name)) as partial:
            moments.save(partial)
    encoder = frozen_encoder(model)
    about = {
        "pretrained": model.pretrained,
        "digest": encoder_digest(encoder),
        "weights": sum(p.numel() for p in encoder.parameters()),
        "architecture": json.loads(config_to_json(encoder.config)),
    }
    with atomic_write(features / "encoder.json") as partial:
        partial.write_text(json.dumps(about, indent=1), encoding="utf-8")


def copy_moments(source: Path, folder: Path, names: Sequence[str]) -> None:
    """Copy the files that `write_moments` wrote to another corpus' folder for the same model."""
    (folder / "features" / "moments").mkdir(exist_ok=True)
    files = [moments_file(Path("features"), name) for name in names]
    for file in (*files, Path("features/encoder.json")):
        with atomic_write(folder / file) as partial:
            shutil.copyfile(source / file, partial)


def public_moments(
    model: BERTSpec, names: Sequence[str], features: Features, progress: Callable[[int, int], None] | None = None
) -> dict[str, Moments]:
    """Return the moments by the state's name, each public corpus with equal weight; of a large one, a sample is
    read."""
    from trainables.features.frozen_encoder import hidden_states

    assert model.features is not None, "asked for"
    corpora = [_sample(spec, f"model.features.public.{i}") for i, spec in enumerate(model.features.public)]
    total, done = sum(len(corpus) for corpus in corpora), 0
    encoder = frozen_encoder(model)
    sums: dict[str, list[tuple[int, Tensor, Tensor]]] = {name: [] for name in names}
    for corpus in corpora:
        added = {name: (0, torch.zeros(()), torch.zeros(())) for name in names}
        for places in alike(np.array([len(tokens) for tokens in corpus])):
            batch = encode_utterances([corpus[place] for place in places], features)
            for name, state in zip(names, hidden_states(encoder, batch, names), strict=True):
                # As they are kept: in half precision.
                x_nh = (state.cpu()[batch.mask_bt] if name.startswith("token") else state.cpu()).half().float()
                n, sum_h, sum_hh = added[name]
                added[name] = n + len(x_nh), sum_h + x_nh.sum(0).double(), sum_hh + (x_nh.t() @ x_nh).double()
            done += len(places)
            if progress is not None:
                progress(done, total)
        for name in names:
            sums[name].append(added[name])
    return {name: Moments.of(corpora_sums) for name, corpora_sums in sums.items()}


def _sample(spec: CorpusSpec, field: str) -> list[tuple[str, ...]]:
    splits = load_corpus(spec, field)
    tokens = [utterance.tokens for part in (splits.train, splits.valid, splits.test) for utterance in part]
    if len(tokens) <= UTTERANCES:
        return tokens
    return [tokens[i] for i in np.random.default_rng(0).permutation(len(tokens))[:UTTERANCES]]


class NewStates:
    """The same of utterances that are in no corpus: what a server needs beside the heads."""

    def __init__(self, model: BERTSpec, features: Path, encoder: Any, labels: Labels) -> None:
        assert model.features is not None, "asked for"
        names, sentence = state_names(model, labels)
        self._names, self._encoder = [*names, sentence], encoder
        self._whiteners = [
            Moments.load(moments_file(features, name)).whitener(model.features.whiten) for name in self._names
        ]

    def __call__(self, batch: Batch) -> Batch:
        """Turn a batch of sub-words into one of states."""
        from trainables.features.frozen_encoder import hidden_states

        found = [state.half().float().cpu() for state in hidden_states(self._encoder, batch, self._names)]
        tokens = [state[batch.mask_bt] for state in found[:-1]]
        token_nd = whitened(self._whiteners[:-1], tokens) if tokens else torch.empty(int(batch.lengths_b.sum()), 0)
        return replace(batch, inputs=StateInputs(token_nd, whitened(self._whiteners[-1:], found[-1:])))


def served_states(model: BERTSpec, bundle: Path, labels: Labels) -> NewStates:
    """Return the maker of states of new utterances, with the encoder in the bundle, or else the one that the spec
    names.

    Raises:
        UserError: for an encoder that cannot be had, or is not the one that the heads were trained on.
    """
    from trainables.features.frozen_encoder import encoder_digest, load_frozen

    about = encoder_of(bundle / "features")
    taken = bundle / "encoder"
    encoder = load_frozen(model, taken if taken.is_dir() else None)
    digest = encoder_digest(encoder)
    if digest != about["digest"]:
        raise UserError(
            f"model.pretrained = {model.pretrained}: its weights have SHA-256 {digest}, the heads were trained on "
            f"{about['digest']}; allowed: the same encoder, or a model that is registered with its encoder"
        )
    return NewStates(model, bundle / "features", encoder, labels)


def encoder_of(features: Path) -> dict[str, Any]:
    """Return the identity of the encoder beside these features: `pretrained`, `digest`, `weights`, `architecture`."""
    about: dict[str, Any] = json.loads((features / "encoder.json").read_text(encoding="utf-8"))
    return about


def take_encoder(model: BERTSpec, folder: Path) -> None:
    """Save the encoder that `model` names, as a folder that `served_states` reads."""
    from trainables.features.encoder_architecture import quiet

    with quiet():
        frozen_encoder(model).save_pretrained(folder)
