"""Canaries: unusual utterances, each trained on or not as its own fair coin says, from which one run is audited.

Steinke, Nasr and Jagielski (2023). A canary is an utterance of the training split with generated values in its slots,
in the corpus's own label set. Beside it stand its siblings, the same with other values, which are never trained on: an
auditor who compares a canary's loss with theirs need not know how hard such an utterance is in itself (the "exposure"
of Carlini et al. 2019). Who is guessed is decided by the losses alone; the coins say afterwards who was right.

Shapes: m canaries, s siblings of each. Rows of the split `canaries`: first all m, then the siblings of each in turn.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edp.accounting.audit import audited_epsilon
from edp.spec import UserError
from trainables.corpora.types import Splits, Utterance
from trainables.corpora.values import ADJECTIVES, AREA_CODES, FIRST_NAMES, FOUR_DIGITS, LAST_NAMES, NOUNS
from trainables.records.files import read_json

SIBLINGS = 3
"""s: a canary's loss is held against the mean of so many others."""

GUESSES = ((0.05, 0.0), (0.1, 0.0), (0.25, 0.0), (0.25, 0.25))
"""Shares of the canaries that are guessed trained on (highest scores) and left out (lowest). All that could show
something are tried, and the best counts: each at a confidence that makes all of them hold at once (Bonferroni)."""

_LEAST_LOSS = 1e-6
_TRIES = 1_000

Value = Callable[[np.random.Generator], tuple[str, ...]]


def _one(words: Sequence[str], rng: np.random.Generator) -> str:
    return words[int(rng.integers(len(words)))]


def _phone_number(rng: np.random.Generator) -> tuple[str, ...]:
    return (_one(AREA_CODES, rng), "555", _one(FOUR_DIGITS, rng))


def _dose(rng: np.random.Generator) -> tuple[str, ...]:
    parts = ("zel", "vor", "quin", "tra", "mox", "lyd", "cer", "pax", "nul", "bri"), ("idol", "exin", "amab", "otril")
    name = _one(parts[0], rng) + _one(parts[0], rng) + _one(parts[1], rng)
    return (name, str(5 * int(rng.integers(1, 200))), "milligrams")


def _title(rng: np.random.Generator) -> tuple[str, ...]:
    return ("the", _one(ADJECTIVES, rng), _one(NOUNS, rng))


def _name(rng: np.random.Generator) -> tuple[str, ...]:
    return (_one(FIRST_NAMES, rng), _one(LAST_NAMES, rng))


_KINDS: tuple[Value, ...] = (_phone_number, _dose, _title, _name)


def make_canaries(splits: Splits, count: int, seed: int) -> Splits:
    """`splits` with `count` canaries and their siblings as its split `canaries`; nothing is trained on yet.

    None of them is an utterance of the corpus or like another one. The same for the same seed: what is secret about
    a canary is its coin, not its words.

    Raises:
        UserError: for a corpus without slots, or with too few to make so many.
    """
    rng = np.random.default_rng([seed, 0x43414E])
    frames = [one for one in splits.train if any(tag != "O" for tag in one.tags)]
    if not frames:
        raise UserError(
            f"canaries.count = {count}: the corpus has no slots to put generated values in; allowed: 0 for this corpus"
        )
    taken = {one.tokens for part in (splits.train, splits.valid, splits.test) for one in part}
    canaries: list[Utterance] = []
    siblings: list[Utterance] = []
    for _ in range(count):
        frame = frames[int(rng.integers(len(frames)))]
        kinds = [_KINDS[int(rng.integers(len(_KINDS)))] for tag in frame.tags if tag.startswith("B-")]
        canary, *others = (_filled(frame, kinds, taken, rng) for _ in range(1 + SIBLINGS))
        canaries.append(canary)
        siblings += others
    return replace(splits, canaries=canaries + siblings)


