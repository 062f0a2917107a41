"""The noise of a step, from that of the steps before it: the filter of `edp.noise.banded`, on tensors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import torch

from edp.noise.banded import coefficients, column_norm


class CorrelatedNoise:
    """This process's share of the noise of the last `band - 1` steps, and what the next step's becomes.

    The filter is linear, so the shares of several workers add up to the noise of all. Held in memory only.

    Args:
        like: tensors of the shapes, types and devices of the noise.
        band: at least 2.
    """

    def __init__(self, like: Sequence[torch.Tensor], band: int) -> None:
        _, *self._c = coefficients(band)
        # The last step's first. Before the first step there was none, and zeros take nothing back.
        self._past = deque([torch.zeros_like(x) for x in like] for _ in range(band - 1))
        self.gain = column_norm(band)
        """What z_t is multiplied by."""

    def next(self, draw: Callable[[list[torch.Tensor], float], None]) -> list[torch.Tensor]:
        """w_t = gain z_t - Σ_j c_j w_{t-j}; to be read only.

        Args:
            draw: of (tensors x, factor f), makes x = f x + gain z_t in place.
        """
        noise = self._past.pop()  # the oldest, whose memory becomes the new one's
        draw(noise, -self._c[-1])
        for c, past in zip(self._c, self._past, strict=False):
            torch._foreach_add_(noise, past, alpha=-c)
        self._past.appendleft(noise)
        return noise
