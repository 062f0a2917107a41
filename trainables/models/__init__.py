"""Joint intent and slot models: `build_model` makes the model that a spec describes.

Must not import attacks, evaluation or training.
"""

from __future__ import annotations

import torch

from trainables.config import CLCSpec, ModelSpec
from trainables.corpora.labels import Labels
from trainables.models.joint import JointModel, ModelOutput, Predictions

__all__ = ["JointModel", "ModelOutput", "Predictions", "build_model"]


def build_model(
    spec: ModelSpec,
    labels: Labels,
    *,
    seed: int,
    vocabulary_size: int | None = None,
    state_sizes: tuple[int, int] | None = None,
) -> JointModel:
    """Build the model of a spec on the CPU, with weights drawn from `seed`; do not change the global generator.

    Args:
        vocabulary_size: number of sub-words in the corpus' vocabulary (BERT only), `corpus.vocabulary_size`; None: that
            of `spec.pretrained`, or BERT's 30,522 for a random start.
        state_sizes: `corpus.state_sizes`, needed if `spec.features` is set.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if isinstance(spec, CLCSpec):
            from trainables.models.clc import CLC

            return CLC(spec, labels)
        if spec.features is not None:
            from trainables.models.heads import Heads

            assert state_sizes is not None, "open the corpus with its states"
            return Heads(spec, labels, state_sizes)
        from trainables.models.bert import BERT  # transformers takes seconds to import

        return BERT(spec, labels, vocabulary_size)
