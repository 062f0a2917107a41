"""Gaussian noise from secret keys.

PyTorch's CPU generator keeps only 32 bits of the seed it is given: few enough to try them all and subtract the noise.
So the whole state of its Mersenne twister is filled from an expansion of a 256-bit key.

The key of a run comes from the operating system and is held in this process's memory only; a stream is a function of
(key, micro-batch, step), so no state ever needs to go into a checkpoint, and a resumed run, with a new key, never
repeats a stream. A Mersenne twister is no cryptographic generator: an attacker who saw its raw output could predict
it, but the released weights show only sums of it with gradients.
"""

from __future__ import annotations

import hashlib
import os

import numpy as np
import torch

_MT_WORDS = 624
# Layout of torch's CPU generator state: seed (8 bytes), left (4), seeded (4), next (8), then 624 words of 8 bytes.
_MT_OFFSET = 24


def secret_key() -> bytes:
    """A fresh 256-bit key from the operating system."""
    return os.urandom(32)


def reproducible_key(seed: int) -> bytes:
    """The key of a run whose noise can be replayed: for tests and research, never private."""
    return hashlib.sha256(f"edp reproducible noise {seed}".encode()).digest()


def stream(key: bytes, micro_batch: int, step: int, device: torch.device) -> torch.Generator:
    """The generator of one micro-batch's noise at one step."""
    return _generator(key + micro_batch.to_bytes(8, "little") + step.to_bytes(8, "little"), device)


def alpha_stream(key: bytes) -> torch.Generator:
    """The generator of the layer scales' noise, on the CPU: its label's length sets it apart from every step's."""
    return _generator(key + b"layer scales", torch.device("cpu"))


def _generator(label: bytes, device: torch.device) -> torch.Generator:
    generator = torch.Generator(device=device)
    if device.type != "cpu":
        # CUDA's Philox takes 64 bits of seed.
        generator.manual_seed(int.from_bytes(hashlib.shake_256(label).digest(8), "little") >> 1)
        return generator
    words = np.frombuffer(hashlib.shake_256(label).digest(4 * _MT_WORDS), dtype="<u4").astype("<u8")
    state = generator.manual_seed(0).get_state()
    state[_MT_OFFSET : _MT_OFFSET + 8 * _MT_WORDS] = torch.from_numpy(words.view(np.uint8))
    generator.set_state(state)
    return generator


def gaussian_(out: torch.Tensor, std: float, generator: torch.Generator) -> torch.Tensor:
    """Fills `out` (any shape and float type) with N(0, std²) in place. `std = 0` gives zeros."""
    return out.normal_(0.0, std, generator=generator) if std > 0 else out.zero_()
