"""Measure steps of a configuration, and compare them with its ledger.

The utterances are written to files, with and without one unit, and read, split, encoded, drawn and trained as those of
a trial are (`trainables.training.neighbours`). What must hold for each step:

| training | the sums with and without the unit differ by |
|---|---|
| losses so large that the clip limits every gradient | at most what the ledger charges: 0 if it is not drawn |
| the unit's losses are 0, the others' gradients are within the clip | 0: the unit changes no other one's gradient |
| the losses of all units are 0 in one of the two | at most what the ledger charges for all together |

A step whose losses are all 0 is noise alone, whose size and correlations are measured.
"""

from __future__ import annotations

import copy
import functools
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy.stats import chi2, norm
from torch import Tensor

from edp.mechanism import Mechanism
from edp.sampling import Indices, shuffled_epoch
from edp.steps import HookUsageError
from trainables.config import CorpusSpec, TrialSpec
from trainables.corpora.splits import TRAIN_SHARE, places
from trainables.corpora.types import Splits, Utterance
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.training.neighbours import Difference, LoudTrainer, Neighbour, differences, longest_gradient
from trainables.training.process import new_model, pick_device

PAIRS = 2
"""Number of units that are left out, one after the other."""
STEPS = 4
"""Number of steps of each training that are compared, and more until the unit was in one."""
_MOST_STEPS = 100
LOUD = 1e4
"""Factor of losses that makes every gradient far longer than the clip."""
_JUST_BELOW = 0.99
"""Length of the longest gradient, over the clip, if none is clipped."""
ROUNDING = 1e-3
"""Share by which rounding in single precision may exceed the declared sensitivity."""
_ROUNDING_OF_SUM = 2e-5
"""Share of the length of all units' clipped gradients by which rounding may move a sum."""
UNLIKELY = 1e-8
"""Probability of a false alarm about the noise of one parameter."""
SIGMAS = float(norm.isf(UNLIKELY / 2))
"""Number of standard errors by which a correlation of the noise may differ from 0."""

Read = Callable[[CorpusSpec, Path], EncodedCorpus]
"""A function that reads a corpus of files, and encodes it into a folder as the model of the trial reads it."""


@dataclass(frozen=True)
class Violation:
    """A contradiction between a step and its ledger."""

    parameter: str
    what: str


@dataclass(frozen=True)
class Verified:
    """The sensitivity and the noise of steps' aggregates, both in the gradient's own unit."""

    violations: list[Violation]
    declared_sensitivity: float
    """Largest change of the aggregate by one unit; infinite if the layer scales are read off the data."""
    measured_sensitivity: float
    declared_std: float
    measured_std: float
    steps: int
    """Number of steps whose sums were compared."""


def verify(spec: TrialSpec, splits: Splits, read: Read, folder: Path, progress: Callable[[int, int], None]) -> Verified:
    """Measure steps of `spec` on a few utterances, in a process group of one worker.

    Args:
        splits: the utterances. Those of train that are left out come from here.
        folder: an empty folder for the files and the encoded corpora.

    Raises:
        trainables.records.job.TrialFailed: if the model cannot be trained with these settings.
    """
    total = 2 * PAIRS + 2
    whole = _corpus(spec, splits, read, folder / "whole")
    violations, std, mechanism = _noise(spec, whole)
    N, declared, done = mechanism.N, mechanism.sensitivity(), 1
    progress(done, total)
    measured, steps = 0.0, 0

    def compare(compared: Iterator[Difference], who: str) -> None:
        nonlocal measured, steps, done
        try:
            for one in compared:
                steps += 1
                if one.units == 1:
                    measured = max(measured, one.moved * spec.edp.C / one.clip)
                violations.extend(_too_far(one, spec, who, N))
        except HookUsageError as error:
            violations.append(Violation("all", str(error)))
        done += 1
        progress(done, total)

    if mechanism.alpha != "paper":  # its scales are read off the gradient, and would differ between the two
        for number, unit in enumerate(_units(spec, splits, whole)):
            without, blanks = _without(spec, splits, unit)
            other = _corpus(spec, without, read, folder / f"without-{number}")
            pair = Neighbour(whole, unit), Neighbour(other, blanks)
            compare(_some(differences(_long(spec), *pair, loud=LOUD, against=True)), "one unit")
            if spec.edp.sampling == "poisson" and spec.training.method == "edp":
                continue  # a blank counts in the mean of the micro-batch that it is drawn into
            below = _JUST_BELOW * spec.edp.C / longest_gradient(spec, whole)
            compare(_some(differences(_long(spec), *pair, loud=below, silent=True)), "one unit without a loss")
        everybody = np.arange(len(splits.train))
        pair = Neighbour(whole, everybody), Neighbour(whole, everybody)
        compare(_some(differences(_long(spec), *pair, loud=LOUD)), "all units of a step together")
    unique = list({one.parameter: one for one in violations}.values())
    return Verified(unique, declared / N, measured / N, mechanism.noise_std(), std, steps)


