"""The account of a corpus: the ε of everything in a storage folder that was ever trained on it.

Two totals answer two readers. `released` is for a person who has the released models alone: it counts them, and all
trials of the sweeps that chose their configurations, because a choice depends on what was not chosen. `everything` is
for a person who has also seen what was only looked at. Trainings without privacy have no ε. They are listed apart, and
make a total infinite only where they were released.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edp.accounting.composition import Composition
from edp.ledger import Ledger
from edp.spec import UserError
from sweeps.config.spending import Spending, of_ledger, together, together_for_user, units_of
from sweeps.store.activities import Activity, activities
from sweeps.store.same_corpus import CorpusComparison, KnownCorpus
from sweeps.text.figures import enumerated
from trainables.corpora.overlap import is_shared, pretrained_on, seen_by

DELTA = 5e-4
"""The δ of an account of trainings that name none: the recipes' default."""


@dataclass(frozen=True)
class Row:
    """One activity on the corpus, with its cost."""

    activity: Activity
    spent: tuple[Spending, ...]
    models: tuple[str, ...] = ()
    """Its models that were released, in words."""
    chose: bool = False
    """True if it chose the configuration of a released model."""

    @property
    def released(self) -> bool:
        """True if its cost is part of a released model's."""
        return bool(self.models) or self.chose

    def epsilon(self, delta: float) -> float:
        """Return its ε, without trainings that have none."""
        return together(self.spent, delta)


@dataclass
class CorpusAccount:
    """Everything that was trained on one corpus."""

    corpus: KnownCorpus
    names: list[str]
    """Its names in the recipes."""
    rows: list[Row] = field(default_factory=list)
    without_privacy: list[str] = field(default_factory=list)
    """Trainings that have no ε, in words."""
    released_without_privacy: list[str] = field(default_factory=list)
    """Those of them that were released."""
    """Private trainings that no ε covers, in words. They count as infinite."""
    uncounted: list[str] = field(default_factory=list)
    """What may have cost more than the totals say, in words. With any, the totals are lower bounds."""

    @property
    def delta(self) -> float:
        """The smallest δ of its trainings' recipes."""
        return min((row.activity.delta for row in self.rows), default=DELTA)

    @property
    def unit(self) -> str:
        """The unit of the totals: that of all trainings, or an utterance if they differ."""
        units = units_of(self._spent(self.rows))
        return units.pop() if len(units) == 1 else "example"

    def everything(self, delta: float) -> float:
        """Return the ε of all rows together."""
        return together(self._spent(self.rows), delta)

    def released(self, delta: float) -> float:
        """Return the ε of what was released, and of what chose it."""
        if self.released_without_privacy:
            return math.inf
        return together(self._spent(row for row in self.rows if row.released), delta)

    def everything_user(self, delta: float) -> float | None:
        """Return `everything` for one user; None if the users of a training are unknown."""
        return together_for_user(self._spent(self.rows), delta)

    def released_user(self, delta: float) -> float | None:
        """Return `released` for one user; None if the users of a training are unknown."""
        if self.released_without_privacy:
            return math.inf
        return together_for_user(self._spent(row for row in self.rows if row.released), delta)

    @staticmethod
    def _spent(rows: Iterable[Row]) -> list[Spending]:
        return [one for row in rows for one in row.spent]


def accounts(
    storage: Path,
    *,
    remembered: Sequence[Activity] = (),
    registered: frozenset[str] = frozenset(),
    going_on: str | None = None,
    wanted: KnownCorpus | None = None,
) -> list[CorpusAccount]:
    """Return the accounts of all corpora in a storage folder, or of one.

    Args:
        remembered: activities whose folders are gone, and which MLflow remembers.
        registered: MLflow runs and names of trainings whose models are in the registry.
        going_on: see `sweeps.store.activities.activities`.
        wanted: the corpus whose account is returned, also if nothing was trained on it; None: all.
    """
    here, unreadable = activities(storage, going_on)
    every = [*here, *remembered]
    comparison = CorpusComparison(storage.resolve() / "cache")
    found: list[CorpusAccount] = []
    seen: list[Activity] = []
    for corpus in [wanted] if wanted is not None else [one.corpus for one in every]:
        if any(one.corpus == corpus for one in seen):
            continue
        group, unknown = _activities_on(corpus, every, comparison)
        seen += group
        account = CorpusAccount(corpus, list(dict.fromkeys([corpus.spec.name, *(g.corpus.spec.name for g in group)])))
        _fill(account, group, registered)
        account.uncounted += unknown + [f"cannot be read: {what}" for what in unreadable]
        account.without_privacy += _read_as_public(account, every, comparison)
        account.without_privacy += _pretrained(account, storage, comparison)
        found.append(account)
    return found


