"""The recommended point and the reason, the same for the page, `pick`, `front` and the report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from sweeps.config.parts import Objective
from sweeps.config.recipe import Recipe
from sweeps.results.confirmed import SEEDS
from sweeps.results.front import gap
from sweeps.store.records import Point
from sweeps.text.figures import MEANINGFUL, enumerated, epsilon_digits, epsilon_text
from trainables.config import TrialSpec
from trainables.records.pareto import GUESSING, Metrics, SelectionFigures


@dataclass(frozen=True)
class Recommendation:
    """A recommended point with the reason. `point` is None if none is recommended; `why` then explains that."""

    point: Point | None
    why: str
    instead: Point | None = None
    """If no point has a guarantee: the point that the rule chooses without that condition."""

    def document(self) -> dict[str, str | None]:
        """Return the recommendation's part of a JSON document."""
        return {"recommended": self.point.name if self.point else None, "why": self.why}


def recommend(
    front: Sequence[Point],
    *,
    target: float | None = None,
    leakage: Objective | None = "mia_auc",
    limits: Mapping[str, float] | None = None,
    again: Mapping[str, Metrics] | None = None,
) -> Recommendation:
    """Return the point of lowest SER among those with a guarantee that do not leak clearly more than another.

    SER and leakage are of the validation split (`Point.selection_figures`). See `_not_leaking_more` for the test. A
    point that was trained once leads one with new seeds only if the lead is clear: the lowest of single figures is low
    by luck.

    Args:
        target: the recipe's target ε, the largest ε that counts as a guarantee; None: 10.
        leakage: the metric of leakage; None: leakage does not choose.
        limits: the largest value by metric. Points over a limit are left out.
        again: figures that replace the sweep's, by a point's name (`sweeps.results.confirmed.comparable`).
    """
    most = largest_epsilon(target)
    figures = {point.name: SelectionFigures(point.metrics, (again or {}).get(point.name)) for point in front}
    inside = [p for p in front if all(figures[p.name].get(k, math.inf) <= top for k, top in (limits or {}).items())]
    safe = [point for point in inside if point.metrics["epsilon"] <= most]
    fitting = _not_leaking_more(safe or inside, figures, leakage)
    found = _lowest_ser(fitting, figures)
    guarantee = f"ε ≤ {epsilon_digits(most)}" + ("" if target is None else ", the recipe's target")
    if not safe or found is None:
        return Recommendation(None, _why_none(front, inside, guarantee), found)
    where = " within the limits" if limits else ""
    words = _why(found, safe, fitting, figures, leakage, f"{where} with a guarantee ({guarantee})")
    return Recommendation(found, words)


def leakage_of(recipe: Recipe) -> Objective:
    """Return the metric of leakage that is shown: the one among the objectives; MIA AUC if there is none."""
    return choosing_leakage(recipe) or "mia_auc"


def choosing_leakage(recipe: Recipe) -> Objective | None:
    """Return the metric of leakage among the objectives; None if there is none: an attack must not choose then."""
    return next((name for name in recipe.search.objectives if name.startswith("mia_")), None)


def largest_epsilon(target: float | None) -> float:
    """Return the largest ε that counts as a guarantee: the recipe's target if it has one, else 10."""
    return MEANINGFUL if target is None else target


def _lowest_ser(points: Sequence[Point], figures: Mapping[str, SelectionFigures]) -> Point | None:
    """Return the point of lowest SER, as `recommend` says; None without points."""

    def order(point: Point) -> tuple[float, float, int, int]:
        return figures[point.name]["ser"], point.metrics["epsilon"], point.trial, point.epoch

    found = min(points, key=order, default=None)
    if found is None or SEEDS in figures[found.name]:
        return found
    mine = figures[found.name]
    as_good = [p for p in points if SEEDS in figures[p.name] and gap(mine, figures[p.name], "ser")[1] >= 0]
    return min(as_good, key=order, default=found)


