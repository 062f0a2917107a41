"""Optimisers: PyTorch's, and the average of the weights.

All of these, weight decay included, are post-processing of noisy gradients, so they cost no ε.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from trainables.config import TrainingSpec

MOMENTUM = 0.9
WEIGHT_DECAY = 0.01


def make_optimizer(training: TrainingSpec, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimiser of `training.optimizer`."""
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
