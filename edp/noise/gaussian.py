"""Gaussian noise from secret keys.

A stream of noise is a function of (key, micro-batch, step), so checkpoints hold no state of it, and a resumed run,
which has a new key, never repeats a stream. The key of a run is 256 bits from the operating system and is held in this
process's memory only.

| where | generator | secret state | a number is 0 with probability |
|---|---|---|---|
| CPU, with a C compiler | ChaCha8, which is cryptographic, and Box-Muller (`gaussian.c`) | 256 bits | 0 |
| CPU, without one | PyTorch's Mersenne twister, all its state from the key; not cryptographic | 256 bits | 2^-52 |
| CUDA | PyTorch's Philox, not cryptographic | 63 bits | 2^-52 |

A number that is 0 shows a coordinate of the sum without noise. One in 2^23 of PyTorch's float32 `normal_` is 0, so
PyTorch draws in float64. To add two float32 draws is no cure: they cancel once in 2^26, and their sum has few digits
near 0. The compiled kernel takes a tenth of the time of PyTorch's float64 `normal_`, and applies the clip factor in the
same pass.

An attacker with the raw output of a generator that is not cryptographic could predict it, but the released weights
show only sums of it with gradients. `torch.Generator.manual_seed` keeps only 32 bits of a seed on a CPU, few enough
for an attacker to try them all and subtract the noise: hence the filled state.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.distributed as dist

from edp.noise.compiled import GROUP, kernel

_MT_WORDS = 624
# Layout of torch's CPU generator state: seed (8 bytes), left (4), seeded (4), next (8), then 624 words of 8 bytes.
_MT_OFFSET = 24


def secret_key() -> bytes:
    """Return a fresh 256-bit key from the operating system."""
    return os.urandom(32)


def shared_key(group: dist.ProcessGroup | None = None) -> bytes:
    """Return 256 secret bits of worker 0's operating system, the same on all workers, which call this at once."""
    device = "cuda" if dist.get_backend(group) == "nccl" else "cpu"
    key = torch.frombuffer(bytearray(secret_key()), dtype=torch.uint8).to(device)
    dist.broadcast(key, group=group, group_src=0)
    return bytes(key.cpu().numpy())


def reproducible_key(seed: int) -> bytes:
    """Return the key of a run whose noise can be replayed: for tests and research, never private."""
    return hashlib.sha256(f"edp reproducible noise {seed}".encode()).digest()


@dataclass(frozen=True)
class Stream:
    """A stream of noise that is drawn once, from its start."""

    _label: bytes = field(repr=False)

    def key(self) -> bytes:
        """Return the stream's 256 bits for ChaCha8."""
        return hashlib.shake_256(b"chacha8" + self._label).digest(32)

    def generator(self, device: torch.device) -> torch.Generator:
        """Return PyTorch's generator for this stream."""
        generator = torch.Generator(device=device)
        if device.type != "cpu":
            # CUDA's Philox takes 64 bits of seed; a signed number holds 63.
            generator.manual_seed(int.from_bytes(hashlib.shake_256(self._label).digest(8), "little") >> 1)
            return generator
        words = np.frombuffer(hashlib.shake_256(self._label).digest(4 * _MT_WORDS), dtype="<u4").astype("<u8")
        state = generator.manual_seed(0).get_state()
        state[_MT_OFFSET : _MT_OFFSET + 8 * _MT_WORDS] = torch.from_numpy(words.view(np.uint8))
        generator.set_state(state)
        return generator


def stream(key: bytes, micro_batch: int, step: int) -> Stream:
    """Return the stream of one micro-batch's noise at one step."""
    return Stream(key + micro_batch.to_bytes(8, "little") + step.to_bytes(8, "little"))


def alpha_stream(key: bytes) -> Stream:
    """Return the stream of the layer scales' noise: its label's length differs from that of every step's."""
    return Stream(key + b"layer scales")


def count_stream(key: bytes, micro_batch: int, step: int) -> Stream:
    """Return the stream of the noise on the count that moves the clip; its label is longer than every other."""
    return Stream(stream(key, micro_batch, step)._label + b"count")


def gaussian_(out: torch.Tensor, std: float, noise: Stream) -> torch.Tensor:
    """Fill `out` (any shape and float type) with N(0, std²) and return it. `std = 0` gives zeros."""
    add_gaussian_([out], [std], noise, clip_factor=0.0)
    return out


def add_gaussian_(tensors: list[torch.Tensor], stds: list[float], noise: Stream, clip_factor: float = 1.0) -> None:
    """Replace each x of `tensors` by `clip_factor·x + N(0, std²)`.

    Args:
        tensors: without gaps in memory. Their order and sizes, with the stream, determine the noise.
        stds: one a tensor.
        noise: the stream.
        clip_factor: at 0, what the tensors held does not matter.
    """
    compiled = kernel()
    device = tensors[0].device
    if compiled is None or device.type != "cpu" or any(x.dtype != torch.float32 for x in tensors):
        add = _tensor_by_tensor if device.type == "cpu" else _in_few_kernels
        add(tensors, stds, noise.generator(device), clip_factor)
        return
    key, group = noise.key(), 0
    for x, std in zip(tensors, stds, strict=True):
        compiled(x.data_ptr(), x.numel(), key, group, clip_factor, std)
        group += -(-x.numel() // GROUP)


def _tensor_by_tensor(
    tensors: list[torch.Tensor], stds: list[float], generator: torch.Generator, clip_factor: float
) -> None:
    """Add noise on a CPU, whose caches hold a tensor's noise until it is added: 1.2 times as fast as one large draw."""
    for x, std in zip(tensors, stds, strict=True):
        if clip_factor == 0:
            x.zero_()
        elif clip_factor != 1:
            x.mul_(clip_factor)
        if std > 0:
            x.add_(torch.empty_like(x, dtype=torch.float64).normal_(0.0, std, generator=generator))


def _in_few_kernels(
    tensors: list[torch.Tensor], stds: list[float], generator: torch.Generator, clip_factor: float
) -> None:
    """Add noise on a GPU, where starting three kernels a tensor would take longer than running them."""
    if clip_factor == 0:
        torch._foreach_zero_(tensors)
    elif clip_factor != 1:
        torch._foreach_mul_(tensors, clip_factor)
    if not any(stds):
        return
    sizes = [x.numel() for x in tensors]
    flat = torch.empty(sum(sizes), dtype=torch.float64, device=tensors[0].device).normal_(generator=generator)
    flat = flat.to(tensors[0].dtype)  # with other types than the tensors', `_foreach_add_` starts a kernel a tensor
    noise = [part.view(x.shape) for part, x in zip(flat.split(sizes), tensors, strict=True)]
    if len(set(stds)) == 1:
        torch._foreach_add_(tensors, noise, alpha=stds[0])
    else:
        torch._foreach_mul_(noise, stds)
        torch._foreach_add_(tensors, noise)
