"""The Gaussian mechanism of one step: its sensitivity to one unit, and its noise.

Formal guarantee: with the others' data fixed, the noisy aggregate of a step is a Gaussian mechanism with
noise multiplier `effective_noise_multiplier`, for two neighbouring data sets:

| sampling | neighbours | must stay secret |
|---|---|---|
| `shuffle` | one unit is replaced by nothing: zeroed out, its place kept | - |
| `poisson` | one unit is added or removed | the examples that a step drew |

The unit is one example, one micro-batch (all examples of one micro-batch of an epoch, zeroed out at once), or one
user. With users, a micro-batch holds the examples of one user (`edp.sampling.group_by_user`), a step has at most one
micro-batch of each user, and the clip applies to the sum of the user's gradients: removing a user removes a whole
micro-batch. The aggregator is trusted: a worker's message before aggregation carries its own share of the noise
alone, with the multiplier z/√N (corrected noise) or z/N (the paper's).

With `clip = quantile` a step also releases a count of the micro-batches with a norm within the clip, each counted as
+1/2 or -1/2, and as 0 if its gradient is zero (empty, or zeroed out). The noisy sum and the noisy count are independent
Gaussians, so the step is one Gaussian mechanism, whose 1/z² is the sum of theirs.

With correlated noise a single step is no such mechanism. The steps that one participation of a unit affects are one
together, at the same noise multiplier (`edp.noise.banded`).

Sources: Dupuy et al., Algorithm 1, for the noise; McMahan & Andrew (2018), section 3.1, for clipping in
scaled space; Ponomareva et al., "How to DP-fy ML" (2023), section 5.6, for the factor of 2 of micro-batches;
Andrew et al., "Differentially Private Learning with Adaptive Clipping" (2021), Theorem 1, for sum and count as one.
"""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from edp.noise.banded import band_of, marginal_std
from edp.spec import Alpha, AlphaNoise, Clipping, Decay, EDPSpec, Frozen, Noise, NoiseCorrelation, Sampling, Unit


def decay_factor(decay: Decay, tau: float, epoch: int) -> float:
    """Return `d(t)` for epoch `t`, counted from 0 (paper, section 3, "Noise Decay"): d(0) = 1.

    Examples:
        >>> decay_factor("linear", 0.5, 2)
        0.5
    """
    match decay:
        case "none":
            return 1.0
        case "linear":
            return 1.0 / (1.0 + tau * epoch)
        case "exponential":
            return math.exp(-tau * epoch)


def noise_multiplier(spec: EDPSpec, epoch: int) -> float:
    """Return `z_t = z0·d(t)`, the noise multiplier of epoch `t`, counted from 0 (Algorithm 1)."""
    return spec.z0 * decay_factor(spec.decay, spec.tau, epoch)


def count_noise_std(micro_batches: int) -> float:
    """Return the standard deviation of the noise on the count: N/20, as Andrew et al. have it, but at least 5.

    The floor is for the paper's few micro-batches: for every N and unit, the count of a step costs at most 1/100 of
    what the noisy sum costs at z = 1.
    """
    return max(micro_batches / 20, 5.0)