def _filled(frame: Utterance, kinds: list[Value], taken: set[tuple[str, ...]], rng: np.random.Generator) -> Utterance:
    """`frame` with a value of the given kind in each of its slots, unlike all that is `taken`."""
    for _ in range(_TRIES):
        tokens: list[str] = []
        tags: list[str] = []
        values = iter(kinds)
        for token, tag in zip(frame.tokens, frame.tags, strict=True):
            if tag == "O":
                tokens.append(token)
                tags.append(tag)
            elif tag.startswith("B-"):
                value = next(values)(rng)
                tokens += value
                tags += [tag] + [f"I-{tag[2:]}"] * (len(value) - 1)
        if tuple(tokens) not in taken:
            taken.add(tuple(tokens))
            return Utterance(tuple(tokens), tuple(tags), frame.intent)
    raise UserError("canaries.count: no more different values could be generated; allowed: fewer canaries")


def toss_coins(path: Path, count: int) -> NDArray[np.bool_]:
    """The coins (m,) in `path`, tossed now by the operating system's entropy if they never were.

    Whoever comes first tosses: of two commands that start at once, both read the same coins.
    """
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            partial.write_text(json.dumps([secrets.randbelow(2) for _ in range(count)]))
            partial.chmod(0o600)
            os.link(partial, path)
        except FileExistsError:
            pass
        finally:
            partial.unlink(missing_ok=True)
    return read_coins(path)


def read_coins(path: Path) -> NDArray[np.bool_]:
    """Which canaries are trained on, (m,).

    Raises:
        BrokenFile: for a file that is not whole.
    """
    return np.array(read_json(path, list[bool]), dtype=bool)


def plant(splits: Splits, coins: NDArray[np.bool_]) -> Splits:
    """`splits` with the canaries whose coin came up at the end of the training split."""
    chosen = [canary for canary, coin in zip(splits.canaries[: len(coins)], coins, strict=True) if coin]
    return replace(splits, train=[*splits.train, *chosen], planted=len(chosen))


@dataclass(frozen=True)
class Audit:
    """What one run's canaries rule out: with 95 % confidence, the run is not (epsilon, delta)-private."""

    epsilon: float
    """Lower bound of the true ε; 0 where the guesses rule nothing out."""
    canaries: int
    guesses: int
    right: int
    delta: float

    def metrics(self) -> dict[str, float]:
        """As metrics of a trial."""
        return {
            "epsilon_audited": self.epsilon,
            "canaries": float(self.canaries),
            "canary_guesses": float(self.guesses),
            "canary_guesses_right": float(self.right),
        }


def canary_scores(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many times less a canary's loss is than its siblings', as a logarithm, (m,).

    A ratio, since losses of easy and hard utterances differ by orders of magnitude.

    Args:
        losses: (m + m·s,) of the split `canaries`.
    """
    own, others = np.split(np.log(np.maximum(losses, _LEAST_LOSS)), [len(losses) // (1 + SIBLINGS)])
    return np.asarray(others.reshape(len(own), SIBLINGS).mean(1) - own)


def audit(scores: NDArray[np.float64], coins: NDArray[np.bool_], delta: float, confidence: float = 0.95) -> Audit:
    """The best bound over `GUESSES`, from scores (m,) that are higher for canaries that were trained on.

    Raises:
        ValueError: where scores and coins are not of the same canaries.
    """
    if len(scores) != len(coins):
        raise ValueError(f"{len(scores)} scores and {len(coins)} coins: allowed: one of each a canary")
    m = len(coins)
    surest = np.argsort(-scores, kind="stable")
    counts, each = _worth_making(m, delta, confidence)
    found = []
    for n_in, n_out in counts:
        inside, outside = surest[:n_in], surest[m - n_out :]
        right = int(coins[inside].sum() + (~coins[outside]).sum())
        found.append(Audit(audited_epsilon(m, n_in + n_out, right, delta, each), m, n_in + n_out, right, delta))
    return max(found, key=lambda one: one.epsilon)


def _worth_making(m: int, delta: float, confidence: float) -> tuple[list[tuple[int, int]], float]:
    """Which guesses, as numbers of canaries in and out, are made, and at what confidence each. With a large δ few
    guesses show nothing, even all of them right: those would only cost the others confidence."""
    counts = [(round(share_in * m), round(share_out * m)) for share_in, share_out in GUESSES]
    while True:
        each = 1 - (1 - confidence) / len(counts)
        useful = [one for one in counts if audited_epsilon(m, sum(one), sum(one), delta, each) > 0]
        if useful == counts or not useful:
            return counts, each
        counts = useful
