"""Test SER of a private recipe at several honest ε: settings chosen on validation, then new seeds. By hand:

    python -m tests.benchmarks.guarantees RECIPE [KEY=VALUE …] --epsilons 8,3,1 --seeds 3 --rates 20,40 [--cache FOLDER]

For each ε, one training a learning rate is a candidate, and the one of the lowest validation SER is trained again with
seeds that choosing did not see; with `--on train+valid` on both splits, as a final model is. One rate is no choice and
has no candidate. Everything runs in one process on one core. Prints one JSON document: for each ε the mean, the seeds,
the seconds of a training, the ε of a training, and the ε of choosing and training together.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from statistics import fmean
from typing import Any


def main(words: Sequence[str]) -> None:
    """Prints one JSON document."""
    from tests.benchmarks.machine import machine, versions

    parser = argparse.ArgumentParser()
    parser.add_argument("recipe")
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--epsilons", default="8,3,1")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rates", required=True, help="learning rates at the first ε; at a lower one in proportion")
    parser.add_argument("--on", choices=["train", "train+valid"], default="train", help="of what is chosen")
    parser.add_argument("--cache", type=Path)
    asked = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as scratch:
        rows = _rows(asked, asked.cache or Path(scratch) / "cache", Path(scratch))
    command = " ".join(["python -m tests.benchmarks.guarantees", *words])
    about = {"date": f"{date.today()}", "command": command, "machine": machine(), "versions": versions()}
    print(json.dumps(about | {"rows": rows}, indent=1))


def _rows(asked: argparse.Namespace, cache: Path, scratch: Path) -> list[dict[str, Any]]:
    import torch
    import torch.distributed as dist

    from sweeps.config.loading import load_recipe

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    epsilons = [float(word) for word in asked.epsilons.split(",")]
    rows = []
    for epsilon in epsilons:
        settings = [*asked.settings, "training.workers=1", f"edp.epsilon={epsilon:g}"]
        _, recipe = load_recipe(asked.recipe, settings)
        # The noise that a weight collects is proportional to the rate, and to 1/ε about.
        rates = [float(word) * (epsilon / epsilons[0]) ** 0.6 for word in asked.rates.split(",")]
        candidates = [_train(recipe, rate, 0, cache, scratch) for rate in rates] if len(rates) > 1 else []
        rate = min(candidates, key=lambda found: found["valid_ser"])["learning_rate"] if candidates else rates[0]
        both = asked.on == "train+valid"
        again = [_train(recipe, rate, seed, cache, scratch, with_valid=both) for seed in range(1, asked.seeds + 1)]
        rows.append(_row(recipe, epsilon, candidates, rate, again))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def _row(recipe: Any, epsilon: float, candidates: list[Any], rate: float, again: list[Any]) -> dict[str, Any]:
    from edp.accounting.selection import composed_epsilon

    return {
        "recipe": recipe.description,
        "trainable": recipe.model.trainable,
        "epsilon": max(found["epsilon"] for found in again),
        "delta": recipe.edp.delta,
        "target": epsilon,
        "candidates": [{k: found[k] for k in ("learning_rate", "valid_ser")} for found in candidates],
        "learning_rate": rate,
        "ser": fmean(found["ser"] for found in again),
        "sers": [found["ser"] for found in again],
        "intent_accuracy": fmean(found["intent_accuracy"] for found in again),
        "slot_f1": fmean(found["slot_f1"] for found in again),
        "cpu_seconds": fmean(found["cpu_seconds"] for found in again),
        "epsilon_of_choice_and_one_training": composed_epsilon(
            [*(found["ledger"] for found in candidates), again[0]["ledger"]], recipe.edp.delta
        ),
    }


def _train(
    recipe: Any, rate: float, seed: int, cache: Path, scratch: Path, *, with_valid: bool = False
) -> dict[str, Any]:
    """One training and its test figures; on both splits there is no validation SER."""
    from sweeps.config.space import bound_combinations
    from sweeps.config.target_epsilon import resolve
    from sweeps.engine.prepare import encode_missing, read_missing
    from sweeps.store.prepared import locate
    from trainables.features.encoded_corpus import EncodedCorpus
    from trainables.records.epochs import read_curve
    from trainables.records.job import TrialJob
    from trainables.workers.worker import run_trial

    # What the recipe searches besides the rate is what it says where it is not searched.
    own = {"training.learning_rate": rate, "training.seed": seed}
    own |= {name: value for name, value in next(bound_combinations(recipe.dimensions)).items() if "." not in name}
    spec = recipe.trial({**own, "z0": 1.0})
    prepared = locate(spec, cache)
    encode_missing(spec, prepared, read_missing(spec, prepared), lambda line: print(line, file=sys.stderr))
    corpus = EncodedCorpus.open(prepared.corpus)
    spec = resolve(recipe, own, (corpus.with_valid_in_train() if with_valid else corpus).size("train")).spec
    folder = Path(tempfile.mkdtemp(dir=scratch))
    began = time.process_time()
    result = run_trial(TrialJob(spec, prepared.corpus, folder, with_valid=with_valid), lambda epoch, metrics: None)
    assert result is not None
    return result.metrics | {
        "learning_rate": rate,
        "valid_ser": read_curve(folder)[-1].get("valid_ser"),
        "ledger": result.ledger,
        "cpu_seconds": time.process_time() - began,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