class Mechanism(Frozen):
    """One step's Gaussian mechanism, as executed: everything that an accountant needs and nothing else.

    Examples:
        Eight micro-batches of several examples each. One example can turn a clipped mean to its opposite, so the
        sensitivity is twice the clip, and the noise multiplier that counts for accounting is half of z:

        >>> step = Mechanism(C=1.0, z=1.0, N=8)
        >>> step.sensitivity(), round(step.noise_std(), 3), step.effective_noise_multiplier()
        (2.0, 0.125, 0.5)

        DP-SGD clips every example by itself:

        >>> Mechanism(C=1.0, z=1.0, N=8, single_example=True).effective_noise_multiplier()
        1.0
    """

    C: Annotated[float, Field(gt=0)]
    """Clip. With `clip = quantile` the clip moves from step to step, and this is the first one. The noise moves with
    it, so no guarantee depends on it."""
    z: Annotated[float, Field(ge=0)]
    """Noise multiplier z_t of Algorithm 1; `noise` says how a micro-batch's noise follows from it."""
    N: Annotated[int, Field(ge=1)]
    """Micro-batches a step: the divisor of the sum."""
    noise: Noise = "corrected"
    alpha: Alpha = "fixed"
    alpha_noise: AlphaNoise = "isotropic"
    max_alpha: Annotated[float, Field(gt=0)] = 1.0
    unit: Unit = "example"
    sampling: Sampling = "shuffle"
    rate: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Probability that a step holds an example (Poisson), or share of the data that a step holds (shuffle); of users,
    if they are the unit."""
    single_example: bool = False
    """True if no micro-batch held more than one example: DP-SGD."""
    replayable: bool = False
    """True if the noise came from a known seed: no guarantee."""
    clip: Clipping = "fixed"
    count_std: Annotated[float, Field(ge=0)] = 0.0
    """Standard deviation, in micro-batches, of the noise on the count of `clip = quantile`. At 0 that clip guarantees
    nothing."""
    correlation: NoiseCorrelation = "none"
    """`banded`: noise was correlated over `band` steps (`edp.noise.banded`)."""
    band: Annotated[int, Field(ge=1)] = 1

    @property
    def fixed_order(self) -> bool:
        """True if the guarantee needs each unit in the same step of every epoch."""
        return self.correlation != "none"

    def sensitivity(self) -> float:
        """Return `Δ`: the farthest that one unit moves the *sum* over micro-batches, in the gradient's own unit (L2).

        Infinite for `alpha = paper`: the scales are read off the private data, so no neighbour bounds them. For
        `alpha_noise = per_layer` the norm is that of the scaled space, in which the noise is isotropic.
        """
        return self.C * self._relative_sensitivity()

    def noise_std(self) -> float:
        """Return the standard deviation of each coordinate's noise on the *aggregate* (the mean over micro-batches).

        `N` independent draws of `micro_batch_noise_std`, added and divided by N. For `alpha_noise = per_layer` it
        is that of the scaled space: layer k gets α_k times as much. For correlated noise it is that of one step after
        many; the first steps have less.
        """
        return self.micro_batch_noise_std() / math.sqrt(self.N) * marginal_std(self.band)

    def micro_batch_noise_std(self) -> float:
        """Return the standard deviation of each micro-batch's noise on its clipped gradient, before the division by N.

        Algorithm 1 adds `y/N` with `y ~ N(0, (C·z)²)`. Variances of independent draws add up, so the noise
        multiplier of the sum is then only `z/√N`; the corrected noise is `y/√N`, which makes it `z`. Correlated noise
        is a filter of such draws, one a step (`edp.noise.banded`).
        """
        return self.C * self.z / (self.N if self.noise == "paper" else math.sqrt(self.N))

    def kappa(self) -> float:
        """Return `κ`: z over the noise multiplier of the noisy sum (dimensionless).

        Infinite, which means no guarantee, for `alpha = paper`, and for replayable noise, which can be subtracted
        by anyone with its seed.
        """
        if self.replayable:
            return math.inf
        shortfall = math.sqrt(self.N) if self.noise == "paper" else 1.0
        return self._relative_sensitivity() * shortfall

    def count_sensitivity(self) -> float:
        """Return the farthest that one unit moves the count of `clip = quantile`, in micro-batches.

        A micro-batch counts ±1/2, or 0 without a gradient; one example of several can flip its sign.
        """
        return 1.0 if self.can_reverse else 0.5

    def effective_noise_multiplier(self) -> float:
        """Return `z/κ`: noise std over sensitivity, all that an accountant needs. 0 means no guarantee.

        With `clip = quantile` it is that of noisy sum and noisy count together: 1/√((κ/z)² + (s/σ)²).
        """
        if self.clip != "quantile":
            return self.z / self.kappa()
        if self.z == 0 or self.count_std == 0:
            return 0.0
        return 1 / math.hypot(self.kappa() / self.z, self.count_sensitivity() / self.count_std)

    @property
    def can_reverse(self) -> bool:
        """True if zeroing out one example can turn a clipped mean from +C to -C (Ponomareva et al.)."""
        return self.unit == "example" and not self.single_example

    def _relative_sensitivity(self) -> float:
        """Return `Δ/C`, times the largest scale if the noise does not follow the scales."""
        if self.alpha == "paper":
            return math.inf
        stretch = self.max_alpha if self.alpha_noise == "isotropic" else 1.0
        return (2.0 if self.can_reverse else 1.0) * stretch


def mechanism_of(
    spec: EDPSpec,
    epoch: int,
    *,
    micro_batches: int,
    rate: float,
    single_example: bool,
    max_alpha: float = 1.0,
) -> Mechanism:
    """Return the mechanism of a step of epoch `epoch`, counted from 0. Arguments as for `edp.ledger.planned_ledger`.

    Examples:
        >>> spec = EDPSpec(z0=1.0, decay="linear", tau=0.5)
        >>> [mechanism_of(spec, epoch, micro_batches=8, rate=0.1, single_example=False).z for epoch in (0, 2)]
        [1.0, 0.5]

    Raises:
        UserError: for noise correlated over more steps than an epoch has.
        pydantic.ValidationError: for a value that a ledger does not allow.
    """
    return Mechanism(
        C=spec.C,
        z=noise_multiplier(spec, epoch),
        N=micro_batches,
        noise=spec.noise,
        alpha=spec.alpha,
        alpha_noise=spec.alpha_noise,
        max_alpha=max_alpha,
        unit=spec.unit,
        sampling=spec.sampling,
        rate=rate,
        single_example=single_example,
        replayable=spec.reproducible_noise is not None,
        clip=spec.clip,
        count_std=count_noise_std(micro_batches) if spec.clip == "quantile" else 0.0,
        correlation=spec.noise_correlation,
        band=band_of(spec, rate),
    )
