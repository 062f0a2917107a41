"""A Transformer encoder with an intent head and a CRF; the checks that its utterances do not meet, and can be clipped.

The intent head reads the first sub-word of an utterance ([CLS] or <s>), the last, or the mean of all. The CRF reads
the first sub-word of each token or, of a decoder, the last: there it has read the whole token. Dupuy et al., section
4.2, use BERT and its first sub-word.

Shapes: b utterances, t tokens, s sub-words, h hidden.
"""

from __future__ import annotations

import functools
import logging
from contextlib import suppress

import torch
from torch import Tensor
from transformers import BertConfig, PreTrainedConfig, PreTrainedModel

from edp.per_example import UnsupportedLayer, record_per_example
from edp.spec import UserError
from trainables.config import BERTSpec, TrialSpec
from trainables.corpora.labels import Labels
from trainables.features.encoder import (
    Encoder,
    config_to_json,
    cut,
    empty_encoder,
    fills_gaps,
    mean_state,
    run_encoder,
    sub_word,
)
from trainables.features.pretrained import pretrained_encoder, pretrained_pieces
from trainables.features.token_features import Batch, PieceInputs
from trainables.features.word_pieces import MAX_PIECES
from trainables.models.dropout import DropoutKeys, take_along
from trainables.models.joint import JointModel
from trainables.models.trainable import adapt, layers_of, train_part
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
        self.sentence = sub_word(encoder.config, spec.sentence, "first" if fills_gaps(encoder.config) else "last")
        self.word = sub_word(encoder.config, "auto", "first")
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
            hidden_bsh = run_encoder(self.encoder, inputs.piece_bs, inputs.piece_mask_bs).last_hidden_state
        place_bt = inputs.last_bt if self.word == "last" else inputs.first_bt
        token_bth = hidden_bsh.gather(1, place_bt[:, :, None].expand(-1, -1, hidden_bsh.shape[2]))
        if self.sentence == "mean":
            return mean_state(hidden_bsh, inputs.piece_mask_bs), token_bth
        place_b = inputs.pieces_b.to(hidden_bsh.device) - 1 if self.sentence == "last" else 0
        return hidden_bsh[torch.arange(len(hidden_bsh), device=hidden_bsh.device), place_b], token_bth


def _encoder(spec: BERTSpec, vocabulary_size: int | None) -> tuple[PreTrainedModel, str]:
    """Return an encoder, and the name of the weights that it starts from."""
    reason = "model.pretrained is null"
    if spec.pretrained is not None:
        encoder, reason = pretrained_encoder(spec.pretrained)
        pieces = pretrained_pieces(spec.pretrained)
        if encoder is not None and pieces is not None:
            encoder.check(spec)
            if vocabulary_size in (None, pieces.size):
                return encoder.load(dropout=spec.dropout, layers=spec.layers), spec.pretrained
            # The pretrained embeddings belong to the sub-words of their own vocabulary only.
            reason = f"its vocabulary has {pieces.size} pieces, the encoded corpus' has {vocabulary_size}"
            _log.warning("model.pretrained = %s does not fit (%s): the start is random", spec.pretrained, reason)
    config = BertConfig(
        vocab_size=vocabulary_size or _BERT_VOCABULARY,
        hidden_size=spec.hidden_size,
        num_hidden_layers=spec.layers or 4,
        num_attention_heads=spec.heads,
        intermediate_size=1200 if spec.hidden_size == 312 else 4 * spec.hidden_size,  # TinyBERT has 1,200
        max_position_embeddings=MAX_PIECES,
        hidden_dropout_prob=spec.dropout,
        attention_probs_dropout_prob=spec.dropout,
    )
    return empty_encoder(config), f"random start ({reason})"


