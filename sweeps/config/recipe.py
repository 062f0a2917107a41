"""A recipe: everything that defines a sweep, in one YAML file. It is frozen, and checked before anything starts."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from edp.spec import EDPSpec, Frozen
from sweeps.config.initial_points import initial_points
from sweeps.config.parts import AttacksSpec, BudgetSpec, FixedEDP, ResourcesSpec, SearchSpec
from sweeps.config.space import PAPER_SPACE, Dimension, Shapes, bound_combinations, fitting_shapes
from sweeps.text.errors import one_line
from trainables.config import CanariesSpec, CorpusSpec, ModelSpec, ShadowSpec, TrainingSpec, TrialSpec


class Recipe(Frozen):
    """A sweep.

    Raises:
        pydantic.ValidationError: for settings that do not fit together, with the field's path.
    """

    description: str = ""
    """text for readers, without effect"""
    corpus: CorpusSpec
    model: ModelSpec
    shadow: ShadowSpec
    canaries: CanariesSpec = CanariesSpec()
    training: TrainingSpec = TrainingSpec()
    edp: FixedEDP = FixedEDP()
    space: dict[str, Dimension | dict[str, Dimension]] = Field(
        default_factory=dict, description="searched settings below `training`, `edp` and `model`, by dotted path"
    )
    search: SearchSpec = SearchSpec()
    epsilon_budget: Annotated[float | None, Field(gt=0)] = None
    """largest honest epsilon of a trial; configurations over it are refused; null: no limit"""
    resources: ResourcesSpec = ResourcesSpec()
    budget: BudgetSpec | None = None
    attacks: AttacksSpec = AttacksSpec()

    @model_validator(mode="before")
    @classmethod
    def _null_removes_a_dimension(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("space"), dict):
            short = {f"edp.{name}": name for name in (*PAPER_SPACE, "epsilon")}
            for long, name in short.items():
                if data["space"].get(long) is not None and data["space"].get(name) is not None:
                    raise ValueError(f"space.{long} and space.{name} are the same; allowed: one of them")
            data = {**data, "space": {short.get(k, k): v for k, v in data["space"].items() if v is not None}}
        return data

    @model_validator(mode="before")
    @classmethod
    def _sampling_follows_the_target(cls, data: Any) -> Any:
        sections = ("edp", "space", "training")
        if not isinstance(data, dict) or not all(isinstance(data.get(name, {}), dict) for name in sections):
            return data
        edp, space, training = (data.get(name, {}) for name in sections)
        if edp.get("sampling") != "auto":
            return data
        # Drawn batches hide who takes part in a step, so the same ε needs less noise (docs/search.md).
        given = (edp.get("epsilon"), space.get("epsilon"), space.get("edp.epsilon"))
        targeted = any(target is not None for target in given)
        fixed = (training.get("batch_size"), edp.get("noise_correlation"))
        settings = str([*fixed, space.get("training.batch_size"), space.get("edp.noise_correlation")])
        shuffled = not targeted or any(value in settings for value in ("'full'", "'banded'"))
        return {**data, "edp": {**edp, "sampling": "shuffle" if shuffled else "poisson"}}

    @model_validator(mode="before")
    @classmethod
    def _objectives_follow_what_is_searched(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not all(isinstance(data.get(k, {}), dict) for k in ("search", "edp")):
            return data
        search = data.get("search", {})
        if search.get("objectives") is not None:
            return data
        # At a fixed ε all configurations have the same guarantee, and differ only in utility and leakage.
        space = data.get("space")
        searched = isinstance(space, dict) and any(space.get(name) is not None for name in ("z0", "edp.z0"))
        varies = data.get("edp", {}).get("epsilon") is None or searched
        objectives = ["ser", "mia_auc", "log10_epsilon"] if varies else ["ser", "mia_auc"]
        return {**data, "search": {**search, "objectives": objectives}}

    @model_validator(mode="after")
    def _fits_together(self) -> Recipe:
        if self.training.method == "sgd":
            raise ValueError("training.method = sgd: it has nothing to search; allowed: edp, dpsgd")
        if self.search.proxy is not None:
            self.search.proxy.check_public("search.proxy")
        _check_space(self)
        self.initial_points()
        if self.search.plan is not None and self.edp.epsilon is None:
            raise ValueError(
                f"search.plan = {self.search.plan}: it needs a total epsilon of search and release; give edp.epsilon"
            )
        if self.search.plan == "proxy" and self.search.proxy is None:
            raise ValueError("search.plan = proxy: it needs a public corpus to choose on; give search.proxy")
        if self.edp.epsilon is not None or "epsilon" in self.space:
            if self.edp.alpha == "paper" or self.edp.reproducible_noise is not None:
                raise ValueError("a target epsilon cannot be met with edp.alpha = paper or edp.reproducible_noise")
            most = self.edp.epsilon if self.search.plan is not None else self.target
            if self.epsilon_budget is not None and most is not None and most > self.epsilon_budget:
                raise ValueError(
                    f"edp.epsilon = {most:g} is over epsilon_budget = {self.epsilon_budget:g}: "
                    "every trial would be refused"
                )
        if self.epsilon_budget is not None and (why := _infinite(self.edp)):
            raise ValueError(
                f"epsilon_budget = {self.epsilon_budget:g}: the honest epsilon is infinite for every trial with {why}, "
                "so every trial would be refused; remove one"
            )
        if self.edp.epsilon is not None and self.edp.z0 is not None:
            raise ValueError(
                f"edp.z0 = {self.edp.z0:g} and edp.epsilon = {self.edp.epsilon:g} are both given; give one"
            )
        return self

    @property
    def target(self) -> float | None:
        """The ε of every trial, for which z0 is solved; None where z0 is searched: `edp.epsilon` is a limit then."""
        return None if "z0" in self.space else self.edp.epsilon

    @property
    def dimensions(self) -> dict[str, Dimension | dict[str, Dimension]]:
        """The searched settings: the recipe's space over the paper's, without the settings that `edp` fixes."""
        fixed = {name for name in PAPER_SPACE if getattr(self.edp, name) is not None}
        if "epsilon" in self.space or self.target is not None:
            fixed.add("z0")  # it is solved for
        space = {k: v for k, v in {**PAPER_SPACE, **self.space}.items() if k not in fixed}
        taus = space.get("tau")
        if self.edp.decay is not None and isinstance(taus, dict):
            del space["tau"]
            if self.edp.decay in taus:
                space["tau"] = taus[self.edp.decay]
        return space

    def initial_points(self) -> list[dict[str, Any]]:
        """Return the configurations to try first (`sweeps.config.initial_points`)."""
        own: dict[str, Any] = {name: self for name in self.space if "." in name}
        for path in own:
            for field in path.split("."):
                own[path] = getattr(own[path], field, None)
        return initial_points(self.search, self.dimensions, self.shapes, self.model.kind, own)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods of the trials: one, or those that are searched."""
        searched = self.space.get("training.method")
        return tuple(map(str, searched.ends())) if isinstance(searched, Dimension) else (self.training.method,)

    @property
    def shapes(self) -> Shapes:
        """The combinations of method, batch and micro-batches that fit together; () unless several are searched."""
        return fitting_shapes(self.training, self.space)

    def trial(self, params: dict[str, Any]) -> TrialSpec:
        """Return the configuration of one trial.

        Args:
            params: a value for each searched name: `C`, `z0`, `decay`, `tau`, or a dotted path. If a target ε is
                searched or fixed, `z0` holds its solution (`sweeps.config.target_epsilon.resolve`).

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
                place[section] = place.get(section) or {}  # if it is null, validation names the fields that it lacks
                place = place[section]
            place[field] = value
        searched = {name: one.ends() for name, one in self.space.items() if isinstance(one, Dimension)}
        for section, kind in (("training", TrainingSpec), ("edp", EDPSpec)):
            # A setting of one choice only, such as one optimiser, is left out of the trials of the others.
            mine = {name.removeprefix(f"{section}."): ends for name, ends in searched.items()}
            data[section] = kind.for_its_choices(data[section], mine)
        return TrialSpec.model_validate(data)

    def baseline(self) -> TrialSpec:
        """Return the configuration of the SGD baseline: the recipe's own settings without privacy."""
        noise = {k: v for k, v in example_params(self).items() if "." not in k}
        private = self.trial(noise)
        return private.model_copy(update={"training": private.non_private_training()})


