"""The parts of a recipe: mechanism, search, early stopping, resources, attacks, budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from edp.spec import Clip, Decay, EDPOptions, Frozen, NoiseMultiplier, Tau
from trainables.records.pareto import objective_value
from trainables.spec import CorpusSpec

Objective = Literal["ser", "mia_auc", "mia_tpr_at_1pct_fpr", "log10_epsilon", "log10_epsilon_paper"]


class StopSpec(Frozen):
    """When a trial is stopped early."""

    grace_epochs: Annotated[int, Field(ge=1, description="nothing is stopped before")] = 2
    margin: Annotated[
        float, Field(ge=0, lt=1, description="share of an objective's range that another must be ahead by in one")
    ] = 0.05


class FixedEDP(EDPOptions):
    """The mechanism of all trials. What is left out of the four numbers is searched; what is given is not."""

    # A trial's own mechanism says what it has no use for: `clip`, say, may be searched.
    belongs_to: ClassVar[Mapping[str, tuple[str, str]]] = {}

    C: Clip | None = None
    z0: NoiseMultiplier | None = None
    decay: Decay | None = None
    tau: Tau | None = None
    epsilon: Annotated[float | None, Field(gt=0, description="honest epsilon of every trial: z0 is solved for")] = None


class SearchSpec(Frozen):
    """How configurations are found."""

    trials: Annotated[int, Field(ge=1, le=1_000_000)] = 40
    sampler: Annotated[
        Literal["tpe", "nsga2", "gp", "random", "random_stopping"],
        Field(
            description="random_stopping: a secret number of trials, on average `trials`, and only the best released"
        ),
    ] = "tpe"
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    points_to_evaluate: Annotated[
        tuple[dict[str, bool | int | float | str], ...] | None,
        Field(description="what is tried first; null: the paper's best guesses and one safe point; []: nothing"),
    ] = None
    study: Annotated[
        str | None,
        Field(
            pattern=r"^(postgresql|mysql|sqlite)(\+\w+)?://",
            description="database of the study, with a $VARIABLE for its password; null: a file in the sweep's folder",
        ),
    ] = None
    objectives: Annotated[
        tuple[Objective, ...],
        Field(
            description="what is minimised; null: ser, mia_auc and log10_epsilon, of which a fixed edp.epsilon leaves "
            "ser and mia_auc, and random_stopping ser"
        ),
    ] = ("ser", "mia_auc", "log10_epsilon")
    concurrency: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    keep_epochs: Annotated[
        int, Field(ge=1, le=20, description="epochs of a trial whose models are kept and measured, the last among them")
    ] = 3
    stop: Annotated[
        StopSpec | None,
        Field(description="ends trials that others dominate (`sweeps.run.early_stopping`); null: none"),
    ] = StopSpec()

    stand_in: Annotated[
        CorpusSpec | None,
        Field(description="public corpus that the trials of `run --plan stand_in` see instead; null: there is none"),
    ] = None

    @property
    def secret(self) -> bool:
        """Whether the number of trials is secret, and the best of them all that is released."""
        return self.sampler == "random_stopping"

    @field_validator("objectives")
    @classmethod
    def _several_and_distinct(cls, objectives: tuple[Objective, ...]) -> tuple[Objective, ...]:
        if not objectives or len(set(objectives)) != len(objectives):
            raise ValueError("give at least one objective, each once")
        return objectives


class ScalesTo(Frozen):
    """Machines that an autoscaler may have running at once, those that are there already among them."""

    nodes: Annotated[int, Field(ge=1, le=100_000)]
    gpus: Annotated[float, Field(ge=0)]
    """Of each."""
    cpus: Annotated[float, Field(gt=0)]


class ResourcesSpec(Frozen):
    """What a worker and a sweep take of the cluster, and whether trials share a group of warm processes."""

    cpus_per_worker: Annotated[float, Field(gt=0)] | Literal["auto"] = "auto"
    gpus_per_worker: Annotated[float, Field(ge=0)] | Literal["auto"] = "auto"
    price_per_gpu_hour: Annotated[
        float | None, Field(ge=0, description="of one GPU, in any currency: what trials and sweep cost is shown in it")
    ] = None
    group: Annotated[
        Literal["auto", "warm", "fresh"],
        Field(description="warm: one worker group serves all trials; fresh: a TorchTrainer a trial"),
    ] = "auto"
    share: Annotated[
        Annotated[float, Field(gt=0, le=1)] | Literal["auto"],
        Field(
            description="of the cluster, that trials take at most; one trial runs in any case; auto: equal shares of "
            "all sweeps that are on it at the time"
        ),
    ] = "auto"
    scales_to: Annotated[
        ScalesTo | None,
        Field(description="what an autoscaler may add; null: read off the cluster launcher's file where there is one"),
    ] = None


MOST_REFERENCES = 256
"""As many as Carlini et al. (2022) train for LiRA."""


class AttacksSpec(Frozen):
    """The attacks of `edp-sweep attack` on a sweep's front."""

    at_end: Annotated[bool, Field(description="run them on the front when the sweep has ended")] = False
    references: Annotated[
        int, Field(ge=2, le=MOST_REFERENCES, multiple_of=2, description="K: reference models of RMIA and LiRA")
    ] = 4


class BudgetSpec(Frozen):
    """When this much is spent, no more trials are started; those that run end. Counted are trials and baseline."""

    gpu_hours: Annotated[float | None, Field(gt=0)] = None
    worker_hours: Annotated[float | None, Field(gt=0, description="hours times workers: also counts without GPUs")] = (
        None
    )

    @model_validator(mode="after")
    def _says_how_much(self) -> BudgetSpec:
        if self.gpu_hours is None and self.worker_hours is None:
            raise ValueError("nothing is limited; allowed: gpu_hours, worker_hours or both, or null in its place")
        return self


def objective_values(names: tuple[Objective, ...], metrics: dict[str, float]) -> list[float]:
    """What is minimised, from a trial's metrics. NaN where a metric is missing; ε = 0 counts as 1e-12."""
    return [objective_value(name, metrics) for name in names]


def metric_of(objective: Objective) -> str:
    """The metric that an objective is made of."""
    return objective.removeprefix("log10_")
