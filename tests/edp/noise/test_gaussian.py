"""Noise is Gaussian into the tails, its streams are independent, and the compiled generator is ChaCha8."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import edp.noise.compiled
import edp.noise.gaussian
from edp.noise.compiled import GROUP, chacha8_block, kernel
from edp.noise.gaussian import add_gaussian_, alpha_stream, gaussian_, secret_key, stream


# Where there is no C compiler, the product draws with PyTorch alone, and so do the tests.
@pytest.fixture(params=["compiled", "torch", "gpu"] if kernel() else ["torch", "gpu"], autouse=True)
def generator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "compiled":
        monkeypatch.setattr(edp.noise.gaussian, "kernel", lambda: None)
    if request.param == "gpu":  # what is done there, with tensors that are here
        monkeypatch.setattr(edp.noise.gaussian, "_tensor_by_tensor", edp.noise.gaussian._in_few_kernels)
    return request.param


@pytest.mark.parametrize("key", [b"k" * 32, secret_key()], ids=["known", "secret"])
def test_noise_streams_of_micro_batches_steps_and_layer_scales_are_uncorrelated(key: bytes) -> None:
    n = 100_000
    draws = [
        gaussian_(torch.empty(n), 1.0, stream(key, micro_batch, step)).numpy()
        for micro_batch in range(3)
        for step in range(3)
    ]
    draws.append(gaussian_(torch.empty(n), 1.0, alpha_stream(key)).numpy())
    correlation = np.corrcoef(np.stack(draws))
    assert np.abs(correlation - np.eye(len(draws))).max() < 5 / math.sqrt(n)


def test_a_stream_depends_on_every_bit_of_its_key() -> None:
    key = b"k" * 32
    for changed in (b"j" + key[1:], key[:-1] + b"j"):
        one, other = (gaussian_(torch.empty(16), 1.0, stream(k, 0, 0)) for k in (key, changed))
        assert not torch.equal(one, other)


def test_the_noise_is_gaussian_into_the_tails() -> None:
    from scipy import stats

    draws = gaussian_(torch.empty(1_000_000), 1.0, stream(b"t" * 32, 0, 0)).double().numpy()
    assert stats.kstest(draws, "norm").pvalue > 1e-4
    for threshold in (2.0, 3.0, 4.0):
        expected = len(draws) * 2 * stats.norm.sf(threshold)
        assert abs((np.abs(draws) > threshold).sum() - expected) < 5 * math.sqrt(expected)


def test_every_tensor_gets_numbers_of_its_own_and_keeps_its_scaled_value() -> None:
    n, std = 100_003, 0.5
    tensors = [torch.full((n,), 3.0), torch.full((n // 2, 2), 3.0), torch.full((7,), 3.0)]
    add_gaussian_(tensors, [std, 2 * std, 0.0], stream(b"k" * 32, 0, 0), clip_factor=2.0)
    first, second = tensors[0].numpy() - 6, tensors[1].flatten().numpy() - 6
    assert first.std() == pytest.approx(std, rel=5 / math.sqrt(2 * n))
    assert second.std() == pytest.approx(2 * std, rel=5 / math.sqrt(2 * n))
    assert abs(np.corrcoef(first[: n - 1], second)[0, 1]) < 5 / math.sqrt(n)
    assert torch.equal(tensors[2], torch.full((7,), 6.0))


def test_a_nan_passes_through_and_a_fresh_draw_ignores_what_was_there() -> None:
    noise = stream(b"k" * 32, 0, 0)
    x = torch.full((1000,), math.nan)
    add_gaussian_([x], [1.0], noise)
    assert x.isnan().all()
    assert gaussian_(x, 1.0, noise).isfinite().all()
    add_gaussian_([x], [1.0], noise, clip_factor=math.nan)
    assert x.isnan().all()


def test_the_same_stream_gives_the_same_numbers_and_shows_nothing_of_its_key() -> None:
    one, same = (gaussian_(torch.empty(1000), 1.0, stream(b"k" * 32, 3, 4)) for _ in range(2))
    assert torch.equal(one, same)
    assert "kkk" not in repr(stream(b"k" * 32, 3, 4))


@pytest.mark.parametrize("generator", ["gpu"], indirect=True)
@pytest.mark.parametrize("stds", [[0.5] * 60, [0.5, 1.0] * 30], ids=["alike", "per_layer"])
def test_a_gpu_starts_a_few_kernels_however_many_tensors_there_are(stds: list[float], generator: str) -> None:
    started = []

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if not func.is_view:
                started.append(func)
            return func(*args, **kwargs or {})

    tensors = [torch.ones(3, 5) for _ in stds]
    noise = stream(b"k" * 32, 0, 0)
    with Count():
        add_gaussian_(tensors, stds, noise, clip_factor=2.0)
    assert 0 < len([func for func in started if func._schema.name.startswith("aten::_foreach")]) <= 3
    assert len(started) < 20


@pytest.mark.skipif(kernel() is None, reason="without a C compiler there is no compiled generator to compare")
@pytest.mark.parametrize("generator", ["compiled"], indirect=True)
def test_the_compiled_generator_is_chacha8_followed_by_box_muller(generator: str) -> None:
    library = ctypes.CDLL(str(edp.noise.compiled._compiled()))
    library.edp_words.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64]
    key, compiled = bytes(range(100, 132)), kernel()
    assert compiled is not None
    for group in (0, 5, 2**28 - 1, 2**28, 2**40):  # a counter of more than 32 bits too
        words = np.zeros(GROUP, np.uint32)
        library.edp_words(words.ctypes.data, key, group)
        assert words.tobytes() == b"".join(chacha8_block(key, 16 * group + block) for block in range(16))
        drawn = np.zeros(GROUP, np.float32)
        compiled(drawn.ctypes.data, GROUP, key, group, 0.0, 1.0)
        by_word = words.reshape(16, 16).T.astype(np.float64)
        radius = np.sqrt(-2 * np.log(by_word[:8] * 2.0**-32 + 2.0**-33))
        angle = by_word[8:] * (2 * np.pi / 2**32)
        expected = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)]).flatten()
        np.testing.assert_allclose(drawn, expected, rtol=0, atol=3e-3)  # a radius near 0 is a float32 logarithm near 1
        assert np.abs(drawn - expected).mean() < 1e-5


def test_chacha8_agrees_with_its_published_test_vector() -> None:
    """Key and nonce zero (Strombergson, draft-strombergson-chacha-test-vectors, TC1, 8 rounds)."""
    published = "3e00ef2f895f40d67f5bb8e81f09a5a12c840ec3ce9a7f3b181be188ef711a1e984ce172b9216f419f445367456d5619"
    assert chacha8_block(bytes(32), 0).hex().startswith(published)


def test_without_a_compiler_or_with_a_broken_one_torch_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho sorry >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(edp.noise.compiled, "user_cache_path", lambda name: tmp_path / "cache")
    for command, reason in (("no-such-compiler", "no C compiler"), (str(broken), "sorry")):
        monkeypatch.setenv("CC", command)
        caplog.clear()
        with caplog.at_level("INFO", logger="edp.noise.compiled"):
            assert kernel.__wrapped__() is None
        assert reason in caplog.text
    assert not list(tmp_path.glob("cache/**/*.so"))
