"""Text models of the `transformers` library: an `Encoder` is made once from a folder, and answers for it.

All of an encoder such as BERT may be trained. Decoders such as Llama, and the encoders of T5 and its relatives, are
read frozen, or with adapters. All may be cut to their first layers. The dropout of encoders follows the specification,
others have none. Poolers are left out, since no loss reaches them.

Shapes: b utterances, s sub-words, h hidden.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_MAPPING,
    AutoConfig,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    MODEL_FOR_TEXT_ENCODING_MAPPING,
)
from transformers.utils import logging

from edp.spec import UserError
from trainables.config import BERTSpec, FeaturesSpec
from trainables.features.device import frozen_type
from trainables.features.word_pieces import MAX_PIECES
from trainables.records.files import one_line


@dataclass(frozen=True, eq=False)
class Encoder:
    """A text model in a folder.

    Args:
        name: the user's name for it.
        config: its architecture, with all layers.
    """

    name: str
    folder: Path
    config: PreTrainedConfig

    @classmethod
    def read(cls, folder: Path, name: str) -> Encoder:
        """Read the architecture in a folder.

        Raises:
            UserError: for a model that reads no text or is unknown to `transformers`; code in the folder is never run.
        """
        try:
            config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        except Exception as error:  # a folder from elsewhere can fail in any way
            raise _refused(name, f"its config.json cannot be read ({one_line(error)})") from None
        kind = config.model_type
        if _is_text_encoder(config):
            return cls(name, folder, config)
        if config.is_encoder_decoder:
            raise _refused(name, f"type {kind} has a decoder too, from which transformers does not part the encoder")
        if type(config) not in MODEL_MAPPING or not (fills_gaps(config) or type(config) in MODEL_FOR_CAUSAL_LM_MAPPING):
            raise _refused(name, f"type {kind} is no text model")
        if config.get_text_config() is not config:
            raise _refused(name, f"type {kind} reads more than text")
        if fills_gaps(config) and getattr(config, "is_decoder", False):
            raise _refused(name, f"type {kind} is made a decoder by is_decoder = true")
        return cls(name, folder, config)

    @cached_property
    def positions(self) -> int:
        """The number of sub-words, including special ones, that it has positions for, up to `MAX_PIECES`.

        RoBERTa and its relatives count positions from the one after the id of the padding.

        Raises:
            UserError: for an architecture that cannot be built.
        """
        try:
            with torch.device("meta"):
                modules = dict(empty_encoder(self.config).named_modules())
        except Exception as error:  # a config.json from elsewhere can contradict itself in any way
            raise _refused(self.name, f"the encoder of its config.json cannot be built ({one_line(error)})") from None
        tables = [m for n, m in modules.items() if n.endswith("position_embeddings") and isinstance(m, nn.Embedding)]
        taken = max((table.padding_idx + 1 for table in tables if table.padding_idx is not None), default=0)
        return min(MAX_PIECES, getattr(self.config, "max_position_embeddings", MAX_PIECES + taken) - taken)

    def architecture(self, layers: int | None = None, dropout: float = 0.0) -> PreTrainedConfig:
        """Return a copy of the architecture with its first `layers` layers (None: all), and with this dropout.

        Only an encoder such as BERT has dropout.
        """
        config = copy.deepcopy(self.config)
        used = dropout if fills_gaps(config) else 0.0
        for field, value in config.to_dict().items():  # whatever its name: `hidden_dropout_prob`, `attn_pdrop`, …
            named = "dropout" in field or "pdrop" in field
            if named and isinstance(value, int | float) and not isinstance(value, bool):
                setattr(config, field, used)
        if layers is not None:
            cut(config, layers)
        return config

    def load(
        self, *, dropout: float = 0.0, layers: int | None = None, device: torch.device | None = None
    ) -> PreTrainedModel:
        """Load the weights of an `architecture` onto the CPU.

        Args:
            device: where the encoder will run frozen, in the type of `frozen_type`; None: float32, for training.

        Raises:
            UserError: for weights that are missing, of another architecture, or not finite.
        """
        config = self.architecture(layers, dropout)
        kind, dtype = _class(config), torch.float32 if device is None else frozen_type(config, device)
        try:
            with quiet():
                options: dict[str, Any] = {"dtype": dtype, "output_loading_info": True, **_without_pooler(kind)}
                loaded: Any = kind.from_pretrained(self.folder, config=config, ignore_mismatched_sizes=True, **options)
        except Exception as error:
            raise _refused(self.name, f"its weights cannot be read ({one_line(error)})") from None
        model, found = loaded
        wrong = {key for key in found["missing_keys"] if not key.startswith("pooler.")}
        wrong |= {mismatch[0] for mismatch in found["mismatched_keys"]}
        if wrong:  # Transformers would silently make them random
            others = f", and {len(wrong) - 1} more are" if len(wrong) > 1 else ""
            raise _refused(self.name, f"of its weights {min(wrong)} is missing or of another shape{others}")
        unusable = [key for key, weight in model.state_dict().items() if not weight.isfinite().all()]
        if unusable:
            raise _refused(self.name, f"of its weights {min(unusable)} is not finite")
        model.config.name_or_path = ""  # a path of this machine, which a released model must not contain
        return _ready(model)

    def check(self, model: BERTSpec) -> None:
        """Raise if the encoder lacks layers that a specification names, or cannot be read or trained as it says."""
        most = self.config.num_hidden_layers
        if model.layers is not None and model.layers > most:
            raise UserError(
                f"model.layers = {model.layers}: model.pretrained = {self.name} has {most}; "
                f"allowed: 1 to {most}, or null for all"
            )
        if model.features is not None:
            self._check_states(model, model.features)
        elif not fills_gaps(self.config):
            self._check_trainable(model)

    def _check_trainable(self, model: BERTSpec) -> None:
        """Raise if more than adapters of a decoder are to be trained, or if an intent is read at its first sub-word."""
        own = f"model.pretrained = {self.name}, of type {self.config.model_type}, "
        if model.trainable not in ("lora", "heads"):
            raise UserError(
                f"model.trainable = {model.trainable}: {own}is no encoder such as BERT; allowed: heads, lora"
            )
        if model.sentence == "first":
            raise UserError(
                f"model.sentence = first: {own}has nothing to say at its first sub-word; allowed: last, mean"
            )

    def _check_states(self, model: BERTSpec, features: FeaturesSpec) -> None:
        """Raise if features name layers that are not there, or leave out the one that names are scored by.

        A decoder's state at the first sub-word knows nothing of what follows: such a choice raises too.
        """
        own = f"model.pretrained = {self.name}, of type {self.config.model_type}, "
        if reads_left(self.config) and features.attention == "own":
            for field, others in (("word", "last"), ("sentence", "mean, last")):
                if getattr(features, field) == "first":
                    raise UserError(
                        f"model.features.{field} = first: {own}has read only what is before the "
                        f"first sub-word; allowed: {others}, or model.features.attention = both"
                    )
        if features.attention == "both" and not reads_left(self.config):
            raise UserError(f"model.features.attention = both: {own}reads both directions by itself; allowed: own")
        most = model.layers or self.config.num_hidden_layers
        whose = f"model.pretrained = {self.name} has" if model.layers is None else "model.layers keeps"
        if max(features.layer_numbers) > most:
            raise UserError(
                f"model.features.layers = {features.layers}: {whose} {most} layers; "
                f"allowed: numbers from 0 to {most}, joined by +"
            )
        if model.name_prior and most not in features.layer_numbers:
            raise UserError(
                f"model.name_prior = {model.name_prior:g}: scores of names are of the encoder's last layer, which "
                f"model.features.layers = {features.layers} leaves out; allowed: 0, or layers with {most}"
            )


def _refused(name: str, reason: str) -> UserError:
    """Return the error for an encoder that cannot be used."""
    return UserError(
        f"model.pretrained = {name}: {reason}; allowed: a text model such as BERT or Llama, with its weights"
    )


def fills_gaps(config: PreTrainedConfig) -> bool:
    """Return True for an encoder, which can be trained to fill gaps: a decoder cannot, since it sees no later words."""
    return (
        type(config) in MODEL_FOR_MASKED_LM_MAPPING and type(config) in MODEL_MAPPING and not _is_text_encoder(config)
    )


def _is_text_encoder(config: PreTrainedConfig) -> bool:
    """Return True for an encoder-decoder whose encoder `transformers` loads by itself."""
    both = type(config) in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING
    return both and type(config) in MODEL_FOR_TEXT_ENCODING_MAPPING


def reads_left(config: PreTrainedConfig) -> bool:
    """Return True for a decoder, whose states know only what is before them."""
    bidirectional = getattr(config, "use_bidirectional_attention", False) or not getattr(config, "is_causal", True)
    return not fills_gaps(config) and not _is_text_encoder(config) and not bidirectional


def sub_word(config: PreTrainedConfig, setting: str, otherwise: str) -> str:
    """Return what a setting of the sub-word that is read means for an architecture.

    `auto` is a decoder's last one, since no other has read all of a word or an utterance, and `otherwise` of others.
    """
    return setting if setting != "auto" else "last" if reads_left(config) else otherwise


@contextmanager
def _reading_both_ways(encoder: PreTrainedModel) -> Iterator[None]:
    """Let a decoder read both directions within a block. `transformers` makes its mask as `config.is_causal` says."""
    parts: list[Any] = [encoder.config, *encoder.modules()]
    before = [(part, vars(part)["is_causal"]) for part in parts if "is_causal" in vars(part)]
    for part in (encoder.config, *(part for part, _ in before)):
        part.is_causal = False
    try:
        yield
    finally:
        vars(encoder.config).pop("is_causal")
        for part, value in before:
            part.is_causal = value


def run_encoder(
    encoder: PreTrainedModel, piece_bs: Tensor, mask_bs: Tensor, *, both: bool = False, every: bool = False
) -> Any:
    """Run an encoder on sub-words, without the cache of keys and values that only generated text needs.

    Args:
        both: let a decoder read both directions.
        every: return the `hidden_states` after each layer too.
    """
    options = {"use_cache": False} if hasattr(encoder.config, "use_cache") else {}
    with _reading_both_ways(encoder) if both else nullcontext():
        return encoder(input_ids=piece_bs, attention_mask=mask_bs.long(), output_hidden_states=every, **options)


def check_both_ways(encoder: PreTrainedModel, name: str) -> None:
    """Raise if a decoder cannot read both directions: the first state would not change with the last word."""
    device = next(encoder.parameters()).device
    ids = [torch.tensor([[1, 2, last]], device=device) for last in (3, 4)]
    with torch.inference_mode():
        one, other = (run_encoder(encoder, x, torch.ones_like(x), both=True).last_hidden_state[0, 0] for x in ids)
    if one.equal(other):
        raise UserError(
            f"model.features.attention = both: model.pretrained = {name}, of type {encoder.config.model_type}, "
            "can read one direction only; allowed: own"
        )


def cut(config: PreTrainedConfig, layers: int) -> None:
    """Cut an architecture to its first `layers` layers."""
    config.num_hidden_layers = layers
    for field in ("layer_types", "mlp_layer_types", "attention_window"):  # what each layer attends to, and its kind
        if isinstance(given := getattr(config, field, None), list):
            with suppress(AttributeError):  # Mamba's types follow from the number
                setattr(config, field, given[:layers])


def empty_encoder(config: PreTrainedConfig) -> PreTrainedModel:
    """Return an encoder of an architecture, with random weights."""
    kind = _class(config)
    return _ready(kind(config, **_without_pooler(kind)))


def config_to_json(config: PreTrainedConfig) -> str:
    """Return an architecture as JSON, for a released model."""
    return str(config.to_json_string(use_diff=False))


def config_from_json(text: str) -> PreTrainedConfig:
    """Return the architecture in the text that `config_to_json` returned."""
    values: dict[str, Any] = json.loads(text)
    return CONFIG_MAPPING[values["model_type"]].from_dict(values)


def _class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """Return the class of an architecture's encoder."""
    mapping: Any = MODEL_FOR_TEXT_ENCODING_MAPPING if _is_text_encoder(config) else MODEL_MAPPING
    found: Any = mapping[type(config)]
    return found[0] if isinstance(found, tuple) else found


def _without_pooler(kind: type[PreTrainedModel]) -> dict[str, bool]:
    """Return the argument that leaves out the pooler, if the class has one."""
    return {"add_pooling_layer": False} if "add_pooling_layer" in inspect.signature(kind).parameters else {}


def mean_state(state_bsh: Tensor, mask_bs: Tensor) -> Tensor:
    """Return the mean state (B, H) of each utterance's sub-words, including special ones."""
    mask_bs1 = mask_bs[:, :, None].to(state_bsh.dtype)
    return (state_bsh * mask_bs1).sum(1) / mask_bs1.sum(1)


def _ready(model: PreTrainedModel) -> PreTrainedModel:
    """Return the model without its pooler, and with a layer for each dropout."""
    if getattr(model, "pooler", None) is not None:  # the class has no argument to leave it out
        model.pooler = nn.Identity()
    for module in model.modules():
        p = getattr(module, "attention_dropout", None)
        if isinstance(p, float) and not hasattr(module, "dropout"):
            module.dropout = nn.Dropout(p)  # ModernBERT has only a number, but `take_along` needs a layer
    return model


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Transformers within a block: it draws bars, and reports weights that are left out on purpose."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
