"""`corpus.budget`: nothing starts that would make the account of a corpus pass it."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from pathlib import Path

from edp.ledger import Ledger
from edp.spec import UserError
from sweeps.config.spending import Spending, of_ledger, together
from sweeps.run.watch import notice
from sweeps.store.same_corpus import KnownCorpus
from sweeps.text.figures import epsilon_digits
from trainables.config import CorpusSpec

_ROUNDING = 1e-9
"""Relative excess that is no reason to refuse: noise for a target is solved for to about this precision."""


class CorpusBudget:
    """A corpus' budget, and what trainings on the corpus have cost so far.

    It knows what the storage folder held when it was opened. Runs that go on at the same time do not see each other's
    later steps.

    Args:
        corpus: a corpus with a budget.
        spent: the costs of everything on the corpus so far.
    """

    def __init__(self, corpus: CorpusSpec, spent: Sequence[Spending]) -> None:
        assert corpus.budget is not None, "the caller asks only for a corpus that has one"
        self._corpus, self._budget = corpus, corpus.budget
        self._spent = list(spent)
        self._reserved: dict[Hashable, Spending] = {}

    def check(self, more: Sequence[Spending], what: str) -> None:
        """Raise if the account would pass the budget with `more`.

        Args:
            what: whose cost that is, in words.

        Raises:
            UserError: with the account so far, the cost of `more`, and the budget.
        """
        if (why := self.refusal(more, what)) is not None:
            raise UserError(why)

    def refusal(self, more: Sequence[Spending], what: str) -> str | None:
        """Return the message of `check`; None if the budget allows `more`."""
        before = [*self._spent, *self._reserved.values()]
        after = together([*before, *more], self._budget.delta)
        if after <= self._budget.epsilon * (1 + _ROUNDING):
            return None
        so_far, adds = (together(some, self._budget.delta) for some in (before, more))
        every = [epsilon / (1 + _ROUNDING) for epsilon in (so_far, adds, after)]
        shown = ["∞" if math.isinf(epsilon) else epsilon_digits(epsilon, 4) for epsilon in every]
        return (
            f"corpus.budget = (ε {self._budget.epsilon:g}, δ {self._budget.delta:g}): the account of corpus "
            f"{self._corpus.name} is ε = {shown[0]}, {what} would add {shown[1]} and make it {shown[2]}; "
            "allowed: what stays within the budget (edp-sweep account lists what was spent)"
        )

    def reserve(self, key: Hashable, cost: Spending, what: str) -> str | None:
        """Count the whole cost of a training that is about to start; return the reason if the budget does not allow it.

        Args:
            key: of the training. One that has a reservation already keeps one.
        """
        self._reserved.pop(key, None)
        why = self.refusal([cost], what)
        if why is None:
            self._reserved[key] = cost
        return why

    def settle(self, key: Hashable, ledger: Ledger | None) -> None:
        """Replace a reservation by what the training has cost; keep it if that is unknown."""
        if ledger is not None and key in self._reserved:
            with suppress(UserError):  # steps that have no price
                self._reserved[key] = of_ledger(ledger)


def open_budget(
    corpus: CorpusSpec, storage: Path, uri: str, say: Callable[[str], None], going_on: str | None = None
) -> CorpusBudget | None:
    """Return a corpus' budget with the account so far; None if it has no budget.

    Args:
        uri: the tracking store.
        say: called with a line if the account is only a lower bound.
        going_on: see `sweeps.store.activities.activities`.
    """
    if corpus.budget is None:
        return None
    from sweeps.tracking.remembered import tracked_accounts  # MLflow takes seconds to import

    with notice("reading the corpus' account", say):
        (account,) = tracked_accounts(storage, uri, wanted=KnownCorpus(corpus), going_on=going_on)
    for line in account.uncounted:
        say(f"corpus.budget: the account of {corpus.name} is a lower bound: {line}")
    return CorpusBudget(corpus, [one for row in account.rows for one in row.spent])
