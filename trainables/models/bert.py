"""A Transformer encoder with an intent head on its first piece ([CLS] or <s>), or on the mean of all, and the CRF on
the first sub-word of each token (Dupuy et al., section 4.2, where it is BERT and its first piece).

Shapes: b utterances, t tokens, s sub-words, h hidden.
"""

from __future__ import annotations

import logging

from torch import Tensor
from transformers import BertConfig, PreTrainedConfig, PreTrainedModel

from trainables.corpora.labels import Labels
from trainables.data.batch import Batch, PieceInputs
from trainables.encoders.architecture import config_to_json, empty_encoder, load_encoder, mean_state
from trainables.encoders.pretrained import pretrained_folder, pretrained_pieces
from trainables.encoders.word_pieces import MAX_PIECES
from trainables.models.dropout import take_along
from trainables.models.joint import JointModel
from trainables.models.trainable import train_part
from trainables.spec import BERTSpec

_log = logging.getLogger(__name__)
_BERT_VOCABULARY = 30_522


class BERT(JointModel):
    """A fine-tuned encoder; `pretrained_source` says what it started from."""

    def __init__(
        self, spec: BERTSpec, labels: Labels, vocabulary_size: int | None = None, config: PreTrainedConfig | None = None
    ) -> None:
        """With a `config`, the encoder is one of that architecture, for weights that are loaded afterwards."""
        encoder, source = (
            _encoder(spec, vocabulary_size) if config is None else (empty_encoder(config), "saved weights")
        )
        hidden = encoder.config.hidden_size
        super().__init__(sentence_size=hidden, token_size=hidden, labels=labels, dropout=spec.dropout, head=spec.head)
        take_along(encoder, self.draws, first=1)
        self.encoder = encoder
        self.reads_mean = spec.sentence == "mean"
        self.pretrained_source = source
        train_part(self, spec)

    @property
    def architecture(self) -> str:
        """The encoder's, as JSON that `config_from_json` reads: kept with the weights, it needs no pretrained model."""
        return config_to_json(self.encoder.config)

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        inputs = batch.inputs
        assert isinstance(inputs, PieceInputs), "BERT reads sub-words; encode the corpus for it"
        with self.padded(inputs.pieces_b):
            hidden_bsh = self.encoder(
                input_ids=inputs.piece_bs, attention_mask=inputs.piece_mask_bs.long()
            ).last_hidden_state
        token_bth = hidden_bsh.gather(1, inputs.first_bt[:, :, None].expand(-1, -1, hidden_bsh.shape[2]))
        sentence_bh = mean_state(hidden_bsh, inputs.piece_mask_bs) if self.reads_mean else hidden_bsh[:, 0]
        return sentence_bh, token_bth


def _encoder(spec: BERTSpec, vocabulary_size: int | None) -> tuple[PreTrainedModel, str]:
    """An encoder, and what it started from."""
    reason = "model.pretrained is null"
    if spec.pretrained is not None:
        folder, reason = pretrained_folder(spec.pretrained)
        pieces = pretrained_pieces(spec.pretrained)
        if folder is not None and pieces is not None:
            if vocabulary_size in (None, pieces.size):
                return load_encoder(folder, spec.pretrained, dropout=spec.dropout, layers=spec.layers), spec.pretrained
            # pieces of another vocabulary would mean other words to the pretrained rows
            reason = f"its vocabulary has {pieces.size} pieces, the encoded corpus' has {vocabulary_size}"
            _log.warning("model.pretrained = %s does not fit (%s): the start is random", spec.pretrained, reason)
    config = BertConfig(
        vocab_size=vocabulary_size or _BERT_VOCABULARY,
        hidden_size=spec.hidden_size,
        num_hidden_layers=spec.random_layers,
        num_attention_heads=spec.heads,
        intermediate_size=_intermediate_size(spec.hidden_size),
        max_position_embeddings=MAX_PIECES,
        hidden_dropout_prob=spec.dropout,
        attention_probs_dropout_prob=spec.dropout,
    )
    return empty_encoder(config), f"random start ({reason})"


def _intermediate_size(hidden_size: int) -> int:
    """Of the feed-forward layers: TinyBERT's 1,200 at 312, four times the hidden size otherwise."""
    return 1200 if hidden_size == 312 else 4 * hidden_size
