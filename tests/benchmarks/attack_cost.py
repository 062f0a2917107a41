"""What the shadow attack adds to a trial of the `atis_clc` recipe, in CPU time of one process:

    EDP_DATA_DIR=FOLDER python -m tests.benchmarks.attack_cost

Times an epoch of eDP-SGD, an epoch's validation and a kept epoch's measurement, each with and without the attack,
in turns, and adds them up as a trial of the recipe does. Prints one JSON document.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from rich.console import Console

from edp.ledger import Ledger
from sweeps.config.loading import load_recipe
from sweeps.engine.prepare import encode_missing, read_missing
from sweeps.store.prepared import locate
from tests.benchmarks.machine import machine, versions
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.measure.attacks.shadow import fit_attack, save_attack
from trainables.measure.measuring import EARLIER_MEMBERS, final_metrics, valid_metrics
from trainables.measure.predictions import WIDTH, collect_predictions, utility_metrics
from trainables.models import build_model
from trainables.records.job import TrialJob
from trainables.training.trainer import Trainer

_ROUNDS = 3


def main() -> None:
    """Prints one JSON document."""
    _, recipe = load_recipe("atis_clc", ["training.workers=1"])
    spec = recipe.trial({"C": 1.0, "z0": 0.01, "decay": "none", "tau": 0.0})
    console = Console(stderr=True)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared = locate(spec, folder / "cache")
        encode_missing(spec, prepared, read_missing(spec, prepared), console.print)
        # Whatever it was fitted to, an attack model takes the same time; gradient boosting, the slowest, is likeliest.
        rng = np.random.default_rng(0)
        x = rng.normal(size=(2_000, WIDTH)).astype(np.float32)
        save_attack(fit_attack(x[:1_000] ** 2, x[1_000:]), folder / "attack.json")
        corpus = EncodedCorpus.open(prepared.corpus)
        cpu = torch.device("cpu")
        model = build_model(spec.model, corpus.labels, seed=0, vocabulary_size=corpus.vocabulary_size)
        trainer = Trainer(model, corpus, spec, cpu)
        job = TrialJob(spec, prepared.corpus, folder / "trial", folder / "attack.json")
        alone = replace(job, attack=None)
        group = dist.new_group(backend="gloo")

        def test_utility() -> None:
            predictions = collect_predictions(model, corpus, "test", device=cpu, group=group)
            assert predictions is not None
            utility_metrics(predictions, corpus.labels)

        epochs = iter(range(_ROUNDS + 1))
        calls: dict[str, Callable[[], object]] = {
            "epoch": lambda: trainer.run_epoch(next(epochs)),
            "validation": lambda: valid_metrics(model, corpus, alone, cpu, group),
            "validation_with_attack": lambda: valid_metrics(model, corpus, job, cpu, group),
            "test": test_utility,
            "test_with_attack": lambda: final_metrics(model, corpus, job, cpu, group),
            "earlier_test_with_attack": lambda: final_metrics(
                model, corpus, job, cpu, group, Ledger(), at_most=EARLIER_MEMBERS
            ),
        }
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        for turn in range(_ROUNDS + 1):
            for what, call in calls.items():
                began = time.process_time()
                call()
                if turn:  # the first one warms up
                    seconds[what].append(time.process_time() - began)
            print({name: [round(s, 2) for s in found] for name, found in seconds.items()}, file=sys.stderr, flush=True)
    cost = {name: statistics.median(found) for name, found in seconds.items()}
    keep, n = recipe.search.keep_epochs, spec.training.epochs
    without = n * (cost["epoch"] + cost["validation"]) + keep * cost["test"]
    attack = n * (cost["validation_with_attack"] - cost["validation"]) + cost["test_with_attack"] - cost["test"]
    attack += (keep - 1) * (cost["earlier_test_with_attack"] - cost["test"])
    about = {
        "date": f"{date.today()}",
        "command": "python -m tests.benchmarks.attack_cost",
        "machine": machine(),
        "versions": versions(),
        "members": min(corpus.size("train"), corpus.size("test")),
        "epochs": n,
        "kept_epochs": keep,
        "cpu_seconds": {name: round(value, 3) for name, value in cost.items()},
        "trial_without_attack": round(without, 1),
        "attack": round(attack, 1),
        "attack_over_trial": round(attack / without, 4),
    }
    print(json.dumps(about, indent=1))


if __name__ == "__main__":
    main()