def check_encoder(model: BERTSpec, spec: TrialSpec) -> None:
    """Raise if a pretrained encoder lacks layers that a trial trains, or if it voids the trial's guarantee.

    It does so if utterances of a batch meet in it, or if its micro-batches cannot be clipped apart. DeBERTa cannot be
    clipped by micro-batch: its relative positions are one tensor for all utterances.
    """
    name, training = model.pretrained, spec.training
    encoder = pretrained_encoder(name)[0] if name is not None else None
    if encoder is None:
        return
    kind = encoder.config.model_type
    encoder.check(model)
    if training.method == "sgd":
        return  # nothing is clipped, and nothing is promised
    if (meets := _meeting_of(encoder, model)) is not None:
        raise UserError(f"model.pretrained = {name}: of type {kind}, {meets}")
    if model.trainable == "heads":
        return  # a frozen encoder has no gradients to clip
    one_each = training.clips == training.workers and spec.edp.sampling == "shuffle" and spec.edp.alpha != "private"
    if one_each:
        return  # a worker with one micro-batch a step clips its whole gradient, whatever the encoder
    fault = clipping_fault(encoder, model)
    if fault is not None:
        raise UserError(
            f"model.pretrained = {name}: several micro-batches of one worker cannot be clipped with type "
            f"{kind} ({fault}); "
            "allowed: model.trainable = heads, or shuffled epochs with training.workers = training.micro_batches and "
            "edp.alpha = fixed, public, paper or none"
        )


@functools.cache
def clipping_fault(encoder: Encoder, spec: BERTSpec) -> str | None:
    """Return the reason why `edp.per_example` cannot separate two examples' gradients, or None if a trial shows it can.

    The trial takes two layers of the architecture, which also shows parameters that layers share. With
    `model.trainable = lora` only the adapters are trained.
    """
    small = encoder.architecture(min(2, encoder.config.num_hidden_layers))
    with torch.random.fork_rng(devices=[]):
        model = empty_encoder(small)
        if spec.trainable == "lora":
            model.requires_grad_(False)
            adapt(model, spec.lora_target, spec.lora_rank)
        ids_bs = torch.arange(8).view(2, 4) % small.vocab_size
        try:
            recorder = record_per_example(model)
            with recorder.examples(torch.arange(2), 2):
                states_bsh = run_encoder(model, ids_bs, torch.ones_like(ids_bs)).last_hidden_state
            states_bsh.sum().backward()
            recorder.squared_norms()
        except (UnsupportedLayer, RuntimeError) as error:
            return one_line(error)
    return None


def _meeting_of(encoder: Encoder, model: BERTSpec) -> str | None:
    """Return what is wrong with a batch of an encoder, and what is allowed, or None."""
    both = model.features is not None and model.features.attention == "both"
    trained = model.trainable != "heads"
    target = (model.lora_target or "query_value") if model.trainable == "lora" else None
    faults = functools.partial(meeting_fault, encoder, trained=trained, target=target, both=both)
    if (fault := faults()) is not None:
        return f"{fault}; allowed: an encoder such as BERT, RoBERTa or MPNet"
    if trained and model.dropout and (fault := faults(dropout=0.1)) is not None:
        return f"{fault}; allowed: model.dropout = 0, or an encoder such as BERT, RoBERTa or MPNet"
    return None


_LENGTHS = (5, 12, 24)
_ROUNDING = 1e-5
"""Of a trial in double precision. Some layers compute in float32 whatever the type of their inputs."""


