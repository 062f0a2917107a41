"""A sweep as it was when it was read, and all that is said of it: its front, its recommendation and its ε."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from edp.accounting.selection import composed_epsilon, composed_epsilon_user
from edp.ledger import Ledger
from edp.spec import UserError
from sweeps.config.choice import chosen_in, chosen_on
from sweeps.config.recipe import Recipe
from sweeps.results.confirmed import comparable, means
from sweeps.results.front import Candidate, candidates, over_limits, pareto_front, points_of
from sweeps.results.recommendation import Recommendation, choosing_leakage, recommend
from sweeps.store.journal import CONFIRM
from sweeps.store.picks import Origin, final_trainings
from sweeps.store.plans import Plan, plan_of, released
from sweeps.store.records import ConfirmedRun, Point, SweepRecord, TrialRecord, known_ledger
from sweeps.store.sweep import Sweep
from sweeps.text.figures import FIGURES, enumerated, epsilon_text, labels_remark
from sweeps.text.paths import short
from trainables.config import CorpusSpec
from trainables.records.epochs import read_curve
from trainables.records.files import read_json
from trainables.records.pareto import Metrics, SelectionFigures


class Snapshot:
    """A sweep whose study and files are read once, each when it is first asked for.

    Args:
        sweep: its folder, and the commands that go on with it.

    Raises:
        UserError: in any property, for what cannot be read.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe with the settings that the sweep was started with."""
        return self.sweep.recipe

    @cached_property
    def record(self) -> SweepRecord:
        """The sweep's record."""
        return self.sweep.record

    @cached_property
    def state(self) -> str:
        """The sweep's state (`Sweep.state`)."""
        return self.sweep.state

    @cached_property
    def trials(self) -> list[TrialRecord]:
        """All trials by number."""
        return self.sweep.trials()

    @cached_property
    def plan(self) -> Plan | None:
        """The private part of a sweep that chooses on a proxy corpus; None for any other sweep."""
        return plan_of(self.sweep)

    @cached_property
    def release(self) -> Point | None:
        """The released model of a sweep that chooses on a proxy corpus; None if there is none."""
        return released(self.sweep, self.plan)

    @property
    def private_corpus(self) -> CorpusSpec:
        """The private corpus, which the trials of a sweep with a plan have not read."""
        return (self.recipe if self.plan is None else self.plan.recipe).corpus

    @cached_property
    def baseline(self) -> Metrics:
        """The figures of plain SGD; {} before there are any."""
        return _numbers(self.record.baseline)

    @cached_property
    def schema_only(self) -> Metrics:
        """The figures of the schema alone; {} if it has no text."""
        return _numbers(self.record.schema_only)

    @property
    def counts(self) -> dict[str, int]:
        """The number of trials in each state that some trial has."""
        states = ("complete", "stopped", "running", "interrupted", "failed", "refused")
        counts = {state: sum(trial.state == state for trial in self.trials) for state in states}
        return {state: n for state, n in counts.items() if n}

    @cached_property
    def points(self) -> list[Point]:
        """All candidates: the kept epochs of trials that have ended."""
        return points_of(self.trials)

    @cached_property
    def pareto(self) -> list[Point]:
        """The front, in order of the objectives."""
        return pareto_front(self.trials, self.recipe.search.objectives, self.recipe.search.limits)

    @cached_property
    def candidates(self) -> dict[str, Candidate]:
        """All candidates with their place, by name, as `sweeps.results.front.candidates` orders them."""
        return candidates(self.trials, self.pareto, self.recipe.search.objectives, self.again)

    @property
    def front(self) -> list[Candidate]:
        """The front as tables show it, the points last that leakage within its noise alone keeps there."""
        return [one for one in self.candidates.values() if one.on_front]

    @cached_property
    def _confirmed(self) -> list[Path]:
        return sorted((self.sweep.folder / CONFIRM).glob("*/seed-*/"))

    @cached_property
    def _runs(self) -> dict[str, list[ConfirmedRun]]:
        runs: dict[str, list[ConfirmedRun]] = {}
        for folder in self._confirmed:
            if (path := folder / "result.json").is_file():
                runs.setdefault(folder.parent.name, []).append(read_json(path, ConfirmedRun))
        return runs

    def confirmed(self, point: Point) -> list[ConfirmedRun]:
        """Return the trainings of a point with new seeds; [] for a released model that was chosen on a proxy corpus."""
        own = point.recipe.corpus == self.recipe.corpus  # the seeds are of the trial with its settings
        return self._runs.get(f"{point.trial}-{point.epoch}", []) if own else []

    def new_seeds(self, point: Point) -> Metrics:
        """Return the means of a point over new seeds (`sweeps.results.confirmed.means`)."""
        return means([run.metrics for run in self.confirmed(point)])

    @cached_property
    def again(self) -> dict[str, Metrics]:
        """The figures that compare the candidates (`sweeps.results.confirmed.comparable`); {} without new seeds."""
        return comparable(self.points, {one.name: [run.metrics for run in self.confirmed(one)] for one in self.points})

    def recommended(self, limits: Mapping[str, float] | None = None) -> Recommendation:
        """Return the recommendation within the recipe's own limits, and within `limits` in their place."""
        return recommend(
            self.pareto,
            target=self.recipe.edp.epsilon,
            leakage=choosing_leakage(self.recipe),
            limits=self._with_own(limits),
            again=self.again,
        )

    def _with_own(self, limits: Mapping[str, float] | None) -> dict[str, float]:
        every = {f"{name}": most for name, most in self.recipe.search.limits.items()} | dict(limits or {})
        return {name: most for name, most in every.items() if most < math.inf}

    def choose(self, limits: Mapping[str, float] | None = None) -> tuple[Point, str]:
        """Return the released model or, without one, the recommended point within limits, and the reason.

        A release is accepted or refused. Another configuration in its place would be a choice by its private figures,
        which have no noise. The recipe's limits are of its trials, on the proxy corpus.

        If no point has a guarantee, apply the rule without that condition; the reason says so.

        Args:
            limits: the largest value by metric.

        Raises:
            UserError: if no point fits, with the front's best value for each limit.
        """
        if (release := self.release) is not None:
            own, most = release.selection_figures, dict(limits or {})
            if over := over_limits(own, most):
                its = {name: FIGURES[name].text(own.get(name)) for name in over}
                fits = ", ".join(f"{name} <= {most[name]:g} (its own: {figure})" for name, figure in its.items())
                raise UserError(
                    f"the released model does not fit {fits}; allowed: wider limits, or a point that a person names"
                )
            return release, "It is the released model, chosen on the proxy corpus by the lowest SER."
        if not self.pareto:
            raise UserError(
                "the sweep has no complete trial, so there is nothing to pick; allowed: a sweep with a front"
            )
        found = self.recommended(limits)
        if (point := found.point or found.instead) is None:
            figures = [SelectionFigures(one.metrics, self.again.get(one.name)) for one in self.pareto]
            best = ", ".join(
                f"{name} <= {most:g} (the front's lowest: {min(one.get(name, math.inf) for one in figures):.4g})"
                for name, most in self._with_own(limits).items()
            )
            raise UserError(f"nothing on the front fits {best}; allowed: wider limits")
        return point, found.why

    def named(self, name: str) -> Point:
        """Return the point of this name, on the front or not: `7` is the last epoch of trial 7, `7@3` its third epoch.

        Raises:
            UserError: if there is none, with the names of points that exist.
        """
        known = {f"{point.trial}@{point.epoch}": point for point in self.points}
        known |= {point.name: point for point in self.points}
        if name not in known:
            names = ", ".join(point.name for point in self.pareto[:8])
            there = f"the front: {names}" if names else "no trial is complete yet"
            raise UserError(
                f"point = {short(name)}: sweep {self.sweep.name} has no model of this name; allowed: a trial's number, "
                f"with @epoch for a kept epoch before its last ({there})"
            )
        return known[name]

    @cached_property
    def final(self) -> dict[Path, Origin]:
        """The trainings of picked configurations, by folder."""
        return final_trainings(self.sweep)

    @cached_property
    def _ledgers(self) -> dict[str, Ledger | None]:
        """The ledgers of all trainings on the private corpus, by name; None for one that is unknown."""
        public = self.plan is not None  # trials and `confirm` of a planned sweep read the proxy corpus
        later = [*([] if public else self._confirmed), *self.final]
        found = {} if public else {f"trial {trial.number}": trial.ledger for trial in self.trials}
        storage = self.sweep.folder.parent
        return found | {f"{one.relative_to(storage)}": known_ledger(one, read_curve(one)) for one in later}

    @property
    def lost(self) -> str:
        """A clause that names the trainings whose ledger is missing or broken; "" if there are none."""
        names = [name for name, ledger in self._ledgers.items() if ledger is None]
        numbers = [name.removeprefix("trial ") for name in names if name.startswith("trial ")]
        which = [f"trial{'s' if len(numbers) > 1 else ''} {enumerated(numbers)}"] if numbers else []
        which += [name for name in names if not name.startswith("trial ")]
        return f"the ledger of {enumerated(which)} is missing, broken or incomplete" if which else ""

    @cached_property
    def epsilon(self) -> float | None:
        """The ε of all trainings together: the composition of their ledgers, without the baseline.

        A sweep that chooses on a public proxy corpus costs what was trained on the private corpus: the release and
        other final trainings. It is None if the steps of some training are unknown: ε then has no upper bound.
        """
        ledgers = self._known
        return composed_epsilon(ledgers, self.recipe.edp.delta) if ledgers else None if ledgers is None else 0.0

    @property
    def epsilon_words(self) -> str:
        """`epsilon` as text; `unknown` if it is None."""
        return epsilon_text(math.nan if self.epsilon is None else self.epsilon)

    @cached_property
    def epsilon_user(self) -> float | None:
        """The ε of all trainings together for one user; None also if the users are unknown."""
        return composed_epsilon_user(self._known, self.recipe.edp.delta) if self._known is not None else None

    @property
    def _known(self) -> list[Ledger] | None:
        found = [ledger for ledger in self._ledgers.values() if ledger is not None]
        return found if len(found) == len(self._ledgers) else None

    @property
    def counted(self) -> str:
        """The trainings that the sweep's ε is composed of, in words."""
        confirmed, final = len(self._confirmed), len(self.final)
        if self.plan is not None:
            private = f"{final} training{'s' * (final != 1)} on {self.private_corpus.name}"
            return f"{private}; the trials ran on {self.recipe.corpus.name}, which is public, and cost nothing"
        later = [f"{confirmed} trainings of confirm"] if confirmed else []
        later += [f"{final} final training{'s' if final > 1 else ''}"] if final else []
        return f"{enumerated(['all trials', *later])} composed"

    @property
    def cost_line(self) -> str:
        """The ε of the sweep in one line, with the trainings that it is composed of and what chooses among them."""
        value, user = self.epsilon_words + (f": {self.lost}" if self.epsilon is None else ""), self.epsilon_user
        of_user = f"; of a user: {epsilon_text(user)}" if user is not None and self.trials else ""
        whole = "ε of the whole sweep" if self.plan is None else "ε in all"
        said = "".join(f"; {words}" for words in labels_remark(self.private_corpus))
        return f"{whole} ({self.counted}): {value}{of_user}{said}; a configuration is {self.choice()}"

    def choice(self, limits: Iterable[str] = ()) -> str:
        """Return what chooses among the trials, and whether an ε covers that.

        Args:
            limits: names of metrics with a limit, besides the recipe's.
        """
        search, corpus = self.recipe.search, self.recipe.corpus.name
        chosen = chosen_on(corpus) if self.plan is not None else chosen_in(search, {*search.limits, *limits})
        return f"{chosen}; the search began at points of {search.points_from}" if search.points_from else chosen


def _numbers(metrics: Mapping[str, object] | None) -> Metrics:
    return {name: value for name, value in (metrics or {}).items() if isinstance(value, int | float)}
