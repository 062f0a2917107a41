"""Train an encoder in one process, and write it to a folder for `model.pretrained`, with a record of its corpora.

Training goes stage by stage and can be resumed from a checkpoint. The random numbers of a step depend on seed and step
alone, so a resumed training ends with the same weights as one that was never stopped.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from edp.spec import UserError
from trainables.config import Device
from trainables.corpora import Utterance
from trainables.features.device import in_bfloat16
from trainables.features.encoder_architecture import fills_gaps, load_encoder, quiet, read_config
from trainables.features.name_scores import NAMES
from trainables.features.pretrained import pretrained_folder, pretrained_pieces
from trainables.features.word_pieces import WordPieces
from trainables.pretraining.data import Pool, stage_batches
from trainables.pretraining.objectives import Masked, Supervised, column_vectors
from trainables.pretraining.overlap import ABOUT, HASHES, hashes_of, seen_by
from trainables.pretraining.spec import PretrainSpec, StageSpec
from trainables.records.files import reading, save_tensors
from trainables.records.permissions import unfinished_folder

HEADS = 10.0
"""Learning rate of the heads, which start at random, relative to that of the encoder, which is pretrained."""
_WEIGHT_DECAY = 0.01
_MAX_NORM = 1.0
_CURVE_STEPS = 20
"""Number of steps over which a point of the loss curve is the mean."""

OnStep = Callable[[int, float], None]


class PretrainingStopped(Exception):
    """The training was stopped on request, and can be resumed from its checkpoint."""


@dataclass
class Record:
    """The progress of a training, over all of its processes."""

    steps: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    """Loss of each step."""

    def curve(self) -> list[tuple[int, float]]:
        """Return points of the loss curve: the steps done, and the mean loss since the point before."""
        ends = [*range(_CURVE_STEPS, self.steps, _CURVE_STEPS), self.steps]
        return [(end, fmean(self.losses[max(0, end - _CURVE_STEPS) : end])) for end in ends]


def pieces_of(spec: PretrainSpec) -> WordPieces:
    """Return the vocabulary of the encoder that training starts from.

    Raises:
        UserError: if the encoder cannot be loaded, or is a decoder. Training from a random start is never intended.
    """
    folder, reason = pretrained_folder(spec.model.pretrained)
    pieces = pretrained_pieces(spec.model.pretrained)
    if folder is None or pieces is None:
        raise UserError(
            f"model.pretrained = {spec.model.pretrained}: it cannot be loaded ({reason}); allowed: minilm, a folder of "
            "an encoder, or a name on the hub that this machine can reach"
        )
    config = read_config(folder, spec.model.pretrained)
    if not fills_gaps(config):
        raise UserError(
            f"model.pretrained = {spec.model.pretrained}: type {config.model_type} cannot be pretrained here; "
            "allowed: an encoder such as BERT"
        )
    return pieces


def start_of(spec: PretrainSpec) -> PreTrainedModel:
    """Load the encoder that training starts from.

    Raises:
        UserError: as `pieces_of` does, or if the record of what the encoder has seen cannot be read.
    """
    pieces_of(spec)
    folder = pretrained_folder(spec.model.pretrained)[0]
    assert folder is not None, "`pieces_of` has found it"
    seen_by(folder)  # the new folder will include this record, so a broken one must show before training
    return load_encoder(folder, spec.model.pretrained, dropout=spec.model.dropout)


def device_of(wanted: Device) -> torch.device:
    """Return the device to train on.

    Raises:
        UserError: if there is no such device.
    """
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError("training.device = cuda: this process sees no CUDA device; allowed: auto, cpu")
    return torch.device("cpu" if wanted == "cpu" or not torch.cuda.is_available() else "cuda")


def train(
    spec: PretrainSpec,
    pool: Pool,
    encoder: PreTrainedModel,
    checkpoint: Path,
    *,
    on_step: OnStep = lambda step, loss: None,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[Record, dict[str, Tensor]]:
    """Train `encoder` in place, except its embeddings; resume from `checkpoint` if the file exists.

    Returns:
        The record, and the learnt weights of the scores of names (`Supervised.learnt_names`), if there are any.

    Args:
        encoder: the encoder from `start_of`.
        checkpoint: written every `training.checkpoint_minutes`, and when stopped. The caller deletes it.
        on_step: called with the number of steps done and the loss of the last one.
        stopped: called after each step; True: stop now.

    Raises:
        UserError: if the objective has nothing to learn from, the device is missing, or the checkpoint is broken.
        PretrainingStopped: if `stopped` returned True.
    """
    device = device_of(spec.training.device)
    objective = _objective(spec, pool, encoder, device).to(device)
    nn.Module.to(encoder, device)
    getattr(encoder, "embeddings", encoder.get_input_embeddings()).requires_grad_(False)
    record = Record()
    saved = None
    if checkpoint.is_file():
        with reading(checkpoint):
            saved = torch.load(checkpoint, map_location=device, weights_only=True)
            encoder.load_state_dict(saved["encoder"])
            objective.load_state_dict(saved["objective"])
            record = Record(**saved["record"])
    encoder.train()
    objective.train()
    before = 0
    for number, stage in enumerate(spec.stages):
        done = record.steps - before
        before += stage.steps
        if done >= stage.steps:
            continue
        optimizer = _optimizer(encoder, objective, stage)
        if saved is not None and done > 0:
            optimizer.load_state_dict(saved["optimizer"])
        saved = None
        one = _Stage(spec, number, pool, encoder, objective, optimizer, device)
        _steps(one, done, record, checkpoint, on_step, stopped)
    nn.Module.to(encoder, "cpu")
    encoder.eval()
    return record, objective.learnt_names() if isinstance(objective, Supervised) else {}


@dataclass(frozen=True)
class _Stage:
    """The state that the steps of a stage share."""

    spec: PretrainSpec
    number: int
    pool: Pool
    encoder: PreTrainedModel
    objective: nn.Module
    optimizer: torch.optim.Optimizer
    device: torch.device

    def step(self, rows: Any, step: int, total: int) -> float:
        """Run one step, the `step`-th of this stage and the `total`-th of all; return its loss."""
        training, stage = self.spec.training, self.spec.stages[self.number]
        factor = min(1.0, (step + 1) / training.warm_up) * (1 - step / stage.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = group["highest"] * factor
        torch.manual_seed(training.seed * 1_000_003 + total)
        batch, corpus_b = self.pool.batch(rows)
        loss: Tensor = self.objective(self.encoder, batch.to(self.device), corpus_b.to(self.device))
        self.optimizer.zero_grad()
        loss.backward()
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        norm = nn.utils.clip_grad_norm_(parameters, _MAX_NORM)
        if not (math.isfinite(loss.item()) and norm.isfinite()):
            raise UserError(
                f"stages[{self.number}].learning_rate = {stage.learning_rate:g}: at step {step + 1} of {stage.steps} "
                f"the loss is {loss.item():.3g} and its gradient's norm {norm.item():.3g}; allowed: a rate at which "
                "both stay finite"
            )
        self.optimizer.step()
        return loss.item()

    def save(self, record: Record, checkpoint: Path) -> None:
        """Save the state that training resumes from."""
        save_tensors(
            {
                "encoder": self.encoder.state_dict(),
                "objective": self.objective.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "record": vars(record),
            },
            checkpoint,
        )


def _steps(
    stage: _Stage, done: int, record: Record, checkpoint: Path, on_step: OnStep, stopped: Callable[[], bool]
) -> None:
    """Run the steps of a stage after the first `done`."""
    clock, cpu, saved_at = time.monotonic(), time.process_time(), time.monotonic()
    for step, rows in enumerate(stage_batches(stage.spec, stage.number, stage.pool)[done:], start=done):
        loss = stage.step(rows, step, record.steps)
        record.steps += 1
        record.losses.append(loss)
        record.seconds += time.monotonic() - clock
        record.cpu_seconds += time.process_time() - cpu
        clock, cpu = time.monotonic(), time.process_time()
        on_step(record.steps, loss)
        if stopped():
            stage.save(record, checkpoint)
            raise PretrainingStopped
        if clock - saved_at >= stage.spec.training.checkpoint_minutes * 60:
            stage.save(record, checkpoint)
            saved_at = time.monotonic()


def _objective(spec: PretrainSpec, pool: Pool, encoder: PreTrainedModel, device: torch.device) -> nn.Module:
    """Return the loss of a pretraining, with heads drawn from the seed."""
    pieces = pieces_of(spec)
    torch.manual_seed(spec.training.seed)
    low = in_bfloat16(spec.training.precision, device)
    if spec.objective == "masked":
        return Masked(encoder, pieces, low_precision=low)
    vectors = column_vectors(encoder, pieces, pool)
    hidden = encoder.config.hidden_size
    return Supervised(hidden, pool, vectors, dropout=spec.model.dropout, low_precision=low)


def _optimizer(encoder: PreTrainedModel, objective: nn.Module, stage: StageSpec) -> torch.optim.Optimizer:
    """Return a new optimiser for a stage, with a higher learning rate for the heads."""
    own = [parameter for parameter in encoder.parameters() if parameter.requires_grad]
    rate = stage.learning_rate
    groups: list[dict[str, Any]] = [
        {"params": own, "highest": rate, "weight_decay": _WEIGHT_DECAY},
        {"params": list(objective.parameters()), "highest": HEADS * rate, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=rate, fused=True)


_PACKAGES = ("edp-sweeps", "torch", "transformers")


def has_settings_of(spec: PretrainSpec, about: dict[str, Any]) -> bool:
    """Return True if `about` (`pretraining.json`) has the settings of `spec`; corpora and start are not compared."""
    try:
        # Validation gives a setting that the file lacks its default, so that a new setting changes nothing.
        model = {**about["settings"]["model"], "pretrained": spec.model.pretrained}
        return PretrainSpec.model_validate({**about["settings"], "model": model, "corpora": spec.corpora}) == spec
    except (KeyError, TypeError, ValidationError):
        return False


def describe(spec: PretrainSpec, pool: Pool, record: Record, started_from: str) -> dict[str, Any]:
    """Return the contents of `pretraining.json`, without any path of this machine.

    Args:
        started_from: digest of the encoder that training started from.
    """
    earlier, _ = seen_by(pretrained_folder(spec.model.pretrained)[0])
    return {
        "started_from": {"name": Path(spec.model.pretrained).name, "sha256": started_from},
        "corpora": list(pool.corpora),
        "earlier_corpora": earlier,
        "settings": spec.model_dump(mode="json", exclude={"corpora": True, "model": {"pretrained"}}),
        "steps": record.steps,
        "loss": record.curve(),
        "seconds": round(record.seconds, 1),
        "cpu_seconds": round(record.cpu_seconds, 1),
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
    }


def write_folder(
    folder: Path,
    encoder: PreTrainedModel,
    pieces: WordPieces,
    spec: PretrainSpec,
    about: dict[str, Any],
    corpora: Sequence[Iterable[Utterance]],
    names: dict[str, Tensor] | None = None,
) -> None:
    """Write the encoder's folder, whole or not at all.

    It holds config.json, model.safetensors (float32), tokenizer.json, pretraining.json, the hashes of all utterances,
    and `names.safetensors` if scores of names were learnt.

    Raises:
        OSError: if the folder exists already or cannot be written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = unfinished_folder(folder.parent, f".{folder.name}-")
    try:
        with quiet():
            encoder.save_pretrained(building)
        pieces.save_tokenizer(building)
        if names:
            save_file(names, building / NAMES)
        _, earlier = seen_by(pretrained_folder(spec.model.pretrained)[0])
        hashes = [hashes_of(utterance for utterances in corpora for utterance in utterances), *earlier]
        np.save(building / HASHES, np.unique(np.concatenate(hashes)))
        (building / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        os.rename(building, folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