def _long(spec: TrialSpec) -> TrialSpec:
    """Return `spec` with enough epochs, or with one if the unit is another one in each."""
    epochs = 1 if spec.edp.unit == "micro_batch" else _MOST_STEPS
    return spec.model_copy(update={"training": spec.training.model_copy(update={"epochs": epochs})})


def _some(compared: Iterator[Difference]) -> Iterator[Difference]:
    """Yield the first steps, and more until the unit was in one."""
    there = False
    for step, one in enumerate(itertools.islice(compared, _MOST_STEPS), start=1):
        there |= one.units > 0
        yield one
        if step >= STEPS and there:
            return


def _corpus(spec: TrialSpec, splits: Splits, read: Read, folder: Path) -> EncodedCorpus:
    """Write utterances to JSON lines, and read them as the corpus of a trial is read."""
    folder.mkdir(parents=True)
    parts = {"train": splits.train, "valid": splits.valid, "test": splits.test}
    for part, utterances in parts.items():
        lines = (
            {"tokens": u.tokens, "tags": u.tags}
            | ({"intent": u.intent} if u.intent else {})
            | ({"user": u.user} if u.user else {})
            for u in utterances
        )
        (folder / f"{part}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    settings = {"path": str(folder), "format": "jsonl", "columns": None, "quoting": "auto", "utterances": None}
    return read(spec.corpus.model_copy(update=settings), folder / "encoded")


def _units(spec: TrialSpec, splits: Splits, corpus: EncodedCorpus) -> Iterator[Indices]:
    """Yield the training utterances of some units: the longest one, and others."""
    train, edp = splits.train, spec.edp
    if edp.unit == "user":
        for user, _ in splits.train_users.most_common(PAIRS):
            yield np.flatnonzero([one.user == user for one in train])
    elif edp.unit == "micro_batch":
        sizes = {"batch_size": spec.training.batch_in(len(train)), "micro_batches": spec.training.clips_in(len(train))}
        step = next(iter(shuffled_epoch(len(train), seed=spec.training.seed, epoch=0, **sizes)))
        held = [np.sort(examples) for examples in step[0] if len(examples)]
        yield from held[:: max(1, len(held) // PAIRS)][:PAIRS]
    else:
        longest = np.argsort(-corpus.lengths("train"), kind="stable")
        yield from (longest[at : at + 1] for at in (0, len(train) // 2))


def _without(spec: TrialSpec, splits: Splits, unit: Indices) -> tuple[Splits, Indices]:
    """Return the splits without a unit, and its blanks: in its place, or at the end if a Poisson sample may lack it."""
    one = splits.train[int(unit[0])]
    place = places(f"split {spec.corpus.seed}")
    texts = (("blank", str(number)) for number in itertools.count())
    every = (Utterance(words, ("O", "O"), one.intent, one.user) for words in texts)
    blank = next(made for made in every if spec.corpus.split == "published" or place(made) < TRAIN_SHARE)
    train, gone = list(splits.train), unit.tolist()
    if spec.edp.sampling == "poisson":
        train = [left for number, left in enumerate(train) if number not in gone] + [blank] * len(gone)
        return replace(splits, train=train), np.arange(len(train) - len(gone), len(train))
    for number in gone:
        train[number] = blank
    return replace(splits, train=train), unit


def _too_far(one: Difference, spec: TrialSpec, who: str, micro_batches: int) -> Iterator[Violation]:
    """Yield the parameters that moved by more than is charged, or else the whole sum if it did."""
    rounding = _ROUNDING_OF_SUM if spec.training.precision == "float32" else 0.02
    limit = one.charged * (1 + ROUNDING) + rounding * one.clip * micro_batches
    far = {name: moved for name, moved in one.moved_by_parameter.items() if not moved <= limit}
    where = "" if one.units else " in a step that it is not in"
    for name, moved in far.items():
        yield Violation(name, f"{who} can move it by {moved / micro_batches:.4g}{where}, more than "
                              f"{one.charged / micro_batches:.4g}")  # fmt: skip
    if not far and not one.moved <= limit:
        yield Violation("all", f"{who} can move the aggregate by {one.moved / micro_batches:.4g}{where}, more than "
                               f"{one.charged / micro_batches:.4g}")  # fmt: skip


def _noise(spec: TrialSpec, corpus: EncodedCorpus) -> tuple[list[Violation], float, Mechanism]:
    """Return what is wrong with the noise of three steps with secret keys, two of one run; its std; its mechanism."""
    device = pick_device(spec.training)
    base = new_model(spec, corpus, device)
    before = {name: x.clone() for name, x in base.state_dict().items()}
    found: list[dict[str, Tensor]] = []
    wrong: dict[str, str] = {}
    for steps in (2, 1):
        run = LoudTrainer(copy.deepcopy(base), corpus, _long(spec), device)
        run.loud_e[:] = 0.0
        hook = run.own_hook
        drawn = (step for epoch in range(2) for step in run.steps_of(epoch))
        for step in itertools.islice(drawn, steps):
            released = run.aggregate(step)
            scales = hook.alpha[hook.layer].tolist() if hook.alpha is not None else [1.0] * len(released)
            per_layer = hook.mechanism.alpha_noise == "per_layer"
            shapes = scales if per_layer else [1.0] * len(released)
            found.append({n: x.flatten() / s for (n, x), s in zip(released.items(), shapes, strict=True)})
        now = run.ddp.module.state_dict()
        wrong |= {
            name: "it changes with the data, without clip and noise"
            for name, x in before.items()
            if not torch.equal(x, now[name])
        }
        known = {id(p) for p in hook.parameters}
        trained = [p for group in run.optimizer.param_groups for p in group["params"] if p.requires_grad]
        wrong |= {
            run.names.get(id(p), "a parameter of no layer"): "it is trained without clip and noise"
            for p in trained
            if id(p) not in known
        }
    flat = [torch.cat(list(x.values())) for x in found]
    violations = [*_of_noise(hook.mechanism, found, flat), *(Violation(*one) for one in sorted(wrong.items()))]
    return violations, float(flat[0].square().mean().sqrt()), hook.mechanism


def _of_noise(mechanism: Mechanism, found: list[dict[str, Tensor]], flat: list[Tensor]) -> Iterable[Violation]:
    """Yield what is wrong with the noise of three steps: its size, or correlations."""
    std = mechanism.noise_std()
    for name, x in found[0].items():
        measured, n = float(x.square().mean().sqrt()), len(x)
        low, high = _std_range(n)
        if std == 0 or n == 0 or measured < 1e-3 * std:
            yield Violation(name, "its gradient is released without noise")
        elif not low * (1 - ROUNDING) <= measured / std <= high * (1 + ROUNDING):
            yield Violation(name, f"noise of std {measured:.4g} instead of {std:.4g}")
    n = len(flat[0])
    pairs = {
        "two steps have": (flat[0], flat[1]),
        "neighbouring numbers have": (flat[0][1:], flat[0][:-1]),
        "halves of the weights have": (flat[0][: n // 2], flat[0][n // 2 : 2 * (n // 2)]),
    }
    if not mechanism.replayable:  # reproducible noise is the same in every run, and its ε is infinite
        pairs["two runs have"] = (flat[0], flat[2])
    for which, (a, b) in pairs.items():
        scale = float(a.norm() * b.norm())
        correlation = float(a @ b) / scale if scale > 0 else 0.0
        if abs(correlation) > SIGMAS / math.sqrt(max(1, len(a))):
            yield Violation("all", f"{which} correlated noise: {correlation:.3g}")


@functools.cache
def _std_range(n: int) -> tuple[float, float]:
    """Return the range that the standard deviation of `n` standard normal numbers leaves with chance UNLIKELY."""
    low, high = chi2.ppf(UNLIKELY / 2, max(n, 1)), chi2.isf(UNLIKELY / 2, max(n, 1))
    return math.sqrt(low / max(n, 1)), math.sqrt(high / max(n, 1))
