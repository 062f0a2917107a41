"""Compute states of a frozen encoder: of an encoded corpus, their moments on public corpora, and of new utterances.

A state's name says what it is: `token_first_2` is the state of a word's first sub-word after layer 2, and
`sentence_mean_last` the mean of all states of an utterance after the last layer, including special sub-words.
With `auto` it is a decoder's last sub-word, or
else a word's first one and an utterance's mean. If it ends with `_both`, a decoder has read both directions.

Functions import `transformers` themselves, since that takes seconds.

Shapes: b utterances, t tokens, s sub-words, h hidden.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from edp.spec import UserError
from trainables.config import BERTSpec, CorpusSpec, ModelSpec
from trainables.corpora.labels import Labels
from trainables.features.device import check_memory, frozen_device
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.features.states import Moments, has_states, moments_file, state_names, whitened
from trainables.features.token_features import (
    Batch,
    Features,
    PieceInputs,
    StateInputs,
    encode_utterances,
    public_tokens,
)
from trainables.records.files import atomic_write, unfinished_folder, write_json

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BLOCK = 4096
"""The utterances of one block, which a process computes at a time."""
UTTERANCES = 4_000
"""The most utterances that are read of a public corpus. They are enough to estimate the scale of 384 directions to
within a sixth."""
_PIECES_AT_ONCE = {"cpu": 256, "cuda": 4096}
"""The sub-words of a batch. A CPU is nearly as fast with few, and a batch of few utterances is soon filled up."""
_SAID_EVERY = 500
"""Utterances of a public corpus after which its progress is shown again."""
_SCALE = 1 / 64
"""The states of models other than BERT's kind are divided by 64: some exceed half precision's 65,504 between layers.
Whitening has a scale of its own, so nothing else changes."""


def load_frozen(
    spec: BERTSpec, folder: Path | None = None, device: torch.device = torch.device("cpu")
) -> PreTrainedModel:
    """Load the encoder in `folder`, or else the one that `spec.pretrained` names, for evaluation on `device`.

    It is on the CPU, in the type that `trainables.features.device.frozen_type` gives for the device.

    Raises:
        UserError: for an encoder that is not available, or has fewer layers than the spec's features need.
    """
    from trainables.features.encoder import Encoder, check_both_ways
    from trainables.features.pretrained import available_encoder

    found = available_encoder(spec) if folder is None else Encoder.read(folder, str(spec.pretrained))
    found.check(spec)
    encoder: Any = found.load(layers=spec.layers, device=device).eval()
    if spec.features is not None and spec.features.attention == "both":
        check_both_ways(encoder, found.name)
    return encoder


@lru_cache(maxsize=1)
def frozen_encoder(spec: BERTSpec) -> PreTrainedModel:
    """Return the encoder that `spec` names, on a GPU if there is one; it is kept for the next block of this process.

    Raises:
        UserError: as `load_frozen`, and for an encoder that is larger than the GPU's free memory.
    """
    device = frozen_device()
    encoder: Any = load_frozen(spec, device=device)
    check_memory(encoder, device, str(spec.pretrained), "or a process without the GPU")
    return encoder.to(device)


def encoder_digest(encoder: nn.Module) -> str:
    """Return the SHA-256 of an encoder's weights and their names, whatever files they came from.

    Weights in bfloat16 count as the same numbers in float32, so that the digest is the same on every device.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(encoder.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)}\n".encode())
        exact = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
        digest.update(exact.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


@torch.inference_mode()
def hidden_states(encoder: PreTrainedModel, batch: Batch, names: Sequence[str]) -> list[Tensor]:
    """Return the named states, float32: (B, T, H) for tokens, 0 beyond the utterance, and (B, H) for sentences.

    The encoder computes them in the type of its weights.

    Raises:
        UserError: for states that are not finite in half precision, in which they are kept.
    """
    from trainables.features.encoder import fills_gaps, mean_state, run_encoder, sub_word

    inputs = batch.inputs
    assert isinstance(inputs, PieceInputs), "an encoder reads sub-words"
    device = next(encoder.parameters()).device
    piece_bs, mask_bs = inputs.piece_bs.to(device), inputs.piece_mask_bs.to(device)
    place_bt = {"first": inputs.first_bt.to(device), "last": inputs.last_bt.to(device)}
    place_b = {"first": torch.zeros_like(inputs.pieces_b), "last": inputs.pieces_b - 1}
    real_bt1 = batch.mask_bt.to(device)[:, :, None]
    scale = 1.0 if fills_gaps(encoder.config) else _SCALE
    states: dict[bool, Sequence[Tensor]] = {}
    for both in {name.endswith("_both") for name in names}:
        states[both] = run_encoder(encoder, piece_bs, mask_bs, both=both, every=True).hidden_states
    found = []
    for name in names:
        kind, read, layer, *way = name.split("_")
        read = sub_word(encoder.config, read, "mean" if kind == "sentence" else "first")
        state_bsh = states[bool(way)][-1 if layer == "last" else int(layer)].float()
        if kind == "sentence":
            row_b = torch.arange(len(state_bsh), device=device)
            state = mean_state(state_bsh, mask_bs) if read == "mean" else state_bsh[row_b, place_b[read].to(device)]
        else:
            state = state_bsh.gather(1, place_bt[read][:, :, None].expand(-1, -1, state_bsh.shape[2])) * real_bt1
        state = state * scale
        if not state.half().isfinite().all():
            raise UserError(f"model.pretrained: state {name} has a value beyond half precision; allowed: other layers")
        found.append(state)
    return found


def alike(sizes_n: np.ndarray, device: torch.device) -> list[tuple[np.ndarray, int]]:
    """Group the indices of utterances of equal size; return each group with the number of rows for this size.

    The last group of a size may have fewer utterances than rows.
    """
    found = []
    for size in np.unique(sizes_n):
        rows = max(1, _PIECES_AT_ONCE[device.type] // int(size))
        own = np.flatnonzero(sizes_n == size)
        found += [(own[first : first + rows], rows) for first in range(0, len(own), rows)]
    return found


def all_state_names(models: Iterable[ModelSpec], labels: Labels) -> list[str]:
    """Return the names of all states that the models may read, in any combination of their settings."""
    found = set()
    for model in models:
        if has_states(model):
            tokens, sentence = state_names(model, labels)
            found |= {*tokens, sentence}
    return sorted(found)


def missing_states(folder: Path, names: Sequence[str]) -> list[str]:
    """Return those of `names` whose states or moments are not in the folder of an encoded corpus."""
    return [
        name
        for name in names
        if not (folder / "states" / f"{name}.npy").is_file() or not moments_file(folder / "features", name).is_file()
    ]


def blocks(sizes: dict[str, int]) -> list[tuple[str, int, int]]:
    """Return the split, first and last utterance (excluded) of each block of a corpus."""
    return [(s, a, min(a + BLOCK, size)) for s, size in sizes.items() for a in range(0, size, BLOCK)]


def write_block(
    folder: Path, model: BERTSpec, names: Sequence[str], block: tuple[str, int, int], out: Path, number: int
) -> int:
    """Compute the states of a block of an encoded corpus; return its number of utterances.

    The states of an utterance do not depend on the others of the corpus. No batch has padding. The shape of a batch,
    on which the rounding of products depends, is a function of the utterance's number of sub-words.

    Args:
        out: the folder for `NAME-NUMBER.npy`, for each name and for `read`, the number of tokens of each utterance that
            fit into the encoder.
    """
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
    whole = corpus.batch(split, rows).inputs
    assert isinstance(whole, PieceInputs), "an encoder reads sub-words"
    for group, size in alike(whole.pieces_b.numpy(), encoder.device):
        places = np.resize(group, size)  # a group that lacks rows repeats its own
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


RunBlocks = Callable[[Callable[[int], int], int], Iterable[int]]
"""A function that calls another with 0 to n - 1, in this process or others, and yields the results in any order."""


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
    """Add states to the folder of an encoded corpus, each whole or not at all, with one block at a time in memory.

    Raises:
        UserError: for an encoder that is not available, or lacks a layer.
    """
    sizes = json.loads((folder / "meta.json").read_text(encoding="utf-8"))["sizes"]
    todo, total, done = blocks(sizes), sum(sizes.values()), 0
    (folder / "states").mkdir(exist_ok=True)
    out = unfinished_folder(folder / "states", ".building-")
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
    """Join arrays on disk."""
    opened = [np.load(part, mmap_mode="r") for part in parts]
    shape = (sum(len(part) for part in opened), *opened[0].shape[1:])
    descr = np.lib.format.dtype_to_descr(opened[0].dtype)
    # Written, not mapped: if a disk fills up under a mapped file, the system kills the process without a message.
    with whole.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
        for part in opened:
            file.write(np.ascontiguousarray(part).data)


def write_moments(
    folder: Path, model: BERTSpec, names: Sequence[str], progress: Callable[[int, int], None] | None = None
) -> None:
    """Add the public moments of states to the folder of an encoded corpus, and `features/encoder.json`."""
    from trainables.features.encoder import config_to_json

    features = folder / "features"
    (features / "moments").mkdir(exist_ok=True)
    for name, moments in public_moments(model, names, EncodedCorpus.open(folder).features(), progress).items():
        moments.save(moments_file(features, name))
    encoder = frozen_encoder(model)
    about = {
        "pretrained": model.pretrained,
        "digest": encoder_digest(encoder),
        "weights": sum(p.numel() for p in encoder.parameters()),
        "architecture": json.loads(config_to_json(encoder.config)),
    }
    write_json(features / "encoder.json", about)


def copy_moments(source: Path, folder: Path, names: Sequence[str]) -> None:
    """Copy the files of `write_moments` from one encoded corpus to another one for the same model."""
    (folder / "features" / "moments").mkdir(exist_ok=True)
    files = [moments_file(Path("features"), name) for name in names]
    for file in (*files, Path("features/encoder.json")):
        with atomic_write(folder / file) as partial:
            shutil.copyfile(source / file, partial)


def public_moments(
    model: BERTSpec, names: Sequence[str], features: Features, progress: Callable[[int, int], None] | None = None
) -> dict[str, Moments]:
    """Return the moments of each state over the public corpora, which have equal weights; large ones are sampled."""
    assert model.features is not None, "the model has features"
    corpora = [_sample(spec, f"model.features.public.{i}") for i, spec in enumerate(model.features.public)]
    total, done = sum(len(corpus) for corpus in corpora), 0
    encoder = frozen_encoder(model)
    sums: dict[str, list[tuple[int, Tensor, Tensor]]] = {name: [] for name in names}
    for corpus in corpora:
        added = {name: (0, torch.zeros(()), torch.zeros(())) for name in names}
        for places, _ in alike(np.array([len(tokens) for tokens in corpus]), encoder.device):
            batch = encode_utterances([corpus[place] for place in places], features)
            for name, state in zip(names, hidden_states(encoder, batch, names), strict=True):
                # Rounded to half precision, as the states of the private corpus are kept.
                x_nh = (state.cpu()[batch.mask_bt] if name.startswith("token") else state.cpu()).half().float()
                n, sum_h, sum_hh = added[name]
                added[name] = n + len(x_nh), sum_h + x_nh.sum(0).double(), sum_hh + (x_nh.t() @ x_nh).double()
            done += len(places)
            if progress is not None and (done == total or done // _SAID_EVERY > (done - len(places)) // _SAID_EVERY):
                progress(done, total)
        for name in names:
            sums[name].append(added[name])
    return {name: Moments.of(corpora_sums) for name, corpora_sums in sums.items()}


def _sample(spec: CorpusSpec, field: str) -> list[tuple[str, ...]]:
    """Return the tokens of a public corpus' utterances, or of a random sample of them."""
    tokens = public_tokens(spec, field)
    if len(tokens) <= UTTERANCES:
        return tokens
    return [tokens[i] for i in np.random.default_rng(0).permutation(len(tokens))[:UTTERANCES]]


class NewStates:
    """The states of utterances that are in no corpus, for a server of heads."""

    def __init__(self, model: BERTSpec, features: Path, encoder: Any, labels: Labels) -> None:
        assert model.features is not None, "the model has features"
        names, sentence = state_names(model, labels)
        self._names, self._encoder = [*names, sentence], encoder
        self._whiteners = [
            Moments.load(moments_file(features, name)).whitener(model.features.whiten) for name in self._names
        ]

    def __call__(self, batch: Batch) -> Batch:
        """Turn a batch of sub-words into a batch of states."""
        found = [state.half().float().cpu() for state in hidden_states(self._encoder, batch, self._names)]
        tokens = [state[batch.mask_bt] for state in found[:-1]]
        token_nd = whitened(self._whiteners[:-1], tokens) if tokens else torch.empty(int(batch.lengths_b.sum()), 0)
        return replace(batch, inputs=StateInputs(token_nd, whitened(self._whiteners[-1:], found[-1:])))


def served_states(model: BERTSpec, bundle: Path, labels: Labels) -> NewStates:
    """Return the states of new utterances, by the encoder in the bundle or else the one that the spec names.

    Raises:
        UserError: for an encoder that is not available, or is not the one that the heads were trained on.
    """
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
    """Return what `features/encoder.json` tells of the encoder: `pretrained`, `digest`, `weights`, `architecture`."""
    about: dict[str, Any] = json.loads((features / "encoder.json").read_text(encoding="utf-8"))
    return about


def take_encoder(model: BERTSpec, folder: Path) -> None:
    """Save the encoder that `model` names to a folder that `served_states` reads."""
    from trainables.features.encoder import quiet

    with quiet():
        frozen_encoder(model).save_pretrained(folder)
