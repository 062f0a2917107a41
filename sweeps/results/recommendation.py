"""The recommended point and the reason, the same for the page, `pick`, `front` and the report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from edp.spec import UserError
from sweeps.config.parts import Objective
from sweeps.config.recipe import Recipe
from sweeps.results.confirmed import SEEDS, comparable
from sweeps.results.front import difference, pareto_front
from sweeps.store.records import Point
from sweeps.store.sweep import Sweep
from sweeps.text.figures import MEANINGFUL, enumerated, epsilon_digits, epsilon_text
from sweeps.text.paths import short
from trainables.config import TrialSpec
from trainables.records.pareto import GUESSING, Metrics, deciding


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
    baseline: Mapping[str, float] | None = None,
) -> Recommendation:
    """Return the point of lowest SER among those with a guarantee that do not leak clearly more than another.

    SER and leakage are of the validation split (`Point.deciding`). See `_not_leaking_more` for the test. A point that
    was trained once leads one with new seeds only if the lead is clear: the lowest of single figures is low by luck.

    Args:
        target: the recipe's target ε, the largest ε that counts as a guarantee; None: 10.
        leakage: the metric of leakage; None: leakage does not choose.
        limits: the largest value by metric. Points over a limit are left out.
        again: figures that replace the sweep's, by a point's name (`sweeps.results.confirmed.comparable`).
        baseline: metrics of SGD; the reason compares its audited ε with the point's.
    """
    most = largest_epsilon(target)
    figures = {point.name: deciding(point.metrics | (again or {}).get(point.name, {})) for point in front}
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


def recommended(sweep: Sweep, limits: Mapping[str, float] | None = None) -> Recommendation:
    """Return the recommendation for a sweep as it is now, with the results of `edp-sweep confirm`."""
    recipe, trials = sweep.recipe, sweep.trials()
    front = pareto_front(trials, recipe.search.objectives, recipe.search.limits)
    return recommend(
        front,
        target=recipe.edp.epsilon,
        leakage=choosing_leakage(recipe),
        limits=_with_own(recipe, limits),
        again=comparable(sweep, trials),
        baseline=sweep.record.baseline,
    )


def _with_own(recipe: Recipe, limits: Mapping[str, float] | None) -> dict[str, float]:
    """Return the recipe's own limits, with `limits` in the place of those of the same metric."""
    own: dict[str, float] = {f"{name}": most for name, most in recipe.search.limits.items()}
    return own | dict(limits or {})


def leakage_of(recipe: Recipe) -> Objective:
    """Return the metric of leakage that is shown: the one among the objectives; MIA AUC if there is none."""
    return choosing_leakage(recipe) or "mia_auc"


def choosing_leakage(recipe: Recipe) -> Objective | None:
    """Return the metric of leakage among the objectives; None if there is none: an attack must not choose then."""
    return next((name for name in recipe.search.objectives if name.startswith("mia_")), None)


def largest_epsilon(target: float | None) -> float:
    """Return the largest ε that counts as a guarantee: the recipe's target if it has one, else 10."""
    return MEANINGFUL if target is None else target


def _lowest_ser(points: Sequence[Point], figures: Mapping[str, Metrics]) -> Point | None:
    """Return the point of lowest SER, as `recommend` says; None without points."""

    def order(point: Point) -> tuple[float, float, int, int]:
        return figures[point.name]["ser"], point.metrics["epsilon"], point.trial, point.epoch

    found = min(points, key=order, default=None)
    if found is None or SEEDS in figures[found.name]:
        return found
    mine = figures[found.name]
    as_good = [p for p in points if SEEDS in figures[p.name] and difference(mine, figures[p.name], "ser")[1] >= 0]
    return min(as_good, key=order, default=found)