# Settings of the whole sweep: its trials share data, features, the attack and the processes.
_SHARED = (
    "training.seed",
    "training.workers",
    "edp.delta",
    "edp.unit",
    "edp.reproducible_noise",
    "training.device",
    "model.kind",
    "model.embeddings",
    "model.embedding_size",
    "model.pretrained",
    "model.vocabulary",
    "model.features.public",
    "model.features.prompt",
    "training.validate_every",
    "training.non_private",
)
_SECTIONS = ("training.", "edp.", "model.")


def _check_space(recipe: Recipe) -> None:
    """Check each dimension, and build a trial of every bound combination and one inside each range.

    Raises:
        ValueError: with the setting.
    """
    space = recipe.dimensions
    if "epsilon" in recipe.space and ("z0" in recipe.space or recipe.edp.z0 is not None):
        raise ValueError("space.epsilon: z0 is given too; allowed: one of them, from which the other follows")
    for name, dimension in recipe.space.items():
        _check_dimension(recipe, name, dimension)
    for params in bound_combinations(space, recipe.shapes):
        try:
            trial = recipe.trial(params)
        except ValidationError as error:
            raise ValueError(one_line(error, space)) from None
        targeted = "epsilon" in params or recipe.target is not None
        if targeted and trial.edp.alpha == "paper":
            raise ValueError(
                "space.edp.alpha: paper has an infinite epsilon whatever the noise, so it meets no target; remove it"
            )
        if "log10_epsilon" in recipe.search.objectives and (why := _infinite(trial.edp)):
            raise ValueError(
                f"search.objectives: the honest epsilon is infinite with {why}; remove it, or name log10_epsilon_paper "
                "instead of log10_epsilon"
            )
    # A value inside a range may be refused although its ends are not, if they are whole numbers, or multiples of N.
    first = example_params(recipe)
    for name, dimension in space.items():
        if not isinstance(dimension, Dimension) or dimension.choice is not None:
            continue
        low, high = dimension.ends()
        inside = low + 1 if dimension.int is not None else low + 0.37 * (high - low)
        try:
            recipe.trial({**first, name: inside})
        except ValidationError as error:
            allowed = "choice" if dimension.int is not None else "int, or choice"
            raise ValueError(f"space.{name} may suggest {inside:g}: {one_line(error)}; or {allowed}") from None


