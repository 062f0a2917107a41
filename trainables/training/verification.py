"""Measure steps of a configuration, and compare their sensitivity and noise with its ledger.

The steps run through `Trainer` and `EDPHook` as those of a trial do, on one worker, with the weights of the start. Two
runs of a step with the same noise differ by the effect of the data, which the sensitivity bounds. A step whose losses
are multiplied by 0 is noise alone.

Pairs of neighbours are the worst case for the model: the losses of one micro-batch are multiplied until only the clip
limits them, and the removed unit reverses the direction of the mean.

In two pairs the gradients of the other micro-batches are just shorter than the clip. Nothing then keeps them from
following the removed unit, so these pairs show a loss that is divided by something of the whole batch, such as its
number of tokens. The removed unit is the longest utterance, and the others are the shortest.

The last pair is a step with all units and with none, whose difference all units together bound. It shows an example
that is not clipped, wherever it is.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.stats import chi2, norm
from torch import Tensor

from edp.clipping import Clip
from edp.mechanism import Mechanism
from edp.sampling import Epoch, Indices
from trainables.config import TrialSpec
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.models import JointModel
from trainables.training.batches import Chunk
from trainables.training.checkpoint import Checkpoint
from trainables.training.process import new_model, pick_device
from trainables.training.trainer import Trainer

PAIRS = 6
"""Number of pairs that differ by one unit, each in another micro-batch."""
_QUIET_PAIRS = 2
"""Number of pairs in which the other micro-batches are just within the clip. Each takes a third step, for its norms."""
_JUST_BELOW = 0.99
"""Length of their gradients, over the clip."""
_DRAWN = 16
"""Number of steps drawn, one of which is measured."""
LOUD = 1e4
"""Factor of losses that makes every gradient far longer than the clip."""
ROUNDING = 1e-3
"""Share by which rounding in single precision may exceed the declared sensitivity."""
UNLIKELY = 1e-8
"""Probability of a false alarm about the noise of one parameter."""
SIGMAS = float(norm.isf(UNLIKELY / 2))
"""Number of standard errors by which a correlation of the noise may differ from 0."""

Gradients = dict[str, Tensor]
"""One flat tensor for each trainable parameter, by its name."""


@dataclass(frozen=True)
class Violation:
    """A contradiction between a step and its ledger."""

    parameter: str
    what: str


@dataclass(frozen=True)
class Verified:
    """The sensitivity and the noise of one step's aggregate, both in the gradient's own unit."""

    violations: list[Violation]
    declared_sensitivity: float
    """Largest change of the aggregate by one unit; infinite if the layer scales are read off the data."""
    measured_sensitivity: float
    declared_std: float
    measured_std: float
    pairs: int


class _RecordedClip(Clip):
    """A clip that keeps the norms that it is given: those of the micro-batches' gradients, in the scaled space."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.norms: list[Tensor] = []

    def factors(self, norms_g: Tensor) -> Tensor:
        """Return `Clip.factors`, and keep the norms, (G,) or a scalar."""
        self.norms.append(norms_g.flatten())
        return super().factors(norms_g)


class _Probe(Trainer):
    """A trainer that can replace examples by others and multiply losses."""

    check_mixing = False  # what the hook would refuse is measured here

    def __init__(self, base: JointModel, *args: Any) -> None:
        super().__init__(copy.deepcopy(base), *args)
        assert self.hook is not None, "only private methods are verified"
        self.own_hook = self.hook
        self.names = {id(p): name for name, p in self.ddp.module.named_parameters()}
        examples = self.corpus.size("train")
        self._stands_for_e = np.arange(examples)
        self._loud_e = np.ones(examples, np.float32)
        self._loud_b: Tensor | None = None
        self.ddp.module.register_forward_hook(self._multiply)
        hook = self.own_hook
        self.clip = _RecordedClip(hook.spec, hook.micro_batches, hook.clip.dropped.device, hook.clip_state)
        hook.clip = self.clip

    def _multiply(self, _model: Any, _batch: Any, loss_b: Tensor) -> Tensor:
        return loss_b if self._loud_b is None else loss_b * self._loud_b.to(loss_b)

    def _backward_chunk(self, chunk: Chunk, kept: Any, factor: float, *, reduce: bool) -> Tensor:
        self._loud_b = torch.from_numpy(self._loud_e[chunk.indices])
        chunk = replace(chunk, indices=self._stands_for_e[chunk.indices])
        losses = super()._backward_chunk(chunk, None, factor, reduce=reduce)
        self._loud_b = None
        return losses

    def release(self, case: _Case, number: int = 0) -> Gradients:
        """Return the aggregate of a step of these micro-batches, the only one of its epoch."""
        self._stands_for_e, self._loud_e = case.stands_for_e, case.loud_e
        s = self.sampler
        epoch = Epoch(number, self.spec.edp.sampling, s.units, s.batch_size, [[case.step]], s.users)
        step = next(self.own_hook.steps(epoch))
        self.optimizer.zero_grad(set_to_none=True)
        self._backward(step)
        return {
            self.names[id(p)]: torch.zeros(0) if p.grad is None else p.grad.detach().flatten().double()
            for p in self.own_hook.parameters
        }

    def scales(self) -> list[float]:
        """Return α of each of the hook's parameters."""
        assert self.own_hook.alpha is not None, "known after a step"
        found: list[float] = self.own_hook.alpha[self.own_hook.layer].tolist()
        return found


