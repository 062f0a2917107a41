"""Train the same intent head on the same frozen states with Opacus: is the error the same, and what does it cost?

    pip install --no-deps 'opacus==1.6.*' opt_einsum
    python -m tests.benchmarks.opacus_heads [--seeds 20] [--corpora clinc150,banking77]

Noise multiplier, clip, steps, momentum, learning rate and average of the weights are those of `clinc_private` at ε = 8.
Every step takes all utterances. Opacus' ghost clipping computes no gradient of each utterance, which is its fastest for
a linear layer; *hooks* is its usual way, in virtual steps of 500 utterances, whose time is that of five steps, scaled.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
import torch
from scipy.stats import t
from torch import Tensor, nn

from sweeps.config.loading import load_recipe
from sweeps.config.recipe import example_params
from sweeps.config.target_epsilon import resolve
from sweeps.engine.prepare import ensure_states
from tests.benchmarks.machine import about
from trainables.config import TrialSpec
from trainables.corpora import load_corpus
from trainables.features.encoded_corpus import EncodedCorpus, Split, encode
from trainables.features.token_features import StateInputs
from trainables.models import JointModel
from trainables.training.process import alone, new_model, pick_device
from trainables.training.trainer import Trainer, averaged, make_optimizer

RESULTS = Path(__file__).parent / "results" / "opacus-heads.json"
_SETTINGS = {"clinc150": [], "banking77": ["corpus={name: banking77}", "search.proxy={name: clinc150}"]}
_VALUES = {"C": 0.25, "training.learning_rate": 60.0, "training.epochs": 60}
_CHUNK, _FEW_STEPS = 500, 5


def states(corpus: EncodedCorpus, part: Split) -> tuple[Tensor, Tensor]:
    """Return the states (N, D) and the intents (N,) of a split."""
    batch = corpus.batch(part, np.arange(corpus.size(part)))
    assert isinstance(batch.inputs, StateInputs)
    assert batch.intent_b is not None
    return batch.inputs.sentence_bd, batch.intent_b


def error(model: nn.Module, x_nd: Tensor, y_n: Tensor) -> float:
    head = model.intent_head if isinstance(model, JointModel) else model
    assert isinstance(head, nn.Module)
    with torch.no_grad():
        return float((head(x_nd).argmax(1) != y_n).float().mean())


def ours(spec: TrialSpec, corpus: EncodedCorpus) -> nn.Module:
    """Return the model of the product's own training."""
    with alone():
        device = pick_device(spec.training)
        trainer = Trainer(new_model(spec, corpus, device), corpus, spec, device)
        for epoch in range(spec.training.epochs):
            trainer.run_epoch(epoch)
        return trainer.released


def theirs(spec: TrialSpec, corpus: EncodedCorpus, *, ghost: bool) -> nn.Module:
    """Return the average of the weights of a linear layer that Opacus has trained."""
    import opacus.grad_sample as samples
    import opacus.optimizers as optimizers
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    x_nd, y_n = states(corpus, "train")
    head = nn.Linear(x_nd.shape[1], len(corpus.labels.intents), bias=False)
    nn.init.zeros_(head.weight)
    private: Any = {
        "noise_multiplier": spec.edp.z0,
        "max_grad_norm": spec.edp.C,
        "expected_batch_size": len(x_nd),
        "secure_mode": False,
    }
    plain = make_optimizer(spec.training, head.parameters())
    assert spec.training.average is not None
    average = averaged(head, spec.training.average)
    if ghost:
        wrapped: Any = samples.GradSampleModuleFastGradientClipping(head, max_grad_norm=spec.edp.C)
        optimizer: Any = optimizers.DPOptimizerFastGradientClipping(plain, **private)
        criterion = DPLossFastGradientClipping(wrapped, optimizer, nn.CrossEntropyLoss())
    else:
        wrapped, criterion = samples.GradSampleModule(head), nn.CrossEntropyLoss()
        optimizer = optimizers.DPOptimizer(plain, **private)
    chunks = [torch.arange(len(x_nd))] if ghost else list(torch.arange(len(x_nd)).split(_CHUNK))
    for _ in range(spec.training.epochs):
        for number, chunk in enumerate(chunks):
            if not ghost:
                optimizer.signal_skip_step(do_skip=number < len(chunks) - 1)
            criterion(wrapped(x_nd[chunk]), y_n[chunk]).backward()
            optimizer.step()
            optimizer.zero_grad()
        average.update_parameters(head)
    return average.module


