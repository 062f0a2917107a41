"""A public encoder that is never trained: its hidden states of words and utterances.

A kind of state has a name, by which it is kept: `token_first_2` is the state after layer 2 of a word's first piece,
`sentence_mean_last` the mean of an utterance's states after the last layer, its special pieces among them.

Shapes: b utterances, t tokens, s sub-words, h hidden.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from trainables.config import BERTSpec
from trainables.features.batch import Batch, PieceInputs
from trainables.features.encoder_architecture import load_encoder, mean_state, read_config
from trainables.features.pretrained import check_states, frozen_folder


def load_frozen(spec: BERTSpec, folder: Path | None = None) -> PreTrainedModel:
    """Load the encoder that `spec.pretrained` names, or the one in `folder`, for evaluation.

    Raises:
        UserError: where it cannot be had, or has fewer layers than the spec's features ask for.
    """
    assert spec.pretrained is not None, "features need a pretrained encoder"
    folder = folder or frozen_folder(spec)
    check_states(spec, read_config(folder, spec.pretrained))
    return load_encoder(folder, spec.pretrained, dropout=0.0, layers=spec.layers).eval()


def encoder_digest(encoder: nn.Module) -> str:
    """SHA-256 of an encoder's weights and their names, whatever file they came from."""
    digest = hashlib.sha256()
    for name, tensor in sorted(encoder.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


@torch.inference_mode()
def hidden_states(encoder: PreTrainedModel, batch: Batch, names: Sequence[str]) -> list[Tensor]:
    """Return the states of each name: (B, T, H) of tokens, 0 beyond the utterance, and (B, H) of sentences; float32."""
    inputs = batch.inputs
    assert isinstance(inputs, PieceInputs), "an encoder reads sub-words"
    device = next(encoder.parameters()).device
    piece_bs, mask_bs, first_bt = (x.to(device) for x in (inputs.piece_bs, inputs.piece_mask_bs, inputs.first_bt))
    output = encoder(input_ids=piece_bs, attention_mask=mask_bs.long(), output_hidden_states=True)
    real_bt1 = batch.mask_bt.to(device)[:, :, None]
    found = []
    for name in names:
        kind, read, layer = name.split("_")
        state_bsh = output.hidden_states[-1 if layer == "last" else int(layer)]
        if kind == "sentence":
            found.append(mean_state(state_bsh, mask_bs) if read == "mean" else state_bsh[:, 0])
        else:
            index_bth = first_bt[:, :, None].expand(-1, -1, state_bsh.shape[2])
            found.append(state_bsh.gather(1, index_bth) * real_bt1)
    return found
