"""What only a GPU can show: it trains what a CPU trains, its noise is Gaussian, and the hook does not wait for it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from scipy import stats
from torch import nn

from edp.hook import EDPHook, one_bucket_ddp
from edp.noise.banded import coefficients
from edp.noise.gaussian import gaussian_, stream
from edp.noise.source import noise_source
from edp.per_example import record_per_example
from edp.sampling import shuffled_epoch
from edp.spec import EDPSpec
from tests.support.tiny import RANDOM_BERT, SPEC, trial, weights
from tests.support.workers import run_workers
from trainables.config import TrialSpec
from trainables.corpora import load_corpus
from trainables.features.encoded_corpus import encode
from trainables.records.job import TrialJob

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device"),
]

GPU = torch.device("cuda")
BERT = RANDOM_BERT | {"hidden_size": 16, "layers": 2}
MODELS: dict[str, dict[str, Any]] = {
    "clc": SPEC["model"],
    "bert": BERT,
    "bert's lora": BERT | {"trainable": "lora"},
}
WAYS: dict[str, dict[str, dict[str, Any]]] = {
    "8 micro-batches": {},
    "one example each, drawn": {"training": {"method": "dpsgd"}, "edp": {"sampling": "poisson"}},
    "a clip that moves": {"edp": {"clip": "quantile"}},
    "the paper's scales": {"edp": {"alpha": "paper"}},
    "without privacy": {"training": {"method": "sgd"}},
}
EVERYTHING = [(way, "clc") for way in WAYS] + [(way, model) for way in list(WAYS)[:2] for model in list(MODELS)[1:]]


def spec(model: str, way: str, **training: Any) -> TrialSpec:
    changed = WAYS[way]
    return TrialSpec.model_validate(
        SPEC
        | {"model": MODELS[model]}
        | {"training": SPEC["training"] | {"precision": "float32"} | changed.get("training", {}) | training}
        # A clip so small that it decides, and no noise, which is another on another device.
        | {"edp": SPEC["edp"] | {"C": 0.05, "z0": 0.0} | changed.get("edp", {})}
    )


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same utterances, encoded for each kind of model."""
    folder = tmp_path_factory.mktemp("encoded")
    for model in ("clc", "bert"):
        own = spec(model, "8 micro-batches")
        encode(load_corpus(own.corpus), own.model, folder / model)
    return {model: folder / model.partition("'")[0] for model in MODELS}


@pytest.mark.parametrize(("way", "model"), EVERYTHING)
def test_what_is_trained_there_is_what_a_cpu_trains(
    way: str, model: str, corpora: dict[str, Path], tmp_path: Path
) -> None:
    found = {}
    for device in ("cpu", "cuda"):
        job = TrialJob(spec(model, way, device=device), corpora[model], tmp_path / device)
        run_workers(trial, 1, job)
        found[device] = weights(tmp_path / device)
    torch.testing.assert_close(found["cuda"], found["cpu"], rtol=0, atol=3e-4)


def test_eight_workers_that_share_a_gpu_train_what_one_does(corpora: dict[str, Path], tmp_path: Path) -> None:
    for workers in (1, 8):
        job = TrialJob(
            spec("clc", "8 micro-batches", device="cuda", workers=workers), corpora["clc"], tmp_path / f"{workers}"
        )
        run_workers(trial, workers, job)
    torch.testing.assert_close(weights(tmp_path / "8"), weights(tmp_path / "1"), rtol=0, atol=1e-4)


def test_the_noise_is_gaussian_into_the_tails_and_no_stream_shows_in_another() -> None:
    draws = [
        gaussian_(torch.empty(1_000_000, device=GPU), 2.0, stream(b"k" * 32, micro_batch, step)).double().cpu().numpy()
        for micro_batch in range(2)
        for step in range(2)
    ]
    for draw in draws:
        assert stats.kstest(draw / 2, "norm").pvalue > 1e-5
        for threshold in (2.0, 3.0, 4.0):
            expected = len(draw) * 2 * stats.norm.sf(threshold)
            assert abs((np.abs(draw / 2) > threshold).sum() - expected) < 5 * math.sqrt(expected)
    correlation = np.corrcoef(np.stack(draws))
    assert np.abs(correlation - np.eye(len(draws))).max() < 5 / math.sqrt(1_000_000)