def measured(name: str, seeds: int, folder: Path) -> dict[str, Any]:
    """Return the errors and seconds of all ways on one corpus."""
    recipe = load_recipe("clinc_private", ["training.audit=false", *_SETTINGS[name]])[1]
    splits = load_corpus(recipe.corpus.model_copy(update={"schema": None}))
    spec = resolve(recipe, example_params(recipe) | _VALUES, len(splits.train)).spec
    encode(splits, spec.model, folder)
    ensure_states([folder], [spec.model], lambda _: None)
    corpus = EncodedCorpus.open(folder).for_model(spec.model)
    test = states(corpus, "test")
    ways: dict[str, Callable[[TrialSpec], nn.Module]] = {
        "here": lambda spec: ours(spec, corpus),
        "opacus_ghost": lambda spec: theirs(spec, corpus, ghost=True),
    }
    errors: dict[str, list[float]] = {way: [] for way in ways}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for seed in range(seeds):
        for way, train in ways.items():
            torch.manual_seed(seed)
            training = spec.training.model_copy(update={"seed": seed})
            began = time.process_time()
            model = train(spec.model_copy(update={"training": training}))
            seconds[way].append(time.process_time() - began)
            errors[way].append(error(model, *test))
        print(name, seed, {way: (errors[way][-1], round(seconds[way][-1], 2)) for way in ways}, flush=True)
    few = spec.model_copy(update={"training": spec.training.model_copy(update={"epochs": _FEW_STEPS})})
    began = time.process_time()
    theirs(few, corpus, ghost=False)
    seconds["opacus_hooks"] = [(time.process_time() - began) * spec.training.epochs / _FEW_STEPS]
    return {
        "corpus": name,
        "utterances": len(splits.train),
        "intents": len(corpus.labels.intents),
        "noise_multiplier": spec.edp.z0,
        "C": spec.edp.C,
        "steps": spec.training.epochs,
        "learning_rate": spec.training.learning_rate,
        "errors": errors,
        "cpu_seconds": {way: median(found) for way, found in seconds.items()},
        "difference": fmean(errors["here"]) - fmean(errors["opacus_ghost"]),
        "difference_ci": interval(errors["here"], errors["opacus_ghost"]),
    }


def interval(a: list[float], b: list[float]) -> tuple[float, float]:
    """Return Welch's interval at 95 % of the difference of two means."""
    parts = [stdev(one) ** 2 / len(one) for one in (a, b)]
    freedom = sum(parts) ** 2 / sum(part**2 / (len(one) - 1) for part, one in zip(parts, (a, b), strict=True))
    half = float(t.ppf(0.975, freedom)) * sum(parts) ** 0.5
    return fmean(a) - fmean(b) - half, fmean(a) - fmean(b) + half


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--corpora", default="clinc150,banking77")
    asked.add_argument("--seeds", type=int, default=20)
    arguments = asked.parse_args()
    torch.set_num_threads(1)
    rows = json.loads(RESULTS.read_text())["rows"] if RESULTS.is_file() else []
    for name in arguments.corpora.split(","):
        with tempfile.TemporaryDirectory() as folder:
            found = measured(name, arguments.seeds, Path(folder) / "corpus")
        rows = [row for row in rows if row["corpus"] != name] + [found]
        RESULTS.write_text(json.dumps(about("opacus_heads", [], "opacus") | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
