"""What a worker starts a trial with: its device, and the model."""

from __future__ import annotations

import os

import torch

from trainables.data.encoded_corpus import EncodedCorpus
from trainables.models import JointModel, build_model
from trainables.records.job import TrialFailed
from trainables.spec import TrainingSpec, TrialSpec


def pick_device(training: TrainingSpec) -> torch.device:
    """This worker's device. Ray shows each worker only its own GPU, so the local rank picks among what is visible."""
    wanted = training.device
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise TrialFailed("training.device = cuda, but this worker sees no CUDA device")
    index = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
    torch.cuda.set_device(index)
    torch.backends.cudnn.allow_tf32 = False  # of PyTorch's own accord; float32 is what the recipe says
    return torch.device("cuda", index)


def new_model(spec: TrialSpec, corpus: EncodedCorpus, device: torch.device) -> JointModel:
    """The model that a trial starts with, on `device`: the same on every worker."""
    return build_model(
        spec.model,
        corpus.labels,
        seed=spec.training.seed,
        vocabulary_size=corpus.vocabulary_size,
        state_sizes=corpus.state_sizes,
    ).to(device)
