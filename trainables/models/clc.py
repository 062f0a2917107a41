"""CLC (Ma and Hovy 2016; Dupuy et al., section 4.2): character CNN and frozen word vectors, bi-LSTM, two
heads.

Shapes: b utterances, t tokens, u unique words of the batch, c characters, e embedding, f filters, h hidden.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import relu
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from trainables.batch import Batch, WordInputs
from trainables.models.joint import JointModel
from trainables.models.lstm import Packing, bidirectional_lstm
from trainables.spec import CLCSpec
from trainables.tokens import ALPHABET_SIZE, Labels


class CLC(JointModel):
    """Intent and slot scores from words' spellings and frozen vectors; nothing in it was read off a
    vocabulary.
    """

    def __init__(self, spec: CLCSpec, labels: Labels) -> None:
        super().__init__(
            sentence_size=2 * spec.hidden_size,
            token_size=2 * spec.hidden_size,
            labels=labels,
            dropout=spec.dropout,
        )
        self.chars = CharCNN(spec.char_embedding_size, spec.char_filters)
        self.dropout = nn.Dropout(spec.dropout)
        self.lstm = nn.LSTM(
            spec.embedding_size + spec.char_filters,
            spec.hidden_size,
            num_layers=spec.layers,
            bidirectional=True,
            batch_first=True,
            dropout=spec.dropout if spec.layers > 1 else 0.0,
        )

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        inputs = batch.inputs
        assert isinstance(inputs, WordInputs), "CLC reads words; encode the corpus for it"
        word_ue = torch.cat([inputs.vectors_ud, self.chars(inputs.chars_uc)], 1)
        # packed, because a bi-LSTM over padding starts its way back in the padding
        if word_ue.device.type == "cpu":
            packing = Packing.of(batch.lengths_b)
            token_ne = self.dropout(word_ue[inputs.word_bt.flatten()[packing.flat_n]])
            hidden_nh = bidirectional_lstm(self.lstm, token_ne, packing)
            padded_nh = hidden_nh.new_zeros(inputs.word_bt.numel(), hidden_nh.shape[1])
            hidden_bth = padded_nh.index_copy(0, packing.flat_n, hidden_nh).unflatten(0, inputs.word_bt.shape)
        else:
            token_bte = self.dropout(word_ue[inputs.word_bt])
            packed = pack_padded_sequence(token_bte, batch.lengths_b, batch_first=True, enforce_sorted=False)
            hidden_bth, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        sentence_bh = hidden_bth.masked_fill(~batch.mask_bt[:, :, None], -torch.inf).amax(1)
        return sentence_bh, hidden_bth


class CharCNN(nn.Module):
    """A word's spelling as one vector: width-3 convolution, maximum over the word's characters."""

    def __init__(self, embedding_size: int, filters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(ALPHABET_SIZE, embedding_size)
        self.convolution = nn.Conv1d(embedding_size, filters, kernel_size=3, padding=1)

    def forward(self, chars_uc: Tensor) -> Tensor:
        """Char ids (U, C), 0 for padding, to (U, F)."""
        real_u1c = (chars_uc > 0)[:, None, :]
        # padding has no row of its own: it would get noise and no gradient
        embedded_uec = self.embedding((chars_uc - 1).clamp_min(0)).transpose(1, 2) * real_u1c
        found_ufc = self.convolution(embedded_uec.contiguous())
        return relu(found_ufc.masked_fill(~real_u1c, -torch.inf).amax(2))