def _infinite(edp: EDPSpec | FixedEDP) -> str | None:
    """Return the setting with which no trial has a finite epsilon, or None."""
    if edp.alpha == "paper":
        return "edp.alpha = paper"
    if edp.reproducible_noise is not None:
        return "edp.reproducible_noise"
    return "edp.z0 = 0" if edp.z0 == 0 else None


def _check_dimension(recipe: Recipe, name: str, dimension: Dimension | dict[str, Dimension]) -> None:
    """Raise if `name` cannot be searched, or not in this way.

    Raises:
        ValueError: with the setting.
    """
    if name in (*PAPER_SPACE, "epsilon") and getattr(recipe.edp, name) is not None:
        raise ValueError(
            f"edp.{name} is fixed at {getattr(recipe.edp, name)} and searched in space.{name} too; "
            f"remove one (--set space.{name}=null)"
        )
    if name == "epsilon":
        if not isinstance(dimension, Dimension) or not all(
            isinstance(end, int | float) and end > 0 for end in dimension.ends()
        ):
            raise ValueError("space.epsilon: allowed: positive numbers, such as log_uniform: [1, 1000]")
        if recipe.epsilon_budget is not None and min(dimension.ends()) > recipe.epsilon_budget:
            raise ValueError(
                f"space.epsilon = {dimension.text()} is over epsilon_budget = {recipe.epsilon_budget:g}: "
                "every trial would be refused"
            )
        return
    if name not in PAPER_SPACE and not name.startswith(_SECTIONS):
        raise ValueError(
            f"space.{name} cannot be searched; allowed: {', '.join(PAPER_SPACE)}, epsilon, "
            "or a dotted path below training, edp or model"
        )
    if f"{name}.".startswith(tuple(f"{shared}." for shared in _SHARED)):
        raise ValueError(f"space.{name} cannot be searched: it is shared by all trials of a sweep")
    if name == "training.method" and not set(getattr(dimension, "choice", None) or ["none"]) <= {"edp", "dpsgd"}:
        raise ValueError("space.training.method: sgd has nothing to search; allowed: choice: [edp, dpsgd]")
    if dimension == {}:
        raise ValueError(f"space.{name}: nothing to search; allowed: {', '.join(Dimension.model_fields)}, or null")
    if isinstance(dimension, dict) and name != "tau":
        raise ValueError(f"space.{name}: only tau may depend on the decay")
    if isinstance(dimension, dict) and (unknown := sorted(dimension.keys() - {"linear", "exponential"})):
        raise ValueError(f"space.{name}.{unknown[0]}: this is no decay with a tau; allowed: linear, exponential")
    if name == "tau" and recipe.edp.decay is not None:
        useless = sorted(dimension.keys() - {recipe.edp.decay}) if isinstance(dimension, dict) else []
        if useless or recipe.edp.decay == "none":
            raise ValueError(
                f"space.{'.'.join(['tau', *useless[:1]])}: edp.decay is fixed at {recipe.edp.decay}, which does "
                "not use it; remove one"
            )


def example_params(recipe: Recipe) -> dict[str, Any]:
    """Return one configuration of the space."""
    return next(bound_combinations(recipe.dimensions, recipe.shapes))
