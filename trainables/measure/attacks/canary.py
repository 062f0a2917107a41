"""Canaries: unusual utterances that audit one run, each trained on if its own fair coin says so.

The method is that of Steinke, Nasr and Jagielski (2023). A canary is made from an utterance of the training split, with
labels of the corpus:

| kind | words | labels |
|---|---|---|
| `values` | the utterance's, with generated values in its slots | the utterance's |
| `new_tokens` | one of random letters for each word of the utterance | the utterance's |
| `outliers` | drawn from all words of the corpus | drawn at random |

A canary has siblings, which differ from it in their words only and are never trained on. Compared with their losses, a
canary's loss tells whether it was trained on, however hard such an utterance is (the "exposure" of Carlini et al.
2019). `trainables.measure.attacks.auditing` compares them. If users are known, a canary is a user of its own.

Shapes: m canaries, s siblings of each. Rows of the split `canaries`: first all m, then the siblings of each in turn.
"""

from __future__ import annotations

import json
import os
import secrets
import string
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edp.spec import UserError
from trainables.config import CanariesSpec
from trainables.corpora.generators import shared_words
from trainables.corpora.labels import labels_of
from trainables.corpora.types import Splits, Utterance
from trainables.records.files import read_json

SIBLINGS = 3
"""s: number of siblings, whose losses a canary's loss is compared with."""

_TRIES = 1_000

Value = Callable[[np.random.Generator], tuple[str, ...]]


def _one(words: Sequence[str], rng: np.random.Generator) -> str:
    return words[int(rng.integers(len(words)))]


def _phone_number(rng: np.random.Generator) -> tuple[str, ...]:
    return (_one(shared_words("area_code"), rng), "555", _one(shared_words("four_digits"), rng))


def _dose(rng: np.random.Generator) -> tuple[str, ...]:
    parts = ("zel", "vor", "quin", "tra", "mox", "lyd", "cer", "pax", "nul", "bri"), ("idol", "exin", "amab", "otril")
    name = _one(parts[0], rng) + _one(parts[0], rng) + _one(parts[1], rng)
    return (name, str(5 * int(rng.integers(1, 200))), "milligrams")


def _title(rng: np.random.Generator) -> tuple[str, ...]:
    return ("the", _one(shared_words("adjective"), rng), _one(shared_words("noun"), rng))


def _name(rng: np.random.Generator) -> tuple[str, ...]:
    return (_one(shared_words("first"), rng), _one(shared_words("last"), rng))


_VALUES: tuple[Value, ...] = (_phone_number, _dose, _title, _name)


def make_canaries(splits: Splits, spec: CanariesSpec, seed: int) -> Splits:
    """Return `splits` with canaries and their siblings as the split `canaries`; none is in `train` yet.

    All differ from each other and from the utterances of the corpus. The same seed gives the same canaries: the secret
    of a canary is its coin, not its words.

    Raises:
        UserError: if the corpus has no slots for generated values, or not enough different canaries can be made.
    """
    rng = np.random.default_rng([seed, 0x43414E])
    corpus = [one for part in (splits.train, splits.valid, splits.test) for one in part]
    frames = splits.train
    if spec.kind == "values":
        frames = [one for one in frames if any(tag != "O" for tag in one.tags)]
    if not frames:
        raise UserError(
            f"canaries.count = {spec.count}: the corpus has no slots to put generated values in; allowed: 0 for this "
            "corpus, or canaries.kind = new_tokens or outliers"
        )
    words = sorted({token for one in corpus for token in one.tokens})
    known = labels_of(splits)
    labels = list(known.intents), [tag[2:] for tag in known.tags[1::2]]
    taken = {one.tokens for one in corpus}
    canaries: list[Utterance] = []
    siblings: list[Utterance] = []
    for number in range(spec.count):
        frame = frames[int(rng.integers(len(frames)))]
        match spec.kind:
            case "values":
                kinds = [_VALUES[int(rng.integers(len(_VALUES)))] for tag in frame.tags if tag.startswith("B-")]
                make = partial(_filled, frame, kinds, rng)
            case "new_tokens":
                make = partial(_in_new_words, frame, frozenset(words), rng)
            case "outliers":
                make = partial(_out_of_order, _mislabelled(frame, *labels, rng), words, rng)
        try:
            canary, *others = (_untaken(make, taken) for _ in range(1 + SIBLINGS))
        except _AllTaken:
            raise UserError(
                f"canaries.count = {spec.count}: only {number} different ones could be made of this corpus with "
                f"canaries.kind = {spec.kind}; allowed: at most {number}"
            ) from None
        # A user of its own makes a canary one unit of user-level privacy. No user in a file begins with NUL.
        user = f"\0{number}" if frame.user else ""
        canaries.append(canary._replace(user=user))
        siblings += [other._replace(user=user) for other in others]
    return replace(splits, canaries=canaries + siblings)


