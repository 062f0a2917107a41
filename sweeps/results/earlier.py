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
from sweeps.results.snapshot import Snapshot
from sweeps.store.records import Point
from sweeps.store.sweep import Sweep
from trainables.corpora.load import is_generated
from trainables.records.pareto import non_dominated, objective_values

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
    earlier = Snapshot(Sweep.existing(storage, name))
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


def best_first(earlier: Snapshot) -> Iterator[Point]:
    """Yield the points of a sweep: the recommended one, then front by front, each of a lower first objective first."""
    found, left = earlier.recommended(), earlier.points
    first = found.point or found.instead
    if first is not None:
        yield first
    while left:
        values = [objective_values(earlier.recipe.search.objectives, point.selection_figures) for point in left]
        front = sorted(non_dominated(values), key=lambda i: values[i])
        yield from (left[i] for i in front)
        left = [point for i, point in enumerate(left) if i not in front]


def _words(earlier: Snapshot) -> str:
    """Return an earlier sweep with what its points cost, in words that `search.points_from` holds."""
    begun = earlier.recipe.search.points_from
    before = f", which began at those of {begun}" if begun else ""
    return f"sweep {earlier.sweep.name} ({_cost_words(earlier)}){before}"


def sweeps_in(words: str | None) -> list[str]:
    """Return the names of the sweeps in the words of `search.points_from`."""
    return re.findall(r"\bsweep (\S+) \(", words or "")


def _cost_words(earlier: Snapshot) -> str:
    """Return what the figures of a sweep cost the utterances of its corpus."""
    corpus = earlier.recipe.corpus
    if is_generated(corpus):
        return f"{corpus.name} is generated, so they cost nothing"
    if earlier.plan is not None:
        return f"it searched on {corpus.name}, its proxy corpus, so they cost nothing"
    return (
        f"if utterances of {corpus.name} are private, its ε of {earlier.epsilon_words} for them belongs to this choice"
    )
