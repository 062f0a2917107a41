"""The account of a corpus: the ε of everything in a storage folder that was ever trained on it, by its journal.

Two totals answer two readers. `released` is for a person who has the released models alone: it counts them, and all
trials of the sweeps that chose their configurations, because a choice depends on what was not chosen. `everything` is
for a person who has also seen what was only looked at. Trainings without privacy have no ε. They are listed apart, and
make a total infinite only where they were released.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from edp.accounting.composition import Composition
from edp.spec import UserError
from sweeps.config.spending import Spending, of_ledger, together, together_for_user, units_of
from sweeps.store.journal import Corpus, Journal, Training, corpus_of, read_journal, same_people, same_utterances
from sweeps.text.figures import enumerated
from trainables.config import CorpusSpec
from trainables.corpora import is_generated

DELTA = 5e-4
"""The δ of an account of trainings that name none: the recipes' default."""
UNKNOWN = (
    "It does not know other storage folders, trainings and registrations by other programs, and another corpus with "
    "some of the same utterances that could not be compared."
)
"""What no account knows, in a sentence."""
_MAX_NAMED = 5
"""Trainings that a line names; it counts the others."""


@dataclass(frozen=True)
class Row:
    """The trials of a sweep, its trainings with new seeds, or one training, with their cost."""

    trainings: Sequence[Training]
    corpus: Corpus
    own: bool
    """False if the corpus shares users with that of the account, and no utterances."""
    spent: tuple[Spending, ...]
    infinite: int
    """Private trainings whose noise guarantees nothing."""
    chose: bool
    """True if it chose the configuration of a released model."""

    @property
    def kind(self) -> str:
        """`sweep`, `confirm` or `train`."""
        kinds = {one.begin.what for one in self.trainings}
        return "train" if "train" in kinds else "confirm" if "confirm" in kinds else "sweep"

    @property
    def name(self) -> str:
        """The sweep's name, or that of the training's folder."""
        return self.trainings[-1].begin.name

    @property
    def began(self) -> str:
        """The time of its first training, ISO 8601."""
        return min(one.begin.at for one in self.trainings)

    @property
    def private(self) -> list[Training]:
        """The trainings with privacy."""
        return [one for one in self.trainings if one.ledger.private]

    @property
    def models(self) -> list[str]:
        """Its models that were released, in words."""
        return [
            f"{one.begin.part} as {model}" if one.begin.part else model
            for one in self.trainings
            for model in one.models
        ]

    @property
    def released(self) -> bool:
        """True if its cost is part of a released model's."""
        return self.chose or bool(self.models)

    @property
    def without_privacy(self) -> list[str]:
        """Its trainings that have no ε, in words."""
        plain = [one.begin.part for one in self.trainings if not one.ledger.private]
        words = list(dict.fromkeys(part or "training without privacy (sgd)" for part in plain))
        noise = f"{self.infinite} training{'s' * (self.infinite > 1)} whose noise guarantees nothing"
        return [*words, *([noise] if self.infinite else [])]

    @property
    def released_without_privacy(self) -> bool:
        """True if a model of it was released that no ε covers."""
        return bool(self.models) and (self.infinite > 0 or not self.private)

    def epsilon(self, delta: float) -> float:
        """Return its ε, without trainings that have none."""
        return together(self.spent, delta)


@dataclass
class CorpusAccount:
    """Everything that was trained on one corpus."""

    corpora: list[Corpus]
    """The corpus, under all of its names."""
    rows: list[Row] = field(default_factory=list)
    without_privacy: list[str] = field(default_factory=list)
    """Trainings that have no ε, in words."""
    uncounted: list[str] = field(default_factory=list)
    """What may have cost more than the totals say, in words. With any, the totals are lower bounds."""
    unnamed: list[str] = field(default_factory=list)
    """Names of other corpora whose users cannot be compared with those of this one."""

    @property
    def names(self) -> list[str]:
        """Its names in the recipes."""
        return list(dict.fromkeys(one.spec.name for one in self.corpora))

    @property
    def delta(self) -> float:
        """The smallest δ of its trainings' recipes."""
        return min((one.begin.delta for row in self.rows for one in row.trainings), default=DELTA)

    @property
    def unit(self) -> str:
        """The unit of the totals: that of all trainings on the corpus, or an utterance if they differ."""
        units = units_of(one for row in self.rows if row.own for one in row.spent)
        return units.pop() if len(units) == 1 else "example"

    @property
    def released_without_privacy(self) -> list[str]:
        """The names of what was released that no ε covers."""
        return [row.name for row in self.rows if row.own and row.released_without_privacy]

    def everything(self, delta: float, more: Sequence[Spending] = ()) -> float:
        """Return the ε of all rows together, and of `more` trainings on the corpus."""
        return _total(self.rows, delta, more)

    def released(self, delta: float) -> float:
        """Return the ε of what was released, and of what chose it."""
        if self.released_without_privacy:
            return math.inf
        return _total([row for row in self.rows if row.released], delta)

    def everything_user(self, delta: float) -> float | None:
        """Return `everything` for one user; None if the users of a training are unknown."""
        return together_for_user([one for row in self.rows for one in row.spent], delta)

    def released_user(self, delta: float) -> float | None:
        """Return `released` for one user; None if the users of a training are unknown."""
        if self.released_without_privacy:
            return math.inf
        return together_for_user([one for row in self.rows if row.released for one in row.spent], delta)


