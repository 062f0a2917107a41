"""The specification of a model: CLC, or a Transformer encoder, with their heads."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from edp.spec import Frozen
from trainables.config.corpus import CorpusSpec

_MAX_HEADS = 1024
"""Largest number of heads that a message lists."""


class EmbeddingsSpec(Frozen):
    """The source of CLC's token embeddings. Never the private corpus: they are released with the model."""

    path: Annotated[str | None, Field(description="a .vec or .bin file of fastText")] = None
    corpus: Annotated[CorpusSpec | None, Field(description="a public corpus to train fastText on with gensim")] = None
    epochs: Annotated[int, Field(ge=1, le=10_000)] = 10

    @model_validator(mode="after")
    def _one_source(self) -> EmbeddingsSpec:
        if (self.path is None) == (self.corpus is None):
            raise ValueError("give either path or corpus")
        return self


class HeadSpec(Frozen):
    """The slot head: the scores of tags, and the sequences of them that are allowed."""

    slots: Annotated[
        Literal["crf", "bio_crf", "softmax"],
        Field(
            description="crf: learnt scores of transitions between tags; bio_crf: all transitions that BIO "
            "allows score alike, so that none is learnt or noised; softmax: each token by itself"
        ),
    ] = "crf"
    shared_types: Annotated[
        bool,
        Field(description="the score of B-x is that of B plus that of x; the score of I-x is that of I plus that of x"),
    ] = False
    shared_parts: Annotated[
        bool,
        Field(
            description="add half the score of each word of a label's name to the label's own: toloc.city_name shares "
            "what fromloc.city_name learns about cities"
        ),
    ] = False
    bio: Annotated[bool, Field(description="predict I-x only after B-x and I-x")] = False


def _names_layers(layers: str) -> str:
    if not re.fullmatch(r"(0|[1-9]\d*)(\+(0|[1-9]\d*))*", layers):
        raise ValueError(f"{layers!r} names no hidden states; allowed: their numbers joined by +, such as 2+4")
    return layers


class FeaturesSpec(Frozen):
    """The inputs of heads on a frozen encoder: hidden states, computed once a corpus, whitened by public moments.

    Dropout is off: before the states nothing is trained, and after them there is a linear layer alone.
    """

    layers: Annotated[
        str,
        BeforeValidator(lambda value: str(value) if type(value) is int else value),  # as YAML reads one alone
        AfterValidator(_names_layers),
        Field(
            description='hidden states that form a token\'s vector, such as "2+4"; 0: the embeddings',
        ),
    ] = "2+4"
    sentence: Annotated[
        Literal["mean", "first"],
        Field(description="an utterance's state in the last layer: the mean over its pieces, or the first piece's"),
    ] = "mean"
    whiten: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="exponent of the whitening: 1 gives equal variances, 0 leaves the states as they are",
        ),
    ] = 1.0
    public: Annotated[
        tuple[CorpusSpec, ...],
        Field(min_length=1, description="public corpora for mean, covariance and scale of the states"),
    ]

    @model_validator(mode="after")
    def _each_layer_once(self) -> FeaturesSpec:
        if len(set(self.layer_numbers)) < len(self.layer_numbers):
            raise ValueError(f"layers = {self.layers} names a layer twice; allowed: each once")
        return self

    @property
    def layer_numbers(self) -> tuple[int, ...]:
        """The hidden states, in the order given."""
        return tuple(int(number) for number in self.layers.split("+"))


class CLCSpec(Frozen):
    """Character CNN and token embeddings, bi-LSTM, CRF (Ma and Hovy 2016). Defaults are the paper's sizes."""

    kind: Literal["clc"] = "clc"
    embeddings: EmbeddingsSpec
    embedding_size: Annotated[int, Field(ge=1)] = 300
    hidden_size: Annotated[int, Field(ge=1, description="size of one direction of a layer")] = 384
    layers: Annotated[int, Field(ge=1)] = 2
    char_embedding_size: Annotated[int, Field(ge=1)] = 30
    char_filters: Annotated[int, Field(ge=1)] = 50
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    trainable: Annotated[
        Literal["all", "heads"], Field(description="heads: all layers before the heads are frozen")
    ] = "all"
    head: HeadSpec = HeadSpec()


