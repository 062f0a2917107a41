"""Public scores of labels by their names, as linear maps of a frozen encoder's last states.

`examples/pretrain_encoder.py` learns them beside the encoder (`Names`). A label's name is part of the schema, so its
score costs no ε. `public/names.npz` in the folder of an encoded corpus holds the maps for the labels of the corpus.

Shapes: h hidden, x labels, e size of the learnt space.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from edp.spec import UserError
from trainables.config import BERTSpec
from trainables.corpora.labels import Labels, words_of
from trainables.features.compute_states import hidden_states
from trainables.features.states import NAME_SCORES
from trainables.features.token_features import encode_utterances
from trainables.records.files import atomic_write, reading

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from trainables.features.word_pieces import WordPieces

NAMES = "names.safetensors"
"""The file in an encoder's folder with the learnt weights of the scores of names."""
TAG_KINDS = "OBI"


def readable(label: str) -> str:
    """Return a label's name as plain words: `B-fromloc.city_name` is `fromloc city name`."""
    return " ".join(words_of(re.sub(r"^[BI]-", "", label))) or "other"


def name_vectors(encoder: PreTrainedModel, pieces: WordPieces, names: Sequence[str]) -> Tensor:
    """Return vectors of labels' names, (names, h): mean states of the encoder, scaled to a norm of sqrt(hidden)."""
    distinct = list(dict.fromkeys(names))
    training = encoder.training
    encoder.eval()
    batch = encode_utterances([name.split() for name in distinct], pieces)
    vectors = hidden_states(encoder, batch, ["sentence_mean_last"])[0].cpu().clone()
    encoder.train(training)
    vectors = normalize(vectors, dim=1) * vectors.shape[1] ** 0.5
    return vectors[[distinct.index(name) for name in names]]


@dataclass(frozen=True)
class NameScores:
    """The scores `weight · state + bias` of tags, weight (K, H), and of intents, weight (I, H), by their names."""

    tag_kh: Tensor
    tag_k: Tensor
    intent_ih: Tensor
    intent_i: Tensor

    def save(self, folder: Path) -> None:
        """Write the file of an encoded corpus' folder that `load` reads."""
        (folder / NAME_SCORES).parent.mkdir(exist_ok=True)
        with atomic_write(folder / NAME_SCORES) as partial, partial.open("wb") as file:
            np.savez(file, **{name: value.numpy() for name, value in vars(self).items()})

    @classmethod
    def load(cls, folder: Path) -> NameScores:
        """Read the file that `save` wrote."""
        with reading(folder / NAME_SCORES), np.load(folder / NAME_SCORES) as saved:
            return cls(*(torch.from_numpy(saved[name]) for name in ("tag_kh", "tag_k", "intent_ih", "intent_i")))


def name_scores(encoder: PreTrainedModel, pieces: WordPieces, learnt: Path, labels: Labels) -> NameScores:
    """Return the scores of a corpus' labels.

    Args:
        encoder: the frozen encoder, which also reads the names.
        learnt: the file `NAMES` of its folder.
    """
    from safetensors.torch import load_file

    with reading(learnt):
        saved = load_file(learnt)

    def bilinear(kind: str, vector_xh: Tensor) -> tuple[Tensor, Tensor]:
        name_xe = vector_xh @ saved[f"{kind}.name.weight"].T / sqrt(len(saved[f"{kind}.name.weight"]))
        return name_xe @ saved[f"{kind}.state.weight"], name_xe @ saved[f"{kind}.state.bias"]

    hidden = saved["kinds.weight"].shape[1]
    vector_kh = torch.zeros(len(labels.tags), hidden)
    if labels.has_slots:
        vector_kh[1:] = name_vectors(encoder, pieces, [readable(tag) for tag in labels.tags[1:]])
    kind_k = torch.tensor([TAG_KINDS.index(tag[0]) for tag in labels.tags])
    tag_kh, tag_k = bilinear("tag_names", vector_kh)
    intents = name_vectors(encoder, pieces, [readable(intent) for intent in labels.intents])
    return NameScores(
        tag_kh + saved["kinds.weight"][kind_k],
        tag_k + saved["kinds.bias"][kind_k],
        *bilinear("intent_names", intents if labels.has_intents else torch.zeros(1, hidden)),
    )


def learnt_names(model: BERTSpec) -> Path:
    """Return the file with the encoder's learnt scores of names.

    Raises:
        UserError: if its folder has none, or as `available_encoder`.
    """
    from trainables.features.pretrained import available_encoder

    file = available_encoder(model).folder / NAMES
    if not file.is_file():
        raise UserError(
            f"model.name_prior = {model.name_prior:g}: {model.pretrained} has learnt no scores of names; allowed: 0, "
            "or an encoder of examples/pretrain_encoder.py, with --objective supervised"
        )
    return file
