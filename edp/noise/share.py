"""A worker's share of a step's noise: that of its N/W micro-batches, however many it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from edp.noise.correlated import CorrelatedNoise
from edp.noise.gaussian import add_gaussian_, reproducible_key, secret_key, stream


class NoiseShare:
    """The noise that one worker adds to what it sends, step after step; the shares of all add up to the mechanism's.

    However many micro-batches a worker takes: how many there are must not show in the noise.

    Args:
        parameters: tensors of the shapes, types and devices of the gradients.
        mine: which of the N micro-batches are this worker's.
        seed: of noise that can be replayed, for tests and research; None: noise is secret.
        band: of correlated noise (`edp.noise.banded`); 1: steps are independent.
    """

    def __init__(self, parameters: Sequence[torch.Tensor], mine: range, seed: int | None, band: int) -> None:
        # Held in memory only, and drawn anew in every process: whoever has it can subtract the noise.
        self.key = secret_key() if seed is None else reproducible_key(seed)
        self.mine, self.replayable = mine, seed is not None
        self.shape = [1.0] * len(parameters)
        """The noise of each parameter, in units of `std`. Numbers, not a tensor: a GPU is not asked for them."""
        self._correlated = CorrelatedNoise(parameters, band) if band > 1 else None

    def add_(
        self,
        buffer: torch.Tensor,
        gradients: list[torch.Tensor],
        std: float,
        step: int,
        *,
        scale: torch.Tensor | None,
        stretch: float | torch.Tensor,
    ) -> None:
        """`scale·buffer + noise` in place. On a GPU nothing waits for it.

        Args:
            gradients: the buffer's views in the order of the parameters.
            std: of one micro-batch's noise.
            step: counted from 0, over all epochs: no step has another's noise.
            scale: a scalar tensor, where it is 0 the buffer held nothing that counts; None: 1.
            stretch: what `std` is multiplied by besides, a tensor where it moves; 1 where noise is correlated.
        """
        if not self.replayable:
            # The sum of independent Gaussians is one Gaussian: one draw serves all of the worker's micro-batches.
            std *= math.sqrt(len(self.mine))
        if self._correlated is not None:
            if scale is not None:
                _multiply(buffer, scale)
            std *= self._correlated.gain
            noise = self._correlated.next(lambda past, factor: self._draw(past, std, step, factor))
            torch._foreach_add_(gradients, noise)
        elif buffer.device.type == "cpu":
            self._draw(gradients, std * float(stretch), step, 1.0 if scale is None else float(scale))
        else:
            if scale is not None:
                _multiply(buffer, scale)
            moves = isinstance(stretch, torch.Tensor)
            if moves:
                buffer.div_(stretch)
            self._draw(gradients, std, step, 1.0)
            if moves:
                buffer.mul_(stretch)  # the noise is drawn for what the host knows

    def _draw(self, tensors: list[torch.Tensor], std: float, step: int, factor: float) -> None:
        """`x = factor·x` and this step's noise in place, for each of `tensors`."""
        # Replayable noise has one stream a micro-batch, so that every number of workers gives the same weights.
        for micro_batch in self.mine if self.replayable else self.mine[:1]:
            noise = stream(self.key, micro_batch, step)
            add_gaussian_(tensors, [std * s for s in self.shape], noise, factor)
            factor = 1.0


def _multiply(buffer: torch.Tensor, scale: torch.Tensor) -> None:
    """`buffer·scale` in place, and 0 where `scale` is, whatever the buffer held."""
    buffer.mul_(scale).masked_fill_(scale == 0, 0.0)