class _AllTaken(Exception):
    """No new utterance was found in `_TRIES` tries."""


def _untaken(make: Callable[[], Utterance], taken: set[tuple[str, ...]]) -> Utterance:
    """Return an utterance by `make` that is not in `taken`, and add it to `taken`."""
    for _ in range(_TRIES):
        made = make()
        if made.tokens not in taken:
            taken.add(made.tokens)
            return made
    raise _AllTaken


def _filled(frame: Utterance, kinds: list[Value], rng: np.random.Generator) -> Utterance:
    """Return `frame` with a value of the given kind in each of its slots."""
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
    return Utterance(tuple(tokens), tuple(tags), frame.intent)


def _in_new_words(frame: Utterance, known: frozenset[str], rng: np.random.Generator) -> Utterance:
    """Return `frame` with an unknown word of random letters for each of its words."""

    def word() -> str:
        while True:
            made = "".join(_one(string.ascii_lowercase, rng) for _ in range(int(rng.integers(5, 10))))
            if made not in known:
                return made

    return frame._replace(tokens=tuple(word() for _ in frame.tokens))


def _mislabelled(frame: Utterance, intents: list[str], slots: list[str], rng: np.random.Generator) -> Utterance:
    """Return `frame` with a random intent and random tags, each slot one or two tokens long."""
    tags: list[str] = []
    while len(tags) < len(frame.tokens):
        slot = _one([*slots, ""], rng)
        tags += [f"B-{slot}", f"I-{slot}"][: int(rng.integers(1, 3))] if slot else ["O"]
    return frame._replace(tags=tuple(tags[: len(frame.tokens)]), intent=_one(intents, rng))


def _out_of_order(frame: Utterance, words: list[str], rng: np.random.Generator) -> Utterance:
    """Return `frame` with random words of the corpus."""
    return frame._replace(tokens=tuple(_one(words, rng) for _ in frame.tokens))


def toss_coins(path: Path, count: int) -> NDArray[np.bool_]:
    """Return the coins (m,) in `path`; if the file does not exist, toss them with the operating system's entropy.

    Two commands that start at once read the same coins, since the file that is made first stays.
    """
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            partial.write_text(json.dumps([secrets.randbelow(2) for _ in range(count)]))
            partial.chmod(0o600)
            _put_if_none(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    return read_coins(path)


def _put_if_none(made: Path, path: Path) -> None:
    """Give the file `made` the name `path` in one step, unless `path` exists."""
    try:
        os.link(made, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        try:
            file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            return
        with os.fdopen(file, "wb") as coins:
            coins.write(made.read_bytes())


def read_coins(path: Path) -> NDArray[np.bool_]:
    """Read the coins (m,): True for canaries that are trained on.

    Raises:
        BrokenFile: for a file that is not whole.
    """
    return np.array(read_json(path, list[bool]), dtype=bool)


def plant(splits: Splits, coins: NDArray[np.bool_]) -> Splits:
    """Return `splits` with the canaries whose coin is True at the end of the training split."""
    chosen = [canary for canary, coin in zip(splits.canaries[: len(coins)], coins, strict=True) if coin]
    return replace(splits, train=[*splits.train, *chosen], planted=len(chosen))