def _total(rows: Sequence[Row], delta: float, more: Sequence[Spending] = ()) -> float:
    """Return the ε of rows and `more` together. If their unit is a user, what cost the same user elsewhere counts."""
    every = [*(one for row in rows if row.own for one in row.spent), *more]
    if units_of(every) == {"user"}:
        elsewhere = [one for row in rows if not row.own for one in row.spent]
        every += [replace(one, cost=one.user, unit="user") for one in elsewhere if one.user is not None]
    return together(every, delta)


def accounts(storage: Path, wanted: CorpusSpec | None = None) -> list[CorpusAccount]:
    """Return the accounts of all corpora in a storage folder, or of one, also if nothing was trained on it."""
    journal = read_journal(storage)
    if wanted is not None:
        try:
            return [account_of(journal, corpus_of(wanted, journal.corpora, storage))]
        except UserError as error:  # its files are gone, and the journal does not have it
            account = account_of(journal, Corpus(id="", spec=wanted, digest=""))
            account.uncounted.append(f"{wanted.name} could not be compared: {error}")
            return [account]
    found: list[CorpusAccount] = []
    for used in dict.fromkeys(one.begin.corpus for one in journal.trainings.values()):
        if all(used != corpus.id for one in found for corpus in one.corpora) and used in journal.corpora:
            found.append(account_of(journal, journal.corpora[used]))
    return found


def account_of(journal: Journal, corpus: Corpus) -> CorpusAccount:
    """Return the account of a corpus."""
    account = CorpusAccount(journal.corpora_like(corpus, same_utterances))
    own = {one.id for one in account.corpora}
    people = {one.id: one for one in journal.corpora_like(corpus, same_people)}
    chose = _chose(journal)
    groups: dict[tuple[str, bool], list[Training]] = {}
    for one in journal.trainings.values():
        if one.begin.corpus in people:
            groups.setdefault((one.begin.group, one.begin.what == "confirm"), []).append(one)
    for (group, _), trainings in groups.items():
        used = people[trainings[0].begin.corpus]
        spent, infinite = _spent(trainings)
        account.rows.append(Row(trainings, used, used.id in own, spent, infinite, group in chose))
    for row in account.rows:
        account.without_privacy += [f"{row.name}: {what}" for what in row.without_privacy if row.own]
        if not row.own and account.unit == "user" and any(one.user is None for one in row.spent):
            account.uncounted.append(f"{row.name}: the cost for a user who is in {row.corpus.spec.name} too is unknown")
    account.without_privacy += _read_as_public(journal, account.corpora)
    account.uncounted += [*_not_compared(journal, account.corpora), *not_counted(journal)]
    named = {one.key for one in account.corpora if one.users}
    account.unnamed = list(
        dict.fromkeys(
            one.spec.name
            for one in journal.corpora.values()
            if one.id not in people and not is_generated(one.spec) and (not one.users or one.key not in named)
        )
    )
    return account


def not_counted(journal: Journal) -> list[str]:
    """Return what the journal lacks, in words."""
    folders = enumerated(sorted(journal.older), _MAX_NAMED)
    older = f"trainings that are older than the journal, or were copied here: {folders}"
    return [*journal.lost, *([older] if journal.older else [])]


def _chose(journal: Journal) -> set[str]:
    """Return the ids of sweeps and trainings that were released, and of the sweeps that chose these."""
    found = {one.begin.group for one in journal.trainings.values() if one.models}
    more = found
    while more:
        chosen = [one.begin for one in journal.trainings.values() if one.begin.group in more]
        more = {parent for begin in chosen for parent in begin.parents} - found
        found = found | more
    return found


def _spent(trainings: Iterable[Training]) -> tuple[tuple[Spending, ...], int]:
    """Return the costs of private trainings, and the number of those that have no finite ε."""
    spent, infinite = [], 0
    for one in trainings:
        if one.ledger.private:
            try:
                cost = of_ledger(one.ledger)
            except UserError:  # correlated noise whose steps have no price
                cost = None
            if cost is None or math.isinf(cost.cost.mu):
                infinite += 1
            elif cost.cost != Composition():
                spent.append(cost)
    return tuple(spent), infinite


def _read_as_public(journal: Journal, corpora: list[Corpus]) -> list[str]:
    """Return the sweeps and trainings that took the corpus for public, in words."""
    digests = {corpus.digest for corpus in corpora}
    found: dict[str, list[str]] = {}
    for one in journal.trainings.values():
        if fields := [name for name, digest in one.begin.public.items() if digest in digests]:
            found.setdefault(one.begin.name, fields)
    return [f"{name}: read as public ({enumerated(fields)})" for name, fields in found.items()]


def _not_compared(journal: Journal, corpora: list[Corpus]) -> list[str]:
    """Return the corpora that could not be compared with this one, in words."""
    own = {one.id for one in corpora}
    pairs = [(one.id, other) for one in (*journal.corpora.values(), *corpora) for other in one.unknown]
    others = [other if one in own else one for one, other in pairs if (one in own) != (other in own)]
    names = dict.fromkeys(journal.corpora[one].spec.name for one in others if one in journal.corpora)
    return [f"{name}: one of the two corpora was gone, so they could not be compared" for name in names]
