"""Layer scales α_k that are found before training, from gradients: `alpha = public` and `alpha = private`.

The paper takes the scales from the first private gradient (section 3, "Scaling"), which no noise hides. Here they
come from a gradient of public data, or from noisy votes of private examples. Both give the hook its `alpha=`.

`private_alpha` is one Gaussian mechanism more, which the ledger holds as its `alpha_release`. Each example votes with
the *direction* of its vector of layer norms, a vector of length 1 (or 0): only the ratios of the α matter to the clip,
so nothing of use is lost, loud examples do not outvote quiet ones, and the sensitivity is 1 by construction, with no
clip to be chosen by looking at private data.

| neighbours | how far the sum of votes moves (L2) |
|---|---|
| an example zeroed out, added or removed | at most 1: the length of its vote |
| one example replaced by another | at most √2: votes have no negative entry (no sampler here claims it) |
| a micro-batch zeroed out (`unit = micro_batch`, `user`; it votes once, with its mean gradient) | at most 1 |

It holds if every example votes at most once, and if who votes does not depend on who else is in the data set.
The aggregator is trusted, as in training: a worker's share of the sum is sent without noise of its own.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from edp.layer_scales import layer_norms, layer_of_parameter, normalised
from edp.ledger import PRIVATE_ALPHA_Z, AlphaRelease
from edp.noise.gaussian import alpha_stream, gaussian_, reproducible_key, secret_key

VOTE_NORM = 1.0
"""Sensitivity of the sum of votes (L2, dimensionless): what one example adds at most."""


def gradient_layer_norms(model: nn.Module, loss: torch.Tensor) -> torch.Tensor:
    """L2 norm of each layer's gradient of a scalar `loss`, (K,); the parameters' `.grad` is left as it was.

    To be called on the model itself, before DDP wraps it.
    """
    parameters, layer, names = layer_of_parameter(model)
    gradients = list(torch.autograd.grad(loss, parameters))
    return layer_norms(gradients, torch.tensor(layer, device=gradients[0].device), len(names))


def public_alpha(norms: torch.Tensor) -> torch.Tensor:
    """Scales (K,) from the layer norms (K,) of a gradient of public or synthetic data: costs no privacy.

    Examples:
        >>> public_alpha(torch.tensor([2.0, 4.0]))
        tensor([0.5000, 1.0000])
    """
    return normalised(norms)


def votes(norms: torch.Tensor) -> torch.Tensor:
    """Each row of layer norms (n, K) scaled to length 1, float64: (n, K), on the same device.

    A row of zeros stays one, and so does a row that is not finite: one example must not spoil the sum for all.
    """
    finite = torch.where(norms.isfinite().all(dim=1, keepdim=True), norms, 0.0).double()
    # By the largest entry first: squares of tiny and huge norms leave even float64.
    scaled = finite / finite.amax(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    return VOTE_NORM * scaled / torch.linalg.vector_norm(scaled, dim=1, keepdim=True).clamp(min=1.0)


def noisy_sum_of_votes(
    norms: torch.Tensor, z: float, key: bytes, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """The votes of all workers' examples plus N(0, (VOTE_NORM·z)²) on each entry, (K,), the same on all workers.

    Args:
        norms: layer norms (n, K) of this worker's examples, a row each; n may be 0, and differ between workers.
        key: worker 0 draws the noise from its own; the others' are not used.
    """
    total = votes(norms).sum(dim=0)
    if dist.get_rank(group) == 0:
        noise = torch.empty(total.shape, dtype=torch.float64)
        total += gaussian_(noise, VOTE_NORM * z, alpha_stream(key)).to(total.device)
    dist.all_reduce(total, group=group)
    return total


def private_alpha(
    norms: torch.Tensor,
    *,
    z: float = PRIVATE_ALPHA_Z,
    reproducible_noise: int | None = None,
    group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, AlphaRelease]:
    """Scales from private gradients, and the release that the run's ledger must hold; called by all workers at once.

    Formal guarantee: one Gaussian mechanism of noise multiplier `z`, for the neighbours of the table above. All that
    follows the noisy sum is post-processing. Each call is a release of its own: a resumed run keeps the scales.

    What the noise may have made of nothing is not told from nothing: sums below its standard deviation are raised to
    it, since a scale that is far too small would let its layer's gradient alone use up the clip.

    Args:
        norms: as for `noisy_sum_of_votes`. A few hundred votes in all make a useful estimate at z = 10.
        reproducible_noise: the spec's; such a run has no guarantee.

    Returns:
        Scales (K,), float32, the largest one 1, on the device of `norms`; and the release.
    """
    key = secret_key() if reproducible_noise is None else reproducible_key(reproducible_noise)
    total = noisy_sum_of_votes(norms, z, key, group)
    return normalised(total.clamp(min=VOTE_NORM * z)).float(), AlphaRelease(z=z)