def test_the_noise_of_a_share_has_the_layers_sizes() -> None:
    tensors = [torch.zeros(200_000, device=GPU), torch.zeros(200_000, device=GPU)]
    buffer = torch.cat(tensors)
    views = list(buffer.split(200_000))
    share = noise_source(tensors, range(4), None, band=1)
    share.shape = [1.0, 3.0]
    share.add_(buffer, views, 0.5, 0, clip_factor=None, stretch=torch.tensor(2.0, device=GPU, dtype=torch.float64))
    for view, expected in zip(views, (2.0, 6.0), strict=True):  # √4 shares of 0.5, stretched twice
        assert float(view.std()) == pytest.approx(expected, rel=5 / math.sqrt(2 * 200_000))


def test_correlated_noise_there_is_correlated_as_declared() -> None:
    band, steps, size = 4, 12, 50_000
    share = noise_source([torch.zeros(size, device=GPU)], range(1), None, band=band)
    rows = []
    for step in range(steps):
        buffer = torch.zeros(size, device=GPU)
        share.add_(buffer, [buffer], 1.0, step, clip_factor=None, stretch=1.0)
        rows.append(buffer.double().cpu().numpy())
    found = np.corrcoef(np.stack(rows[band:]))
    decoder = np.linalg.inv(_lower(coefficients(band), steps))
    covariance = decoder @ decoder.T
    std = np.sqrt(np.diag(covariance))
    expected = (covariance / np.outer(std, std))[band:, band:]
    assert np.abs(found - expected).max() < 6 / math.sqrt(size)


def _lower(c: Any, n: int) -> np.ndarray:
    c = np.asarray(c, float)
    return np.array([[c[i - j] if 0 <= i - j < len(c) else 0.0 for j in range(n)] for i in range(n)])


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(32, 64), nn.Linear(64, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.two(self.one(x).tanh()).square().sum(1)
        return loss


@contextmanager
def _no_wait() -> Iterator[None]:
    """Within, what waits for the GPU raises."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(
    "settings", [{}, {"clip": "quantile"}, {"clip": "automatic", "alpha_noise": "per_layer"}], ids=str
)
@pytest.mark.parametrize("recorded", [False, True], ids=["gradient by gradient", "in one pass"])
def test_clip_and_noise_wait_for_nothing(settings: dict[str, Any], recorded: bool) -> None:
    assert run_workers(_steps, 1, settings, recorded) == [4]


def _steps(rank: int, world: int, settings: dict[str, Any], recorded: bool) -> int:
    """Takes four steps, the last three of which raise where they wait."""
    torch.cuda.set_device(0)
    dist.destroy_process_group()  # of gloo, which takes gradients to the CPU
    dist.init_process_group("nccl", store=dist.HashStore(), rank=rank, world_size=world)
    model = _Model().to(GPU)
    recorder = record_per_example(model) if recorded else None
    ddp = one_bucket_ddp(model)
    spec = EDPSpec.model_validate({"C": 0.1, "z0": 1.0, **settings})
    hook = EDPHook(ddp, spec, micro_batches=8, single_example=False, rate=0.25, recorder=recorder)
    epoch = shuffled_epoch(64, batch_size=16, micro_batches=8, workers=1, seed=0, epoch=0)
    x_bi, micro_batch_b, taken = torch.randn(16, 32, device=GPU), torch.arange(16) // 2, 0
    for _ in hook.steps(epoch):
        ddp.zero_grad(set_to_none=True)
        for i in range(1 if recorded else 8):
            last = recorded or i == 7
            with (
                nullcontext() if last else ddp.no_sync(),
                recorder.examples(micro_batch_b, 8) if recorder else nullcontext(),
            ):
                loss = ddp(x_bi if recorded else x_bi[micro_batch_b == i]).sum()
            # The first step makes what the others only use.
            with _no_wait() if taken else nullcontext():
                loss.backward()
                if not last:
                    hook.accumulate()
        taken += 1
    hook.check()
    return taken
