"""Read the audit of real trainings, and train the same without it: what it reads, SER, and CPU seconds.

    python -m tests.benchmarks.own_audit quickstart atis_private:edp.epsilon=3 … [--seeds 3]

A case is a recipe and settings, joined by colons. It is trained with one worker, in turn with and without the audit.
The first seed is the warm-up of the others and is not timed.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch

from sweeps.config.loading import load_recipe
from sweeps.config.recipe import example_params
from sweeps.config.target_epsilon import resolve
from sweeps.engine.prepare import ensure_states
from trainables.corpora import load_corpus
from trainables.corpora.schema import public_text
from trainables.features.encoded_corpus import encode
from trainables.features.states import has_states
from trainables.records.job import TrialJob
from trainables.training.process import alone
from trainables.workers.worker import run_trial

RESULTS = Path(__file__).parent / "results" / "own-audit.json"
_FIGURES = ("epsilon", "epsilon_read", "epsilon_read_upper", "noise_factor_at_least", "noise_factor_at_most")


def case(words: str, seeds: int, folder: Path) -> dict[str, Any]:
    """Return the figures of one recipe."""
    name, *settings = words.split(":")
    recipe = load_recipe(name, ["training.workers=1", *settings])[1]
    splits = load_corpus(recipe.corpus)
    spec = resolve(recipe, example_params(recipe), len(splits.train)).spec
    text = public_text(spec.corpus) if has_states(spec.model) else []
    encode(splits, spec.model, folder / "corpus", text=text)
    if has_states(spec.model):
        ensure_states([folder / "corpus"], [spec.model], lambda _: None)
    rows = list(_rows(spec, seeds, folder))
    seconds = [(row["seconds"], row["seconds_without"]) for row in rows[1:] or rows]
    share = median(with_audit for with_audit, _ in seconds) / median(without for _, without in seconds) - 1
    return {"recipe": name, "settings": settings, "utterances": len(splits.train), "time": share, "rows": rows}


def _rows(spec: Any, seeds: int, folder: Path) -> Iterator[dict[str, Any]]:
    for seed in range(seeds):
        row: dict[str, Any] = {"seed": seed}
        for audit in (True, False):
            training = spec.training.model_copy(update={"seed": seed, "audit": audit})
            job = TrialJob(spec.model_copy(update={"training": training}), folder / "corpus", folder / f"{seed}{audit}")
            began = time.process_time()
            with alone():
                found = run_trial(job, lambda epoch, metrics: None)
            assert found is not None
            end = "" if audit else "_without"
            row |= {f"ser{end}": found.metrics["ser"], f"seconds{end}": time.process_time() - began}
            row |= {name: found.metrics[name] for name in _FIGURES if name in found.metrics}
            if audit:
                layers = json.loads((job.output / "audit.json").read_text())["layers"]
                row["layers_at_most"] = max(layers.values(), default=math.nan)
        print(json.dumps(row), flush=True)
        yield row


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("cases", nargs="+")
    asked.add_argument("--seeds", type=int, default=3)
    arguments = asked.parse_args()
    torch.set_num_threads(1)
    kept = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    for words in arguments.cases:
        print(words, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            kept[words] = case(words, arguments.seeds, Path(folder))
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
