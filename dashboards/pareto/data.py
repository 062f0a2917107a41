"""The page's data: a sweep's candidates, front and baseline, and the quantities to draw."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from sweeps.config.parts import Limited, Objective, metric_of, objective_values
from sweeps.config.recipe import Recipe
from sweeps.results.confirmed import comparable
from sweeps.results.cost import choice_of, epsilon_of_sweep
from sweeps.results.front import hollow, pareto_front, ties
from sweeps.results.headline import headline
from sweeps.results.recommendation import Recommendation, choosing_leakage, recommend
from sweeps.store.picks import read_notes
from sweeps.store.plans import Plan, plan_of, released
from sweeps.store.records import Point, SweepRecord, TrialRecord
from sweeps.store.sweep import Sweep
from sweeps.text.figures import epsilon_cell
from trainables.records.pareto import Metrics, dominates

Limits = dict[str, float]
"""The largest allowed value by metric; other metrics have no limit."""


@dataclass(frozen=True)
class Axis:
    """A quantity that can be drawn. `better` is `lower`, `higher`, or "" if neither is."""

    key: str
    label: str
    log: bool = False
    better: str = ""
    percent: bool = False

    @property
    def short(self) -> str:
        """The label for a narrow column."""
        head, _, rest = self.label.partition(" (")
        side = {
            "honest)": " honest",
            "of a user)": " user",
            "as the paper reckons)": " paper",
            "audited, at least)": " audited",
            "validation)": " validation",
            "test)": " test",
        }
        return head + side.get(rest, "")


METRICS = (
    Axis("valid_ser", "SER (validation)", better="lower", percent=True),
    Axis("ser", "SER (test)", better="lower", percent=True),
    Axis("valid_mia_auc", "MIA AUC (validation)", better="lower"),
    Axis("mia_auc", "MIA AUC (test)", better="lower"),
    Axis("epsilon", "ε (honest)", log=True, better="lower"),
    Axis("epsilon_user", "ε (of a user)", log=True, better="lower"),
    Axis("epsilon_paper", "ε (as the paper reckons)", log=True, better="lower"),
    Axis("intent_accuracy", "Intent accuracy", better="higher", percent=True),
    Axis("slot_f1", "Slot F1", better="higher", percent=True),
    Axis("valid_mia_tpr_at_1pct_fpr", "MIA TPR at 1% FPR (validation)", better="lower", percent=True),
    Axis("mia_tpr_at_1pct_fpr", "MIA TPR at 1% FPR (test)", better="lower", percent=True),
    Axis("gpu_seconds", "GPU-seconds", better="lower"),
    Axis("worker_seconds", "Worker-seconds", better="lower"),
)
"""Metrics that the charts offer if a sweep has them."""


@dataclass(frozen=True)
class Candidate:
    """A kept epoch of a trial, which can be picked."""

    point: Point
    dominated_by: str | None
    """Key of a candidate of the front that is better in some objective and worse in none; None on the front."""
    hollow: bool = False
    """True if leakage within its noise alone keeps it on the front (`sweeps.results.front.hollow`)."""
    tied_with: tuple[str, ...] = ()
    """Keys of the front's candidates that it is tied with within noise (`sweeps.results.front.ties`)."""

    @property
    def key(self) -> str:
        """The point's name, such as `2@3`."""
        return self.point.name

    @property
    def params(self) -> dict[str, Any]:
        """The searched settings."""
        return self.point.params

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics on the validation split (`valid_ser`, …) and on the test split (`ser`, …)."""
        return self.point.metrics

    @property
    def on_front(self) -> bool:
        """True if no other candidate dominates it."""
        return self.dominated_by is None

    @property
    def name(self) -> str:
        """The name in the page's words."""
        trial, epoch = self.point.trial, self.point.epoch
        return f"Trial {trial}" if self.point.last else f"Trial {trial}, epoch {epoch}"

    def value(self, key: str) -> Any:
        """Return a metric or a setting; NaN if it is missing. An ε of 0 counts as 1e-12, as in the search."""
        metrics = self.point.metrics
        if key in metrics:
            return max(metrics[key], 1e-12) if key.startswith("epsilon") else metrics[key]
        return self.point.epoch if key == "epoch" else self.point.params.get(key, math.nan)

    def interval(self, key: str) -> tuple[float, float] | None:
        """Return the 95 % interval of a metric; None if it has none."""
        low, high = self.metrics.get(f"{key}_lower"), self.metrics.get(f"{key}_upper")
        return (low, high) if low is not None and high is not None else None


