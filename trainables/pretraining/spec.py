"""A pretraining recipe: public corpora, the encoder to start from, the objective, and the steps."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from edp.spec import Frozen
from trainables.config import CorpusSpec, Device, Precision


class StartSpec(Frozen):
    """The encoder that training starts from, whose architecture stays."""

    pretrained: Annotated[str, Field(description="as model.pretrained of a recipe: minilm, a folder, a hub's name")] = (
        "minilm"
    )
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1


class StageSpec(Frozen):
    """Some steps on some of the corpora. A stage starts with a new optimiser and ends with a learning rate of 0."""

    corpora: Annotated[
        tuple[str, ...] | None, Field(min_length=1, description="names of the stage's corpora; null: all")
    ] = None
    replay: Annotated[
        int, Field(ge=0, description="number of utterances of the other corpora to train on too, drawn once")
    ] = 0
    steps: Annotated[int, Field(ge=1)]
    batch_size: Annotated[int, Field(ge=1, description="utterances a step")] = 64
    learning_rate: Annotated[
        float, Field(gt=0, description="highest rate of the encoder; heads have ten times that")
    ] = 2e-4


class PretrainingSpec(Frozen):
    """The settings of training in all stages."""

    warm_up: Annotated[int, Field(ge=1, description="steps in which a stage's learning rate rises; then it falls")] = (
        150
    )
    precision: Annotated[
        Precision,
        Field(description="precision of the encoder's products, as in `training.precision`; all else is float32"),
    ] = "auto"
    checkpoint_minutes: Annotated[float, Field(ge=0, description="most minutes that a killed process loses")] = 5
    seed: Annotated[int, Field(ge=0, lt=2**32, description="seed of heads, dropout, masks and data order")] = 0
    device: Device = "auto"


class PretrainSpec(Frozen):
    """A pretraining recipe. Raises pydantic.ValidationError for what does not fit together."""

    description: str = ""
    corpora: Annotated[
        tuple[CorpusSpec, ...], Field(min_length=1, description="public corpora; `utterances` takes a sample of one")
    ]
    model: StartSpec = StartSpec()
    objective: Annotated[
        Literal["supervised", "masked"],
        Field(
            description="supervised: slots and intents, with heads for each corpus; masked: guess sub-words left out"
        ),
    ] = "supervised"
    slotless: Annotated[
        float,
        Field(ge=0, le=1, description="share of utterances without a slot to keep, in corpora with slots"),
    ] = 1.0
    stages: Annotated[tuple[StageSpec, ...], Field(min_length=1, description="stages, in order")]
    training: PretrainingSpec = PretrainingSpec()

    @model_validator(mode="after")
    def _fits_together(self) -> PretrainSpec:
        names = [corpus.name for corpus in self.corpora]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"corpora: {twice[0]} stands there twice; allowed: each name once")
        for number, stage in enumerate(self.stages):
            here = f"stages.{number}"
            for name in stage.corpora or ():
                if name not in names:
                    raise ValueError(f"{here}.corpora = {name}: allowed: {', '.join(names)}")
            if stage.replay and set(stage.corpora or names) == set(names):
                raise ValueError(f"{here}.replay = {stage.replay}: no corpora are left for it; allowed: 0")
        return self
