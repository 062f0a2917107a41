"""The Optuna study of a sweep: its sampler, its initial points, and the ends of its trials.

Only the driver of a sweep writes to its study (`sweeps.engine.driver`).
"""

from __future__ import annotations

import copy
import inspect
import math
import warnings
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

import numpy as np
import optuna
from optuna.distributions import FloatDistribution
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from edp.ledger import Ledger
from edp.spec import UserError
from sweeps.config.configurations import all_configurations, identity
from sweeps.config.initial_points import under_sampler_names
from sweeps.config.parts import Limited, Objective, SearchSpec
from sweeps.config.recipe import Recipe
from sweeps.config.space import ask
from sweeps.config.target_epsilon import BudgetExceeded, ConfigurationRefused
from sweeps.store.records import REPEATED, number_of
from sweeps.store.study import study_storage
from sweeps.store.sweep import Sweep
from trainables.config.plugins import load_plugin, plugins
from trainables.records.files import one_line
from trainables.records.job import Outcome
from trainables.records.pareto import Metrics, SelectionFigures, objective_values

INITIAL_POINT = "initial_point"
"""Name of the attribute that holds the index of a trial's initial point."""
SHORT_BEFORE = "short_of_memory"
"""Name of the attribute of a trial that was left because memory was short."""
_OWN = ("tpe", "nsga2", "gp", "random")
"""Samplers that keep what they know in the study."""
_REPEATS = 20
"""Repeated configurations in a row after which one is drawn at random."""
COST = "refused_epsilon"
"""Name of the attribute that holds the ε of a trial that was refused for it."""


