"""Gradient checkpointing (Chen et al. 2016): of an encoder's layers, only the inputs are kept for the backward pass.

The backward pass runs each layer again before it goes through it. The layers' rules (`edp.per_example`) keep what they
record with in the graph, so it is freed as well, and comes from the second run. Nothing is recorded twice, since no
gradient reaches the second run's outputs. Dropout is the same in both runs: it follows the utterances' keys, and
PyTorch's generator is set back.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from trainables.models.joint import JointModel
from trainables.models.trainable import layers_of


def checkpoint_layers(model: JointModel) -> None:
    """Let all layers of an encoder but the last run again in the backward pass.

    The last one would run again at once, while it is all that the memory holds of layers: that saves nothing.
    """
    for layer in layers_of(model.get_submodule("encoder"))[:-1]:
        layer.forward = _Checkpointed(model, layer)


@dataclass(frozen=True)
class _Checkpointed:
    """A layer's forward pass. A copy of the model gets one of its own, which runs the copy's layer."""

    model: JointModel
    layer: nn.Module

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        plain = type(self.layer).forward
        if not torch.is_grad_enabled():
            return plain(self.layer, *inputs, **named)
        return checkpoint(plain, self.layer, *inputs, use_reentrant=False, context_fn=self._contexts, **named)

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Return the contexts of the first run and of the second."""
        recorder = self.model.recorder
        return nullcontext(), nullcontext() if recorder is None else recorder.recomputing()
