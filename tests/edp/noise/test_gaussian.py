"""Noise is Gaussian into the tails, its streams are independent, and the compiled generator is ChaCha8."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

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


COMPILED = pytest.mark.skipif(kernel() is None, reason="without a C compiler there is no compiled generator")


def literal(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Box-Muller on 64 bits: 256 numbers of the words of 16 blocks, one block a row."""
    high, low = (words.reshape(16, 16).T.astype(np.int32).astype(np.int64) for words in (high, low))
    quadrant = (high[8:] + 2**29) >> 30
    high[8:] -= quadrant << 30  # sine and cosine of the whole angle would lose the digits of the rest
    place = (high + (low + 0.5) / 2**32) / 2**32
    radius = np.sqrt(-2 * np.where(place[:8] < 0, np.log1p(place[:8]), np.log(np.abs(place[:8]))))
    sine, cosine = np.sin(2 * np.pi * place[8:]), np.cos(2 * np.pi * place[8:])
    turns = [(cosine, sine), (-sine, cosine), (-cosine, -sine), (sine, -cosine)]
    x, y = (np.choose(quadrant % 4, [turn[axis] for turn in turns]) for axis in (0, 1))
    return np.concatenate([radius * x, radius * y]).flatten()


@COMPILED
@pytest.mark.parametrize("generator", ["compiled"], indirect=True)
def test_the_compiled_generator_is_chacha8_followed_by_box_muller(generator: str) -> None:
    library = ctypes.CDLL(str(edp.noise.compiled._compiled()))
    library.edp_words.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint32]
    key, compiled = bytes(range(100, 132)), kernel()
    assert compiled is not None
    for group in (*range(100), 2**28 - 1, 2**28, 2**40):  # a counter of more than 32 bits too
        words = np.zeros((2, GROUP), np.uint32)
        for nonce in (0, 1):
            library.edp_words(words[nonce].ctypes.data, key, group, nonce)
            if group in (0, 5) or group > 100:
                blocks = (chacha8_block(key, 16 * group + block, nonce) for block in range(16))
                assert words[nonce].tobytes() == b"".join(blocks)
        drawn = np.zeros(GROUP, np.float32)
        compiled(drawn.ctypes.data, GROUP, key, group, 0.0, 1.0)
        np.testing.assert_allclose(drawn, literal(*words), rtol=2e-5, atol=0)


@COMPILED
@pytest.mark.parametrize("generator", ["compiled"], indirect=True)
def test_words_at_the_ends_of_their_range_give_small_and_large_numbers_but_no_zero(
    generator: str, tmp_path: Path
) -> None:
    source = tmp_path / "ends.c"
    source.write_text(
        f'#include "{edp.noise.compiled._SOURCE}"\n'
        "void ends(const char *high, const char *low, char *out) {\n"
        "    words h[16], l[16]; floats z[16];\n"
        "    memcpy(h, high, sizeof h); memcpy(l, low, sizeof l); box_muller(h, l, 1, z); memcpy(out, z, sizeof z);\n"
        "}\n"
    )
    command = [shutil.which("cc") or "gcc", *edp.noise.compiled._FLAGS, str(source), "-o", f"{tmp_path}/ends.so", "-lm"]
    subprocess.run(command, check=True)
    ends = ctypes.CDLL(f"{tmp_path}/ends.so").ends
    near = np.array([0, 1, 2, 2**16, 2**32 - 1, 2**31 - 1, 2**31, 2**32 - 2**16], np.uint64)
    smallest, largest = np.inf, 0.0
    for radius in near:
        for low in near:
            high, lows = np.zeros((16, 16), np.uint32), np.full((16, 16), low, np.uint32)
            high[:, :8] = radius
            high[:, 8:] = ((np.arange(4)[:, None] << 30) + near.astype(np.int64)).reshape(-1, 8)[[0, 1, 2, 3] * 4]
            drawn = np.zeros(GROUP, np.float32)
            ends(high.T.tobytes(), lows.tobytes(), ctypes.c_void_p(drawn.ctypes.data))
            np.testing.assert_allclose(drawn, literal(high, lows), rtol=2e-6, atol=0)
            smallest, largest = min(smallest, np.abs(drawn).min()), max(largest, np.abs(drawn).max())
    assert 0 < smallest < 1e-20
    assert largest == pytest.approx(math.sqrt(130 * math.log(2)))


def zeros_among(draws: int, key: bytes) -> int:
    """Return how many of `draws` numbers are exactly 0."""
    out = torch.empty(1_000_000)
    return sum(
        len(out) - int(gaussian_(out, 1.0, stream(key, 0, step)).count_nonzero()) for step in range(draws // len(out))
    )


def test_no_number_is_zero(generator: str) -> None:
    """A radius of 32 bits gave 3 zeros in 1e8 numbers; PyTorch's own float32 gives 9."""
    assert zeros_among(100_000_000 if generator == "compiled" else 2_000_000, b"0" * 32) == 0


@COMPILED
@pytest.mark.stress
@pytest.mark.parametrize("generator", ["compiled"], indirect=True)
def test_no_number_of_a_thousand_million_is_zero(generator: str) -> None:
    assert zeros_among(1_000_000_000, b"1" * 32) == 0


@COMPILED
@pytest.mark.stress
@pytest.mark.parametrize("generator", ["compiled"], indirect=True)
def test_who_looks_for_coordinates_without_noise_finds_none(generator: str) -> None:
    """The attacker knows both gradients, and sees the sums; ε is .26. A radius of 32 bits: right in 5 of 12."""
    d, steps, z = 1_000_000, 60, 100.0
    rng, found = np.random.default_rng(0), 0
    for run in range(12):
        ours, theirs = (torch.from_numpy(rng.standard_normal(d, np.float32)) for _ in range(2))
        ours, theirs = ours / ours.norm(), theirs / theirs.norm()
        for step in range(steps):
            seen = ours.clone()
            add_gaussian_([seen], [z], stream(run.to_bytes(32, "little"), 0, step))
            found += int((seen == ours).sum()) + int((seen == theirs).sum())
    assert found == 0


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
