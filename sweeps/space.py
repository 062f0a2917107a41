"""The search space: what may vary between trials, and how a sampler is asked for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import optuna
from pydantic import Field, ValidationError, model_validator

from edp.spec import Frozen
from sweeps.errors import one_line
from sweeps.shapes import SHAPE, Shapes, ask_shape

if TYPE_CHECKING:
    from sweeps.spec import Recipe

Scalar = bool | int | float | str
Integer = int  # the field below hides the type's own name


class Dimension(Frozen):
    """One searched setting: exactly one of the four kinds. Ranges include both ends."""

    choice: Annotated[tuple[Scalar, ...], Field(min_length=1)] | None = None
    uniform: tuple[float, float] | None = None
    log_uniform: tuple[float, float] | None = None
    int: tuple[Integer, Integer] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Dimension:
        ranges = {"uniform": self.uniform, "log_uniform": self.log_uniform, "int": self.int}
        given = [kind for kind, value in {"choice": self.choice, **ranges}.items() if value is not None]
        if len(given) != 1:
            raise ValueError(f"{len(given)} kinds given; allowed: one of choice, {', '.join(ranges)}")
        for kind, ends in ranges.items():
            if ends is not None and not ends[0] < ends[1]:
                raise ValueError(f"{kind} = {list(ends)}; allowed: [low, high] with low < high")
        if self.log_uniform is not None and self.log_uniform[0] <= 0:
            raise ValueError(f"log_uniform = {list(self.log_uniform)}; allowed: low > 0")
        return self

    def ask(self, trial: optuna.Trial, name: str) -> Any:
        """The sampler's value for this dimension, under `name`."""
        if self.choice is not None:
            return trial.suggest_categorical(name, list(self.choice))
        if self.int is not None:
            return trial.suggest_int(name, *self.int)
        if self.log_uniform is not None:
            return trial.suggest_float(name, *self.log_uniform, log=True)
        assert self.uniform is not None
        return trial.suggest_float(name, *self.uniform)

    def holds(self, value: Any) -> bool:
        """Whether `value` may be suggested."""
        if self.choice is not None:
            return any(value == c and isinstance(value, bool) == isinstance(c, bool) for c in self.choice)
        low, high = self.ends()
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return low <= value <= high and (self.int is None or value == round(value))

    def text(self) -> str:
        """What may be suggested, in words."""
        if self.choice is not None:
            return ", ".join(str(c) for c in self.choice)
        return "{} to {}".format(*self.ends())

    def ends(self) -> tuple[Any, ...]:
        """Every choice, or both ends of the range."""
        return self.choice or self.int or self.log_uniform or self.uniform or ()


Space = dict[str, "Dimension | dict[str, Dimension]"]

PAPER_SPACE: Space = {
    "C": Dimension(choice=(0.1, 0.25, 0.5, 1.0, 2.0, 5.0)),
    "z0": Dimension(log_uniform=(1e-6, 1.0)),
    "decay": Dimension(choice=("none", "linear", "exponential")),
    "tau": {
        "linear": Dimension(choice=(0.02, 0.05, 0.07, 0.1, 0.3, 0.5, 0.7, 0.9)),
        "exponential": Dimension(choice=(0.01, 0.02, 0.05, 0.08, 0.1, 0.2, 0.35, 0.5)),
    },
}
"""Section 4.2 of the paper."""

# Set once a sweep: data, features, the attack and the processes are shared by its trials.
_SHARED = (
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
    "training.validate_every",
)
_SECTIONS = ("training.", "edp.", "model.")


def ask(space: Space, trial: optuna.Trial, shapes: Shapes = ()) -> dict[str, Any]:
    """A configuration from the sampler. `tau` is asked for only where the decay has one, under the decay's name.

    Args:
        shapes: what of method, batch and micro-batches fits together (`sweeps.shapes`), where several are searched.

    Returns:
        A value for each name of the space; `tau` = 0 for decay none, and no micro-batches of a shape that has none.
    """
    params: dict[str, Any] = ask_shape(space, shapes, trial)
    if shapes:
        space = {name: dimension for name, dimension in space.items() if name not in SHAPE}
    for name, dimension in sorted(space.items(), key=lambda item: isinstance(item[1], dict)):
        if isinstance(dimension, Dimension):
            params[name] = dimension.ask(trial, name)
        else:
            decay = params["decay"]
            params[name] = dimension[decay].ask(trial, f"{name}_{decay}") if decay in dimension else 0.0
    return params


def corners(space: Space, shapes: Shapes = ()) -> Iterator[dict[str, Any]]:
    """Configurations that together hold every choice and every end of every range, each joined to first choices.

    Args:
        shapes: as for `ask`; each is in one of the configurations.
    """
    plain = {n: d for n, d in space.items() if isinstance(d, Dimension) and not (shapes and n in SHAPE)}
    first = {name: d.ends()[0] for name, d in plain.items()}

    def with_taus(params: dict[str, Any]) -> Iterator[dict[str, Any]]:
        taus = space.get("tau")
        if not isinstance(taus, dict):
            yield params
            return
        decay = params["decay"]
        for tau in taus[decay].ends() if decay in taus else (0.0,):
            yield {**params, "tau": tau}

    fitting = shapes or ({},)
    ends = [{**fitting[0], name: end} for name, dimension in plain.items() for end in dimension.ends()]
    seen = []
    for change in (*fitting, *ends):
        params = {**first, **change}
        if params not in seen:
            seen.append(params)
            yield from with_taus(params)


def check_space(recipe: Recipe) -> None:
    """Builds a trial at every corner of the space.

    Raises:
        ValueError: with the path of what is wrong.
    """
    space = recipe.dimensions
    if "epsilon" in recipe.space and ("z0" in recipe.space or recipe.edp.z0 is not None):
        raise ValueError("space.epsilon: z0 is given too; search one of them, the other follows from it")
    for name, dimension in recipe.space.items():
        path = name if "." in name else f"edp.{name}"
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
            continue
        if name not in PAPER_SPACE and not name.startswith(_SECTIONS):
            raise ValueError(
                f"space.{name} cannot be searched; allowed: {', '.join(PAPER_SPACE)}, epsilon, "
                "or a dotted path below training, edp or model"
            )
        if path.startswith(_SHARED):
            raise ValueError(f"space.{name} cannot be searched: it is shared by all trials of a sweep")
        if isinstance(dimension, dict) and name != "tau":
            raise ValueError(f"space.{name}: only tau may depend on the decay")
    methods = getattr(recipe.space.get("training.method"), "choice", None)
    if "training.method" in recipe.space and not (methods and set(methods) <= {"edp", "dpsgd"}):
        raise ValueError("space.training.method: sgd has nothing to search; allowed: choice: [edp, dpsgd]")
    for params in corners(space, recipe.shapes):
        try:
            trial = recipe.trial(params)
        except ValidationError as error:
            raise ValueError(one_line(error)) from None
        targeted = "epsilon" in params or recipe.edp.epsilon is not None
        infinite = trial.edp.alpha == "paper" or (trial.edp.z0 == 0 and not targeted)
        if infinite and "log10_epsilon" in recipe.search.objectives:
            raise ValueError(
                f"search.objectives: the honest epsilon is infinite at edp.z0 = {trial.edp.z0:g}, "
                f"edp.alpha = {trial.edp.alpha}; leave them out, or name log10_epsilon_paper or no epsilon"
            )
