"""A Transformer encoder with an intent head and a CRF; the check that its gradients can be clipped by micro-batch.

The intent head reads the first sub-word of an utterance ([CLS] or <s>), the last, or the mean of all. The CRF reads
the first sub-word of each token or, of a decoder, the last: there it has read the whole token. Dupuy et al., section
4.2, use BERT and its first sub-word.

Shapes: b utterances, t tokens, s sub-words, h hidden.
"""

from __future__ import annotations

import copy
import functools
import logging
from pathlib import Path

import torch
from torch import Tensor
from transformers import BertConfig, PreTrainedConfig, PreTrainedModel

from edp.per_example import UnsupportedLayer, record_per_example
from edp.spec import UserError
from trainables.config import BERTSpec, TrialSpec
from trainables.corpora.labels import Labels
from trainables.features.batch import Batch, PieceInputs
from trainables.features.encoder_architecture import (
    check_layers,
    check_top_layers,
    check_trainable,
    config_to_json,
    cut,
    empty_encoder,
    load_encoder,
    mean_state,
    read_config,
    reads_left,
    without_cache,
)
from trainables.features.pretrained import check_states, pretrained_folder, pretrained_pieces
from trainables.features.word_pieces import MAX_PIECES
from trainables.models.dropout import take_along
from trainables.models.joint import JointModel
from trainables.models.trainable import adapt, train_part
from trainables.records.files import one_line

_log = logging.getLogger(__name__)
_BERT_VOCABULARY = 30_522


class BERT(JointModel):
    """An encoder with heads. Its `pretrained_source` names the weights that it started from."""

    def __init__(
        self, spec: BERTSpec, labels: Labels, vocabulary_size: int | None = None, config: PreTrainedConfig | None = None
    ) -> None:
        """Build the model. With a `config`, its encoder has that architecture, for weights that are loaded later."""
        encoder, source = (
            _encoder(spec, vocabulary_size) if config is None else (empty_encoder(config), "saved weights")
        )
        hidden = encoder.config.hidden_size
        super().__init__(sentence_size=hidden, token_size=hidden, labels=labels, dropout=spec.dropout, head=spec.head)
        take_along(encoder, self.dropout_keys, first=1)
        self.encoder = encoder
        self.sentence = spec.sentence
        self.reads_left = reads_left(encoder.config)
        self.pretrained_source = source
        train_part(self, spec)

    @property
    def architecture(self) -> str:
        """The encoder's architecture as JSON, with which `config_from_json` makes it without a pretrained model."""
        return config_to_json(self.encoder.config)

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return a vector of each utterance, (B, H), and of each token, (B, T, H)."""
        inputs = batch.inputs
        assert isinstance(inputs, PieceInputs), "BERT reads sub-words; encode the corpus for it"
        with self.padded(inputs.pieces_b):
            hidden_bsh = self.encoder(
                input_ids=inputs.piece_bs,
                attention_mask=inputs.piece_mask_bs.long(),
                **without_cache(self.encoder.config),
            ).last_hidden_state
        place_bt = inputs.last_bt if self.reads_left else inputs.first_bt
        token_bth = hidden_bsh.gather(1, place_bt[:, :, None].expand(-1, -1, hidden_bsh.shape[2]))
        if self.sentence == "mean":
            return mean_state(hidden_bsh, inputs.piece_mask_bs), token_bth
        place_b = inputs.pieces_b.to(hidden_bsh.device) - 1 if self.sentence == "last" else 0
        return hidden_bsh[torch.arange(len(hidden_bsh), device=hidden_bsh.device), place_b], token_bth


def _encoder(spec: BERTSpec, vocabulary_size: int | None) -> tuple[PreTrainedModel, str]:
    """Return an encoder, and the name of the weights that it starts from."""
    reason = "model.pretrained is null"
    if spec.pretrained is not None:
        folder, reason = pretrained_folder(spec.pretrained)
        pieces = pretrained_pieces(spec.pretrained)
        if folder is not None and pieces is not None:
            check_trainable(spec, read_config(folder, spec.pretrained))
            if vocabulary_size in (None, pieces.size):
                return load_encoder(folder, spec.pretrained, dropout=spec.dropout, layers=spec.layers), spec.pretrained
            # The pretrained embeddings belong to the sub-words of their own vocabulary only.
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
    """Return the size of the feed-forward layers: TinyBERT's 1,200 at 312, four times the hidden size otherwise."""
    return 1200 if hidden_size == 312 else 4 * hidden_size


def check_encoder(model: BERTSpec, spec: TrialSpec) -> None:
    """Raise if a pretrained encoder lacks layers that a trial trains, or if its micro-batches cannot be clipped.

    DeBERTa cannot be clipped by micro-batch: its relative positions are one tensor for all utterances.

    Raises:
        UserError: naming the allowed settings.
    """
    name, training = model.pretrained, spec.training
    folder = pretrained_folder(name)[0] if name is not None else None
    if name is None or folder is None:
        return
    config = read_config(folder, name)
    check_trainable(model, config)
    check_layers(config, model.layers, name)
    check_top_layers(model, model.layers or config.num_hidden_layers)
    check_states(model, config)
    if model.trainable == "heads":
        return  # a frozen encoder has no gradients to clip
    one_each = training.clips == training.workers and spec.edp.sampling == "shuffle" and spec.edp.alpha != "private"
    if training.method == "sgd" or one_each:
        return  # a worker with one micro-batch a step clips its whole gradient, whatever the encoder
    fault = _fault_of(folder, model)
    if fault is not None:
        raise UserError(
            f"model.pretrained = {name}: several micro-batches of one worker cannot be clipped with type "
            f"{config.model_type} ({fault}); "
            "allowed: model.trainable = heads, or shuffled epochs with training.workers = training.micro_batches and "
            "edp.alpha = fixed, public, paper or none"
        )


@functools.cache
def _fault_of(folder: Path, model: BERTSpec) -> str | None:
    """Return `clipping_fault` of the encoder in a folder, tried once a process."""
    return clipping_fault(read_config(folder, str(model.pretrained)), model)


def clipping_fault(config: PreTrainedConfig, spec: BERTSpec) -> str | None:
    """Return the reason why `edp.per_example` cannot separate two examples' gradients, or None if a trial shows it can.

    The trial takes two layers of the architecture, which also shows parameters that layers share. With
    `model.trainable = lora` only the adapters are trained.
    """
    small = copy.deepcopy(config)
    cut(small, min(2, config.num_hidden_layers))
    with torch.random.fork_rng(devices=[]):
        model = empty_encoder(small)
        if spec.trainable == "lora":
            model.requires_grad_(False)
            adapt(model, spec)
        ids_bs = torch.arange(8).view(2, 4) % config.vocab_size
        try:
            recorder = record_per_example(model)
            mask_bs, options = torch.ones_like(ids_bs), without_cache(config)
            with recorder.examples(torch.arange(2), 2):
                states_bsh = model(input_ids=ids_bs, attention_mask=mask_bs, **options).last_hidden_state
            states_bsh.sum().backward()
            recorder.squared_norms()
        except (UnsupportedLayer, RuntimeError) as error:
            return one_line(error)
    return None
