"""The objectives of a pretraining: slots and intents of public corpora, or masked sub-words.

Shapes: b utterances, s sub-words, t tokens, n tokens without padding, m masked sub-words, h hidden, x columns (the
labels of all corpora).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from edp.spec import UserError
from trainables.features.batch import Batch, PieceInputs
from trainables.features.encoder_architecture import mean_state
from trainables.features.name_scores import TAG_KINDS, name_vectors, readable
from trainables.features.word_pieces import WordPieces
from trainables.pretraining.data import IGNORED, Column, Pool

_NAME_SIZE = 192
_INTENT_WEIGHT, _NAME_WEIGHT = 0.4, 1.0
"""Weight of the intents' loss beside the slots', and of the loss of name scores beside that of a corpus' own head."""
_LEFT_OUT, _MASKED, _RANDOM = 0.15, 0.8, 0.1
"""Share of sub-words to guess, and the shares of these that a mask or a random one replaces (Devlin et al. 2019)."""


def states(
    encoder: PreTrainedModel, batch: Batch, piece_bs: Tensor | None = None, *, low_precision: bool = False
) -> Tensor:
    """Return the last hidden states, (B, S, H) float32.

    Args:
        piece_bs: sub-words to read instead of the batch's.
        low_precision: True: take the encoder's products in bfloat16.
    """
    inputs = _pieces(batch)
    ids_bs = inputs.piece_bs if piece_bs is None else piece_bs
    with torch.autocast(ids_bs.device.type, torch.bfloat16, enabled=low_precision):
        found: Tensor = encoder(input_ids=ids_bs, attention_mask=inputs.piece_mask_bs.long()).last_hidden_state
    return found.float()


class Names(nn.Module):
    """A layer that scores labels by their names, for all corpora: s(z, x) = (A z) · (B e_x) / sqrt(d).

    Labels with the same name in several corpora have the same score. Labels with similar names learn from each other.

    Args:
        vectors_xh: e_x, which is not trained; zero for a label without a name of its own.
    """

    def __init__(self, vectors_xh: Tensor) -> None:
        super().__init__()
        hidden = vectors_xh.shape[1]
        self.state = nn.Linear(hidden, _NAME_SIZE)
        self.name = nn.Linear(hidden, _NAME_SIZE, bias=False)
        self.register_buffer("vectors_xh", vectors_xh)

    def forward(self, state_nh: Tensor) -> Tensor:
        """Return the scores (N, X) of states (N, H)."""
        scores: Tensor = self.state(state_nh) @ self.name(self.get_buffer("vectors_xh")).T / _NAME_SIZE**0.5
        return scores


class Supervised(nn.Module):
    """The loss of slots and intents: softmaxes over the labels of the utterance's corpus, from heads and from names.

    Args:
        hidden: size of the encoder's states.
        pool: the pool whose labels are learnt.
        vectors: vectors of the labels' names, from `column_vectors`.

    Raises:
        UserError: if no corpus has labels to learn.
    """

    def __init__(
        self,
        hidden: int,
        pool: Pool,
        vectors: tuple[Tensor, Tensor],
        *,
        dropout: float = 0.0,
        low_precision: bool = False,
    ) -> None:
        super().__init__()
        self.low_precision = low_precision
        if not pool.tag_columns and not pool.intent_columns:
            raise UserError("corpora: none has slots, or more than one intent; allowed: objective = masked")
        self.dropout = nn.Dropout(dropout)
        self.tags = nn.Linear(hidden, max(1, len(pool.tag_columns)))
        self.intents = nn.Linear(hidden, max(1, len(pool.intent_columns)))
        for kind, columns in (("tag", pool.tag_columns), ("intent", pool.intent_columns)):
            self.register_buffer(f"{kind}_corpus_x", torch.tensor([column.corpus for column in columns]).long())
        self.register_buffer("kind_x", torch.tensor([TAG_KINDS.index(c.label[0]) for c in pool.tag_columns]).long())
        self.tag_names, self.intent_names = Names(vectors[0]), Names(vectors[1])
        self.kinds = nn.Linear(hidden, len(TAG_KINDS))

    def forward(self, encoder: PreTrainedModel, batch: Batch, corpus_b: Tensor) -> Tensor:
        """Return the loss of a batch, a mean over all of its tokens and of its utterances, labelled or not."""
        inputs = _pieces(batch)
        assert batch.tags_bt is not None, "a pool's batches have labels"
        assert batch.intent_b is not None, "a pool's batches have labels"
        state_bsh = states(encoder, batch, low_precision=self.low_precision)
        token_bth = state_bsh.gather(1, inputs.first_bt[:, :, None].expand(-1, -1, state_bsh.shape[2]))
        token_nh = self.dropout(token_bth[batch.mask_bt])
        corpus_n = corpus_b[:, None].expand_as(batch.mask_bt)[batch.mask_bt]
        tag_n = batch.tags_bt[batch.mask_bt]
        text_bh = self.dropout(mean_state(state_bsh, inputs.piece_mask_bs))

        tag_x, intent_x = self.get_buffer("tag_corpus_x"), self.get_buffer("intent_corpus_x")
        loss = _among_own(self.tags(token_nh), tag_x, corpus_n, tag_n)
        loss = loss + _INTENT_WEIGHT * _among_own(self.intents(text_bh), intent_x, corpus_b, batch.intent_b)
        tag_nx = self.kinds(token_nh)[:, self.get_buffer("kind_x")] + self.tag_names(token_nh)
        names = _among_own(tag_nx, tag_x, corpus_n, tag_n)
        intents = _among_own(self.intent_names(text_bh), intent_x, corpus_b, batch.intent_b)
        return loss + _NAME_WEIGHT * (names + _INTENT_WEIGHT * intents)

    def learnt_names(self) -> dict[str, Tensor]:
        """Return the weights of the scores of names, without those of any corpus' own labels."""
        kept = ("kinds.", "tag_names.state.", "tag_names.name.", "intent_names.state.", "intent_names.name.")
        return {name: value.cpu() for name, value in self.state_dict().items() if name.startswith(kept)}


