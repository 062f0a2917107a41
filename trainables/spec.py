"""What one trial is, whole: corpus, model, training, mechanism. Frozen, and the same in YAML and JSON."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from edp.spec import EDPSpec, Frozen

Method = Literal["sgd", "edp", "dpsgd"]


class CorpusSpec(Frozen):
    """Which utterances: a public corpus by name, a generated one, or a user's own by path."""

    name: Annotated[
        str,
        Field(description="atis, snips, nlu_eval, communication, health, video, or any name with a path"),
    ]
    path: Annotated[str | None, Field(description="folder or file of the corpus; comes before everything")] = None
    format: Annotated[
        Literal["auto", "three_file", "nlu_eval", "jsonl", "conll"], Field(description="format of `path`")
    ] = "auto"
    utterances: Annotated[int | None, Field(ge=20, description="how many to generate (generated corpora)")] = None
    seed: Annotated[int, Field(ge=0, description="of the generator and of the 45:5:50 split")] = 0


class EmbeddingsSpec(Frozen):
    """Where CLC's token embeddings come from. Never from the private corpus: they are released with the model."""

    path: Annotated[str | None, Field(description="a .vec or .bin file of fastText")] = None
    corpus: Annotated[
        CorpusSpec | None, Field(description="a public corpus to train fastText on with gensim")
    ] = None
    epochs: Annotated[int, Field(ge=1)] = 10

    @model_validator(mode="after")
    def _one_source(self) -> EmbeddingsSpec:
        if (self.path is None) == (self.corpus is None):
            raise ValueError("give either path or corpus")
        return self


class ModelSpec(Frozen):
    """Sizes of a joint intent and slot model. Defaults are the paper's."""

    kind: Literal["clc", "bert"] = "clc"
    # CLC
    embeddings: EmbeddingsSpec | None = None
    embedding_size: Annotated[int, Field(ge=1)] = 300
    hidden_size: Annotated[int, Field(ge=1, description="of one direction of a bi-LSTM layer; of BERT: 312")] = 384
    layers: Annotated[int, Field(ge=1, description="bi-LSTM layers; of BERT: transformer layers")] = 2
    char_embedding_size: Annotated[int, Field(ge=1)] = 30
    char_filters: Annotated[int, Field(ge=1)] = 50
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    # BERT
    pretrained: Annotated[str | None, Field(description="Hugging Face name or local folder; null: random start")] = (
        "huawei-noah/TinyBERT_General_4L_312D"
    )
    heads: Annotated[int, Field(ge=1)] = 12
