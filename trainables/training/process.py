"""Set up a training process: its device, its model, a process group of its own, and the C library's allocator."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from edp.spec import UserError
from trainables.config import BERTSpec, TrainingSpec, TrialSpec
from trainables.features.device import check_memory
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.models import JointModel, build_model
from trainables.records.job import TrialFailed
from trainables.training.public_heads import begins_public, public_start


def pick_device(training: TrainingSpec) -> torch.device:
    """Return this worker's device.

    Ray may show a worker only its own GPU, or all GPUs of its node. The local rank picks among the visible ones.

    Raises:
        TrialFailed: if the trial asks for a CUDA device and this worker sees none.
    """
    wanted = training.device
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise TrialFailed("training.device = cuda, but this worker sees no CUDA device")
    index = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
    torch.cuda.set_device(index)
    torch.backends.cudnn.allow_tf32 = False  # PyTorch allows it by default, but the recipe says float32
    return torch.device("cuda", index)


def new_model(spec: TrialSpec, corpus: EncodedCorpus, device: torch.device, share: float = 1.0) -> JointModel:
    """Return the model that a trial starts with, on `device`. All workers get the same weights.

    Args:
        share: of a GPU that this process has.

    Raises:
        TrialFailed: for a pretrained model that is larger than the GPU's free memory, or than this process' share.
    """
    model = build_model(
        spec.model,
        corpus.labels,
        seed=spec.training.seed,
        vocabulary_size=corpus.vocabulary_size,
        state_sizes=corpus.state_sizes,
    )
    if begins_public(spec.model):
        assert isinstance(spec.model, BERTSpec), "only its heads begin at public weights"
        model.load_state_dict(public_start(spec.model, corpus))
    if isinstance(spec.model, BERTSpec):
        instead = "a GPU with more memory, or training.device = cpu"
        try:
            check_memory(model, device, spec.model.pretrained or "null", instead, share)
        except UserError as error:
            raise TrialFailed(str(error)) from error
    return model.to(device)


@contextmanager
def alone() -> Iterator[None]:
    """Make this process the only worker of a process group while the block runs."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_KEEP = 1 << 30
_LARGEST_HEAP_BLOCK = 32 << 20  # glibc allows no more


def own_memory() -> int:
    """Return the bytes of this process' memory that it shares with no file, 0 where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)


def keep_freed_memory() -> None:
    """Let glibc keep up to a GiB of freed memory for the next step; do nothing with other C libraries.

    By default glibc returns the pages of every large tensor to the system, and gets them back zeroed in the next step.
    That takes an eighth of the time of a CLC step.
    """
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, _LARGEST_HEAP_BLOCK)
        library.mallopt(_TRIM_THRESHOLD, _KEEP)