@dataclass(frozen=True)
class Snapshot:
    """The state of a sweep at one moment."""

    record: SweepRecord
    state: str
    """The sweep's state (`Sweep.state`)."""
    recipe: Recipe
    counts: dict[str, int]
    candidates: dict[str, Candidate]
    baseline: dict[str, float]
    schema_only: dict[str, float]
    """The figures of the schema alone; empty if it has no text."""
    epsilon_of_sweep: float
    """NaN if it is unknown."""
    axes: dict[str, Axis] = field(default_factory=dict)
    """Quantities that can be drawn, metrics first."""
    again: dict[str, Metrics] = field(default_factory=dict)
    """Figures that compare the candidates, by key (`sweeps.results.confirmed.comparable`); {} without new seeds."""
    notes: dict[str, str] = field(default_factory=dict)
    """People's notes, by a candidate's key."""
    choice: str = ""
    """What chooses a configuration, and whether ε covers that (`sweeps.config.choice`)."""
    plan: Plan | None = None
    """The private part of a sweep that chooses on a proxy corpus."""
    release: Point | None = None
    """The released model of such a sweep; None before there is one."""
    headline: tuple[str, ...] = ()
    """Lines on the released model and its ε."""
    problem: str = ""
    """The reason why the sweep cannot be read any more; everything else is then its last state."""

    @property
    def front(self) -> list[Candidate]:
        """The Pareto-optimal candidates, by the first objective."""
        return [c for c in self.candidates.values() if c.on_front]

    def axis(self, key: str) -> Axis:
        """Return the axis of a key; a plain axis if nothing was measured yet."""
        return self.axes.get(key) or next((axis for axis in METRICS if axis.key == key), Axis(key, key))

    def chosen_by(self, key: str) -> str:
        """Return the name of the metric that chooses: of the validation split, if the candidates have it."""
        known = self.axes or {axis.key for axis in METRICS}
        return f"valid_{key}" if f"valid_{key}" in known else key

    def advice(self, limits: Limits | None = None) -> Recommendation:
        """Return the recommendation within limits, by the same rule as `edp-sweep pick`."""
        chosen = self.candidates.get(self.release.name) if self.release is not None and not limits else None
        if chosen is not None:
            return Recommendation(chosen.point, " ".join(self.headline))
        return recommend(
            [c.point for c in self.front],
            target=self.recipe.edp.epsilon,
            leakage=choosing_leakage(self.recipe),
            limits=limits,
            again=self.again,
            baseline=self.baseline,
        )


def is_number(value: Any) -> TypeGuard[float]:
    """Return True if `value` can be drawn on a number line."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def snapshot(sweep: Sweep) -> Snapshot:
    """Read the present state of a sweep."""
    record, recipe, trials = sweep.record, sweep.recipe, sweep.trials()
    cost = epsilon_of_sweep(sweep, trials)
    states = ("complete", "stopped", "running", "interrupted", "failed", "refused")
    counts = {state: sum(t.state == state for t in trials) for state in states}
    again = comparable(sweep, trials)
    found = candidates(trials, recipe.search.objectives, again, recipe.search.limits)
    baseline = {k: v for k, v in (record.baseline or {}).items() if isinstance(v, int | float)}
    return Snapshot(
        record=record,
        state=sweep.state,
        recipe=recipe,
        counts={state: n for state, n in counts.items() if n},
        candidates=found,
        baseline=baseline,
        schema_only={k: v for k, v in (record.schema_only or {}).items() if isinstance(v, int | float)},
        epsilon_of_sweep=math.nan if cost is None else cost,
        axes=drawable(list(found.values())),
        again=again,
        notes=read_notes(sweep),
        choice=choice_of(sweep),
        plan=plan_of(sweep),
        release=released(sweep),
        headline=tuple(headline(sweep, trials)),
    )


def candidates(
    trials: list[TrialRecord],
    objectives: tuple[Objective, ...],
    again: dict[str, Metrics] | None = None,
    limits: Mapping[Limited, float] | None = None,
) -> dict[str, Candidate]:
    """Return every kept epoch by its point's name: the front, its hollow points, the others; by the first objective."""
    front = pareto_front(trials, objectives, limits)
    tied, noisy = ties(trials, front, objectives, again), hollow(front, objectives, again)
    front.sort(key=lambda point: point.name in noisy)
    values = {p.name: objective_values(objectives, p.deciding) for p in front}
    every = [p for t in trials if t.state in ("complete", "stopped") for p in t.points]
    found = {p.name: Candidate(p, None, p.name in noisy, tuple(tied.get(p.name, ()))) for p in front}
    others = [p for p in every if p.name not in found]
    for point in sorted(others, key=lambda p: objective_values(objectives, p.deciding)):
        mine = objective_values(objectives, point.deciding)
        beaten_by = next((name for name, value in values.items() if dominates(value, mine)), "")
        found[point.name] = Candidate(point, beaten_by, tied_with=tuple(tied.get(point.name, ())))
    return found


