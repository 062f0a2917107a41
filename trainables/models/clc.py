"""CLC: character CNN and frozen word vectors, bi-LSTM, two heads (Ma and Hovy 2016; Dupuy et al., section 4.2).

Shapes: b utterances, t tokens, u unique words of the batch, c characters, e embedding, f filters, h hidden.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from edp.per_example import GradientRecorder, register_layer
from edp.per_example.recorder import Sums
from trainables.config import CLCSpec
from trainables.corpora.labels import Labels
from trainables.features.token_features import ALPHABET_SIZE, Batch, WordInputs
from trainables.models.dropout import KeyedDropout
from trainables.models.joint import JointModel
from trainables.models.lstm import PackedLSTM, Packing
from trainables.models.trainable import train_part


class CLC(JointModel):
    """A model of words' spellings and frozen word vectors. No part of it depends on the vocabulary of a corpus."""

    def __init__(self, spec: CLCSpec, labels: Labels) -> None:
        super().__init__(
            sentence_size=2 * spec.hidden_size,
            token_size=2 * spec.hidden_size,
            labels=labels,
            dropout=spec.dropout,
            head=spec.head,
        )
        self.chars = CharCNN(spec.char_embedding_size, spec.char_filters)
        self.dropout = KeyedDropout(spec.dropout, self.dropout_keys, 1)
        self.lstm = PackedLSTM(
            spec.embedding_size + spec.char_filters,
            spec.hidden_size,
            num_layers=spec.layers,
            bidirectional=True,
            batch_first=True,
            dropout=spec.dropout if spec.layers > 1 else 0.0,
        )
        self.lstm.between.extend(
            KeyedDropout(spec.dropout, self.dropout_keys, 2 + layer) for layer in range(1, spec.layers)
        )
        train_part(self, spec)

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return a vector of each utterance, (B, 2·H), and of each token, (B, T, 2·H)."""
        inputs = batch.inputs
        assert isinstance(inputs, WordInputs), "CLC reads words; encode the corpus for it"
        # Tokens are packed, because the backward direction of an LSTM over padding would start in the padding.
        packing = Packing.of(batch.lengths_b, inputs.word_bt.device)
        word_n = inputs.word_bt.flatten()[packing.flat_n]
        chars_nf = self.chars(inputs.chars_uc, word_n, packing.utterance_n)
        token_ne = torch.cat([inputs.vectors_ud[word_n], chars_nf], 1)
        token_ne = self.dropout(token_ne, packing.flat_n, packing.time_steps)
        hidden_nh = self.lstm.packed(token_ne, packing)
        padded_nh = hidden_nh.new_zeros(inputs.word_bt.numel(), hidden_nh.shape[1])
        hidden_bth = padded_nh.index_copy(0, packing.flat_n, hidden_nh).unflatten(0, inputs.word_bt.shape)
        sentence_bh = hidden_bth.masked_fill(~batch.mask_bt[:, :, None], -torch.inf).amax(1)
        return sentence_bh, hidden_bth


class CharCNN(nn.Module):
    """The spelling of a word as one vector: a convolution of width 3, and the maximum over the word's characters."""

    def __init__(self, embedding_size: int, filters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(ALPHABET_SIZE, embedding_size)
        self.convolution = nn.Conv1d(embedding_size, filters, kernel_size=3, padding=1)

    def forward(self, chars_uc: Tensor, word_n: Tensor, utterance_n: Tensor) -> Tensor:
        """Map character ids (U, C), 0 for padding, to a vector for the spelling of each token, (N, F).

        Args:
            word_n: the word of each token.
            utterance_n: the utterance of each token, on the CPU. Only recorders of gradients by micro-batch read it.
        """
        real_u1c = (chars_uc > 0)[:, None, :]
        # Padding has no row in the embedding: that row would get noise and no gradient.
        embedded_uec = self.embedding((chars_uc - 1).clamp_min(0)).transpose(1, 2) * real_u1c
        found_ufc = self.convolution(embedded_uec.contiguous())
        words_uf = F.relu(found_ufc.masked_fill(~real_u1c, -torch.inf).amax(2))
        return words_uf[word_n]


@register_layer(CharCNN)
def _record_chars(
    recorder: GradientRecorder, cnn: CharCNN, chars_uc: Tensor, word_n: Tensor, utterance_n: Tensor
) -> Tensor:
    """Apply the CNN once to each distinct word of a batch, and record gradients by the utterances of its tokens."""
    if not all(p.requires_grad for p in cnn.parameters()):
        raise RuntimeError("a character CNN is trained whole or not at all")
    micro_batch_n = recorder.micro_batch_of_example[utterance_n].to(word_n.device, non_blocking=True)
    parameters = (cnn.embedding.weight, cnn.convolution.weight, cnn.convolution.bias)
    found_nf: Tensor = _Spelling.apply(chars_uc, word_n, micro_batch_n, recorder, cnn, *parameters)
    return found_nf


class _Spelling(torch.autograd.Function):
    """`CharCNN.forward`, with records.

    The maximum over a word's characters takes one window for each filter, so a token's gradient touches three letters
    for each filter. A micro-batch needs only the sum of its gradient on each letter at each of the three places: counts
    (M, 3·F, L). Their products with the letters' rows and with the filters give its two gradients.
    """

    @staticmethod
    def forward(
        ctx: Any,
        chars_uc: Tensor,
        word_n: Tensor,
        micro_batch_n: Tensor,
        recorder: GradientRecorder,
        cnn: CharCNN,
        letters_le: Tensor,
        filters_fe3: Tensor,
        bias_f: Tensor,
    ) -> Tensor:
        real_u1c = (chars_uc > 0)[:, None, :]
        embedded_uec = F.embedding((chars_uc - 1).clamp_min(0), letters_le).transpose(1, 2) * real_u1c
        found_ufc = F.conv1d(embedded_uec.contiguous(), filters_fe3, bias_f, padding=1)
        top_uf, place_uf = found_ufc.masked_fill(~real_u1c, -torch.inf).max(2)
        ctx.recorder, ctx.cnn = recorder, cnn
        ctx.save_for_backward(top_uf > 0, place_uf, chars_uc, word_n, micro_batch_n)
        return top_uf.relu_()[word_n]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_nf: Tensor) -> tuple[None, ...]:
        open_uf, place_uf, chars_uc, word_n, micro_batch_n = ctx.saved_tensors
        recorder, cnn = ctx.recorder, ctx.cnn
        letters_le, filters_fe3 = cnn.embedding.weight.detach(), cnn.convolution.weight.detach()
        filters, letters = len(filters_fe3), len(letters_le) + 1  # padding is letter 0
        grad_nf = (grad_nf * open_uf[word_n]).to(letters_le.dtype)
        window_u3f = torch.stack([F.pad(chars_uc, (1, 1)).gather(1, place_uf + k) for k in range(3)], 1)
        column_3f = torch.arange(3 * filters, device=grad_nf.device).view(3, filters) * letters
        cell_n3f = (window_u3f + column_3f)[word_n] + (micro_batch_n * (3 * filters * letters))[:, None, None]
        count_mfl = grad_nf.new_zeros(recorder.micro_batches * 3 * filters * letters)
        count_mfl.index_add_(0, cell_n3f.flatten(), grad_nf[:, None, :].expand(-1, 3, -1).reshape(-1))
        count_mfl = count_mfl.view(recorder.micro_batches, 3 * filters, letters)
        filters_fe = filters_fe3.permute(2, 0, 1).flatten(0, 1)

        def gradients(count_mfl: Tensor) -> tuple[Tensor, Tensor]:
            real_mfl = count_mfl[:, :, 1:]
            return real_mfl.transpose(1, 2) @ filters_fe, real_mfl @ letters_le

        letters_mle, filters_mfe = gradients(count_mfl)
        bias_mf = grad_nf.new_zeros(recorder.micro_batches, filters).index_add_(0, micro_batch_n, grad_nf)

        def write_letters(factor_m: Tensor, sums: Sums, add: bool) -> None:
            out = sums[id(cnn.embedding.weight)] if add else sums[id(cnn.embedding.weight)].zero_()
            out += gradients(torch.tensordot(factor_m, recorder.finite(count_mfl), 1)[None])[0][0]

        def write_filters(factor_m: Tensor, sums: Sums, add: bool) -> None:
            out = sums[id(cnn.convolution.weight)] if add else sums[id(cnn.convolution.weight)].zero_()
            found_fe = gradients(torch.tensordot(factor_m, recorder.finite(count_mfl), 1)[None])[1][0]
            out += found_fe.unflatten(0, (3, filters)).permute(1, 2, 0)

        recorder.record([cnn.embedding.weight], letters_mle.square().sum((1, 2)), write_letters)
        recorder.record([cnn.convolution.weight], filters_mfe.square().sum((1, 2)), write_filters)
        recorder.record_gradient(cnn.convolution.bias, bias_mf)
        return (None,) * 8
