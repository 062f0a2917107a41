"""The audit that a private training carries: made-up gradients by coin toss tell how much noise was really added.

m canaries are units of the sampler besides the n that are trained on. Each has a coin, and a coordinate of its own in
a vector that the hook clips, noises and reduces beside the gradients, and that is no part of the model. If the coin is
1, each step that draws the canary adds a gradient to its coordinate, longer than the clip. Afterwards coins and noisy
sums tell the noise, in units of the ledger's.

| part | shows |
|---|---|
| clip | a clip that is skipped: the canaries' gradients go through the hook's own |
| sampler | a rate above the ledger's: the sampler draws canaries as it draws examples |
| signs `steady`: + in each step | noise that is too small; noise that repeats, in their spread |
| signs `flip`: + and − in turn | noise that is used twice: it cancels |
| quietest step | noise that is missing in some steps |
| pairs of steps in each layer (`edp.layer_noise`) | noise that is missing or too small in one layer |

With micro-batches of several examples a canary is a micro-batch of its own: +C with coin 1, −C with coin 0, which is as
far as one example moves a clipped mean. With users as the unit it is a user.

**It costs no ε.** Coins, signs and draws are random by a secret key, and no example has a gradient on the coordinates,
so all that is read is independent of the data. The weights are bit by bit those of the same training without the audit
(on a GPU, where noise is drawn for all tensors at once: equal in law).

**Not seen**: norms that a recorder computes wrongly, since a canary states its length; a model that mixes examples;
noise that can be predicted; too little noise in one layer whose gradients change by more from step to step; rounding; a
mistake in what accountant and audit share.

**Assumed**: the noise is Gaussian, and each step's is independent of the others', but for what the table shows.

Shapes: m canaries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from edp.keyed import derived_key, numbers, words
from edp.layer_noise import LayerNoise, LayerScores
from edp.ledger import Ledger
from edp.mechanism import Mechanism
from edp.sampling import Indices, steps_at_rate
from edp.spec import EDPSpec

CANARIES = 10_000
"""Number of canaries that show the noise to about 2 %."""
CONFIDENCE = 0.95
ALARM = 1e-6
"""Level of the alarm: the probability that a sound training raises it. A bound at 95 % is wrong in one of twenty."""


def not_read(spec: EDPSpec) -> str | None:
    """Return why the audit does not read a mechanism; None if it does."""
    if spec.z0 == 0:
        return "the audit reads noise, and z0 = 0 adds none"
    if spec.clip == "quantile":
        return "the audit does not read clip = quantile, whose clip moves; it reads fixed and automatic"
    if spec.noise_correlation != "none":
        return f"the audit does not read noise_correlation = {spec.noise_correlation}; it reads none"
    return None


def _length(C: float) -> float:
    """Return the length of a canary's gradient before the clip C. `automatic` makes it C to a thousandth."""
    return 10 * (C + 1)