def drawable(found: list[Candidate]) -> dict[str, Axis]:
    """Return the metrics that at least one candidate has, and the settings that vary."""
    axes = {a.key: a for a in METRICS if any(is_number(c.value(a.key)) for c in found)}
    if not any(c.metrics.get("gpu_seconds") for c in found):
        axes.pop("gpu_seconds", None)  # no GPU was there
    if len({c.point.epoch for c in found}) > 1:
        axes["epoch"] = Axis("epoch", "Epochs done")
    names = dict.fromkeys(name for c in found for name in c.params)
    for name in names:
        values = [c.params[name] for c in found if name in c.params]
        if name in axes or len({str(v) for v in values}) < 2:
            continue
        numbers = [v for v in values if is_number(v)]
        positive = [v for v in numbers if v > 0]
        log = len(positive) == len(values) and max(positive) / min(positive) >= 30
        axes[name] = Axis(name, name, log=log)
    return axes


def opening_axes(found: Snapshot) -> tuple[str, str]:
    """Return the metrics of the first two objectives; with one objective, the second is MIA AUC or SER."""
    first, *others = (metric_of(objective) for objective in found.recipe.search.objectives)
    second = others[0] if others else "ser" if first == "mia_auc" else "mia_auc"
    return found.chosen_by(first), found.chosen_by(second)


def is_categorical(axis: Axis, found: list[Candidate]) -> bool:
    """Return True if some value of a setting is not a number."""
    return any(not isinstance(c.params[axis.key], int | float) for c in found if axis.key in c.params)


def cost_key(axes: dict[str, Axis]) -> str:
    """Return the key of the cost axis: GPU-seconds, or worker-seconds if there was no GPU."""
    return "gpu_seconds" if "gpu_seconds" in axes else "worker_seconds"


def bounds(axis: Axis, found: list[Candidate]) -> tuple[float, float, float]:
    """Return the ends of a slider, rounded outwards, and its step; in log10 for a logarithmic axis."""
    values = [float(c.value(axis.key)) for c in found if is_number(c.value(axis.key))] or [1.0]
    values = [math.log10(v) for v in values] if axis.log else values
    low, high = min(values), max(values)
    step = 10.0 ** math.floor(math.log10(max(high - low, 1e-3) / 20))
    step = min(step, 1.0 if axis.key in ("gpu_seconds", "worker_seconds") else 0.001)  # as fine as `text`
    digits = max(0, -round(math.log10(step)))
    low, high = math.floor(low / step) * step, math.ceil(high / step) * step
    return round(low, digits), round(max(high, low + step), digits), step


def limit_at(axis: Axis, position: float) -> float:
    """Return the limit at a slider's position, with as many digits as `text` shows of an ε."""
    return float(f"{10.0**position:.3g}") if axis.log else position


def within(snapshot: Snapshot, candidate: Candidate, limits: Limits) -> bool:
    """Return True if a candidate is within all limits. An unmeasured metric counts as over its limit.

    Means over new seeds replace the sweep's figures, as in the recommendation.
    """
    if not limits:
        return True
    figures = candidate.metrics | snapshot.again.get(candidate.key, {})
    return all(figures.get(name, math.inf) <= most for name, most in limits.items())


def text(axis: Axis, value: Any) -> str:
    """Format a value: an ε rounded up. An ε that guarantees nothing is marked."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, int | float):
        return str(value)
    if math.isnan(value):
        return "–"
    if axis.key.startswith("epsilon"):
        return epsilon_cell(value)
    if axis.percent:
        return f"{value:.1%}"
    if axis.key.endswith("mia_auc"):
        return f"{value:.3f}"
    if axis.key.endswith("_seconds"):
        return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
    if isinstance(value, int) or 1000 <= abs(value) < 1e4:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 1e4 else f"{value:.1e}"