def _not_leaking_more(
    points: Sequence[Point], figures: Mapping[str, SelectionFigures], leakage: Objective | None
) -> list[Point]:
    """Return the points that do not leak clearly more than the one with the lowest upper bound of leakage.

    A point leaks clearly more if the interval of the difference (`sweeps.results.front.difference`), at 95 % over all
    comparisons (Bonferroni), lies above 0. The lowest of many estimates is low partly by luck, and would otherwise
    decide the choice. An attack that does worse than guessing counts as guessing. A point whose leakage was not
    measured does not leak clearly more.
    """
    measured = [figures[point.name] for point in points if leakage and leakage in figures[point.name]]
    if leakage is None or len(measured) < 2:
        return list(points)
    normal = NormalDist()
    least = min(measured, key=lambda one: (one.interval(leakage) or (0.0, one[leakage]))[1])
    wider = normal.inv_cdf(1 - 0.025 / (len(measured) - 1)) / normal.inv_cdf(0.975)

    def clearly_more(one: SelectionFigures) -> bool:
        ahead = one.get(leakage, -math.inf) - max(least[leakage], GUESSING[leakage])
        return ahead > 0 and ahead > wider * (ahead - gap(one, least, leakage)[0])

    return [point for point in points if not clearly_more(figures[point.name])]


def _why_none(front: Sequence[Point], inside: Sequence[Point], guarantee: str) -> str:
    if not front:
        return "Nothing is recommended: no trial is complete yet."
    if not inside:
        return "Nothing is recommended: no configuration of the front is within the limits."
    where = " within the limits" if len(inside) < len(front) else ""
    least = epsilon_text(min(point.metrics["epsilon"] for point in inside))
    return (
        f"Nothing is recommended: no configuration of the front{where} has a guarantee ({guarantee}). "
        f"The smallest ε is {least}."
    )


def _why(
    found: Point,
    safe: Sequence[Point],
    fitting: Sequence[Point],
    figures: Mapping[str, SelectionFigures],
    leakage: Objective | None,
    which: str,
) -> str:
    mine, ser = figures[found.name], "validation SER"
    luckier = [p for p in fitting if figures[p.name]["ser"] < mine["ser"]]
    if len(safe) == 1:
        words = f"Trial {found.name} ({ser} {mine['ser']:.1%}) is the front's only configuration{which}."
    elif luckier:
        words = (
            f"Trial {found.name} has the lowest {ser}, {mine['ser']:.1%}, of the front's configurations{which} that "
        )
        words += f"were trained with new seeds; the single training of {enumerated([p.name for p in luckier], 3)} was "
        words += "lower by no more than noise."
    else:
        words = f"Trial {found.name} has the lowest {ser}, {mine['ser']:.1%}, of the front's {len(safe)} "
        words += f"configurations{which}"
        lower = [p for p in safe if p not in fitting and figures[p.name]["ser"] < mine["ser"]]
        if lower:
            words += (
                f" that do not leak clearly more than another; {enumerated([p.name for p in lower], 3)} would be lower."
            )
        elif leakage is None:
            words += "; leakage does not choose."
        elif leakage in mine:
            words += "; none of them leaks clearly less."
        else:
            words += "; how much they leak was not measured."
    behind = [p for p in fitting if p is not found and p not in luckier]
    near = [p for p in behind if gap(mine, figures[p.name], "ser")[1] >= 0]
    if near:
        words += f" Its lead over {enumerated([p.name for p in near], 3)} is within the noise of the measurement."
    if found.metrics["epsilon"] > MEANINGFUL:
        words += f" An ε above {MEANINGFUL:g} is a weak guarantee, if any."
    if SEEDS not in mine:
        return words
    once = f" In the sweep its {ser} was {found.selection_figures['ser']:.1%}."
    return f"{words}{once} Its figures are means over {mine[SEEDS]:.0f} new seeds."


def picked_spec(point: Point) -> TrialSpec:
    """Return the configuration that retrains `point`: its trial's, for as many epochs as the point had."""
    spec = point.spec
    planned, shorter = spec.training, {"epochs": point.epoch}
    if planned.learning_rate_decay != "none" and point.epoch < planned.epochs:
        shorter["decay_epochs"] = planned.decay_epochs or planned.epochs
    return spec.model_copy(update={"training": planned.model_copy(update=shorter)})
