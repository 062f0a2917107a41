"""The noise that one worker adds to what it sends, step after step; all workers' shares add up to the mechanism's.

A worker's share is that of its N/W micro-batches, however many it takes: their number must not show in the noise.
The hook asks `noise_source` for a source and does not know which kind it is.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import torch

from edp.noise.banded import coefficients, column_norm
from edp.noise.gaussian import add_gaussian_, reproducible_key, secret_key, stream


def noise_source(parameters: Sequence[torch.Tensor], mine: range, seed: int | None, band: int) -> NoiseSource:
    """Return a worker's source of noise.

    Args:
        parameters: tensors of the shapes, types and devices of the gradients.
        mine: this worker's of the N micro-batches.
        seed: of noise that can be replayed, for tests and research; None: the noise is secret.
        band: steps that the noise is correlated over (`edp.noise.banded`); 1: steps are independent.
    """
    return NoiseSource(parameters, mine, seed) if band == 1 else BandedNoiseSource(parameters, mine, seed, band)


class NoiseSource:
    """Independent noise. The arguments are those of `noise_source`."""

    def __init__(self, parameters: Sequence[torch.Tensor], mine: range, seed: int | None) -> None:
        # Held in memory only, and drawn anew in every process: anyone with the key can subtract the noise.
        self.key = secret_key() if seed is None else reproducible_key(seed)
        self.mine, self.replayable = mine, seed is not None
        self.shape = [1.0] * len(parameters)
        """The noise of each parameter, in units of `std`. Numbers, not a tensor, so that no step waits for a GPU."""

    def add_(
        self,
        buffer: torch.Tensor,
        gradients: list[torch.Tensor],
        std: float,
        step: int,
        *,
        clip_factor: torch.Tensor | None,
        stretch: float | torch.Tensor,
    ) -> None:
        """Replace `buffer` by `clip_factor·buffer + noise`. Does not wait for a GPU.

        Args:
            gradients: the buffer's views in the order of the parameters.
            std: of one micro-batch's noise.
            step: counted from 0, over all epochs: each step has noise of its own.
            clip_factor: a scalar tensor; at 0 it makes the buffer 0, whatever that held. None: 1.
            stretch: multiplies `std` too; a tensor if the clip moves. Correlated noise allows 1 alone.
        """
        std = self._share_of(std)
        if buffer.device.type == "cpu":
            self._draw(gradients, std * float(stretch), step, 1.0 if clip_factor is None else float(clip_factor))
            return
        if clip_factor is not None:
            _multiply(buffer, clip_factor)
        moves = isinstance(stretch, torch.Tensor)
        if moves:
            buffer.div_(stretch)
        self._draw(gradients, std, step, 1.0)
        if moves:
            buffer.mul_(stretch)  # reading the stretch, to draw with the right std, would wait for the GPU

    def _share_of(self, std: float) -> float:
        # The sum of independent Gaussians is one Gaussian: one draw serves all of the worker's micro-batches.
        return std if self.replayable else std * math.sqrt(len(self.mine))

    def _draw(self, tensors: list[torch.Tensor], std: float, step: int, factor: float) -> None:
        """Replace each x of `tensors` by `factor·x` plus this step's noise."""
        # Replayable noise has one stream a micro-batch, so that every number of workers gives the same weights.
        for micro_batch in self.mine if self.replayable else self.mine[:1]:
            noise = stream(self.key, micro_batch, step)
            add_gaussian_(tensors, [std * s for s in self.shape], noise, factor)
            factor = 1.0


class BandedNoiseSource(NoiseSource):
    """Noise that is correlated over `band` steps, at least 2: the filter of `edp.noise.banded` on tensors.

    The filter is linear, so the shares of several workers add up to the noise of all.
    """

    def __init__(self, parameters: Sequence[torch.Tensor], mine: range, seed: int | None, band: int) -> None:
        super().__init__(parameters, mine, seed)
        _, *self._c = coefficients(band)
        self._gain = column_norm(band)
        # The last step's noise first. Zeros stand for the steps before the first one: they take nothing back. Held in
        # memory only, so a resumed run starts with zeros: see `edp.noise.banded`.
        self._past = deque([torch.zeros_like(p) for p in parameters] for _ in range(band - 1))

    def add_(
        self,
        buffer: torch.Tensor,
        gradients: list[torch.Tensor],
        std: float,
        step: int,
        *,
        clip_factor: torch.Tensor | None,
        stretch: float | torch.Tensor,
    ) -> None:
        """Replace `buffer` by `clip_factor·buffer + w_t`, where w_t = gain·z_t - Σ_j c_j·w_{t-j}."""
        assert stretch == 1.0, "a clip that moves has no price with correlated noise: EDPOptions refuses it"
        if clip_factor is not None:
            _multiply(buffer, clip_factor)
        noise = self._past.pop()  # the oldest step's, whose memory becomes the new one's
        self._draw(noise, self._share_of(std) * self._gain, step, -self._c[-1])
        for c, past in zip(self._c, self._past, strict=False):
            torch._foreach_add_(noise, past, alpha=-c)
        self._past.appendleft(noise)
        torch._foreach_add_(gradients, noise)


def _multiply(buffer: torch.Tensor, factor: torch.Tensor) -> None:
    """Multiply `buffer` by `factor`; make it 0 if `factor` is, also where it holds NaN."""
    buffer.mul_(factor).masked_fill_(factor == 0, 0.0)