def column_vectors(encoder: PreTrainedModel, pieces: WordPieces, pool: Pool) -> tuple[Tensor, Tensor]:
    """Return vectors of the names of a pool's tags (zero for O) and of its intents, (X, H) each."""

    def of(columns: Sequence[Column]) -> Tensor:
        named = [column.label != "O" for column in columns]
        vectors = torch.zeros(len(columns), encoder.config.hidden_size)
        if any(named):
            names = [readable(column.label) for column, has in zip(columns, named, strict=True) if has]
            vectors[torch.tensor(named)] = name_vectors(encoder, pieces, names)
        return vectors

    return of(pool.tag_columns), of(pool.intent_columns)


class Masked(nn.Module):
    """The loss of masked sub-words that are guessed from the others (Devlin et al. 2019).

    Its output layer is the encoder's embedding matrix, which is not trained.

    Raises:
        UserError: if the vocabulary has no mask.
    """

    def __init__(self, encoder: PreTrainedModel, pieces: WordPieces, *, low_precision: bool = False) -> None:
        super().__init__()
        self.low_precision = low_precision
        if pieces.mask is None:
            raise UserError(
                f"objective = masked: the vocabulary of {pieces.source} has no [MASK] or <mask>; "
                "allowed: supervised, or another encoder"
            )
        rows, size = _embedding(encoder).shape
        self.mask, self.special = pieces.mask, (pieces.start, pieces.end, pieces.unknown)
        self.dense = nn.Linear(encoder.config.hidden_size, size)
        self.norm = nn.LayerNorm(size)
        self.bias = nn.Parameter(torch.zeros(rows))

    def forward(self, encoder: PreTrainedModel, batch: Batch, corpus_b: Tensor) -> Tensor:
        """Return the mean loss of a batch's masked sub-words. `corpus_b` is not read."""
        inputs = _pieces(batch)
        piece_bs = inputs.piece_bs
        free_bs = inputs.piece_mask_bs & ~torch.isin(piece_bs, piece_bs.new_tensor(self.special))
        out_bs = free_bs & (torch.rand(piece_bs.shape, device=piece_bs.device) < _LEFT_OUT)
        if not out_bs.any():
            out_bs = free_bs
        if not out_bs.any():  # the vocabulary knows none of the sub-words
            return self.bias.sum() * 0.0
        chance_bs = torch.rand(piece_bs.shape, device=piece_bs.device)
        seen_bs = piece_bs.masked_fill(out_bs & (chance_bs < _MASKED), self.mask)
        random_bs = torch.randint_like(piece_bs, len(self.bias))
        seen_bs = torch.where(out_bs & (chance_bs >= 1 - _RANDOM), random_bs, seen_bs)
        state_mh = states(encoder, batch, seen_bs, low_precision=self.low_precision)[out_bs]
        score_mv = self.norm(F.gelu(self.dense(state_mh))) @ _embedding(encoder).T + self.bias
        return F.cross_entropy(score_mv, piece_bs[out_bs])


def _embedding(encoder: PreTrainedModel) -> Tensor:
    """Return the embedding matrix of an encoder, without gradient."""
    weight = encoder.get_input_embeddings().weight
    assert isinstance(weight, Tensor)
    return weight.detach()


def _pieces(batch: Batch) -> PieceInputs:
    """Return the sub-words of a batch."""
    assert isinstance(batch.inputs, PieceInputs), "encoders read sub-words"
    return batch.inputs


def _among_own(score_nx: Tensor, corpus_x: Tensor, corpus_n: Tensor, label_n: Tensor) -> Tensor:
    """Return the mean cross entropy among the labels of each row's own corpus; rows without a label count as 0."""
    labelled = label_n != IGNORED
    if not labelled.any():
        return score_nx.sum() * 0
    foreign = corpus_x[None] != corpus_n[labelled, None]
    score = score_nx[labelled].masked_fill(foreign, -torch.inf)
    return F.cross_entropy(score, label_n[labelled], reduction="sum") / len(label_n)
