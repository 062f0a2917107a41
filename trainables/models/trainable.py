"""The trained part of a model: all of it, its heads, or its heads and adapters (Hu et al. 2022). The rest has no noise.

With gradient checkpointing (Chen et al. 2016) only the inputs of an encoder's layers are kept for the backward pass,
which runs each layer again before it goes through it. The layers' rules (`edp.per_example`) keep what they record with
in the graph, so it is freed as well, and comes from the second run. Nothing is recorded twice, since no gradient
reaches the second run's outputs. Dropout is the same in both runs: it follows the utterances' keys, and PyTorch's
generator is set back.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from edp.spec import UserError
from trainables.config import BERTSpec, ModelSpec
from trainables.models.joint import JointModel

LORA_RANK = 8
"""Default of `lora_rank`."""
SCALE = 2.0  # alpha over rank of Hu et al. for GPT-2; no setting, since the learning rate does the same
_QUERY_VALUE = (
    *("query", "value", "q_lin", "v_lin", "query_proj", "value_proj", "q_proj", "v_proj", "q", "v"),
    *("Wqkv", "qkv_proj", "query_key_value"),
)
"""Names of these layers in Hugging Face's models; those of the second line hold query, key and value."""


class Adapted(nn.Module):
    """A frozen linear layer and a low-rank addition to it, `x → Wx + 2·BAx`, which is zero at first."""

    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        super().__init__()
        self.frozen = frozen
        self.down = nn.Linear(frozen.in_features, rank, bias=False)
        self.up = nn.Linear(rank, frozen.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    @property
    def weight(self) -> Tensor:
        """The frozen weight (outputs, inputs). T5 converts its activations to the type of this one."""
        return self.frozen.weight

    def forward(self, x: Tensor) -> Tensor:
        """Map (…, inputs) to (…, outputs)."""
        found: Tensor = self.frozen(x) + self.up(self.down(x)) * SCALE
        return found


def train_part(model: JointModel, spec: ModelSpec) -> None:
    """Freeze the parts that `spec.trainable` does not name, and add adapters for `lora`.

    Raises:
        UserError: if the encoder lacks the layers to adapt.
    """
    if spec.trainable == "all":
        return
    model.requires_grad_(False)
    for head in (model.intent_head, model.slot_head, model.crf):
        if head is not None:
            head.requires_grad_(getattr(head, "learnt", True))
    model.encoder_is_frozen = spec.trainable == "heads"
    if not isinstance(spec, BERTSpec) or spec.trainable == "heads":
        return
    adapt(model.get_submodule("encoder"), spec.lora_target, spec.lora_rank)


def adapt(encoder: nn.Module, target: str | None, rank: int | None) -> None:
    """Add low-rank adapters beside the linear layers that `target`, as `BERTSpec.lora_target`, names."""
    target = target or "query_value"
    found = 0
    for module in [m for layer in layers_of(encoder) for m in layer.modules()]:
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and (target == "all" or name in _QUERY_VALUE):
                setattr(module, name, Adapted(child, rank or LORA_RANK))
                found += 1
    if not found:
        raise UserError(
            f"model.lora_target = {target}: {type(encoder).__name__} has no such layers; allowed: all, for this encoder"
        )


def layers_of(encoder: nn.Module) -> list[nn.Module]:
    """Return the encoder's layers, first to last."""
    lists = [list(module) for module in encoder.modules() if isinstance(module, nn.ModuleList)]
    if not lists:
        raise UserError(f"model.trainable: {type(encoder).__name__} has no list of layers; allowed: all, heads")
    return max(lists, key=len)


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
