"""The audit of one run by its canaries: guesses from losses, and the lower bounds of ε that correct guesses give.

The losses alone decide which canaries are guessed. The coins then say which guesses are correct. The guesses give two
bounds (`edp.accounting.audit`). Each is wrong in at most 2.5 % of all runs, an error that it shares among several
numbers of guesses. So all bounds hold at once, and the largest one is a bound too.

Shapes: m canaries, s siblings of each, as in `trainables.measure.attacks.canary`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edp.accounting.audit import audited_epsilon, audited_epsilon_f_dp
from edp.accounting.composition import Composition, composition_of
from edp.accounting.epsilon import epsilon
from edp.ledger import Ledger, LedgerEntry
from edp.rounding import rounded_down, rounded_up
from trainables.measure.attacks.canary import SIBLINGS

GUESSES = ((0.1, 0.0), (0.1, 0.1), (0.35, 0.35))
"""Shares of the canaries that are guessed to be in (highest scores) and out (lowest) of the training data.

All that can give a bound are tried, each at a confidence at which all hold at once (Bonferroni). The best bound
counts."""

_MIN_LOSS = 1e-6


@dataclass(frozen=True)
class Audit:
    """The lower bounds of ε, with 95 % confidence, from one run's canaries; 0 if they rule nothing out."""

    of_any_mechanism: float
    """A lower bound of ε that assumes nothing about the mechanism."""
    of_own_noise: float
    """A lower bound of ε that assumes the mechanism of the ledger, with more or less noise than the ledger says."""
    canaries: int
    guesses: int
    right: int

    @property
    def epsilon(self) -> float:
        """The larger bound."""
        return max(self.of_any_mechanism, self.of_own_noise)

    def metrics(self) -> dict[str, float]:
        """Return the metrics of a trial."""
        return {
            "epsilon_audited": self.epsilon,
            "epsilon_audited_any_mechanism": self.of_any_mechanism,
            "epsilon_audited_own_noise": self.of_own_noise,
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


def audit(
    scores: NDArray[np.float64], coins: NDArray[np.bool_], delta: float, c: Composition, confidence: float = 0.95
) -> Audit:
    """Return both bounds over `GUESSES`, from scores (m,) that are higher for canaries that were trained on.

    Args:
        c: the composition of the run's ledger, whose mechanism the second bound assumes. It needs no finite ε.

    Raises:
        ValueError: if scores and coins differ in number.
    """
    if len(scores) != len(coins):
        raise ValueError(f"{len(scores)} scores and {len(coins)} coins: allowed: one score and one coin a canary")
    m, half = len(coins), 1 - (1 - confidence) / 2
    surest = np.argsort(-scores, kind="stable")

    def right(n_in: int, n_out: int) -> int:
        return int(coins[surest[:n_in]].sum() + (~coins[surest[m - n_out :]]).sum())

    every = [(round(share_in * m), round(share_out * m)) for share_in, share_out in GUESSES]
    counts, each = _worth_making(every, m, delta, half)
    found = [(audited_epsilon(m, sum(one), right(*one), delta, each), sum(one), right(*one)) for one in counts]
    bound, guesses, correct = max(found, key=lambda one: one[0])
    own_noise = audited_epsilon_f_dp(c, m, [(sum(one), right(*one)) for one in every], delta, half)
    return Audit(bound, own_noise, m, guesses, correct)


def _worth_making(
    counts: list[tuple[int, int]], m: int, delta: float, confidence: float
) -> tuple[list[tuple[int, int]], float]:
    """Return the guesses, as numbers of canaries in and out, that can give a bound, and the confidence of each.

    With a large δ a small number of guesses gives no bound, even if all are correct. Such guesses would only reduce the
    confidence of the others.
    """
    while True:
        each = 1 - (1 - confidence) / len(counts)
        useful = [one for one in counts if audited_epsilon(m, sum(one), sum(one), delta, each) > 0]
        if useful == counts or not useful:
            return counts, each
        counts = useful


def audit_of(losses: NDArray[np.float64], coins: NDArray[np.bool_], ledger: Ledger, delta: float) -> Audit:
    """Audit a run by the losses (m + m·s,) of its split `canaries`, and the mechanisms of the steps that ran."""
    return audit(canary_scores(losses), coins, delta, composition_of(of_examples(ledger.executed)))


def contradiction(audited: float, ledger: Ledger, delta: float) -> str | None:
    """Return a message if an audited ε is above what the ledger guarantees for one example, else None."""
    honest = epsilon(of_examples(ledger), delta)
    if not audited > honest:
        return None
    return (
        f"the audit contradicts the ledger: epsilon is at least {rounded_down(audited, 6):.6g} with 95 % "
        f"confidence, and the ledger guarantees {rounded_up(honest, 6):.6g} at delta = {delta:g}; the clip or the "
        "noise is not what the ledger says, so this model must not be released"
    )


def of_examples(ledger: Ledger) -> Ledger:
    """Return the ledger with one example as its unit instead of a micro-batch.

    Attacks guess one example, and a micro-batch may hold several. A canary is one example, or a user of its own.
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