class Audit:
    """The canaries of one training, on one of its workers, and their scores so far. `EDPHook` drives it.

    Args:
        key: 32 secret bytes, the same on all workers (`edp.shared_key`): coins and signs follow from them.
        canaries: m.
        state: `state` of an audit to go on with, in the place of key and m.
    """

    def __init__(self, key: bytes, canaries: int = CANARIES, state: dict[str, Any] | None = None) -> None:
        self._key = key if state is None else bytes.fromhex(state["key"])
        self.canaries = canaries if state is None else len(state["total"])
        random = words(derived_key(self._key, "audit"), numbers(self.canaries))
        coin, flip = (random[:, 0] & 1).astype(bool), np.zeros(self.canaries, bool)
        flip[np.argsort(random[:, 1], kind="stable")[: self.canaries // 2]] = True
        self._coin, self._flip = torch.from_numpy(coin), torch.from_numpy(flip)
        self._total = torch.zeros(self.canaries, dtype=torch.float64) if state is None else state["total"].clone()
        self._quietest = torch.tensor(math.inf, dtype=torch.float64) if state is None else state["quietest"].clone()
        self.steps: int = 0 if state is None else state["steps"]
        """Number of steps that the scores hold."""
        self._drawn: Sequence[Indices] = ()
        self._begun = state["layers"] if state is not None else None
        self.layers: LayerNoise | None = None
        """The noise of each layer, once a hook has given the model (`watch`)."""

    def state(self) -> dict[str, Any]:
        """Return the key and the scores so far, for a checkpoint."""
        scores = {"total": self._total.cpu(), "quietest": self._quietest.cpu(), "steps": self.steps}
        return {"key": self._key.hex(), "layers": self.layers.state() if self.layers else self._begun, **scores}

    def watch(self, sizes: Sequence[int], layer: Sequence[int], names: Sequence[str], device: torch.device) -> None:
        """Watch the noise of a model's layers, and move all tensors to its device. See `edp.layer_noise.LayerNoise`."""
        self.layers = LayerNoise(self._key, sizes, layer, names, self._begun)
        self.layers.to(device)
        self._coin, self._flip = self._coin.to(device), self._flip.to(device)
        self._total, self._quietest = self._total.to(device), self._quietest.to(device)

    def draw(self, canaries: Sequence[Indices]) -> None:
        """Set the canaries that the next step draws: for every worker an array of their numbers."""
        self._drawn = canaries

    def gradient(self, m: Mechanism, rank: int, clip: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Return the clipped sum of a worker's canaries in the open step (m,).

        Args:
            clip: returns the factor of each gradient from its scaled length.
        """
        mine = torch.from_numpy(self._drawn[rank]).to(self._coin.device)
        length = _length(m.C)
        found = torch.zeros(self.canaries, device=mine.device)
        factor = clip(found.new_full((len(mine),), length))
        found[mine] = self._unit_gradient(m)[mine] * factor * (length * m.max_alpha)
        return found

    def _unit_gradient(self, m: Mechanism) -> torch.Tensor:
        """Return the clipped gradient of each canary in a step that draws it, in units of the clip (m,)."""
        sign = torch.where(self._flip, -1.0, 1.0) if self.steps % 2 else 1.0
        return torch.where(self._coin, 1.0, _without(m)) * sign

    def score(self, m: Mechanism, noisy: torch.Tensor) -> None:
        """Add a step to the scores.

        Args:
            noisy: the noisy mean of the canaries over all workers (m,).
        """
        seen = noisy.double() * (m.N / (m.C * m.max_alpha))
        drawn = torch.zeros_like(self._coin)
        drawn[torch.from_numpy(np.concatenate(self._drawn)).to(drawn.device)] = True
        gradient, std = self._unit_gradient(m), _relative_std(m)
        noise = seen - torch.where(drawn, gradient, 0.0)
        quiet = noise[~self._coin].square().mean().sqrt() / std
        self._quietest = torch.minimum(self._quietest, quiet)
        sign = torch.where(self._flip, -1.0, 1.0) if self.steps % 2 else 1.0
        # Everybody may know the order of a shuffled epoch, and which step may hold a canary. Poisson draws are secret.
        told = drawn if m.sampling == "shuffle" else torch.ones_like(drawn)
        self._total += torch.where(told, seen * sign, 0.0) / std**2
        self.steps += 1

    def scores(self) -> Scores:
        """Return what a reading needs. Waits for a GPU."""
        total, coin, flip = (x.cpu().numpy() for x in (self._total, self._coin, self._flip))
        layers = self.layers.scores() if self.layers is not None else None
        return Scores(total, coin, flip, float(self._quietest), self.steps, layers)


@dataclass(frozen=True)
class Scores:
    """The scores of all canaries: of each, the sum over steps of sign · noisy sum / noise variance, in units of C."""

    total: NDArray[np.float64]
    coin: NDArray[np.bool_]
    flip: NDArray[np.bool_]
    quietest: float
    """The noise of the step with the least, over the ledger's."""
    steps: int
    layers: LayerScores | None = None

    def save(self, file: Path) -> None:
        """Write the scores, about 100 kB, from which anyone who has them and the ledger repeats the reading."""
        layers = asdict(self.layers) if self.layers is not None else {}
        own = {name: value for name, value in vars(self).items() if name != "layers"}
        with file.open("wb") as stream:
            np.savez_compressed(stream, **own, **{f"layer_{name}": value for name, value in layers.items()})

    @classmethod
    def load(cls, file: Path) -> Scores:
        """Return the scores that `save` wrote."""
        with np.load(file) as found:
            own = {name: found[name] for name in ("total", "coin", "flip")}
            layers = {name.removeprefix("layer_"): found[name] for name in found.files if name.startswith("layer_")}
            if layers:
                layers |= {"names": tuple(layers["names"].tolist()), "pairs": int(layers["pairs"])}
            read = LayerScores(**layers) if layers else None
            return cls(**own, quietest=float(found["quietest"]), steps=int(found["steps"]), layers=read)


@dataclass(frozen=True)
class AuditReading:
    """What the scores say of the noise; factors are in units of the ledger's noise over its clip.

    Each of the four bounds holds with 95 % confidence. An ε is that of the ledger with so much more or less noise.
    """

    epsilon_read: float
    """ε is at least this."""
    epsilon_read_upper: float
    """ε is at most this."""
    noise_factor_at_most: float
    noise_factor_at_least: float
    audit_alarm: str | None
    """What is wrong, in a sentence: at level 1e-6 the noise is not the ledger's."""
    layers: dict[str, float]
    """The noise of each layer is at most this, with 95 % confidence each; gradients that change make it larger."""


def read_audit(scores: Scores, ledger: Ledger, delta: float) -> AuditReading:
    """Return what the scores of a training say of its noise, and of its ε. After whole epochs.

    Args:
        ledger: the training's. Its executed steps were scored; all that it counts has a price.

    Raises:
        ValueError: if the ledger's executed steps are not those of the scores.
    """
    from edp.accounting.composition import Composition, composition_of
    from edp.accounting.epsilon import epsilon_of

    least, most, alarm = read_noise(scores, ledger)
    c = composition_of(ledger)
    lower, upper = (
        epsilon_of(Composition(c.mu / factor, tuple(replace(s, z=s.z * factor) for s in c.sampled)), delta)
        for factor in (most, least)
    )
    watched = scores.layers if scores.layers is not None and scores.layers.pairs else None
    layers = zip(watched.names, watched.at_most(1 - CONFIDENCE).tolist(), strict=True) if watched is not None else ()
    return AuditReading(lower, upper, most, least, alarm, dict(layers))


def read_noise(scores: Scores, ledger: Ledger) -> tuple[float, float, str | None]:
    """Return the bounds of the noise, lower and upper, and the alarm of an `AuditReading`.

    The mean score of coin 1 less that of coin 0, over the spread of coin 0, has a known distribution for each noise:
    with all canaries in each step, a noncentral t. The bounds are the noises at which what was seen is unlikely.
    """
    from scipy.stats import chi2

    if scores.steps != ledger.steps:
        raise ValueError(f"the audit scored {scores.steps} steps, and the ledger has {ledger.steps}")
    expected = _Expected.of(ledger)
    views = {"all": np.ones_like(scores.flip), "steady": ~scores.flip, "flipping": scores.flip}
    level = ALARM / 2 / (3 * len(views) + 1)  # of each of the tests below; the layers' have the other half
    found: dict[str, str] = {}  # by the kind of test: the first view of those that see it
    df = int((~scores.coin).sum())
    # The least of all steps: each has a share of the level.
    if chi2.cdf(df * scores.quietest**2, df) < level / max(1, scores.steps):
        found["step"] = f"the quietest step has {scores.quietest:.2g} of the ledger's noise"
    for name, chosen in views.items():
        view = _View(scores.total[chosen], scores.coin[chosen], expected)
        if (most := view.bound(level, above=True)) < 1:
            found.setdefault("clip", f"the noise over the clip is at most {most:.2g} of the ledger's ({name} canaries)")
        noise = f"that of all steps together is {view.spread:.2g} of the ledger's ({name} canaries)"
        if chi2.cdf(view.df * view.spread**2, view.df) < level:
            found.setdefault("low", f"noise is missing or cancels: {noise}")
        if chi2.sf(view.df * view.spread**2, view.df) < level:
            found.setdefault("high", f"noise repeats: {noise}")
    if scores.layers is not None and (layers := scores.layers.alarms(ALARM / 2)):
        found["layers"] = "; ".join(layers[:3]) + (f"; and {len(layers) - 3} more layers" if len(layers) > 3 else "")
    view = _View(scores.total, scores.coin, expected)
    least, most = (view.bound(1 - CONFIDENCE, above=above) for above in (False, True))
    return least, most, f"audit: {'; '.join(found.values())}" if found else None


@dataclass(frozen=True)
class _Expected:
    """A score's expectation and variance, if noise and clip are the ledger's."""

    shift: float
    """Expectation with coin 1 less that with coin 0."""
    noise: float
    """Variance by the noise."""
    drawn: tuple[float, float]
    """Variance by the Poisson draws, with coin 0 and 1."""

    @classmethod
    def of(cls, ledger: Ledger) -> _Expected:
        shift = noise = 0.0
        drawn = np.zeros(2)
        for entry in ledger.entries:
            m = entry.mechanism
            # A canary is in one step of a shuffled epoch, and only that one is scored.
            steps, q = (entry.steps / steps_at_rate(m.rate), 1.0) if m.sampling == "shuffle" else (entry.steps, m.rate)
            gradient = np.array([_without(m), 1.0])
            precision = 1 / _relative_std(m) ** 2
            shift += steps * q * precision * (gradient[1] - gradient[0])
            noise += steps * precision
            drawn += steps * q * (1 - q) * (precision * gradient) ** 2
        return cls(shift, noise, (float(drawn[0]), float(drawn[1])))


class _View:
    """Some of the canaries: their mean difference and the spread of those with coin 0."""

    def __init__(self, total: NDArray[np.float64], coin: NDArray[np.bool_], expected: _Expected) -> None:
        inside, outside = total[coin], total[~coin]
        self._expected, self._sizes, self.df = expected, (len(outside), len(inside)), len(outside) - 1
        std = float(np.std(outside, ddof=1))
        self.spread = std / math.sqrt(expected.noise + expected.drawn[0])
        self._t = float(inside.mean() - outside.mean()) / max(std, 1e-300)

    def bound(self, level: float, *, above: bool) -> float:
        """Return the noise factor above (or below) which what was seen has a probability of less than `level`."""
        low, high = 1e-4, 1e4
        while high > low * 1.0001:
            middle = math.sqrt(low * high)
            unlikely = self._probability(middle, above) < level
            low, high = (low, middle) if unlikely == above else (middle, high)
        return high if above else low

    def _probability(self, factor: float, above: bool) -> float:
        """Return the probability of so large a t, or of so small a one, with `factor` times the ledger's noise."""
        from scipy.stats import chi2, norm

        out, inside = (factor**2 * self._expected.noise + drawn for drawn in self._expected.drawn)
        std = math.sqrt(out / self._sizes[0] + inside / self._sizes[1])
        # The spread over its expectation, from -9 to 9 standard deviations: so the sum is exact also in far tails.
        x = 1 + np.linspace(-9, 9, 721) / math.sqrt(2 * self.df)
        x = x[x > 0]
        weight = chi2.pdf(x**2 * self.df, self.df) * x
        distance = (self._t * math.sqrt(out) * x - self._expected.shift) / std
        tail = norm.sf(distance) if above else norm.cdf(distance)
        return float((tail * weight).sum() / weight.sum())


def _without(m: Mechanism) -> float:
    """Return the gradient of a canary with coin 0, in units of the clip."""
    return -1.0 if m.can_reverse else 0.0


def _relative_std(m: Mechanism) -> float:
    """Return the standard deviation of the noise on the sum over what a canary adds, on its coordinate."""
    return m.noise_std() * m.N / (m.C * (1.0 if m.alpha_noise == "per_layer" else m.max_alpha))
