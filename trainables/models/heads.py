"""Linear heads on the states of a frozen encoder, which were computed before training (`trainables.features.states`).

The encoder is public and not a part of this model. Nothing here needs it, or the `transformers` library.

Shapes: b utterances, t tokens of each, n tokens of all, d width of a vector, c scores.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edp.per_example import GradientRecorder, Rows, register_layer
from trainables.config import BERTSpec
from trainables.corpora.labels import Labels
from trainables.features.token_features import Batch, StateInputs
from trainables.models.joint import JointModel


class TokenLinear(nn.Module):
    """A linear layer without a bias, zero at first, on the tokens of all utterances in a row."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, inputs))

    def forward(self, x_nd: Tensor, lengths_b: Tensor, kept: dict[str, Any]) -> Tensor:
        """Return the scores (N, C) of tokens (N, D) of utterances with these lengths (B,); see `StateInputs.kept`."""
        return F.linear(x_nd, self.weight)


@register_layer(TokenLinear)
def _record_token_linear(
    recorder: GradientRecorder, layer: TokenLinear, x_nd: Tensor, lengths_b: Tensor, kept: dict[str, Any]
) -> Tensor:
    """Apply the layer, and record its gradients.

    The inputs are not trained, so if a batch comes again, their rows and inner products are the same, and are kept.
    """
    micro_batch_b = recorder.micro_batch_of_example
    if "rows" not in kept or not torch.equal(kept["micro_batch_b"], micro_batch_b):
        example_n = torch.arange(len(lengths_b)).repeat_interleave(lengths_b)
        rows = recorder.rows_of(torch.arange(len(x_nd)), example_n)
        kept.update(rows=rows, micro_batch_b=micro_batch_b, x_ni=_in_order(rows, x_nd), gram=None)
    rows, x_ni = kept["rows"], kept["x_ni"]

    def gram() -> Tensor:
        if kept["gram"] is None:
            kept["gram"] = rows.gram(x_ni)
        found: Tensor = kept["gram"]
        return found

    def record(g_nc: Tensor) -> None:
        g_no = rows.take(g_nc).to(layer.weight.dtype)
        recorder.record_linear(rows, [(x_ni, layer.weight)], [], g_no, gram)

    output = F.linear(_low(x_nd, kept), layer.weight.detach())
    return recorder.hook(output, [layer.weight], record)


def _low(x_nd: Tensor, kept: dict[str, Any]) -> Tensor:
    """Return the input in the type of the products, and keep it, so that it is not converted in every step."""
    kind = x_nd.device.type
    if not torch.is_autocast_enabled(kind):
        return x_nd
    if "low" not in kept:
        kept["low"] = x_nd.to(torch.get_autocast_dtype(kind))
    found: Tensor = kept["low"]
    return found


def _in_order(rows: Rows, x_nd: Tensor) -> Tensor:
    """Return the rows in the recorder's order; the input itself, and no copy, if it has that order already."""
    if len(rows.row_n) == len(x_nd) and torch.equal(rows.row_n.cpu(), torch.arange(len(x_nd))):
        return x_nd.detach()
    return rows.take(x_nd.detach())


class Heads(JointModel):
    """Heads for the labels of a corpus, zero at first, without dropout.

    They have no bias: the constant in their input vectors takes its place. Only the heads learn from private data.
    """

    def __init__(self, spec: BERTSpec, labels: Labels, sizes: tuple[int, int]) -> None:
        """Build heads for `sizes`, the width of a token's vector and of a sentence's (`States.sizes`)."""
        super().__init__(sentence_size=sizes[1], token_size=sizes[0], labels=labels, dropout=0.0, head=spec.head)
        if labels.has_intents:
            self.intent_head = nn.Linear(sizes[1], self.intent_outputs, bias=False)
        if labels.has_slots:
            self.slot_head = TokenLinear(sizes[0], self.slot_outputs)
        for parameter in self.parameters():
            nn.init.zeros_(parameter)
        if spec.slot_prior and labels.has_intents and labels.has_slots:
            self.slots_ik = torch.zeros(len(labels.intents), len(labels.tags))
        assert spec.pretrained is not None, "BERTSpec requires it with features"
        self.pretrained_source = spec.pretrained
        self.encoder_is_frozen = True

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the states of each utterance, (B, D), and of all tokens in a row, (N, D)."""
        inputs = batch.inputs
        assert isinstance(inputs, StateInputs), "heads read states; open the corpus with them"
        return inputs.sentence_bd, inputs.token_nd

    def slot_scores(self, head: nn.Module, token_nd: Tensor, batch: Batch) -> Tensor:
        """Return the slot head's scores of tokens (B, T, C)."""
        inputs = batch.inputs
        assert isinstance(inputs, StateInputs), "heads read states; open the corpus with them"
        scores_nc = head(token_nd, batch.lengths_b, inputs.kept)
        scores_btc = scores_nc.new_zeros(*batch.mask_bt.shape, scores_nc.shape[1])
        scores_btc[batch.mask_bt] = scores_nc
        return scores_btc