class BERTSpec(Frozen):
    """A Transformer encoder (BERT, or any that `pretrained` names) with an intent head and a CRF on the first sub-word
    of a token."""

    kind: Literal["bert"] = "bert"
    pretrained: Annotated[
        str | None,
        Field(description="minilm (the extra `pretrained`), a folder, or a Hugging Face name; null: a random start"),
    ] = "huawei-noah/TinyBERT_General_4L_312D"
    vocabulary: Annotated[
        CorpusSpec,
        Field(description="public corpus for a WordPiece vocabulary where `pretrained` has none"),
    ]
    hidden_size: Annotated[int, Field(ge=1, description="of a random start")] = 312
    layers: Annotated[
        int | None,
        Field(
            ge=1, description="number of first layers of a pretrained encoder, null: all; of a random start, null: 4"
        ),
    ] = None
    heads: Annotated[int, Field(ge=1, description="of a random start")] = 12
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    trainable: Annotated[
        Literal["all", "heads", "lora", "bitfit", "top_k"],
        Field(description="parts trained besides the heads; lora: adapters; bitfit: biases; top_k: the last layers"),
    ] = "all"
    lora_rank: Annotated[int | None, Field(ge=1, description="rank of lora's adapters; null: 8")] = None
    lora_target: Annotated[
        Literal["query_value", "all"] | None,
        Field(description="linear layers that lora adapts; null: query_value"),
    ] = None
    top_layers: Annotated[int | None, Field(ge=1, description="k of top_k; null: 1")] = None
    head: HeadSpec = HeadSpec()
    sentence: Annotated[
        Literal["first", "mean"],
        Field(
            description="input of the intent head without `features`: the first piece's last state, or the mean of all"
        ),
    ] = "first"
    features: Annotated[
        FeaturesSpec | None,
        Field(description="with trainable = heads: compute the encoder's states once; null: in every step"),
    ] = None

    @model_validator(mode="after")
    def _features_are_of_a_frozen_encoder(self) -> BERTSpec:
        if self.features is None:
            return self
        if self.trainable != "heads":
            raise ValueError(
                f"model.features has no meaning with model.trainable = {self.trainable}; "
                "allowed: null, or model.trainable = heads"
            )
        if self.pretrained is None:
            raise ValueError(
                "model.features: states of a random start say nothing; allowed: null, or an encoder in model.pretrained"
            )
        if self.sentence == "mean":
            raise ValueError(
                "model.sentence = mean has no meaning with model.features, which have their own; "
                "allowed: first, or model.features.sentence"
            )
        return self

    @model_validator(mode="after")
    def _options_belong_to_what_is_trained(self) -> BERTSpec:
        for name, kind in (("lora_rank", "lora"), ("lora_target", "lora"), ("top_layers", "top_k")):
            if getattr(self, name) is not None and self.trainable != kind:
                raise ValueError(
                    f"model.{name} = {getattr(self, name)} has no meaning with model.trainable = {self.trainable}; "
                    f"allowed: null, or model.trainable = {kind}"
                )
        return self

    @model_validator(mode="after")
    def _heads_share_the_hidden_size(self) -> BERTSpec:
        if self.hidden_size % self.heads:
            fit = [
                str(heads) for heads in range(1, min(self.hidden_size, _MAX_HEADS) + 1) if self.hidden_size % heads == 0
            ]
            raise ValueError(
                f"model.heads = {self.heads} does not divide model.hidden_size = {self.hidden_size}; "
                f"allowed: {', '.join(fit)}"
            )
        return self

    @property
    def random_layers(self) -> int:
        """Number of layers of a random start; the paper's four by default."""
        return 4 if self.layers is None else self.layers


ModelSpec = Annotated[CLCSpec | BERTSpec, Field(discriminator="kind")]
