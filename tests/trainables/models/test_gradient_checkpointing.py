"""Layers that run again in the backward pass: less memory, the same gradients, and a recorder that records once.

`test_encoder_gradients.py` holds the clipped sums of every family against a literal loop.
"""

from __future__ import annotations

import gc
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch.profiler import ProfilerActivity, profile

from edp.per_example import record_per_example
from tests.support.models import EXAMPLES, batch_of, build
from tests.support.tiny import RANDOM_BERT, SPEC, trial, weights
from tests.support.toy import BERT, encoded
from tests.support.workers import run_workers
from trainables.config import BERTSpec, TrialSpec
from trainables.corpora import load_corpus
from trainables.features.encoded_corpus import encode
from trainables.models import JointModel
from trainables.models.trainable import checkpoint_layers, layers_of
from trainables.records.job import TrialJob
from trainables.training.batches import examples_that_fit

WIDE = BERT.model_copy(update={"layers": 6, "hidden_size": 32, "dropout": 0.1})
PARTS = {part: WIDE.model_copy(update={"trainable": part}) for part in ("all", "lora")}


def net_of(model: BERTSpec, place: Path, *, checkpointing: bool) -> tuple[Any, JointModel]:
    corpus = encoded(model, place)
    net = build(model, corpus).train()
    if checkpointing:
        checkpoint_layers(net)
    return corpus, net


def held(net: JointModel, corpus: Any, *, recorded: bool) -> int:
    """Bytes that a forward pass leaves for the backward pass, in autograd's hands or in a closure's."""
    batch = batch_of(corpus, EXAMPLES, torch.float32)
    recording = net.recorder.examples(torch.arange(12), 12) if recorded and net.recorder is not None else nullcontext()
    gc.collect()  # what earlier tests left would count when it is freed
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled, recording:
        loss_b = net(batch)
    loss_b.sum().backward()
    return sum(event.self_cpu_memory_usage for event in profiled.events())


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("model", PARTS.values(), ids=PARTS.keys())
@pytest.mark.slow
def test_a_forward_pass_leaves_less_for_the_backward_pass(model: BERTSpec, recorded: bool, tmp_path: Path) -> None:
    found = {}
    for checkpointing in (False, True):
        corpus, net = net_of(model, tmp_path, checkpointing=checkpointing)
        if recorded:
            net.recorder = record_per_example(net)
        batch = corpus.batch("train", EXAMPLES)
        found[checkpointing] = held(net, corpus, recorded=recorded)
        if not recorded:
            found[f"fits, {checkpointing}"] = examples_that_fit(net, batch, torch.device("cpu"))
    assert found[True] < 0.4 * found[False], "five of six layers keep their inputs alone"
    if not recorded:
        assert found["fits, True"] > 2 * found["fits, False"], "a chunk may have more utterances"


def test_every_layer_but_the_last_runs_twice_and_is_recorded_once(tmp_path: Path) -> None:
    corpus, net = net_of(PARTS["lora"], tmp_path, checkpointing=True)
    net.recorder = recorder = record_per_example(net)
    runs = [0] * 6
    for number, layer in enumerate(layers_of(net.get_submodule("encoder"))):

        def count(*_: Any, number: int = number) -> None:
            runs[number] += 1

        layer.get_submodule("attention").register_forward_pre_hook(count)
    with recorder.examples(torch.arange(12), 12):
        loss_b = net(batch_of(corpus, EXAMPLES, torch.float32))
    assert runs == [1] * 6
    loss_b.sum().backward()
    assert runs == [2] * 5 + [1]
    assert recorder.squared_norms().shape == (12, len(recorder.layer_names)), "record raises for a second one"


def spec_of(checkpointing: bool, **training: Any) -> TrialSpec:
    model = RANDOM_BERT | {"layers": 3, "trainable": "lora", "dropout": 0.2}
    changed = SPEC["training"] | {"gradient_checkpointing": checkpointing} | training
    return TrialSpec.model_validate(SPEC | {"model": model, "training": changed})


@pytest.mark.stress
@pytest.mark.parametrize(
    "training",
    [
        {"method": "dpsgd", "workers": 2, "average": 0.5},
        {"method": "edp", "workers": 8},
        {"method": "sgd", "workers": 2},
        {"method": "dpsgd", "precision": "bfloat16"},
    ],
    ids=["dpsgd, averaged", "one micro-batch a worker", "sgd", "bfloat16"],
)
def test_a_training_gives_the_same_weights(training: dict[str, Any], tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    encode(load_corpus(spec_of(True).corpus), spec_of(True).model, corpus)
    for checkpointing in (False, True):
        job = TrialJob(spec_of(checkpointing, **training), corpus, tmp_path / str(checkpointing))
        results = run_workers(trial, training.get("workers", 1), job)
        assert not isinstance(results[0], str), results[0]
    assert torch.equal(weights(tmp_path / "False"), weights(tmp_path / "True"))


@pytest.mark.parametrize(
    "model", [SPEC["model"], RANDOM_BERT | {"trainable": "heads"}], ids=["clc", "a frozen encoder"]
)
def test_without_layers_of_an_encoder_to_train_it_is_refused(model: dict[str, Any]) -> None:
    says = (
        "training.gradient_checkpointing = true has no meaning without layers of an encoder that are trained; allowed: "
    )
    with pytest.raises(ValidationError, match=re.escape(says)):
        TrialSpec.model_validate(SPEC | {"model": model, "training": {"gradient_checkpointing": True}})
