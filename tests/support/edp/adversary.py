"""Worst cases for the hook: gradients chosen by an adversary, with one unit and without it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import nn

from edp.hook import EDPHook, one_bucket_ddp
from edp.spec import EDPSpec
from tests.support.steps import open_examples, open_step

SIZES = (15_000, 30_000)
"""Coordinates of the two layers: enough of them to measure a standard deviation to 0.6 % (one standard error)."""
CUSTOM_ALPHA = (0.3, 2.5)
"""Scales that nobody normalised: the clipped vector may be 2.5 times as long as the clip."""
WEIGHT = 1e4
"""How much louder than all others the example is that comes and goes."""

Example = tuple[float, float]
"""An example's gradient: its first coordinate in each layer, all others being 0."""
Step = list[list[Example]]
"""The examples of each micro-batch."""


class Chosen(nn.Module):
    """Two layers; the gradient of a micro-batch's loss is the mean of its examples' chosen gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for size in SIZES:
            layer = nn.Module()
            layer.weight = nn.Parameter(torch.zeros(size))
            self.layers.append(layer)

    def forward(self, examples: list[Example]) -> torch.Tensor:
        loss = torch.stack([0.0 * layer.weight.sum() for layer in self.layers]).sum()
        for example in examples:
            for layer, value in zip(self.layers, example, strict=True):
                loss = loss + value * layer.weight[0] / len(examples)
        return loss


@dataclass(frozen=True)
class Case:
    """One way to run the hook, and the shape of its steps."""

    spec: EDPSpec
    micro_batches: int
    size: int
    """Examples of a micro-batch."""
    custom_alpha: bool

    @property
    def single(self) -> bool:
        return self.size == 1


def worst_pair(case: Case, layer: int = 1) -> tuple[Step, Step]:
    """The same step with and without one unit, in the first micro-batch; all pull at one layer.

    | unit | with it | without it |
    |---|---|---|
    | an example among several | its pull turns the micro-batch's mean to +C | the rest's mean points to −C |
    | an example of its own, a whole micro-batch, or its user | +C | 0 |
    """

    def pull(strength: float) -> Example:
        return (strength, 0.0) if layer == 0 else (0.0, strength)

    turns_round = case.spec.unit == "example" and not case.single
    rest = [pull(-WEIGHT if turns_round else WEIGHT)] * (case.size - 1)
    others: Step = [[pull(WEIGHT)] * case.size] * (case.micro_batches - 1)
    whole: Step = [[pull(WEIGHT * case.size), *rest], *others]
    return whole, without_first_unit(case, whole)


def without_first_unit(case: Case, step: Step) -> Step:
    """The neighbour of `step`: the first micro-batch's first example, or all of it, zeroed out or removed."""
    (first, *others) = step
    gone = 1 if case.spec.unit == "example" else len(first)
    if case.spec.sampling == "shuffle":
        return [[(0.0, 0.0)] * gone + first[gone:], *others]
    # DP-SGD's micro-batches are there with their example only; others stay, even if nothing was drawn for them.
    return others if case.single or case.spec.unit == "user" else [first[gone:], *others]


def aggregate(rank: int, world: int, case: Case, step: Step, z: float) -> tuple[torch.Tensor, EDPHook]:
    """What the hook makes of a step at noise multiplier `z`, flat, and the hook."""
    ddp = one_bucket_ddp(Chosen())
    hook = EDPHook(
        ddp,
        case.spec.model_copy(update={"z0": z}),
        micro_batches=case.micro_batches,
        single_example=case.single,
        rate=1.0,
        alpha=torch.tensor(CUSTOM_ALPHA) if case.custom_alpha else None,
    )
    if hook.any_number:
        open_examples(hook, [len(step[r::world]) for r in range(world)])
    else:
        open_step(hook)
    mine = step[rank::world] if hook.any_number else step[rank * hook.per_worker : (rank + 1) * hook.per_worker]
    for i, examples in enumerate(mine or [[]]):
        last = i >= len(mine) - 1
        with nullcontext() if last else ddp.no_sync():
            ddp(examples).backward()
        if not last:
            hook.accumulate()
    hook.check()
    return torch.cat([layer.weight.grad for layer in ddp.module.layers]), hook


def moved_and_noise(rank: int, world: int, case: Case, layer: int, z: float) -> tuple[float, float, float]:
    """How far the worst unit that pulls at `layer` moves the aggregate, that layer's noise, and their stated ratio.

    With per-layer noise both are measured in the scaled space, where that noise is isotropic.
    """
    with_it, without_it = worst_pair(case, layer)
    here, there = (aggregate(rank, world, case, step, 0.0)[0] for step in (with_it, without_it))
    noisy, hook = aggregate(rank, world, case, with_it, z)
    moved, noise = in_noise_space(hook, here - there), in_noise_space(hook, noisy - here)
    own_noise = noise.split(SIZES)[layer]
    return float(moved.norm()), float(own_noise.std()), hook.mechanism.effective_noise_multiplier()


def in_noise_space(hook: EDPHook, flat: torch.Tensor) -> torch.Tensor:
    """A flat difference of aggregates where the noise is the same in every direction, float64."""
    if hook.spec.alpha_noise == "isotropic":
        return flat.double()
    assert hook.alpha is not None
    return flat.double() / hook.alpha.double().repeat_interleave(torch.tensor(SIZES))


def measured_and_stated(rank: int, world: int, case: Case, z: float = 1.7) -> tuple[float, float]:
    """Noise over sensitivity, as measured where it is least over the layers an adversary may pull at, and as stated."""
    runs = [moved_and_noise(rank, world, case, layer, z) for layer in range(len(SIZES))]
    return min(noise / moved for moved, noise, _ in runs), runs[0][2]
