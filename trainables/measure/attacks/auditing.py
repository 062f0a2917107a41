"""The audit of SGD by canaries: guesses from losses, and the lower bound of ε that correct guesses give.

The losses alone decide which canaries are guessed. The coins then say which guesses are correct. Of several numbers of
guesses each gives a bound (`edp.audited_epsilon`), at a confidence at which all hold at once. The largest
counts. It is wrong in at most 5 % of all runs. A private training has an audit of its own (`edp.audit`).

Shapes: m canaries, s siblings of each, as in `trainables.measure.attacks.canary`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edp.accounting.audit import audited_epsilon
from edp.ledger import Ledger, LedgerEntry
from trainables.measure.attacks.canary import SIBLINGS

GUESSES = ((0.1, 0.0), (0.1, 0.1), (0.35, 0.35))
"""Shares of the canaries that are guessed to be in (highest scores) and out (lowest) of the training data.

All that can give a bound are tried, each at a confidence at which all hold at once (Bonferroni). The best bound
counts."""

_MIN_LOSS = 1e-6


@dataclass(frozen=True)
class CanaryAudit:
    """The lower bound of ε, with 95 % confidence, from one run's canaries; 0 if they rule nothing out."""

    epsilon: float
    canaries: int
    guesses: int
    right: int

    def metrics(self) -> dict[str, float]:
        """Return the metrics of a trial."""
        return {
            "epsilon_audited": self.epsilon,
            "canaries": float(self.canaries),
            "canary_guesses": float(self.guesses),
            "canary_guesses_right": float(self.right),
        }


def canary_scores(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean log-ratio of the siblings' losses to their canary's, (m,).

    Ratios are compared because losses of easy and hard utterances differ by orders of magnitude.

    Args:
        losses: (m + m·s,) of the split `canaries`.
    """
    own, others = np.split(np.log(np.maximum(losses, _MIN_LOSS)), [len(losses) // (1 + SIBLINGS)])
    return np.asarray(others.reshape(len(own), SIBLINGS).mean(1) - own)


def audit(scores: NDArray[np.float64], coins: NDArray[np.bool_], delta: float) -> CanaryAudit:
    """Return the bound over `GUESSES`, from scores (m,) that are higher for canaries that were trained on.

    Raises:
        ValueError: if scores and coins differ in number.
    """
    if len(scores) != len(coins):
        raise ValueError(f"{len(scores)} scores and {len(coins)} coins: allowed: one score and one coin a canary")
    m = len(coins)
    surest = np.argsort(-scores, kind="stable")

    def right(n_in: int, n_out: int) -> int:
        return int(coins[surest[:n_in]].sum() + (~coins[surest[m - n_out :]]).sum())

    every = [(round(share_in * m), round(share_out * m)) for share_in, share_out in GUESSES]
    counts, each = _worth_making(every, m, delta)
    found = [(audited_epsilon(m, sum(one), right(*one), delta, each), sum(one), right(*one)) for one in counts]
    bound, guesses, correct = max(found, key=lambda one: one[0])
    return CanaryAudit(bound, m, guesses, correct)


def _worth_making(counts: list[tuple[int, int]], m: int, delta: float) -> tuple[list[tuple[int, int]], float]:
    """Return the guesses, as numbers of canaries in and out, that can give a bound, and the confidence of each.

    With a large δ a small number of guesses gives no bound, even if all are correct. Such guesses would only reduce the
    confidence of the others.
    """
    while True:
        each = 1 - 0.05 / len(counts)
        useful = [one for one in counts if audited_epsilon(m, sum(one), sum(one), delta, each) > 0]
        if useful == counts or not useful:
            return counts, each
        counts = useful


def of_examples(ledger: Ledger) -> Ledger:
    """Return the ledger with one example as its unit instead of a micro-batch.

    Attacks guess one example, and a micro-batch may hold several.
    """

    def of(entries: tuple[LedgerEntry, ...]) -> tuple[LedgerEntry, ...]:
        return tuple(
            entry.model_copy(update={"mechanism": entry.mechanism.model_copy(update={"unit": "example"})})
            if entry.mechanism.unit == "micro_batch"
            else entry
            for entry in entries
        )

    parts = {"entries": of(ledger.entries), "not_executed": of(ledger.not_executed)}
    return ledger.model_copy(update=parts | {"discarded": tuple(map(of_examples, ledger.discarded))})
