"""A pretraining recipe: public corpora, the encoder to start from, the objective, and the steps."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from edp.spec import Frozen
from trainables.config import CorpusSpec, Device, Precision


class StartSpec(Frozen):
    """The encoder that training starts from. Its architecture stays the same."""

    pretrained: Annotated[
        str, Field(description="the encoder, as model.pretrained of a recipe: minilm, a folder, or a name on the hub")
    ] = "minilm"
    dropout: Annotated[float, Field(ge=0, lt=1, description="dropout of the encoder and before the heads")] = 0.1


class StageSpec(Frozen):
    """A stage: steps on some of the corpora, with a new optimiser and a learning rate that falls to 0."""

    corpora: Annotated[
        tuple[str, ...] | None, Field(min_length=1, description="names of the stage's corpora; null: all")
    ] = None
    replay: Annotated[
        int, Field(ge=0, description="number of utterances of the other corpora to train on too, drawn once")
    ] = 0
    steps: Annotated[int, Field(ge=1, description="number of steps of the stage")]
    batch_size: Annotated[int, Field(ge=1, description="number of utterances in a step")] = 64
    learning_rate: Annotated[
        float, Field(gt=0, description="highest learning rate of the encoder; that of the heads is ten times as high")
    ] = 2e-4


class PretrainingSpec(Frozen):
    """The settings of training in all stages."""

    warm_up: Annotated[
        int, Field(ge=1, description="number of steps in which a stage's learning rate rises, before it falls to 0")
    ] = 150
    precision: Annotated[
        Precision,
        Field(description="precision of the encoder's products, as `training.precision`; all else is float32"),
    ] = "auto"
    checkpoint_minutes: Annotated[
        float, Field(ge=0, description="minutes between two checkpoints: the most work that a killed process loses")
    ] = 5
    seed: Annotated[int, Field(ge=0, lt=2**32, description="seed of heads, dropout, masks and data order")] = 0
    device: Annotated[Device, Field(description="device to train on; auto: a GPU if there is one")] = "auto"


class PretrainSpec(Frozen):
    """A pretraining recipe. Settings that do not fit together raise pydantic.ValidationError."""

    description: Annotated[str, Field(description="text for readers of the recipe")] = ""
    corpora: Annotated[
        tuple[CorpusSpec, ...], Field(min_length=1, description="public corpora; `utterances` takes a sample of one")
    ]
    model: StartSpec = StartSpec()
    objective: Annotated[
        Literal["supervised", "masked"],
        Field(description="supervised: slots and intents, with heads for each corpus; masked: guess masked sub-words"),
    ] = "supervised"
    slotless: Annotated[
        float,
        Field(ge=0, le=1, description="share of the utterances without slots to keep, in corpora with slots"),
    ] = 1.0
    stages: Annotated[tuple[StageSpec, ...], Field(min_length=1, description="stages, in order")]
    training: PretrainingSpec = PretrainingSpec()

    @model_validator(mode="after")
    def _fits_together(self) -> PretrainSpec:
        for number, corpus in enumerate(self.corpora):
            corpus.check_public(f"corpora.{number}")
        names = [corpus.name for corpus in self.corpora]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"corpora: {twice[0]} is listed twice; allowed: each name once")
        for number, stage in enumerate(self.stages):
            here = f"stages.{number}"
            for name in stage.corpora or ():
                if name not in names:
                    raise ValueError(f"{here}.corpora = {name}: allowed: {', '.join(names)}")
            if stage.replay and set(stage.corpora or names) == set(names):
                raise ValueError(f"{here}.replay = {stage.replay}: the stage has all corpora already; allowed: 0")
        return self
