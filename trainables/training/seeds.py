"""Seeds of what a step draws, made of what they are to depend on."""

from __future__ import annotations

import hashlib

import numpy as np
import torch

from edp.sampling import Indices


def mixed(*parts: int) -> int:
    """63 bits that depend on all of `parts`."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little") >> 1


def keys(seed: int, indices: Indices) -> torch.Tensor:
    """A key for each utterance, (B,) int32: a hash of (seed, index) (the finaliser of SplitMix64)."""
    x = indices.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return torch.from_numpy((x >> np.uint64(32)).astype(np.uint32).view(np.int32))
