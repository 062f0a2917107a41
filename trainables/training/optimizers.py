"""Optimisers: PyTorch's, DP-AdamBC, and the average of the weights.

All of these, weight decay included, are post-processing of noisy gradients, so they cost no ε.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from edp.hook import EDPHook
from trainables.config import TrainingSpec

MOMENTUM = 0.9
WEIGHT_DECAY = 0.01
NOISE_FLOOR = 0.1
"""Default of `training.noise_floor`: the floor of DP-AdamBC's denominator, as a share of the noise's variance.

For a coordinate of pure noise, v̂ has a relative standard deviation of sqrt(2 (1-β₂) / (1+β₂)) = 3.2 % after many steps.
The floor is three of these above 0, so that coordinates without a signal take steps of one size."""

NoiseVariances = Callable[[], Sequence[float]]


def make_optimizer(
    training: TrainingSpec, parameters: Iterable[nn.Parameter], hook: EDPHook | None
) -> torch.optim.Optimizer:
    """Return the optimiser of `training.optimizer`.

    Args:
        hook: adds the noise whose variance `adam_bc` takes out; None: no noise.
    """
    rate = training.learning_rate
    match training.optimizer:  # with `fused`, a step of Adam takes a third to a fifth of the time, on CPUs too
        case "adam":
            return torch.optim.Adam(parameters, lr=rate, fused=True)
        case "adamw":
            decay = WEIGHT_DECAY if training.weight_decay is None else training.weight_decay
            return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay, fused=True)
        case "sgd":
            return torch.optim.SGD(parameters, lr=rate, fused=True)
        case "momentum":
            momentum = MOMENTUM if training.momentum is None else training.momentum
            return torch.optim.SGD(parameters, lr=rate, momentum=momentum, fused=True)
        case "adam_bc":
            assert hook is not None, "TrainingSpec refuses it without noise"
            floor = NOISE_FLOOR if training.noise_floor is None else training.noise_floor
            return DPAdamBC(hook.parameters, lr=rate, noise_variances=noise_variances(hook), floor=floor)


def noise_variances(hook: EDPHook) -> NoiseVariances:
    """Return a function that returns the variance of the last step's noise on a coordinate of the mean gradient.

    It returns one number for each parameter, in the order of `hook.parameters`.
    """

    @functools.cache  # the scales are known after the first gradient and stay, so a GPU is asked for them once
    def shape() -> list[float]:
        if hook.spec.alpha_noise == "per_layer" and hook.alpha is not None:
            return hook.alpha[hook.layer].tolist()
        return [1.0] * len(hook.parameters)

    return lambda: [(hook.mechanism.noise_std() * float(hook.clip.last_stretch) * scale) ** 2 for scale in shape()]


class DPAdamBC(torch.optim.Optimizer):
    """Adam with the noise's variance taken out of its second moment: DP-AdamBC of Tang, Shpilevskiy and Lécuyer (2024).

    `w ← w - lr · m̂ / sqrt(max(v̂ - φ̂, γ'))`, with Adam's bias-corrected moments m̂ and v̂. Independent noise of
    variance φ adds φ to the expected value of v̂. If φ changes from step to step (noise that decays), φ̂ is averaged and
    corrected as v̂ is, which keeps the difference unbiased. A constant φ is its own average.

    The paper's γ' is an absolute number, tuned for each task (1e-9 and 7e-9 in the examples of its code). Here it is a
    share of φ̂, since C and z vary over orders of magnitude within one search. Without noise this is Adam, with its ε as
    the bound γ' = ε² inside the root instead of a summand outside.

    Args:
        parameters: the trainable parameters, all of which must get gradients.
        noise_variances: returns φ of each parameter's coordinates; called in every step.
        floor: γ' as a share of φ̂.
    """

    betas = (0.9, 0.999)
    epsilon = 1e-8

    def __init__(
        self, parameters: Sequence[nn.Parameter], *, lr: float, noise_variances: NoiseVariances, floor: float
    ) -> None:
        super().__init__(parameters, {"lr": lr, "step": 0})
        self._noise_variances, self._floor = noise_variances, floor

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update the weights once. `closure` is part of PyTorch's interface and is not called."""
        beta1, beta2 = self.betas
        (group,) = self.param_groups
        group["step"] += 1
        weights: list[torch.Tensor] = group["params"]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        states = [self.state[weight] or self._start(weight) for weight in weights]
        first = [state["exp_avg"] for state in states]
        second = [state["exp_avg_sq"] for state in states]
        torch._foreach_lerp_(first, gradients, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        for state, variance in zip(states, self._noise_variances(), strict=True):
            state["noise_variance"] = beta2 * state["noise_variance"] + (1 - beta2) * variance
        correction1, correction2 = (1 - beta ** group["step"] for beta in self.betas)
        noise = [state["noise_variance"] / correction2 for state in states]
        signal = torch._foreach_div(second, correction2)
        torch._foreach_sub_(signal, noise)
        torch._foreach_clamp_min_(signal, [max(self._floor * variance, self.epsilon**2) for variance in noise])
        torch._foreach_sqrt_(signal)
        torch._foreach_addcdiv_(weights, first, signal, -group["lr"] / correction1)

    def _start(self, weight: torch.Tensor) -> dict[str, Any]:
        """Return the state of a parameter before its first step."""
        state = self.state[weight]
        state |= {"exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight), "noise_variance": 0.0}
        return state


def averaged(model: nn.Module, decay: float) -> AveragedModel:
    """Return a copy of `model` for the exponential moving average of its weights; `update_parameters` updates it.

    The average is a_1 = w_1 after the first step, and a_{n+1} = ψ_n a_n + (1 - ψ_n) w_{n+1} from then on, with
    ψ_n = min(decay, (1+n) / (10+n)). This is the warm-up of De et al. (2022), "Unlocking High-Accuracy Differentially
    Private Image Classification through Scale". Without it, a trial of a few hundred steps would release weights that
    are mostly its first ones.
    """

    def update(averages: Any, weights: Any, _: Any) -> None:
        n = int(average.n_averaged)  # on the CPU; the argument is a copy on the weights' device, and would wait for it
        get_ema_multi_avg_fn(min(decay, (1 + n) / (10 + n)))(averages, weights, n)

    average = AveragedModel(model, multi_avg_fn=update)
    # A copy of a recurrent layer loses the contiguous memory that cuDNN needs; moving the layer restores it.
    average.module.to(next(model.parameters()).device)
    return average
