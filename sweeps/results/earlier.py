"""An earlier sweep as the beginning of a new one: its good points, and what they cost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edp.spec import UserError
from sweeps.config.initial_points import fitted
from sweeps.config.loading import load_recipe
from sweeps.config.parts import objective_values
from sweeps.results.cost import epsilon_of_sweep
from sweeps.results.recommendation import recommended
from sweeps.store.plans import plan_of
from sweeps.store.records import Point
from sweeps.store.sweep import Sweep
from sweeps.text.figures import epsilon_text
from trainables.corpora.load import is_generated
from trainables.records.pareto import non_dominated

Params = dict[str, Any]


def begun_from(storage: Path, name: str, recipe_name: str, settings: list[str]) -> list[str]:
    """Return settings with which a recipe's search begins at the good points of an earlier sweep.

    They are at most half of the trials, as the recipe's own points would be, which they replace.

    Args:
        name: the earlier sweep.
        settings: those of the recipe, as KEY=VALUE.

    Raises:
        UserError: if there is no such sweep, if it has no point, or if none is in the recipe's space.
    """
    recipe = load_recipe(recipe_name, settings)[1]
    earlier = Sweep.existing(storage, name)
    good = list(best_first(earlier))
    if not good:
        raise UserError(f"from = {name}: the sweep has no measured trial; allowed: a sweep that has one")
    points = fitted(
        (point.params for point in good), recipe.dimensions, recipe.shapes, max(1, recipe.search.trials // 2)
    )
    if not points:
        raise UserError(
            f"from = {name}: none of its {len(good)} points is in the space of {recipe_name}; allowed: a sweep that "
            f"searched some of {', '.join(recipe.dimensions) or 'the settings, of which there are none'}"
        )
    begin = {"points_to_evaluate": points, "points_from": _words(earlier)}
    return [*settings, *(f"search.{name}={json.dumps(value, ensure_ascii=False)}" for name, value in begin.items())]


def best_first(sweep: Sweep) -> Iterator[Point]:
    """Yield the points of a sweep: the recommended one, then front by front, each of a lower first objective first."""
    recipe, trials = sweep.recipe, sweep.trials()
    found = recommended(sweep)
    first = found.point or found.instead
    if first is not None:
        yield first
    left = [point for trial in trials if trial.state in ("complete", "stopped") for point in trial.points]
    while left:
        values = [objective_values(recipe.search.objectives, point.deciding) for point in left]
        front = sorted(non_dominated(values), key=lambda i: values[i])
        yield from (left[i] for i in front)
        left = [point for i, point in enumerate(left) if i not in front]


def _words(sweep: Sweep) -> str:
    """Return an earlier sweep with what its points cost, in words that `search.points_from` holds."""
    before = f", which began at those of {sweep.recipe.search.points_from}" if sweep.recipe.search.points_from else ""
    return f"sweep {sweep.name} ({cost_words(sweep, 'choice')}){before}"


def sweeps_in(words: str | None) -> list[str]:
    """Return the names of the sweeps in the words of `search.points_from`."""
    return re.findall(r"\bsweep (\S+) \(", words or "")


def cost_words(sweep: Sweep, use: str) -> str:
    """Return what the figures of a sweep cost the utterances of its corpus.

    Args:
        use: what they are used for, such as `choice`.
    """
    corpus = sweep.recipe.corpus
    if is_generated(corpus):
        return f"{corpus.name} is generated, so they cost nothing"
    if plan_of(sweep) is not None:
        return f"it searched on {corpus.name}, its proxy corpus, so they cost nothing"
    found = epsilon_of_sweep(sweep, sweep.trials())
    value = "unknown" if found is None else epsilon_text(found)
    return f"if utterances of {corpus.name} are private, its ε of {value} for them belongs to this {use}"
