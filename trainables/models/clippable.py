"""Whether the gradients of several micro-batches can be told apart in one backward pass of an encoder."""

from __future__ import annotations

import copy
import functools
from pathlib import Path

import torch
from transformers import PreTrainedConfig

from edp.per_example import UnsupportedLayer, record_per_example
from edp.spec import UserError
from trainables.encoders.architecture import check_layers, check_top_layers, cut, empty_encoder, read_config
from trainables.encoders.pretrained import check_states, pretrained_folder
from trainables.records.files import one_line
from trainables.spec import BERTSpec, TrialSpec


def check_encoder(model: BERTSpec, spec: TrialSpec) -> None:
    """Refuses a pretrained encoder without the layers that a trial takes, or that a worker could not clip as it asks.

    DeBERTa is one of these: its relative positions are the same tensor for all utterances.

    Raises:
        UserError: saying what is allowed.
    """
    name, training = model.pretrained, spec.training
    folder = pretrained_folder(name)[0] if name is not None else None
    if name is None or folder is None:
        return
    config = read_config(folder, name)
    check_layers(config, model.layers, name)
    check_top_layers(model, model.layers or config.num_hidden_layers)
    check_states(model, config)
    if model.trainable == "heads":
        return  # what is frozen is not clipped
    one_each = training.clips == training.workers and spec.edp.sampling == "shuffle" and spec.edp.alpha != "private"
    if training.method == "sgd" or one_each:
        return  # a worker's only micro-batch is clipped from its gradient, whatever the encoder
    fault = _fault_of(folder, name)
    if fault is not None:
        raise UserError(
            f"model.pretrained = {name}: several micro-batches of one worker cannot be clipped with type "
            f"{config.model_type} ({fault}); "
            "allowed: model.trainable = heads, or shuffled epochs with training.workers = training.micro_batches and "
            "edp.alpha = fixed, public, paper or none"
        )


@functools.cache
def _fault_of(folder: Path, name: str) -> str | None:
    return clipping_fault(read_config(folder, name))


def clipping_fault(config: PreTrainedConfig) -> str | None:
    """Why `edp.per_example` cannot tell two examples' gradients apart, found out by trying; None where it can.

    Two layers of an architecture are enough: what layers share is shared by two.
    """
    small = copy.deepcopy(config)
    cut(small, min(2, config.num_hidden_layers))
    with torch.random.fork_rng(devices=[]):
        model = empty_encoder(small)
        ids_bs = torch.arange(8).view(2, 4) % config.vocab_size
        try:
            recorder = record_per_example(model)
            with recorder.examples(torch.arange(2), 2):
                states_bsh = model(input_ids=ids_bs, attention_mask=torch.ones_like(ids_bs)).last_hidden_state
            states_bsh.sum().backward()
            recorder.squared_norms()
        except (UnsupportedLayer, RuntimeError) as error:
            return one_line(error)
    return None
