"""Which point a person is advised to take, and the sentence why. Page, `pick`, `front` and report all ask here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from sweeps.formatting.figures import enumerated, epsilon_over, number
from sweeps.formatting.guarantee import MEANINGFUL
from sweeps.recipes.parts import Objective
from sweeps.recipes.recipe import Recipe
from sweeps.results.confirmed import SEEDS, new_seeds
from sweeps.results.front import pareto_front
from sweeps.results.ties import Metrics, difference
from sweeps.state.records import Point
from sweeps.state.sweep import Sweep

GUESSING = {"mia_auc": 0.5, "mia_tpr_at_1pct_fpr": 0.01}
"""What an attack reaches that knows nothing. Below it nothing leaks less."""


def largest_epsilon(target: float | None) -> float:
    """What an ε may be to count as a guarantee: the recipe's target, where it has one. A target is met to within the
    accuracy of the bisection."""
    return (MEANINGFUL if target is None else target) * (1 + 1e-6)


@dataclass(frozen=True)
class Recommendation:
    """The advice. `point` is None where there is none; `why` says so then, or why it is this one."""

    point: Point | None
    why: str
    instead: Point | None = None
    """Where no point has a guarantee: what the rule comes to without that condition."""

    def document(self) -> dict[str, str | None]:
        """What `--json` prints of it."""
        return {"recommended": self.point.name if self.point else None, "why": self.why}


def recommend(
    front: Sequence[Point],
    *,
    target: float | None = None,
    leakage: Objective = "mia_auc",
    limits: Mapping[str, float] | None = None,
    again: Mapping[str, Metrics] | None = None,
    baseline: Mapping[str, float] | None = None,
) -> Recommendation:
    """The point of lowest SER among those with a guarantee that do not leak clearly more than another of them.

    Args:
        target: the ε of the recipe, which then is what counts as a guarantee; else ε <= 10 does.
        leakage: the metric that says how much leaks.
        limits: metric name to largest value; points beyond are left out.
        again: what new seeds gave, by a point's name: it takes the place of what the sweep measured once.
        baseline: plain SGD's metrics; what an audit proves of it stands beside what it proves of the point.
    """
    most = MEANINGFUL if target is None else target
    figures = {point.name: point.metrics | (again or {}).get(point.name, {}) for point in front}
    inside = [p for p in front if all(figures[p.name].get(k, math.inf) <= top for k, top in (limits or {}).items())]
    safe = [point for point in inside if point.metrics["epsilon"] <= largest_epsilon(target)]
    fitting = _not_leaking_more(safe or inside, figures, leakage)
    found = min(fitting, key=lambda p: (figures[p.name]["ser"], p.metrics["epsilon"], p.trial, p.epoch), default=None)
    guarantee = f"ε ≤ {number(most)}" + ("" if target is None else ", the recipe's target")
    if not safe or found is None:
        return Recommendation(None, _why_none(front, inside, guarantee, most), found)
    where = " within the limits" if limits else ""
    words = _why(found, safe, fitting, figures, leakage, f"{where} with a guarantee ({guarantee})")
    return Recommendation(found, words + _audited(found, baseline or {}))


def recommended(sweep: Sweep, limits: Mapping[str, float] | None = None) -> Recommendation:
    """The advice on a sweep as it is now, with what `edp-sweep confirm` found."""
    recipe = sweep.recipe
    front = pareto_front(sweep.trials(), recipe.search.objectives)
    return recommend(
        front,
        target=recipe.edp.epsilon,
        leakage=leakage_of(recipe),
        limits=limits,
        again={point.name: new_seeds(sweep, point) for point in front},
        baseline=sweep.record.baseline,
    )


def leakage_of(recipe: Recipe) -> Objective:
    """The metric of leakage that is searched for; MIA AUC where none is."""
    found: list[Objective] = [name for name in recipe.search.objectives if name.startswith("mia_")]
    return (*found, "mia_auc")[0]


def _not_leaking_more(points: Sequence[Point], figures: Mapping[str, Metrics], leakage: Objective) -> list[Point]:
    """The points that do not leak clearly more than the one that surely leaks least.

    Clearly: the interval of their difference (`sweeps.results.ties.difference`), at 95 % over all comparisons
    (Bonferroni), lies above 0. The least of many estimates is low by luck, and would otherwise sway the choice. An
    attack that does worse than guessing counts as guessing; where nothing was measured, nothing is clear.
    """
    measured = [figures[point.name] for point in points if leakage in figures[point.name]]
    if len(measured) < 2:
        return list(points)
    upper, guess, normal = f"{leakage}_upper", GUESSING[leakage], NormalDist()
    least = min(measured, key=lambda m: m.get(upper, m[leakage]))
    least = least | {name: max(guess, least[name]) for name in (leakage, f"{leakage}_lower", upper) if name in least}
    wider = normal.inv_cdf(1 - 0.025 / (len(measured) - 1)) / normal.inv_cdf(0.975)

    def clearly_more(one: Metrics) -> bool:
        gap = one.get(leakage, -math.inf) - least[leakage]
        return gap > 0 and gap > wider * (gap - difference(one, least, leakage)[0])

    return [point for point in points if not clearly_more(figures[point.name])]


def _why_none(front: Sequence[Point], inside: Sequence[Point], guarantee: str, most: float) -> str:
    if not front:
        return "Nothing is recommended: no trial is complete yet."
    if not inside:
        return "Nothing is recommended: no configuration of the front is within the limits."
    where = " within the limits" if len(inside) < len(front) else ""
    least = epsilon_over(min(point.metrics["epsilon"] for point in inside), most)
    return (
        f"Nothing is recommended: no configuration of the front{where} has a guarantee ({guarantee}). "
        f"The smallest ε is {least}."
    )


def _why(
    found: Point,
    safe: Sequence[Point],
    fitting: Sequence[Point],
    figures: Mapping[str, Metrics],
    leakage: Objective,
    which: str,
) -> str:
    mine = figures[found.name]
    if len(safe) == 1:
        words = f"Trial {found.name} (SER {mine['ser']:.1%}) is the front's only configuration{which}."
    else:
        words = f"Trial {found.name} has the lowest SER, {mine['ser']:.1%}, of the front's {len(safe)} "
        words += f"configurations{which}"
        lower = [p for p in safe if p not in fitting and figures[p.name]["ser"] < mine["ser"]]
        if lower:
            words += (
                f" that do not leak clearly more than another; {enumerated([p.name for p in lower], 3)} would be lower."
            )
        elif leakage in mine:
            words += "; none of them leaks clearly less."
        else:
            words += "; how much they leak was not measured."
    near = [p for p in fitting if p is not found and difference(mine, figures[p.name], "ser")[1] >= 0]
    if near:
        words += f" Its lead over {enumerated([p.name for p in near], 3)} is within the noise of the measurement."
    if found.metrics["epsilon"] > MEANINGFUL:
        words += f" An ε above {MEANINGFUL:g} is a weak guarantee, if any."
    return words + (f" Its figures are means over {mine[SEEDS]:.0f} new seeds." if SEEDS in mine else "")


def _audited(found: Point, baseline: Mapping[str, float]) -> str:
    """What the auditor of planted utterances proves of SGD, and of the point: the leakage of those most at risk."""
    name = "epsilon_audited"
    if name not in found.metrics or name not in baseline:
        return ""
    planted, plain, mine = f"{baseline['canaries']:,.0f}", baseline[name], found.metrics[name]
    return (
        f" An auditor of {planted} planted utterances proves an ε of at least {plain:.3g} of SGD, and of {mine:.3g} of "
        f"trial {found.name}."
    )
