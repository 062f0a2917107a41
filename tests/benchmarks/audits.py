"""What canaries show of a recipe's mechanism: both audited bounds, by ε, kind and number of canaries. By hand:

    python -m tests.benchmarks.audits RECIPE [KEY=VALUE …] --epsilons 8,1 --counts 500,1000 --seeds 2 [--cache FOLDER]

A row a training: plain SGD, whose true ε is infinite, and the recipe at each ε. Trainings of the same canaries share
the coins. Everything runs in one process on one core. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any, get_args


def main(words: Sequence[str]) -> None:
    """Prints one JSON document."""
    from tests.benchmarks.machine import machine, versions

    parser = argparse.ArgumentParser()
    parser.add_argument("recipe")
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--epsilons", default="8,1")
    parser.add_argument("--counts", default="500,1000")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--cache", type=Path)
    asked = parser.parse_args(words)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for row in _rows(asked, asked.cache or Path(scratch) / "cache", Path(scratch)):
            print(json.dumps(row), file=sys.stderr, flush=True)
            rows.append(row)
    command = " ".join(["python -m tests.benchmarks.audits", *words])
    about = {"date": f"{date.today()}", "command": command, "machine": machine(), "versions": versions()}
    print(json.dumps(about | {"rows": rows}, indent=1))


def _rows(asked: argparse.Namespace, cache: Path, scratch: Path) -> Iterator[dict[str, Any]]:
    import torch
    import torch.distributed as dist

    from sweeps.config.loading import load_recipe
    from sweeps.config.space import bound_combinations
    from sweeps.config.target_epsilon import resolve
    from trainables.config.trial import CanaryKind
    from trainables.features.encoded_corpus import EncodedCorpus

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    for count in map(int, asked.counts.split(",")):
        for kind in get_args(CanaryKind):
            canaries = [f"canaries.count={count}", f"canaries.kind={kind}", "training.workers=1"]
            for target in (None, *map(float, asked.epsilons.split(","))):
                _, recipe = load_recipe(asked.recipe, [*asked.settings, *canaries, f"edp.epsilon={target or 8:g}"])
                first = {
                    name: value
                    for name, value in next(bound_combinations(recipe.dimensions)).items()
                    if "." not in name
                }
                spec = recipe.baseline()
                prepared = _encoded(spec, cache)
                if target is not None:
                    examples = EncodedCorpus.open(prepared.corpus).size("train")
                    spec = resolve(recipe, {**first, "z0": 1.0}, examples).spec
                for seed in range(asked.seeds):
                    seeded = spec.model_copy(update={"training": spec.training.model_copy(update={"seed": seed})})
                    yield {"kind": kind, "seed": seed} | _audited(seeded, prepared, scratch)


def _encoded(spec: Any, cache: Path) -> Any:
    from sweeps.run.prepare import encode_missing, locate, read_missing

    prepared = locate(spec, cache)
    encode_missing(spec, prepared, read_missing(spec, prepared), lambda line: print(line, file=sys.stderr))
    return prepared


def _audited(spec: Any, prepared: Any, scratch: Path) -> dict[str, Any]:
    """One training, and what its canaries show."""
    from trainables.records.job import TrialJob
    from trainables.workers.worker import run_trial

    output = Path(tempfile.mkdtemp(dir=scratch))
    result = run_trial(TrialJob(spec, prepared.corpus, output, coins=prepared.coins), lambda epoch, metrics: None)
    assert result is not None
    names = ("canaries", "epsilon", "epsilon_audited_any_mechanism", "epsilon_audited_own_noise", "canary_guesses")
    found = {name: result.metrics[name] for name in (*names, "canary_guesses_right", "ser", "delta")}
    return {"method": spec.training.method} | found


if __name__ == "__main__":
    main(sys.argv[1:])