def sampler(search: SearchSpec, *known: int) -> BaseSampler:
    """Return the recipe's sampler, seeded.

    Args:
        known: numbers that count what was asked before: a later sampler must not repeat the random numbers of this one.

    Raises:
        UserError: for a class that is missing, or does not take these arguments or objectives.
    """
    within = (lambda trial: excess(trial, search.limits)) if search.limits else None
    startup = min(10, max(2, search.trials // 3))
    seed = search.seed if not any(known) else int(np.random.SeedSequence([search.seed, *known]).generate_state(1)[0])
    kind: Callable[..., Any]
    options: dict[str, Any] = {}
    match search.sampler:
        case "tpe":
            kind, options = TPESampler, {"n_startup_trials": startup, "multivariate": True, "group": True}
        case "nsga2":
            kind, options = NSGAIISampler, {"population_size": max(4, min(50, search.trials // 3))}
        case "gp":
            kind, options = GPSampler, {"n_startup_trials": startup}
        case "random":
            kind = RandomSampler
        case named:
            kind = _class(named)
    try:
        takes = inspect.signature(kind).parameters
        common = {"seed": seed, "constraints_func": within}
        options |= {name: value for name, value in common.items() if name in takes} | search.sampler_arguments
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            made = kind(**options)
            if not isinstance(made, BaseSampler):
                raise TypeError("not a subclass of optuna.samplers.BaseSampler")
            # Some, such as CMA-ES, refuse several objectives when they are first asked.
            trial = optuna.create_study(directions=["minimize"] * len(search.objectives), sampler=made)
            trial.ask({"x": FloatDistribution(0, 1)})
            return kind(**options)
    except Exception as error:  # a class from elsewhere can fail in any way
        raise UserError(
            f"search.sampler = {search.sampler}: {getattr(kind, '__name__', kind)} with search.sampler_arguments = "
            f"{search.sampler_arguments} cannot be used ({type(error).__name__}: {one_line(error)}); "
            "allowed: a sampler of Optuna for these objectives, with its own arguments"
        ) from None


def _class(name: str) -> Callable[..., Any]:
    """Return the class of a sampler that a plugin adds, or that a path names.

    Raises:
        UserError: naming the package, the module or the class that is missing.
    """
    if ":" not in name and name not in plugins("samplers"):  # known when it is used: to read a sweep takes none
        raise UserError(
            f"search.sampler = {name!r}: no package adds a sampler of this name; "
            "allowed: tpe, nsga2, gp, random, module:Class, optunahub:PACKAGE:Class"
        )
    if ":" not in name:
        return cast(Callable[..., Any], load_plugin("samplers", name))
    place, _, kind = name.removeprefix("optunahub:").rpartition(":")
    try:
        if name.startswith("optunahub:"):
            module = import_module("optunahub").load_module(place)
        else:
            module = import_module(place)
        return cast(Callable[..., Any], getattr(module, kind))
    except Exception as error:  # as any import can
        how = "pip install optunahub, or" if getattr(error, "name", None) == "optunahub" else "an installed"
        raise UserError(
            f"search.sampler = {name}: {one_line(error)}; allowed: {how} module:Class, optunahub:PACKAGE:Class"
        ) from None


def excess(trial: FrozenTrial, limits: Mapping[Limited, float]) -> tuple[float, ...]:
    """Return by how much a trial that has ended is over each limit, as a share of it; a trial without figures by all.

    A number above 0 is a broken constraint of Optuna's samplers.
    """
    metrics = trial.user_attrs.get("metrics")
    if metrics is None:
        return (1.0,) * len(limits)
    figures = SelectionFigures(metrics)
    return tuple(min(figures.get(name, math.inf) / most - 1, 1e9) for name, most in limits.items())


def open_study(sweep: Sweep, recipe: Recipe) -> optuna.Study:
    """Open the study of a sweep, or create it with the search's initial points.

    Raises:
        UserError: if its database cannot be opened.
    """
    study = optuna.create_study(
        study_name=sweep.study_name(recipe),
        storage=study_storage(sweep.study_url(recipe)),
        directions=["minimize"] * len(recipe.search.objectives),
        load_if_exists=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names(list(recipe.search.objectives))  # for optuna-dashboard
    study.sampler = sampler(recipe.search, len(study.get_trials(deepcopy=False)))
    enqueue_initial_points(study, recipe)
    return study


def enqueue_initial_points(study: optuna.Study, recipe: Recipe) -> None:
    """Enqueue the recipe's initial points that the study has not had yet."""
    had = {trial.user_attrs.get(INITIAL_POINT) for trial in study.get_trials(deepcopy=False)}
    for i, params in enumerate(recipe.initial_points()):
        if i not in had:
            study.enqueue_trial(params, user_attrs={INITIAL_POINT: i})


def requeue_interrupted(study: optuna.Study) -> int:
    """Enqueue the trials that were running when the sweep stopped, and return how many trials have ended.

    The study records the stopped trial as failed, and suggests its configuration next.
    """
    trials = study.get_trials(deepcopy=False)
    waiting = {trial.user_attrs.get("retry_of") for trial in trials if trial.state == TrialState.WAITING}
    ended = 0
    for trial in trials:
        if trial.state == TrialState.RUNNING:
            first = trial.user_attrs.get("retry_of", trial.number)
            # Enqueue before telling: if this process dies in between, the next `resume` finds the trial still running
            # and its retry waiting, and enqueues nothing twice.
            if first not in waiting:
                passed_on = ("run_id", INITIAL_POINT, SHORT_BEFORE)
                kept: dict[str, Any] = {k: v for k, v in trial.user_attrs.items() if k in passed_on}
                # `params` of an enqueued trial are empty until asked for; `fixed_params` holds them until then.
                queued = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
                study.enqueue_trial(queued, user_attrs={**kept, "retry_of": first})
            study._storage.set_trial_user_attr(trial._trial_id, "state", "interrupted")
            study.tell(trial.number, state=TrialState.FAIL)
        elif trial.state.is_finished() and trial.user_attrs.get("state") not in ("interrupted", "refused", REPEATED):
            ended += 1
    return ended


class _Seen(optuna.Study):
    """A study as its sampler sees it if the order in which trials end must not matter.

    Args:
        ended: numbers of trials whose ends are seen. All others are seen as running, with their configurations.
    """

    def __init__(self, study: optuna.Study, ended: Container[int]) -> None:
        vars(self).update(vars(study))
        self._shown = list[FrozenTrial]()
        for number, trial in _tries(study).items():
            shown = copy.copy(trial)
            shown.number = number  # samplers sort by it, and a trial that was interrupted has a later one
            if number not in ended:
                shown.state, shown.values, shown.system_attrs = TrialState.RUNNING, None, {}
            self._shown.append(shown)

    def _get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None, use_cache: bool = False
    ) -> list[FrozenTrial]:
        found = [trial for trial in self._shown if states is None or trial.state in states]
        return copy.deepcopy(found) if deepcopy else found


def _tries(study: optuna.Study) -> dict[int, FrozenTrial]:
    """Return the last try of each trial that was not refused, by number, in the order in which they were asked."""
    trials = study.get_trials(deepcopy=False)
    return {number_of(t): t for t in trials if t.user_attrs.get("state") not in (REPEATED, "refused")}


class Asker:
    """The sampler of a study, which gives each configuration once.

    Args:
        lag: number of trials whose ends are not waited for, so that a search whose trainings repeat asks the same again
            though several trials run at once: trial n is chosen by the ends of those up to n - lag, and waits for them.
            None: a trial is chosen by all that have ended.
    """

    def __init__(self, study: optuna.Study, recipe: Recipe, lag: int | None = None) -> None:
        told = [trial.user_attrs.get("params") for trial in study.get_trials(deepcopy=False)]
        self._study, self._recipe, self._lag = study, recipe, lag
        self._had = {identity(recipe, params) for params in told if params is not None}
        self._every = all_configurations(recipe)

    def known_to(self, number: int | None = None) -> set[int] | None:
        """Return the numbers of the trials by whose ends a trial is chosen; None for all that have ended.

        Args:
            number: of the trial; None: the next one, which is the first that waits, or a new one.
        """
        if self._lag is None:
            return None
        tries = _tries(self._study)
        waiting = (n for n, trial in tries.items() if trial.state == TrialState.WAITING)
        order, number = list(tries), next(waiting, None) if number is None else number
        place = len(order) if number is None else order.index(number)
        return set(order[: max(0, place + 1 - self._lag)])

    @property
    def ready(self) -> bool:
        """True if the next trial may be asked for now: those that choose it have ended."""
        tries = _tries(self._study)
        return all(tries[number].state.is_finished() for number in self.known_to() or ())

    def ask(self) -> tuple[optuna.Trial, dict[str, Any]] | None:
        """Ask for a configuration, and return it after its trial of the study; None if the space has none left.

        A trial whose configuration has run fails in the study, and the next one takes over its number.
        """
        number, repeats = None, 0
        while (asked := self._next(repeats)) is not None:
            params = ask(self._recipe.dimensions, asked, self._recipe.shapes)
            key = identity(self._recipe, params)
            if key not in self._had or "retry_of" in asked.user_attrs:
                self._had.add(key)
                if number is not None and "retry_of" not in asked.user_attrs:
                    asked.set_user_attr("retry_of", number)
                return asked, params
            number = number_of(asked) if number is None else number
            repeats += 1
            asked.set_user_attr("state", REPEATED)
            self._study.tell(asked, state=TrialState.FAIL)
        return None

    def _next(self, repeats: int) -> optuna.Trial | None:
        """Return what the sampler asks for next, or after many repeats a random draw; None if nothing is left."""
        search, drawn = self._recipe.search, (len(self._had), repeats)
        random = np.random.default_rng([search.seed, *drawn])
        if (known := self.known_to()) is None:
            asking = copy.copy(self._study)
        else:
            asking = _Seen(self._study, known)
            if search.sampler in _OWN:  # the same random numbers, also after a stop; others may keep what they know
                asking.sampler = sampler(search, *drawn)
        at_random = repeats >= _REPEATS
        if not at_random and (self._every is None or len(self._had) < len(self._every)):
            return asking.ask()
        if any(trial.state == TrialState.WAITING for trial in self._study.get_trials(deepcopy=False)):
            return asking.ask()  # an interrupted trial, or an initial point
        if self._every is None:
            asking.sampler = RandomSampler(seed=int(random.integers(2**31)))
            return asking.ask()
        left = [params for key, params in self._every.items() if key not in self._had]
        if not left:
            return None
        drawn_params, space = left[random.integers(len(left))], self._recipe
        self._study.enqueue_trial(under_sampler_names(drawn_params, space.dimensions, space.shapes, "the space"))
        return asking.ask()


@dataclass(frozen=True)
class Ended:
    """The end of a trial, as the study records it."""

    state: TrialState
    values: list[float] | None = None
    """The objectives' values; None unless the trial is complete."""
    failure: str | None = None
    """The reason of a failure; None if the trial did not fail."""

    @property
    def name(self) -> str:
        """The state's name in records and tables."""
        return {TrialState.COMPLETE: "complete", TrialState.PRUNED: "stopped"}.get(self.state, "failed")


def set_outcome(
    trial: optuna.Trial,
    outcome: Outcome,
    ledger: Ledger | None,
    curve: list[Metrics],
    objectives: tuple[Objective, ...],
) -> Ended:
    """Set a trial's attributes to its outcome, and return its end for the study.

    The values are of the validation split: the sampler learns no test figure.

    A complete trial gets the values of its last epoch, because the sampler asked for a configuration that is trained
    for all its epochs. A trial that was stopped early has no such values, so it is recorded as pruned. TPE then counts
    it among the worse trials, and the other samplers ignore it. Its kept epochs are candidates for the front
    nevertheless.

    Args:
        ledger: what its ε counts; None if unknown.
        curve: the metrics of its epochs.
    """
    trial.set_user_attr("epochs", curve)
    if ledger is not None:
        trial.set_user_attr("ledger", ledger.model_dump_json())
    if isinstance(outcome, str):
        return _failed(trial, outcome)
    values = objective_values(objectives, SelectionFigures(outcome.metrics))
    trial.set_user_attr("metrics", outcome.metrics)
    bad = [name for name, value in zip(objectives, values, strict=True) if not math.isfinite(value)]
    if bad:
        return _failed(trial, f"{', '.join(bad)} is not finite")
    finite = [
        all(map(math.isfinite, objective_values(objectives, SelectionFigures(e.metrics)))) for e in outcome.epochs
    ]
    points = [vars(epoch) for epoch, kept in zip(outcome.epochs, finite, strict=True) if kept]
    trial.set_user_attr("points", points)
    if outcome.stopped is None:
        return Ended(TrialState.COMPLETE, values)
    trial.set_user_attr("reason", outcome.stopped)
    trial.set_user_attr("state", "stopped")
    return Ended(TrialState.PRUNED)


def _failed(trial: optuna.Trial, reason: str) -> Ended:
    trial.set_user_attr("reason", reason)
    return Ended(TrialState.FAIL, failure=reason)


def tell_refusal(study: optuna.Study, trial: optuna.Trial, refusal: ConfigurationRefused, run_id: str | None) -> None:
    """Tell the study that a configuration was refused.

    Args:
        run_id: id of the MLflow run that shows the refusal; None if trials are not tracked.
    """
    trial.set_user_attr("params", refusal.params)
    trial.set_user_attr("state", "refused")
    trial.set_user_attr("run_id", run_id)
    trial.set_user_attr("reason", str(refusal))
    if isinstance(refusal, BudgetExceeded):
        trial.set_user_attr(COST, refusal.cost)
    study.tell(trial, state=TrialState.FAIL)