def _activities_on(
    corpus: KnownCorpus, every: list[Activity], comparison: CorpusComparison
) -> tuple[list[Activity], list[str]]:
    """Return the activities on a corpus by time, and in words those whose corpus could not be compared with it."""
    group: list[Activity] = []
    known, left = [corpus], list(every)
    while more := [one for one in left if any(comparison.same(one.corpus, other) for other in known)]:
        group += more
        left = [one for one in left if one not in more]
        known += [one.corpus for one in more if one.corpus not in known]
    unknown = [
        f"{one.name}: its corpus {one.corpus.spec.name} is gone, and could not be compared with this one"
        for one in left
        if any(comparison.same(one.corpus, other) is None for other in known)
    ]
    return sorted(group, key=lambda one: one.began), list(dict.fromkeys(unknown))


def _fill(account: CorpusAccount, group: Sequence[Activity], registered: frozenset[str]) -> None:
    """Add the rows of the activities on a corpus, and what they leave uncounted."""
    models = [
        one.released or (("in MLflow's registry",) if {*one.run_ids, one.name} & registered else ()) for one in group
    ]
    chose = {one.chosen_by or one.name for one, out in zip(group, models, strict=True) if out}
    for one, out in zip(group, models, strict=True):
        spent, infinite = _spent(one)
        account.rows.append(Row(one, spent, out, one.kind != "training" and one.name in chose))
        plain = list(one.without_privacy)
        if infinite:
            plain.append(f"{infinite} training{'s' * (infinite > 1)} whose noise guarantees nothing")
        account.without_privacy += [f"{one.name}: {what}" for what in plain]
        if one.plain_run_id in registered or (out and (infinite or one.trainings == 0)):
            account.released_without_privacy.append(one.name)
        if one.lost:
            account.uncounted.append(f"{one.name}: {one.lost}")


def _spent(one: Activity) -> tuple[tuple[Spending, ...], int]:
    """Return the costs of an activity, and the number of its trainings that have no finite ε."""
    costs = [_cost(ledger) for ledger in one.ledgers]
    finite = tuple(cost for cost in costs if cost is not None and cost.cost != Composition())
    return finite, sum(cost is None for cost in costs)


def _cost(ledger: Ledger) -> Spending | None:
    """Return the cost of a ledger; None if no noise bounds it."""
    try:
        cost = of_ledger(ledger)
    except UserError:  # correlated noise whose steps have no price
        return None
    return None if math.isinf(cost.cost.mu) else cost


def _read_as_public(account: CorpusAccount, every: list[Activity], comparison: CorpusComparison) -> list[str]:
    """Return the sweeps and trainings that took the corpus for public, in words."""
    found = []
    for one in every:
        public = one.public.items() if one.kind != "confirm" else ()
        fields = [name for name, other in public if comparison.same(other, account.corpus)]
        if fields:
            found.append(f"{one.name}: read as public ({enumerated(fields)})")
    return found


def _pretrained(account: CorpusAccount, storage: Path, comparison: CorpusComparison) -> list[str]:
    """Return the encoders in the storage folder that were pretrained on the corpus, in words."""
    found = []
    for folder in sorted(storage.glob("encoders/*/")):
        try:
            if pretrained_on(folder) is None:
                continue
            corpora, hashes = seen_by(folder)
        except UserError as error:
            account.uncounted.append(str(error))
            continue
        mine = comparison.hashes(account.corpus.spec)
        named = any(corpus["digest"] == account.corpus.digest for corpus in corpora)
        if named or (mine is not None and any(is_shared(mine, np.asarray(seen)) for seen in hashes)):
            found.append(f"encoders/{folder.name}: pretrained on it")
    return found
