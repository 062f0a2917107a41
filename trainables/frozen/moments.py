"""Moments of a frozen encoder's states on public corpora, beside what else goes with a released model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trainables.corpora import load_corpus
from trainables.data.batching import encode_utterances
from trainables.data.encoded_corpus import EncodedCorpus
from trainables.data.features import Features
from trainables.data.states import moments_file
from trainables.data.whitening import Moments
from trainables.encoders.architecture import config_to_json
from trainables.frozen.encoder import encoder_digest, hidden_states
from trainables.frozen.states import alike, frozen_encoder
from trainables.records.files import atomic_write
from trainables.spec import BERTSpec, CorpusSpec

UTTERANCES = 4_000
"""Most of a public corpus that are read: its sentences then give 384 directions their scale to within a sixth."""


def write_moments(
    folder: Path, model: BERTSpec, names: Sequence[str], progress: Callable[[int, int], None] | None = None
) -> None:
    """Adds the public moments of states to an encoded corpus' folder, and `features/encoder.json`."""
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
    """Takes over what `write_moments` wrote into another corpus' folder for the same model."""
    (folder / "features" / "moments").mkdir(exist_ok=True)
    files = [moments_file(Path("features"), name) for name in names]
    for file in (*files, Path("features/encoder.json")):
        with atomic_write(folder / file) as partial:
            shutil.copyfile(source / file, partial)


def public_moments(
    model: BERTSpec, names: Sequence[str], features: Features, progress: Callable[[int, int], None] | None = None
) -> dict[str, Moments]:
    """Moments by the state's name, each public corpus counting the same; of a large one, a sample is read."""
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
