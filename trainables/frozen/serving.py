"""States of utterances that are in no corpus: what a server needs beside the heads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from edp.spec import UserError
from trainables.corpora.labels import Labels
from trainables.data.batch import Batch, StateInputs
from trainables.data.states import moments_file, state_names
from trainables.data.whitening import Moments, whitened
from trainables.frozen.states import frozen_encoder
from trainables.spec import BERTSpec


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
        """A batch of sub-words as one of states."""
        from dataclasses import replace

        from trainables.frozen.encoder import hidden_states

        found = [state.half().float().cpu() for state in hidden_states(self._encoder, batch, self._names)]
        tokens = [state[batch.mask_bt] for state in found[:-1]]
        token_nd = whitened(self._whiteners[:-1], tokens) if tokens else torch.empty(int(batch.lengths_b.sum()), 0)
        return replace(batch, inputs=StateInputs(token_nd, whitened(self._whiteners[-1:], found[-1:])))


def served_states(model: BERTSpec, bundle: Path, labels: Labels) -> NewStates:
    """What makes states of new utterances, with the encoder in the bundle, or else the one that the spec names.

    Raises:
        UserError: for an encoder that cannot be had, or is not the one that the heads were trained on.
    """
    from trainables.frozen.encoder import encoder_digest, load_frozen

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
    """Which encoder the states beside these features are of: `pretrained`, `digest`, `weights`, `architecture`."""
    about: dict[str, Any] = json.loads((features / "encoder.json").read_text(encoding="utf-8"))
    return about


def take_encoder(model: BERTSpec, folder: Path) -> None:
    """Saves the encoder that `model` names, as a folder that `served_states` reads."""
    from trainables.encoders.architecture import quiet

    with quiet():
        frozen_encoder(model).save_pretrained(folder)