@functools.cache
def meeting_fault(
    encoder: Encoder, *, trained: bool, target: str | None = None, both: bool = False, dropout: float = 0.0
) -> str | None:
    """Return how utterances of a batch meet in an encoder, or None if a trial shows that they do not.

    The trial takes random weights and the first layers that have every kind of layer. It compares a padded batch with
    its utterances alone, and with the same batch when PyTorch's generator has another state.

    Args:
        trained: run it as in a training, with the utterances' own dropout and gradients; False: frozen, without.
        target: `model.lora_target`, if only adapters are trained.
        both: let a decoder read both directions.
        dropout: ignored for decoders, which have none.
    """
    small, keys = encoder.architecture(dropout=dropout), DropoutKeys()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            shrink(small)
            small._experts_implementation = "eager"  # the fast one has no double precision
            model = empty_encoder(small)
            if target is not None:
                model.requires_grad_(False)
                adapt(model, target, 1)
            take_along(model, keys, first=1)
            for parameter in model.parameters():
                if parameter.ndim == 1 or not parameter.all():  # at first constant, or 0 for the padding
                    parameter.data.add_(torch.randn_like(parameter) * 0.1)
            model.double().train(trained)
            batch = functools.partial(_run, model, keys, trained=trained, both=both)
            (states, gradient), (again, _) = batch([0, 1, 2], seed=1), batch([0, 1, 2], seed=2)
            alone = [batch([utterance], seed=1) for utterance in range(len(_LENGTHS))]
        except Exception as error:  # an architecture can fail in any way
            return f"cannot run a batch on trial ({one_line(error)})"
    if _apart(states, again):
        return "draws random numbers that all utterances of a batch share"
    if any(_apart([states[i]], found) for i, (found, _) in enumerate(alone)):
        return "lets utterances of a batch change each other's states"
    if trained and _apart([gradient], [sum((own for _, own in alone), torch.zeros(()))]):
        return "lets utterances of a batch change each other's gradients"
    return None


def shrink(config: PreTrainedConfig) -> None:
    """Cut an architecture to a small vocabulary, and to its first layers, so many that each kind of layer is there."""
    with torch.device("meta"):
        layers = layers_of(empty_encoder(config))
    types = getattr(config, "layer_types", None) or [""] * len(layers)
    kinds = [f"{kind} {layer}" for kind, layer in zip(types, layers, strict=False)]
    with suppress(NotImplementedError):  # Funnel's layers are in blocks, all of which it keeps
        cut(config, min(config.num_hidden_layers, max(2, *(1 + kinds.index(kind) for kind in kinds))))
    config.vocab_size = min(config.vocab_size, max(100, 1 + (getattr(config, "pad_token_id", None) or 0)))


def _run(
    encoder: PreTrainedModel, keys: DropoutKeys, utterances: list[int], *, seed: int, trained: bool, both: bool
) -> tuple[list[Tensor], Tensor]:
    """Return the states of some utterances after all layers, and the gradient of the sum of their losses.

    Utterance i has `_LENGTHS[i]` sub-words, and always the same ones, the same key and the same loss.
    """
    lengths = [_LENGTHS[i] for i in utterances]
    pad = max(getattr(encoder.config, "pad_token_id", None) or 0, 0)
    draw = torch.Generator().manual_seed(0)
    ids_ns = torch.randint(encoder.config.vocab_size - 1, (len(_LENGTHS), max(_LENGTHS)), generator=draw)
    ids_bs = (ids_ns + (ids_ns >= pad))[utterances, : max(lengths)]  # none of them is the padding
    mask_bs = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    keys.key_b = torch.tensor(utterances, dtype=torch.int32) * 7919
    torch.manual_seed(seed)
    with torch.set_grad_enabled(trained):
        output = run_encoder(encoder, ids_bs.where(mask_bs, pad), mask_bs, both=both, every=not trained)
        last_bsh = output.last_hidden_state
        all_bsh = torch.cat([last_bsh] if trained else [*output.hidden_states, last_bsh], -1)
        if not trained:
            return [row[:n] for row, n in zip(all_bsh, lengths, strict=True)], torch.zeros(())
        weight_nsh = torch.randn(*ids_ns.shape, last_bsh.shape[2], generator=draw, dtype=last_bsh.dtype)
        loss = (last_bsh * weight_nsh[utterances, : max(lengths)] * mask_bs[:, :, None]).sum()
        parameters = [p for p in encoder.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(loss, parameters, materialize_grads=True, allow_unused=True)
    return [row[:n].detach() for row, n in zip(all_bsh, lengths, strict=True)], torch.cat(
        [g.flatten() for g in gradients]
    )


def _apart(one: list[Tensor], other: list[Tensor]) -> bool:
    """Return True if tensors differ by more than rounding."""
    return any(not (x - y).norm() <= _ROUNDING * y.norm() for x, y in zip(one, other, strict=True))