@dataclass(frozen=True)
class _Case:
    """A step of micro-batches, and changes to its examples."""

    step: list[Indices]
    stands_for_e: Indices
    """For every training example, the example whose contents it has."""
    loud_e: np.ndarray
    """For every training example, the factor of its loss."""


def verify(spec: TrialSpec, corpus: EncodedCorpus, progress: Callable[[int, int], None]) -> Verified:
    """Measure one step of `spec` on a small corpus, in a process group of one worker.

    Args:
        progress: called with the number of steps run, and of all steps.

    Raises:
        trainables.records.job.TrialFailed: if the model cannot be trained with these settings.
    """
    device = pick_device(spec.training)
    base = new_model(spec, corpus, device)
    first = _Probe(base, corpus, spec, device)
    run = _Runs(base, corpus, spec, device, first.checkpoint([]), progress)
    # Steps of Poisson sampling may be empty, and then show nothing. A single example cannot reverse the mean of its
    # micro-batch, so of several steps the one with the largest micro-batch is measured.
    steps = (share[0] for epoch in itertools.count() for share in first.sampler.epoch(epoch))
    several = itertools.islice((s for s in steps if any(len(m) for m in s)), _DRAWN)
    step = [np.asarray(examples) for examples in max(several, key=lambda s: max(map(len, s)))]
    noise = run.noise(step)
    violations, measured, mechanism = list(noise.violations), 0.0, run.mechanism
    declared = mechanism.sensitivity() / mechanism.N
    slack = ROUNDING + 1e-7 * noise.length / (mechanism.C / mechanism.N)
    for with_it, without, units in run.pairs(step):
        moved = run.moved(with_it, without)
        limit = declared if units == 1 else units * mechanism.C * run.stretch / mechanism.N
        if units == 1:
            measured = max(measured, _norm(moved.values()))
        violations += _too_far(moved, limit * (1 + slack), units)
    violations += run.changed()
    found = list({one.parameter: one for one in violations}.values())
    return Verified(found, declared, measured, mechanism.noise_std(), noise.std, run.done_pairs)


@dataclass(frozen=True)
class _Noise:
    """The noise of a step, and what is wrong with it."""

    violations: list[Violation]
    std: float
    length: float
    """Norm of the noise in the scaled space. Rounding errors are about 1e-7 of it."""


