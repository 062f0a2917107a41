"""A recipe: everything that a sweep is, in one YAML file. Frozen, checked whole before anything starts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator
from sqlalchemy.engine import make_url

from edp.spec import Clip, Decay, EDPOptions, Frozen, NoiseMultiplier, Tau
from sweeps.guesses import guesses
from sweeps.shapes import Shapes, fitting_shapes
from sweeps.space import PAPER_SPACE, Dimension, check_space
from sweeps.stopping import StopSpec
from trainables.epochs import objective_value
from trainables.spec import CanariesSpec, CorpusSpec, ModelSpec, ShadowSpec, TrainingSpec, TrialSpec, for_its_optimizer

Objective = Literal["ser", "mia_auc", "mia_tpr_at_1pct_fpr", "log10_epsilon", "log10_epsilon_paper"]


class FixedEDP(EDPOptions):
    """The mechanism of all trials. What is left out of the four numbers is searched; what is given is not."""

    C: Clip | None = None
    z0: NoiseMultiplier | None = None
    decay: Decay | None = None
    tau: Tau | None = None
    epsilon: Annotated[float | None, Field(gt=0, description="honest epsilon of every trial: z0 is solved for")] = None


class SearchSpec(Frozen):
    """How configurations are found."""

    trials: Annotated[int, Field(ge=1)] = 40
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
        StopSpec | None, Field(description="ends trials that others dominate (`sweeps.stopping`); null: none")
    ] = StopSpec()

    @field_validator("study")
    @classmethod
    def _no_password_in_plain_text(cls, study: str | None) -> str | None:
        password = make_url(study).password if study is not None else None
        if password and "$" not in str(password):
            raise ValueError(
                "holds a password, which would be written into recipe.yaml and MLflow; "
                "allowed: a variable of the environment in its place, such as postgresql://user:$PASSWORD@host/database"
            )
        return study

    @field_validator("objectives")
    @classmethod
    def _several_and_distinct(cls, objectives: tuple[Objective, ...]) -> tuple[Objective, ...]:
        if not objectives or len(set(objectives)) != len(objectives):
            raise ValueError("give at least one objective, each once")
        return objectives


class ScalesTo(Frozen):
    """Machines that an autoscaler may have running at once, those that are there already among them."""

    nodes: Annotated[int, Field(ge=1)]
    gpus: Annotated[float, Field(ge=0)]
    """Of each."""
    cpus: Annotated[float, Field(gt=0)]


class ResourcesSpec(Frozen):
    """What a worker takes of the cluster, and whether trials share a group of warm processes."""

    cpus_per_worker: Annotated[float, Field(gt=0)] | Literal["auto"] = "auto"
    gpus_per_worker: Annotated[float, Field(ge=0)] | Literal["auto"] = "auto"
    price_per_gpu_hour: Annotated[
        float | None, Field(ge=0, description="of one GPU, in any currency: what trials and sweep cost is shown in it")
    ] = None
    group: Annotated[
        Literal["auto", "warm", "fresh"],
        Field(description="warm: one worker group serves all trials; fresh: a TorchTrainer a trial"),
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


class Recipe(Frozen):
    """A sweep. Raises pydantic.ValidationError for what does not fit together, with the field's path."""

    description: str = ""
    corpus: CorpusSpec
    model: ModelSpec
    shadow: ShadowSpec
    canaries: CanariesSpec = CanariesSpec()
    training: TrainingSpec = TrainingSpec()
    edp: FixedEDP = FixedEDP()
    space: dict[str, Dimension | dict[str, Dimension]] = Field(default_factory=dict)
    search: SearchSpec = SearchSpec()
    epsilon_budget: Annotated[
        float | None, Field(gt=0, description="a trial that would cost a larger honest epsilon is refused")
    ] = None
    resources: ResourcesSpec = ResourcesSpec()
    budget: BudgetSpec | None = None
    attacks: AttacksSpec = AttacksSpec()

    @model_validator(mode="before")
    @classmethod
    def _null_removes_a_dimension(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("space"), dict):
            short = {f"edp.{name}": name for name in (*PAPER_SPACE, "epsilon")}
            data = {**data, "space": {short.get(k, k): v for k, v in data["space"].items() if v is not None}}
        return data

    @model_validator(mode="before")
    @classmethod
    def _objectives_follow_what_is_searched(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not all(isinstance(data.get(k, {}), dict) for k in ("search", "edp")):
            return data
        search = data.get("search", {})
        if search.get("objectives") is not None:
            return data
        # At a fixed ε settings differ in what leaks, not in what is guaranteed.
        varies = data.get("edp", {}).get("epsilon") is None
        objectives = ["ser", "mia_auc", "log10_epsilon"] if varies else ["ser", "mia_auc"]
        secret = search.get("sampler") == "random_stopping"
        return {**data, "search": {**search, "objectives": objectives[:1] if secret else objectives}}

    @model_validator(mode="after")
    def _fits_together(self) -> Recipe:
        if self.training.method == "sgd":
            raise ValueError("training.method = sgd has nothing to search; allowed: edp, dpsgd")
        check_space(self)
        guesses(self)
        if self.search.sampler == "random_stopping":
            self._check_random_stopping()
        if self.edp.epsilon is not None or "epsilon" in self.space:
            if self.edp.alpha == "paper" or self.edp.reproducible_noise is not None:
                raise ValueError("a target epsilon cannot be met with edp.alpha = paper or edp.reproducible_noise")
            if self.epsilon_budget is not None and (self.edp.epsilon or 0) > self.epsilon_budget:
                raise ValueError(
                    f"edp.epsilon = {self.edp.epsilon:g} is over epsilon_budget = {self.epsilon_budget:g}: "
                    "every trial would be refused"
                )
        if self.edp.epsilon is not None and self.edp.z0 is not None:
            raise ValueError(
                f"edp.z0 = {self.edp.z0:g} and edp.epsilon = {self.edp.epsilon:g} are both given; give one"
            )
        if "log10_epsilon" in self.search.objectives:
            why = (
                "edp.alpha = paper"
                if self.edp.alpha == "paper"
                else "edp.reproducible_noise"
                if self.edp.reproducible_noise is not None
                else None
            )
            if why:
                raise ValueError(
                    f"search.objectives: the honest epsilon is infinite for every trial with {why}; "
                    "name log10_epsilon_paper instead of log10_epsilon"
                )
        return self

    def _check_random_stopping(self) -> None:
        """What the bound of Papernot and Steinke (2022) assumes."""
        if self.edp.epsilon is None:
            raise ValueError(
                "search.sampler = random_stopping: its bound needs candidates at one fixed cost; "
                "give edp.epsilon, the target of every candidate"
            )
        if self.search.points_to_evaluate:
            raise ValueError(
                "search.points_to_evaluate: candidates of random_stopping are independent draws; allowed: none"
            )
        if self.search.objectives != ("ser",):
            # mia_auc reads the training utterances once more, without noise, and ε is the same for all.
            raise ValueError(
                "search.sampler = random_stopping needs one objective that knows the training utterances through "
                "the noisy model alone; allowed: search.objectives=[ser]"
            )
        if self.edp.sampling != "shuffle" or "edp.sampling" in self.space:
            # Shuffled candidates of one ε are one and the same mechanism. Poisson sampled ones of one ε at δ differ in
            # their Rényi divergences, which the bound is made of, and the worst may lie inside a range.
            raise ValueError(
                "search.sampler = random_stopping: its bound is that of the worst candidate, which is known "
                "with shuffled epochs only; allowed: edp.sampling=shuffle"
            )
        if self.budget is not None:
            raise ValueError(
                "budget: when it is spent, a secret number of candidates would be cut short, which the bound of "
                "random_stopping does not cover; allowed: none"
            )
        if self.search.trials < 2:
            raise ValueError(
                f"search.trials = {self.search.trials}: the mean of a secret number of trials; allowed: at least 2"
            )

    @property
    def dimensions(self) -> dict[str, Dimension | dict[str, Dimension]]:
        """What is searched: the recipe's space over the paper's, less what `edp` fixes."""
        fixed = {name for name in PAPER_SPACE if getattr(self.edp, name) is not None}
        if "epsilon" in self.space or self.edp.epsilon is not None:
            fixed.add("z0")  # solved for
        space = {k: v for k, v in {**PAPER_SPACE, **self.space}.items() if k not in fixed}
        taus = space.get("tau")
        if self.edp.decay is not None and isinstance(taus, dict):
            del space["tau"]
            if self.edp.decay in taus:
                space["tau"] = taus[self.edp.decay]
        return space

    @property
    def methods(self) -> tuple[str, ...]:
        """How trials are trained: one method, or those that are searched."""
        searched = self.space.get("training.method")
        return tuple(map(str, searched.ends())) if isinstance(searched, Dimension) else (self.training.method,)

    @property
    def shapes(self) -> Shapes:
        """What fits together of method, batch and micro-batches, where several are searched."""
        return fitting_shapes(self.training, self.space)

    def trial(self, params: dict[str, Any]) -> TrialSpec:
        """The configuration of one trial.

        Args:
            params: a value for each searched name; `C`, `z0`, `decay`, `tau`, or a dotted path. Where a target
                ε is searched or fixed, `z0` holds its solution (`sweeps.privacy.settle`).

        Raises:
            pydantic.ValidationError: for values that do not fit together.
        """
        data: dict[str, Any] = {
            "corpus": self.corpus.model_dump(),
            "model": self.model.model_dump(),
            "shadow": self.shadow.model_dump(),
            "canaries": self.canaries.model_dump(),
            "training": self.training.model_dump(),
            "edp": {k: v for k, v in self.edp.model_dump(exclude={"epsilon"}).items() if v is not None},
        }
        for name, value in params.items():
            if name == "epsilon":
                continue  # a target; z0 was solved for it
            *sections, field = (name if "." in name else f"edp.{name}").split(".")
            place = data
            for section in sections:
                place[section] = place.get(section) or {}  # what is not given lacks its fields, which is then said
                place = place[section]
            place[field] = value
        optimizers = self.space.get("training.optimizer")
        if isinstance(optimizers, Dimension):
            # Searched or fixed, a setting of one of them is left out of the trials of the others, as tau is.
            data["training"] = for_its_optimizer(data["training"], optimizers.ends())
        return TrialSpec.model_validate(data)

    def baseline(self) -> TrialSpec:
        """The same without privacy, as `TrialSpec.plain_training` says, with the recipe's own settings."""
        noise = {k: v for k, v in example_params(self.dimensions).items() if "." not in k}
        private = self.trial(noise)
        return private.model_copy(update={"training": private.plain_training()})


def example_params(dimensions: dict[str, Dimension | dict[str, Dimension]]) -> dict[str, Any]:
    """Some configuration of the space."""
    from sweeps.space import corners

    return next(corners(dimensions))


def objective_values(names: tuple[Objective, ...], metrics: dict[str, float]) -> list[float]:
    """What is minimised, from a trial's metrics. NaN where a metric is missing; ε = 0 counts as 1e-12."""
    return [objective_value(name, metrics) for name in names]


def metric_of(objective: Objective) -> str:
    """The metric that an objective is made of."""
    return objective.removeprefix("log10_")
