"""The noise of each layer, read off differences of pairs of steps: the part of an audit that no canary sees.

Noise that is missing in one layer leaves the canaries of `edp.audit` alone. So up to 2,000 coordinates of each layer
are watched, chosen by a secret key. Over a pair of steps, (x₁/σ₁ − x₂/σ₂)/√2 of a noisy sum x is noise of variance 1
plus what the gradients differ by. That the difference of the gradients adds to the mean square assumes that it does not
cancel noise: the second gradient follows weights that the first step's noise has moved, and where the loss curves down
it could take up to a few per cent off. Descent leaves such places, and the alarm allows for them (`_CANCELLED`). The
noise of one step that two use is 0 in such a difference.

Nothing is added to the gradients, and what is read is a function of the noisy sums: no ε, and the same weights.

Shapes: K layers, S watched coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from edp.keyed import derived_key

WATCHED = 2000
"""Number of coordinates of a layer that show its noise to about 2 % in one pair of steps."""
_CANCELLED = 0.95
"""Share of the noise that a layer must show: a training that lacks no noise may lose this much to its own gradients."""


@dataclass(frozen=True)
class LayerScores:
    """The mean squares of all layers' differences: 1 is the ledger's noise alone."""

    names: tuple[str, ...]
    watched: NDArray[np.int64]
    mean: NDArray[np.float64]
    """Of all pairs (K,)."""
    least: NDArray[np.float64]
    """Of the pair with the least (K,)."""
    pairs: int

    def at_most(self, level: float) -> NDArray[np.float64]:
        """Return the noise of each layer over the ledger's that it is at most, but for a probability of `level`."""
        from scipy.stats import chi2

        df = self.watched * self.pairs
        return np.asarray(np.sqrt(df * self.mean / chi2.ppf(level, df)))

    def alarms(self, level: float) -> list[str]:
        """Return what is wrong; all layers of a sound training together have `level` as its probability."""
        if not self.pairs:
            return []
        from scipy.stats import chi2

        each = level / (2 * len(self.names))
        most = self.at_most(each)
        low = chi2.cdf(self.watched * self.least, self.watched) < each / self.pairs
        quiet = np.sqrt(self.least)
        return [
            f"the noise of {name or 'the model'} is at most {most[k]:.2g} of the ledger's"
            if most[k] < _CANCELLED
            else f"a pair of steps has {quiet[k]:.2g} of the ledger's noise in {name or 'the model'}"
            for k, name in enumerate(self.names)
            if most[k] < _CANCELLED or low[k]
        ]


class LayerNoise:
    """The watched coordinates of a model, and their scores so far.

    Args:
        key: secret bytes, the same on all workers.
        sizes: number of weights of each parameter.
        layer: number of each parameter's layer.
        names: of the layers (K,).
        state: `state` of one to go on with.
    """

    def __init__(
        self, key: bytes, sizes: Sequence[int], layer: Sequence[int], names: Sequence[str], state: dict[str, Any] | None
    ) -> None:
        self._names = tuple(names)
        chosen = [np.zeros(0, np.int64)] * len(sizes)
        for k in range(len(names)):
            mine = [p for p, owner in enumerate(layer) if owner == k]
            ends = np.cumsum([sizes[p] for p in mine])
            rng = np.random.default_rng(list(derived_key(key, "layer", k)))
            found = np.sort(rng.choice(ends[-1], min(WATCHED, int(ends[-1])), replace=False))
            parts = np.split(found, np.searchsorted(found, ends[:-1]))
            for p, part, end in zip(mine, parts, ends, strict=True):
                chosen[p] = part - (end - sizes[p])
        self._chosen = [torch.from_numpy(found) for found in chosen]
        self._counts = torch.tensor([len(found) for found in chosen])
        self._layer = torch.tensor(layer).repeat_interleave(self._counts)
        self._watched = torch.bincount(self._layer, minlength=len(names)).double()
        begun = {"mean": torch.zeros(len(names)).double(), "least": torch.full((len(names),), math.inf).double()}
        self._scores: dict[str, Any] = state or begun | {"last": None, "pairs": 0}

    def state(self) -> dict[str, Any]:
        """Return the scores so far, for a checkpoint."""
        return {name: x.cpu() if isinstance(x, torch.Tensor) else x for name, x in self._scores.items()}

    def to(self, device: torch.device) -> None:
        """Move all tensors to a device."""
        self._chosen = [found.to(device) for found in self._chosen]
        self._counts, self._layer, self._watched = (x.to(device) for x in (self._counts, self._layer, self._watched))
        self._scores = {n: x.to(device) if isinstance(x, torch.Tensor) else x for n, x in self._scores.items()}

    def watched(self, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the watched coordinates of the parameters' gradients (S,)."""
        return torch.cat([x.reshape(-1)[found] for x, found in zip(gradients, self._chosen, strict=True)])

    def score(self, noisy: torch.Tensor, std: Sequence[float]) -> None:
        """Add a step to the scores.

        Args:
            noisy: the watched coordinates of the noisy mean over all workers (S,).
            std: of each parameter's noise on it.
        """
        scores = self._scores
        x = noisy.double() / torch.tensor(std, dtype=torch.float64).to(noisy.device).repeat_interleave(self._counts)
        if scores["last"] is None:
            scores["last"] = x
            return
        squares = (x - scores["last"]).square() / 2
        mean = torch.zeros_like(self._watched).index_add(0, self._layer, squares) / self._watched
        scores["last"], scores["pairs"] = None, scores["pairs"] + 1
        scores["mean"] = scores["mean"] + (mean - scores["mean"]) / scores["pairs"]
        scores["least"] = torch.minimum(scores["least"], mean)

    def scores(self) -> LayerScores:
        """Return what a reading needs. Waits for a GPU."""
        watched = self._watched.cpu().numpy().astype(np.int64)
        mean, least = (self._scores[name].cpu().numpy() for name in ("mean", "least"))
        return LayerScores(self._names, watched, mean, least, self._scores["pairs"])
