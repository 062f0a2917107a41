"""Guess from a training's noisy sums whether one utterance was in it: right in how many of 12 trainings, at ε = 1?

    python -m tests.benchmarks.one_utterance

The attacker knows both corpora, all settings, and the weights before each step, and sees each noisy sum. The secret of
the run is not known to the attacker, who takes one of their own. Every step takes all utterances (a Poisson rate of
1), so that what an attacker does not know is dropout alone. The guess is the corpus whose sums are nearer to those that
were seen. At ε = 1 no attacker can be right in more than about 73 % of all trainings.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edp.accounting.calibrate import noise_multiplier_for_epsilon
from tests.trainables.training.test_neighbours import CLC, DPSGD, neighbours, trial
from trainables.config import TrialSpec
from trainables.corpora import generate
from trainables.training.neighbours import LoudTrainer, Neighbour
from trainables.training.process import alone, new_model

TRAININGS = 12
EPOCHS = 6
EPSILON, DELTA = 1.0, 1e-2


def spec_of(dropout: float, batch_size: int) -> TrialSpec:
    training = {**DPSGD, "batch_size": batch_size, "epochs": EPOCHS}
    edp = {"sampling": "poisson", "alpha": "none", "delta": DELTA}
    return trial(CLC | {"dropout": dropout}, training, edp, Path())


def right(pair: tuple[Neighbour, Neighbour], spec: TrialSpec, number: int) -> tuple[bool, float]:
    """Return True if the attacker is right about one training, and how far the sums are apart, in clips."""
    rng = np.random.default_rng(number)
    there = bool(rng.integers(2))
    truth = [_trainer(spec, one, seed=2 * number) for one in pair]
    guess = [_trainer(spec, one, seed=2 * number + 1) for one in pair]
    for one in (truth[1], guess[1]):
        one.loud_e[pair[1].unit] = 0.0
    N = truth[0].sampler.units
    run: dict[str, Any] = {"micro_batches": N, "steps_per_epoch": 1, "rate": 1.0, "single_example": True}
    std = spec.edp.C * noise_multiplier_for_epsilon(EPSILON, spec.edp, epochs=EPOCHS, **run)
    likelier, apart = 0.0, 0.0
    for epoch in range(EPOCHS):
        sums = []
        for one in (*truth, *guess):
            one.ddp.module.load_state_dict(truth[0].ddp.module.state_dict())
            for step in one.steps_of(epoch):  # one step holds all
                found = one.aggregate(step)
            sums.append(torch.cat([x.flatten() for x in found.values()]) * N)
            one.step += 1
        seen = sums[0 if there else 1] + std * torch.from_numpy(rng.standard_normal(len(sums[0])))
        likelier += float((seen - sums[3]).square().sum() - (seen - sums[2]).square().sum())
        apart = max(apart, float((sums[2] - sums[3]).norm()) / spec.edp.C)
        at = 0
        for p in truth[0].own_hook.parameters:
            p.grad = (seen[at : at + p.numel()].view_as(p) / N).float()
            at += p.numel()
        truth[0].optimizer.step()
    return (likelier > 0) == there, apart


def _trainer(spec: TrialSpec, one: Neighbour, seed: int) -> LoudTrainer:
    silent = spec.model_copy(update={"edp": spec.edp.model_copy(update={"z0": 0.0, "reproducible_noise": seed})})
    device = torch.device("cpu")
    return LoudTrainer(new_model(silent, one.corpus, device), one.corpus, silent, device)


def main() -> None:
    """Print, for each dropout, in how many trainings the attacker was right, and how far the sums were apart."""
    for dropout in (0.1, 0.5):
        with tempfile.TemporaryDirectory() as folder, alone():
            said = [one._replace(user="u") for one in generate("communication", 600, seed=1)]
            pair = neighbours(spec_of(dropout, 8), Path(folder), said)
            spec = spec_of(dropout, pair[0].corpus.size("train"))
            found = [right(pair, spec, number) for number in range(TRAININGS)]
        moved = max(apart for _, apart in found)
        print(json.dumps({"dropout": dropout, "right": sum(ok for ok, _ in found), "of": TRAININGS, "moved": moved}))


if __name__ == "__main__":
    main()