class _Runs:
    """Steps from the same start, each by a hook of its own."""

    def __init__(
        self,
        base: JointModel,
        corpus: EncodedCorpus,
        spec: TrialSpec,
        device: torch.device,
        start: Checkpoint,
        progress: Callable[[int, int], None],
    ) -> None:
        self._base, self._corpus, self._spec, self._device, self._start = base, corpus, spec, device, start
        self._progress, self._done, self.done_pairs = progress, 0, 0
        self._examples = corpus.size("train")
        self._before = {name: x.clone() for name, x in base.state_dict().items()}
        self._changed: set[str] = set()
        self._outside: set[str] = set()
        self.stretch = 1.0
        self.mechanism: Mechanism

    def _probe(self, seed: int | None) -> _Probe:
        """Return a new trainer at the start, with secret noise or, with a `seed`, reproducible noise."""
        edp = self._spec.edp if seed is None else self._spec.edp.model_copy(update={"reproducible_noise": seed})
        spec = self._spec.model_copy(update={"edp": edp})
        return _Probe(self._base, self._corpus, spec, self._device, self._start)

    def _ran(self, probe: _Probe) -> None:
        """Take note of a probe's mechanism, and of parameters that are trained or changed outside of it."""
        now = probe.ddp.module.state_dict()
        self._changed |= {name for name, x in self._before.items() if not torch.equal(x, now[name])}
        known = {id(p) for p in probe.own_hook.parameters}
        trained = [p for group in probe.optimizer.param_groups for p in group["params"] if p.requires_grad]
        self._outside |= {probe.names.get(id(p), "a parameter of no layer") for p in trained if id(p) not in known}
        self.mechanism = probe.own_hook.ledger.entries[-1].mechanism
        self.stretch = self.mechanism.max_alpha if self.mechanism.alpha_noise == "isotropic" else 1.0
        self._done += 1
        self._progress(self._done, 3 + 2 * (PAIRS + 1) + 3 * _QUIET_PAIRS)

    def moved(self, with_it: _Case, without: _Case) -> Gradients:
        """Return the difference of two aggregates with the same noise, in the scaled space, where the clip acts.

        If the noise does not follow the layer scales, the difference is multiplied by the largest scale. A gradient as
        long as the clip that is all in that layer can move the aggregate that far.
        """
        found = []
        for case in (with_it, without):
            probe = self._probe(seed=self.done_pairs)
            found.append(probe.release(case))
            self._ran(probe)
        self.done_pairs += 1
        names_and_scales = zip(found[0], probe.scales(), strict=True)
        return {name: (found[0][name] - found[1][name]) * (self.stretch / scale) for name, scale in names_and_scales}

    def noise(self, step: list[Indices]) -> _Noise:
        """Measure the noise of three steps with secret keys, two of them of one run."""
        silent = _Case(step, np.arange(self._examples), np.zeros(self._examples, np.float32))
        one, other = self._probe(None), self._probe(None)
        found = []
        for probe, number in ((one, 0), (one, 1), (other, 0)):
            released = probe.release(silent, number)
            self._ran(probe)
            per_layer = self.mechanism.alpha_noise == "per_layer"
            shapes = probe.scales() if per_layer else [1.0] * len(released)
            found.append({name: x / shape for (name, x), shape in zip(released.items(), shapes, strict=True)})
        flat = [torch.cat(list(x.values())) for x in found]
        length = _norm(x / scale for x, scale in zip(released.values(), probe.scales(), strict=True))
        return _Noise(list(self._of_noise(found, flat)), float(flat[0].square().mean().sqrt()), length)

    def _of_noise(self, found: list[Gradients], flat: list[Tensor]) -> Iterator[Violation]:
        """Yield what is wrong with the noise of the three steps of `noise`: its size, or correlations."""
        std = self.mechanism.noise_std()
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
        if not self.mechanism.replayable:  # reproducible noise is the same in every run, and its ε is infinite
            pairs["two runs have"] = (flat[0], flat[2])
        for which, (a, b) in pairs.items():
            scale = float(a.norm() * b.norm())
            correlation = float(a @ b) / scale if scale > 0 else 0.0
            if abs(correlation) > SIGMAS / math.sqrt(max(1, len(a))):
                yield Violation("all", f"{which} correlated noise: {correlation:.3g}")

    def pairs(self, step: list[Indices]) -> Iterator[tuple[_Case, _Case, int]]:
        """Yield a step with all units, the step without one or without any, and the number of units removed."""
        unit = self._spec.edp.unit
        held = [i for i, examples in enumerate(step) if len(examples)]
        for m in (held[i] for i in np.linspace(0, len(held) - 1, min(PAIRS, len(held))).round().astype(int)):
            stands_for_e, loud_e = np.arange(self._examples), np.ones(self._examples, np.float32)
            mine = self._of_user(step, step[m][0]) if unit == "user" else step[m]
            # All examples get the same contents, so that the removed one can reverse the direction of the mean.
            stands_for_e[mine] = mine[-1]
            loud_e[mine] = LOUD
            gone = mine[:1] if unit == "example" else mine
            if unit == "example" and len(mine) > 1:
                loud_e[mine[0]] = -LOUD * len(mine)
            with_it = _Case(step, stands_for_e, loud_e)
            yield with_it, replace(with_it, step=self._without(step, gone)), 1
        if self.mechanism.alpha == "paper":
            return  # its scales are read off the gradient, and would differ between the two steps
        yield from self._quiet_pairs(step, held)
        loud = _Case(step, np.arange(self._examples), np.full(self._examples, LOUD, np.float32))
        yield loud, replace(loud, loud_e=np.zeros(self._examples, np.float32)), len(held)

    def _quiet_pairs(self, step: list[Indices], held: list[int]) -> Iterator[tuple[_Case, _Case, int]]:
        """Yield pairs as `pairs` does, in which the other micro-batches are just within the clip, if there are any."""
        if len(held) > 1:
            for m in (held[0], held[-1]):
                yield *self._quiet(step, step[m]), 1

    def _quiet(self, step: list[Indices], examples: Indices) -> tuple[_Case, _Case]:
        """Return a step with and without a unit of these examples, in which the others are just within the clip."""
        unit, length_e = self._spec.edp.unit, self._corpus.lengths("train")
        mine = self._of_user(step, examples[0]) if unit == "user" else examples
        gone = mine[:1] if unit == "example" else mine
        stands_for_e = np.full(self._examples, length_e.argmin())
        stands_for_e[mine] = length_e.argmax()
        left, loud_e = self._without(step, gone), np.ones(self._examples, np.float32)
        loud_e[mine] = 0.0
        probe = self._probe(seed=self.done_pairs)
        probe.release(_Case(left, stands_for_e, loud_e))
        self._ran(probe)
        longest = float(torch.cat(probe.clip.norms).max())
        if longest > 0:
            loud_e *= _JUST_BELOW * self.mechanism.C / longest
        # What leaves pulls against the others: their change, if any, has the same direction as its own.
        loud_e[mine] = -LOUD if len(gone) == len(mine) else LOUD
        loud_e[gone] = -LOUD * len(mine)
        return _Case(step, stands_for_e, loud_e), _Case(left, stands_for_e, loud_e)

    def _of_user(self, step: list[Indices], example: int) -> Indices:
        """Return all examples of a step that belong to the same user as this one, in every micro-batch."""
        users, held = self._corpus.train_users, np.concatenate(step)
        assert users is not None, "checked by the trainer"
        return held[users[held] == users[example]]

    def _without(self, step: list[Indices], gone: Indices) -> list[Indices]:
        """Return the step without the examples in `gone`.

        With Poisson sampling of single units a micro-batch that becomes empty goes too. Otherwise its place stays.
        """
        single = self._spec.training.method == "dpsgd" and self._spec.edp.sampling == "poisson"
        left = [examples[~np.isin(examples, gone)] for examples in step]
        return [now for now, before in zip(left, step, strict=True) if len(now) or not (single and len(before))]

    def changed(self) -> Iterator[Violation]:
        """Yield the parameters that a step changes outside of the mechanism, or that the optimiser would."""
        for name in sorted(self._changed):
            yield Violation(name, "it changes with the data, without clip and noise")
        for name in sorted(self._outside):
            yield Violation(name, "it is trained without clip and noise")


@functools.cache
def _std_range(n: int) -> tuple[float, float]:
    """Return the range that the standard deviation of `n` standard normal numbers leaves with chance UNLIKELY."""
    low, high = chi2.ppf(UNLIKELY / 2, max(n, 1)), chi2.isf(UNLIKELY / 2, max(n, 1))
    return math.sqrt(low / max(n, 1)), math.sqrt(high / max(n, 1))


def _too_far(moved: Gradients, limit: float, units: int) -> Iterator[Violation]:
    """Yield the parameters that `units` units move by more than `limit`, or else the whole aggregate if it is."""
    who = "one unit" if units == 1 else f"all {units} units together"
    far = {name: _norm([x]) for name, x in moved.items() if not _norm([x]) <= limit}
    for name, distance in far.items():
        yield Violation(name, f"{who} can move it by {distance:.4g}, more than {limit:.4g}")
    total = _norm(moved.values())
    if not far and not total <= limit:
        yield Violation("all", f"{who} can move the aggregate by {total:.4g}, more than {limit:.4g}")


def _norm(parts: Any) -> float:
    """Return the L2 norm of all tensors together."""
    return math.sqrt(sum(float(x.square().sum()) for x in parts))