def _not_leaking_more(
    points: Sequence[Point], figures: Mapping[str, Metrics], leakage: Objective | None
) -> list[Point]:
    """Return the points that do not leak clearly more than the one with the lowest upper bound of leakage.

    A point leaks clearly more if the interval of the difference (`sweeps.results.front.difference`), at 95 % over all
    comparisons (Bonferroni), lies above 0. The lowest of many estimates is low partly by luck, and would otherwise
    decide the choice. An attack that does worse than guessing counts as guessing. A point whose leakage was not
    measured does not leak clearly more.
    """
    measured = [figures[point.name] for point in points if leakage in figures[point.name]]
    if leakage is None or len(measured) < 2:
        return list(points)
    upper, guess, normal = f"{leakage}_upper", GUESSING[leakage], NormalDist()
    least = min(measured, key=lambda m: m.get(upper, m[leakage]))
    least = least | {name: max(guess, least[name]) for name in (leakage, f"{leakage}_lower", upper) if name in least}
    wider = normal.inv_cdf(1 - 0.025 / (len(measured) - 1)) / normal.inv_cdf(0.975)

    def clearly_more(one: Metrics) -> bool:
        gap = one.get(leakage, -math.inf) - least[leakage]
        return gap > 0 and gap > wider * (gap - difference(one, least, leakage)[0])

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
    figures: Mapping[str, Metrics],
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
    near = [p for p in behind if difference(mine, figures[p.name], "ser")[1] >= 0]
    if near:
        words += f" Its lead over {enumerated([p.name for p in near], 3)} is within the noise of the measurement."
    if found.metrics["epsilon"] > MEANINGFUL:
        words += f" An ε above {MEANINGFUL:g} is a weak guarantee, if any."
    if SEEDS not in mine:
        return words
    once = f" In the sweep its {ser} was {found.deciding['ser']:.1%}."
    return f"{words}{once} Its figures are means over {mine[SEEDS]:.0f} new seeds."


def choose(sweep: Sweep, limits: dict[str, float]) -> tuple[Point, str]:
    """Return the recommended point within `limits` (metric name to largest value) and the reason.

    If no point has a guarantee, apply the rule without that condition; the reason says so.

    Raises:
        UserError: if no point fits, with the front's best value for each limit.
    """
    limits = _with_own(sweep.recipe, limits)
    front = pareto_front(sweep.trials(), sweep.recipe.search.objectives, sweep.recipe.search.limits)
    if not front:
        raise UserError("the sweep has no complete trial, so there is nothing to pick; allowed: a sweep with a front")
    found = recommended(sweep, limits)
    if (point := found.point or found.instead) is None:
        again = comparable(sweep, sweep.trials())
        figures = [deciding(point.metrics | again.get(point.name, {})) for point in front]
        best = ", ".join(
            f"{name} <= {most:g} (the front's lowest: {min(found.get(name, math.inf) for found in figures):.4g})"
            for name, most in limits.items()
        )
        raise UserError(f"nothing on the front fits {best}; allowed: wider limits")
    return point, found.why


def named_point(sweep: Sweep, name: str) -> Point:
    """Return the point of this name, on the front or not: `7` is the last epoch of trial 7, `7@3` its third epoch.

    Raises:
        UserError: if there is none, with the names of points that exist.
    """
    known = {
        f"{point.trial}@{point.epoch}": point
        for trial in sweep.trials()
        if trial.state in ("complete", "stopped")
        for point in trial.points
    }
    known |= {point.name: point for point in known.values()}
    if name not in known:
        front = pareto_front(sweep.trials(), sweep.recipe.search.objectives, sweep.recipe.search.limits)
        there = f"the front: {', '.join(point.name for point in front[:8])}" if front else "no trial is complete yet"
        raise UserError(
            f"point = {short(name)}: sweep {sweep.name} has no model of this name; allowed: a trial's number, with "
            f"@epoch for a kept epoch before its last ({there})"
        )
    return known[name]


def picked_spec(point: Point) -> TrialSpec:
    """Return the configuration that retrains `point`: its trial's, for as many epochs as the point had."""
    spec = point.spec
    planned, shorter = spec.training, {"epochs": point.epoch}
    if planned.learning_rate_decay != "none" and point.epoch < planned.epochs:
        shorter["decay_epochs"] = planned.decay_epochs or planned.epochs
    return spec.model_copy(update={"training": planned.model_copy(update=shorter)})
