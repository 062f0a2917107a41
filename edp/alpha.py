"""Layer scales α_k (paper, section 3, "Scaling"): the share of the clip that each layer may use.

A layer is a module that owns parameters. Only the ratios of the α matter to the clip, so they are normalised to
max α = 1: isotropic noise then keeps the sensitivity C.

| `alpha` | scales from | what it adds to the sensitivity |
|---|---|---|
| `fixed` | the layers' sizes: `fixed_alpha` | nothing |
| `none` | nowhere: all are 1, the plain clip of DP-SGD | nothing |
| `public` | a gradient of public data: `public_alpha` | nothing |
| `private` | noisy votes of private examples: `private_alpha` | a Gaussian mechanism of its own |
| `paper` | the first private gradient, in the hook | no bound: one example sets the scales of all |

The paper takes the scales from the first private gradient, which no noise hides. `public_alpha` and `private_alpha`
replace that gradient; each gives the hook its `alpha=`.

`private_alpha` is one more Gaussian mechanism, which the ledger holds as its `alpha_release`. Each example votes with
the *direction* of its vector of layer norms, a vector of length 1 (or 0). Only the ratios of the α matter to the clip,
so the length carries nothing of use, and examples with large gradients do not outvote the others. The sensitivity is 1
by construction, so no clip has to be chosen by looking at private data.

| neighbours | how far the sum of votes moves (L2) |
|---|---|
| an example zeroed out, added or removed | at most 1: the length of its vote |
| one example replaced by another | at most √2: votes have no negative entry (no sampler here claims it) |
| a micro-batch zeroed out (`unit = micro_batch`, `user`; it votes once, with its mean gradient) | at most 1 |

The guarantee holds if every example votes at most once, and if no example's vote depends on the other examples.
The aggregator is trusted, as in training: a worker sends its share of the sum without noise of its own.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from edp.ledger import PRIVATE_ALPHA_Z, AlphaRelease
from edp.noise.gaussian import alpha_stream, gaussian_, reproducible_key, secret_key
from edp.per_example import layer_of_parameter

VOTE_NORM = 1.0
"""Sensitivity of the sum of votes (L2, dimensionless): the most that one example adds."""
_ROW = 1024
"""Squares that are added in single precision before the sum goes on in double precision."""


def layer_norms(gradients: list[torch.Tensor], layer: torch.Tensor, layers: int) -> torch.Tensor:
    """Return the L2 norm of each layer's gradient, (K,).

    Args:
        gradients: one tensor a parameter.
        layer: the number of each parameter's layer, (P,).
        layers: K.
    """
    if gradients[0].is_cuda:
        squares = torch.stack(torch._foreach_norm(gradients)).square()
    else:
        squares = torch.stack([_squared_norm(gradient) for gradient in gradients])
    return squares.new_zeros(layers).index_add_(0, layer, squares).sqrt().to(gradients[0].dtype)


def _squared_norm(gradient: torch.Tensor) -> torch.Tensor:
    """Return the squared L2 norm as a float64 scalar."""
    # PyTorch's own norm of a large tensor on a CPU adds in single precision and loses terms: of 4 million equal
    # numbers it finds .9976 of the norm, of 67 million .952. The clip would let more than C through.
    flat = gradient.flatten()
    whole = len(flat) // _ROW
    of_rows = torch.linalg.vector_norm(flat[: whole * _ROW].view(whole, _ROW), dim=1)
    return of_rows.square().sum(dtype=torch.float64) + torch.linalg.vector_norm(flat[whole * _ROW :]).square()


def normalised(alpha: torch.Tensor, floor: float = 1e-3) -> torch.Tensor:
    """Return `alpha` (K,) scaled to a largest value of 1, with entries below `floor` raised to it.

    A scale of zero would freeze its layer. Without a finite positive entry all scales are 1.
    """
    largest = alpha.max()
    if not torch.isfinite(largest) or largest <= 0:
        return torch.ones_like(alpha)
    return (alpha / largest).clamp(min=floor)


def fixed_alpha(sizes: list[int]) -> torch.Tensor:
    """Return α_k = sqrt(d_k / d), normalised, (K,): the layers' norms of a gradient of equal coordinates.

    These scales use no data.

    Args:
        sizes: the number of parameters d_k of each layer.

    Examples:
        >>> fixed_alpha([400, 100])
        tensor([1.0000, 0.5000])
    """
    return normalised(torch.tensor(sizes, dtype=torch.float64).sqrt()).float()


def gradient_layer_norms(model: nn.Module, loss: torch.Tensor) -> torch.Tensor:
    """Return the L2 norm of each layer's gradient of a scalar `loss`, (K,); leave the parameters' `.grad` alone.

    Call it on the model itself, before DDP wraps it.
    """
    parameters, layer, names = layer_of_parameter(model)
    gradients = list(torch.autograd.grad(loss, parameters))
    return layer_norms(gradients, torch.tensor(layer, device=gradients[0].device), len(names))


def public_alpha(norms: torch.Tensor) -> torch.Tensor:
    """Return scales (K,) from the layer norms (K,) of a gradient of public or synthetic data: costs no privacy.

    Examples:
        >>> public_alpha(torch.tensor([2.0, 4.0]))
        tensor([0.5000, 1.0000])
    """
    return normalised(norms)


def votes(norms: torch.Tensor) -> torch.Tensor:
    """Return each row of layer norms (n, K) scaled to length 1, float64, (n, K), on the same device.

    A row of zeros stays zero. A row that is not finite becomes zero, so that one example cannot spoil the sum.
    """
    finite = torch.where(norms.isfinite().all(dim=1, keepdim=True), norms, 0.0).double()
    # Divide by the largest entry first: squares of tiny and huge norms leave even float64's range.
    scaled = finite / finite.amax(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    return VOTE_NORM * scaled / torch.linalg.vector_norm(scaled, dim=1, keepdim=True).clamp(min=1.0)


def noisy_sum_of_votes(
    norms: torch.Tensor, z: float, key: bytes, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """Return the votes of all workers' examples plus N(0, (VOTE_NORM·z)²) on each entry, (K,), on every worker.

    Args:
        norms: layer norms (n, K) of this worker's examples, a row each; n may be 0, and differ between workers.
        key: worker 0 draws the noise from its own; the others' keys are not used.
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
    """Estimate scales from private gradients, with noise. All workers call it at once.

    Formal guarantee: one Gaussian mechanism of noise multiplier `z`, for the neighbours of the table above. All that
    follows the noisy sum is post-processing. Each call is one more release: a resumed run keeps its scales.

    Args:
        norms: as for `noisy_sum_of_votes`. A few hundred votes in all make a useful estimate at z = 10.
        reproducible_noise: the spec's; such a run has no guarantee.

    Returns:
        Scales (K,), float32, the largest one 1, on the device of `norms`; and the release, which the run's ledger
        must hold.
    """
    key = secret_key() if reproducible_noise is None else reproducible_key(reproducible_noise)
    total = noisy_sum_of_votes(norms, z, key, group)
    # A sum below the noise's standard deviation may be noise alone. Raise it to that: with a scale that is far too
    # small, its layer's gradient alone would use up the clip.
    return normalised(total.clamp(min=VOTE_NORM * z)).float(), AlphaRelease(z=z)
