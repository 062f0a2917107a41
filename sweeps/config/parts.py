"""Parts of a recipe: mechanism, search, early stopping, resources, attacks, budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from edp.spec import Clip, Decay, EDPOptions, Frozen, NoiseMultiplier, Sampling, Tau
from trainables.config import CorpusSpec

Objective = Literal["ser", "mia_auc", "mia_tpr_at_1pct_fpr", "log10_epsilon", "log10_epsilon_paper"]
Limited = Literal["epsilon", "ser", "mia_auc", "mia_tpr_at_1pct_fpr"]


class StopSpec(Frozen):
    """The settings of early stopping."""

    grace_epochs: Annotated[int, Field(ge=1)] = 2
    """first epoch after which a trial may be stopped"""
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """share of an objective's range by which another trial must be ahead"""


class FixedEDP(EDPOptions):
    """The mechanism of all trials. `C`, `z0`, `decay` and `tau` are searched unless they are given here."""

    # Unused settings are refused in each trial's own mechanism: here, `clip` may be searched, and need another one.
    belongs_to: ClassVar[Mapping[str, tuple[str, str]]] = {}

    sampling: Sampling = "shuffle"
    """a recipe may say auto: poisson with a target epsilon where that is possible, else shuffle"""
    C: Clip | None = None
    z0: NoiseMultiplier | None = None
    decay: Decay | None = None
    """decay of the noise over epochs; null: searched"""
    tau: Tau | None = None
    epsilon: Annotated[float | None, Field(gt=0)] = None
    """honest epsilon of every trial, for which z0 is solved; with z0 in space: the largest epsilon of what is
    recommended or released; null: no target"""


class SearchSpec(Frozen):
    """The settings of the search."""

    trials: Annotated[int, Field(ge=1, le=1_000_000)] = 40
    """number of trials"""
    sampler: Literal["tpe", "nsga2", "gp", "random"] | str = "tpe"
    """Optuna's sampler; text: one that a plugin adds, module:Class, or optunahub:PACKAGE:Class"""
    sampler_arguments: dict[str, Any] = Field(
        default_factory=dict, description="keyword arguments of the sampler's class, such as {n_startup_trials: 5}"
    )
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """seed of the sampler"""
    points_to_evaluate: tuple[dict[str, bool | int | float | str], ...] | None = None
    """configurations to try first; null: the paper's best guesses and one safe point; []: none"""
    points_from: str | None = None
    """the earlier sweep of points_to_evaluate, and what its trainings cost, as `run --from` writes them; null: none"""
    study: Annotated[str | None, Field(pattern=r"^(postgresql|mysql|sqlite)(\+\w+)?://")] = None
    """database of the study, with a $VARIABLE for its password; null: a file in the sweep's folder"""
    objectives: tuple[Objective, ...] = ("ser", "mia_auc", "log10_epsilon")
    """objectives to minimise, on the validation split; null: ser, mia_auc and log10_epsilon; ser and mia_auc with a
    fixed edp.epsilon, unless z0 is in space"""
    limits: dict[Limited, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict,
        description="largest value by metric, such as {epsilon: 8, ser: 0.1}, by validation figures: the sampler "
        "avoids what is over one, and front and recommendation leave it out",
    )
    concurrency: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """trials that run at once; auto: as many as the cluster holds"""
    keep_epochs: Annotated[int, Field(ge=1, le=20)] = 3
    """epochs of a trial whose models are kept and measured, including the last one"""
    stop: StopSpec | None = StopSpec()
    """early stopping of trials that others dominate; null: no early stopping"""
    proxy: CorpusSpec | None = None
    """public proxy corpus on which search.plan = proxy runs the trials; null: no proxy corpus"""
    plan: Literal["proxy"] | None = None
    """proxy: `run` chooses on search.proxy and trains once on the corpus, with edp.epsilon in all (with z0 in space:
    that of the best trial within it); null: it searches on the corpus and releases nothing"""

    @field_validator("objectives")
    @classmethod
    def _several_and_distinct(cls, objectives: tuple[Objective, ...]) -> tuple[Objective, ...]:
        if not objectives or len(set(objectives)) != len(objectives):
            raise ValueError("give at least one objective, each once")
        return objectives


class ScalesTo(Frozen):
    """The machines that an autoscaler may run at once, including those that already run."""

    nodes: Annotated[int, Field(ge=1, le=100_000)]
    """number of machines"""
    gpus: Annotated[float, Field(ge=0)]
    """GPUs of one machine"""
    cpus: Annotated[float, Field(gt=0)]
    """CPUs of one machine"""


class ResourcesSpec(Frozen):
    """The resources of a worker and of a sweep, and the sharing of warm processes among trials."""

    cpus_per_worker: Annotated[float, Field(gt=0)] | Literal["auto"] = "auto"
    """CPUs of a worker; auto: one, or an equal share if the cluster has fewer than workers"""
    gpus_per_worker: Annotated[float, Field(ge=0)] | Literal["auto"] = "auto"
    """GPUs of a worker; auto: one, or an equal share if the cluster has fewer than workers"""
    group: Literal["auto", "warm", "fresh"] = "auto"
    """warm: a pool of worker groups, whose processes serve one trial after the other; fresh: each trial has a
    TorchTrainer of its own; auto: warm"""
    share: Annotated[float, Field(gt=0, le=1)] | Literal["auto"] = "auto"
    """largest share of the cluster for trials, at least one trial; auto: an equal share for each sweep that is on the
    cluster at the time"""
    scales_to: ScalesTo | None = None
    """machines that an autoscaler may run at once; null: those in the cluster launcher's file, if there is one"""


MAX_REFERENCES = 256
"""The number of reference models that Carlini et al. (2022) train for LiRA."""


class AttacksSpec(Frozen):
    """The attacks of `edp-sweep attack` on a sweep's front."""

    at_end: bool = False
    """run the attacks on the front when the sweep has ended"""
    references: Annotated[int, Field(ge=2, le=MAX_REFERENCES, multiple_of=2)] = 4
    """number of reference models of RMIA and LiRA"""


class BudgetSpec(Frozen):
    """The cost of trials and baseline after which no more trials start. Running trials continue to their end."""

    gpu_hours: Annotated[float | None, Field(gt=0)] = None
    """hours times GPUs; null: no limit"""
    worker_hours: Annotated[float | None, Field(gt=0)] = None
    """hours times workers, also without GPUs; null: no limit"""

    @model_validator(mode="after")
    def _says_how_much(self) -> BudgetSpec:
        if self.gpu_hours is None and self.worker_hours is None:
            raise ValueError("no limit is given; allowed: gpu_hours, worker_hours or both, or null")
        return self


def metric_of(objective: Objective) -> str:
    """Return the metric that an objective is computed from."""
    return objective.removeprefix("log10_")
