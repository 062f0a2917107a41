"""Clipping a micro-batch's gradient: to a fixed clip, to a fixed length, or to a clip that follows a quantile.

| `clip` | factor of a gradient of scaled norm n | from |
|---|---|---|
| `fixed` | `min(1, C/n)` | Dupuy et al., Algorithm 1 |
| `automatic` | `C/(n + 0.01)` | Bu et al., "Automatic Clipping" (2023), AUTO-S |
| `quantile` | `min(1, C_t/n)`, with C_t near a quantile of the norms | Andrew et al. (2021) |

Formal guarantee: a scaled and clipped gradient is no longer than C (`automatic`: is shorter), so the noisy sum costs
the same under all three. `quantile` also releases a noisy count a step, whose cost is in `edp.mechanism`; the next
clip is post-processing of that count.

A gradient that is not finite becomes 0: one example of an infinite loss can neither end a run nor poison its weights.

A gradient of zero counts 0, so that zeroing one out moves the count by 1/2 and not by 1. In steps with fewer than N
gradients this draws the share within the clip towards 1/2, and other quantiles are met less closely.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn

from edp.mechanism import count_noise_std
from edp.noise.gaussian import count_stream, gaussian_
from edp.per_example import GradientRecorder
from edp.spec import Clipping, EDPSpec

AUTOMATIC_GAMMA = 0.01
"""γ of AUTO-S, in units of the scaled norm: it keeps small gradients smaller than large ones."""
QUANTILE_RATE = 0.2
"""η of the geometric update of Andrew et al."""


def clip_factors(norms_g: torch.Tensor, C: float | torch.Tensor, clip: Clipping) -> torch.Tensor:
    """Return the factor of each micro-batch's gradient, in the shape of `norms_g`; 0 where a norm is not finite.

    Dropping a gradient stays within the sensitivity; failing because of it would reveal the example. Does not wait for
    a GPU.

    Args:
        norms_g: L2 norms of the scaled gradients `g/α`, (G,) or a scalar tensor.
        C: the clip, a number or a scalar tensor on the same device.
    """
    if isinstance(C, torch.Tensor):
        C = C.to(norms_g.dtype)
    # A gradient of zero stays one: C/0 is infinite, and clamped to 1.
    factors = C / (norms_g + AUTOMATIC_GAMMA) if clip == "automatic" else (C / norms_g).clamp(max=1.0)
    return torch.where(norms_g.isfinite(), factors, 0.0)


def count_within(norms_g: torch.Tensor, C: float | torch.Tensor) -> torch.Tensor:
    """Return the count of norms within C, a float64 scalar: each adds 1/2 if it is at most C, else -1/2.

    A norm of 0, or one that is not finite, adds 0.
    """
    sign = torch.where(norms_g <= C, 0.5, -0.5).where((norms_g != 0) & norms_g.isfinite(), 0.0)
    return sign.sum(dtype=torch.float64)


def next_clip(C: torch.Tensor, noisy_count: torch.Tensor, micro_batches: int, quantile: float) -> torch.Tensor:
    """Return `C·exp(-η·(b - quantile))`, b being the noisy share of the fixed N within C (Andrew et al., section 2)."""
    share = noisy_count / micro_batches + 0.5
    return C * torch.exp(-QUANTILE_RATE * (share - quantile))


def count_noise(key: bytes, micro_batches: int, mine: range, step: int, *, replayable: bool) -> float:
    """Return this worker's share of the noise on a step's count: N(0, σ²·len(mine)/N), σ = `count_noise_std(N)`.

    Args:
        mine: this worker's of the N micro-batches; the number that it really took must not show.
        replayable: draw one number for each, so that every number of workers gives the same sum.
    """
    std = count_noise_std(micro_batches) / math.sqrt(micro_batches)
    if not replayable:
        # The sum of independent Gaussians is one Gaussian.
        std, mine = std * math.sqrt(len(mine)), mine[:1]
    return sum(float(gaussian_(torch.empty(1), std, count_stream(key, i, step))) for i in mine)


class Clip:
    """The clip of one run: constant, unless `spec.clip` is quantile, which moves it after every step.

    Args:
        micro_batches: N, over all workers.
        start: the last clip, when a run with `clip = quantile` is resumed; otherwise `spec.C`.
    """

    def __init__(self, spec: EDPSpec, micro_batches: int, device: torch.device, start: float | None = None) -> None:
        self.kind, self.quantile, self.micro_batches = spec.clip, spec.clip_quantile, micro_batches
        self.moves = spec.clip == "quantile"
        first = spec.C if start is None or not self.moves else start
        # A tensor on the device, so that no step waits for a GPU.
        self.C: float | torch.Tensor = torch.tensor(first, dtype=torch.float64, device=device) if self.moves else first
        # The ledger holds the spec's C: noise of that size is stretched by C / spec.C.
        self._spec_C = spec.C
        self.dropped = torch.zeros((), dtype=torch.int64, device=device)
        """Number of gradients so far that were not finite."""
        self._count = torch.zeros((), dtype=torch.float64, device=device)

    @property
    def stretch(self) -> float | torch.Tensor:
        """The clip over `spec.C`: 1 unless it moves."""
        return self.C / self._spec_C if self.moves else 1.0

    def factors(self, norms_g: torch.Tensor) -> torch.Tensor:
        """Return `clip_factors` of this step's micro-batches, (G,) or a scalar. Pass each once, for the count."""
        self.dropped += (~norms_g.isfinite()).sum()
        if self.moves:
            self._count += count_within(norms_g, self.C)
        return clip_factors(norms_g, self.C, self.kind)

    def move(self, noise: float, group: dist.ProcessGroup) -> None:
        """Set the next step's clip, the same on all workers. All call it at once, after a step's last micro-batch.

        Args:
            noise: this worker's share of the noise on the count. Only the noisy sum over all workers is used.
        """
        total = self._count + noise
        dist.all_reduce(total, group=group)
        self.C = next_clip(torch.as_tensor(self.C), total, self.micro_batches, self.quantile)
        self._count = torch.zeros_like(total)


class ClippedSum:
    """The clipped sum of a step's micro-batches before its last backward pass: a tensor a parameter."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = parameters
        self._sum: list[torch.Tensor] = []

    def add(self, gradients: list[torch.Tensor], factor: torch.Tensor) -> None:
        """Add one micro-batch's gradients times `factor`, a scalar tensor; nothing if that is 0."""
        # Not in place: where gradients are zeroed instead of dropped, they are views of DDP's bucket.
        scaled = torch._foreach_mul(gradients, factor)
        if factor.device.type != "cpu" or factor == 0:
            for x in scaled:
                x.masked_fill_(factor == 0, 0.0)  # 0 · NaN is not 0
        if self._sum:
            torch._foreach_add_(self._sum, scaled)
        else:
            self._sum = list(scaled)

    def add_recorded(self, recorder: GradientRecorder, factor_m: torch.Tensor) -> None:
        """Add the recorded micro-batches, each times its factor (M,)."""
        first = not self._sum
        if first:
            self._sum = [torch.empty_like(p) for p in self._parameters]
        recorder.write(factor_m, {id(p): x for p, x in zip(self._parameters, self._sum, strict=True)}, add=not first)

    def move_to(self, gradients: list[torch.Tensor]) -> None:
        """Add the sum to `gradients`, and delete it."""
        if self._sum:
            torch._foreach_add_(gradients, self._sum)
        self._sum = []
