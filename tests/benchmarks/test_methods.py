"""All methods of a benchmark train on the same utterances: their ratio would else be one of batches too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.benchmarks.methods import stepper
from tests.support.tiny import corpus, spec
from tests.support.workers import run_workers
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.features.token_features import Batch

__all__ = ["corpus"]


def taken(rank: int, world: int, method: str, steps: int, folder: Path) -> list[list[int]]:
    """The utterances that a worker takes in each of `steps` steps."""
    found: list[list[int]] = []
    read = EncodedCorpus.batch

    def batch(self: EncodedCorpus, split: str, indices: np.ndarray) -> Batch:
        found[-1].extend(indices.tolist())
        return read(self, split, indices)

    EncodedCorpus.batch = batch  # in a process of its own
    # With a memory batch of their own, none looks at utterances to find one.
    training = {"workers": world, "micro_batches": world, "batch_size": 16, "memory_batch": 16}
    step = stepper(method, spec(training=training), EncodedCorpus.open(folder), torch.device("cpu"))
    for _ in range(steps):
        found.append([])
        step()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2])
def test_every_method_takes_the_same_utterances_in_its_nth_step_and_whole_batches_only(
    long_story: None, world: int, corpus: Path
) -> None:
    steps = 2 * (EncodedCorpus.open(corpus).size("train") // 16) + 1  # into the third epoch; none holds whole batches
    assert EncodedCorpus.open(corpus).size("train") % 16
    whole = {method: run_workers(taken, world, method, steps, corpus) for method in ("sgd", "edp", "dpsgd", "plain")}
    for method, workers in whole.items():
        for n in range(steps):
            ours, theirs = ([sorted(worker[n]) for worker in one] for one in (whole["sgd"], workers))
            assert ours == theirs, method
            assert len({i for worker in ours for i in worker}) == 16
