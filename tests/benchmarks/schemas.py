"""SER by the number of a schema's samples: the schema alone, and private heads on top of it. By hand:

    python -m tests.benchmarks.schemas RECIPE [KEY=VALUE …] --epsilons 3,1 --rates 190,100 --samples 1,2,4,8,10

A number of samples is that of the first ones of each intent; of a corpus without intents, it is tenths of all. 0: heads
without text. Everything runs in one process on one core. Prints one JSON document: for each number the samples and
utterances of the text, how many of these are in the corpus, the SER of the schema alone, and that of private heads.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from sweeps.config.loading import load_recipe
from sweeps.config.recipe import Recipe
from sweeps.config.target_epsilon import resolve
from sweeps.engine.frozen_states import ensure_states
from sweeps.engine.prepare import encode_missing, read_missing
from sweeps.store.prepared import locate
from tests.benchmarks.machine import machine, versions
from trainables.config import BERTSpec, TrialSpec
from trainables.corpora import load_corpus
from trainables.corpora.schema import public_text, whole_schema
from trainables.corpora.schema_text import Samples, make_text
from trainables.features.encoded_corpus import EncodedCorpus, Split
from trainables.features.encoding import encode
from trainables.measure.predictions import collect_predictions, utility_metrics
from trainables.models import JointModel, build_model
from trainables.training.public_heads import Weights, from_text, public_start, slots_of_intents
from trainables.training.trainer import Trainer

_CPU = torch.device("cpu")
_SPLITS: tuple[Split, ...] = ("valid", "test")


def main(words: Sequence[str]) -> None:
    """Prints one JSON document."""
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe")
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--epsilons", default="3,1")
    parser.add_argument("--rates", required=True, help="a learning rate for each ε")
    parser.add_argument("--samples", default="0,1,2,4,8,10")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--cache", type=Path)
    asked = parser.parse_args(words)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with tempfile.TemporaryDirectory() as scratch:
        rows = _rows(asked, asked.cache or Path(scratch) / "cache")
    command = " ".join(["python -m tests.benchmarks.schemas", *words])
    about = {"date": f"{date.today()}", "command": command, "machine": machine(), "versions": versions()}
    print(json.dumps(about | {"rows": rows}, indent=1))


def _rows(asked: argparse.Namespace, cache: Path) -> list[dict[str, Any]]:
    recipes: dict[str, Recipe] = {}
    for epsilon, rate in zip(asked.epsilons.split(","), asked.rates.split(","), strict=True):
        settings = [*asked.settings, "training.workers=1", f"edp.epsilon={epsilon}", f"training.learning_rate={rate}"]
        recipes[epsilon] = load_recipe(asked.recipe, settings)[1]
    base = next(iter(recipes.values())).trial({"z0": 1.0})
    schema = whole_schema(base.corpus)
    assert schema is not None, "the recipe has a schema"
    numbers = [int(word) for word in asked.samples.split(",")]
    texts = {number: make_text(_first(schema.text, number)) if number else [] for number in numbers}
    said = {one.tokens for one in load_corpus(base.corpus).utterances}
    corpus, model = _encoded(base, texts, cache), base.model
    assert isinstance(model, BERTSpec), "the recipe trains heads"
    ends = np.cumsum([0, *map(len, texts.values())])
    names = public_start(model.model_copy(update={"schema_weight": 0.0, "slot_prior": 0.0}), corpus)
    rows = []
    for at, (number, text) in enumerate(texts.items()):
        alone, start = _starts(model, corpus, names, np.arange(ends[at], ends[at + 1])) if text else (None, names)
        row: dict[str, Any] = {
            "corpus": base.corpus.name,
            "samples_an_intent": number,
            "samples": _first(schema.text, number).count,
            "text": len(text),
            "in_the_corpus": len({one.tokens for one in text} & said),
            "schema_alone": _measured(base, corpus, alone) if alone else None,
        }
        for epsilon, recipe in recipes.items():
            spec, began = resolve(recipe, {}, corpus.size("train")).spec, time.process_time()
            row[f"epsilon_{epsilon}"] = [_trained(_with_seed(spec, seed), corpus, start) for seed in range(asked.seeds)]
            row["cpu_seconds"] = round((time.process_time() - began) / asked.seeds, 1)
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    return rows


def _first(text: Samples, number: int) -> Samples:
    """Return the first samples of each intent; of one intent alone, as many tenths."""
    alone = len(text.samples) == 1
    kept = {intent: all_[: len(all_) * number // 10 if alone else number] for intent, all_ in text.samples.items()}
    return replace(text, samples=kept)


def _encoded(base: TrialSpec, texts: dict[int, list[Any]], cache: Path) -> EncodedCorpus:
    """Return the corpus with the texts of all numbers, one after the other, so that its states are computed once."""

    def say(line: str) -> None:
        print(line, file=sys.stderr)

    prepared = locate(base, cache)
    encode_missing(base, prepared, read_missing(base, prepared), say)
    every = [one for text in texts.values() for one in text]
    folder = prepared.corpus.with_name(f"{prepared.corpus.name}-texts")
    if every == public_text(base.corpus):  # which the corpus is encoded with
        folder = prepared.corpus
    elif not folder.is_dir():
        features = EncodedCorpus.open(prepared.corpus).features()
        encode(load_corpus(base.corpus), base.model, folder, features=features, text=every)
    ensure_states([folder], [base.model], say)
    return EncodedCorpus.open(folder).for_model(base.model)


def _starts(model: BERTSpec, corpus: EncodedCorpus, names: Weights, rows_n: np.ndarray) -> tuple[Weights, Weights]:
    """Return the state of heads of the text alone, and that of heads which begin at a part of it."""
    learnt = from_text(model, corpus, names, rows_n)
    slots = {"slots_ik": model.slot_prior * slots_of_intents(corpus, rows_n)} if model.slot_prior else {}
    part = {name: names[name] + model.schema_weight * (learnt[name] - names[name]) for name in names}
    return learnt | slots, part | slots


def _with_seed(spec: TrialSpec, seed: int) -> TrialSpec:
    return spec.model_copy(update={"training": spec.training.model_copy(update={"seed": seed})})


def _model(spec: TrialSpec, corpus: EncodedCorpus, start: Weights) -> JointModel:
    model = build_model(spec.model, corpus.labels, seed=0, state_sizes=corpus.state_sizes)
    model.load_state_dict(start, strict=False)  # without text, intents tell nothing of slots
    return model


def _trained(spec: TrialSpec, corpus: EncodedCorpus, start: Weights) -> dict[str, float]:
    trainer = Trainer(_model(spec, corpus, start), corpus, spec, _CPU)
    for epoch in range(spec.training.epochs):
        trainer.run_epoch(epoch)
    return _sers(trainer.released, corpus)


def _measured(spec: TrialSpec, corpus: EncodedCorpus, start: Weights) -> dict[str, float]:
    return _sers(_model(spec, corpus, start), corpus)


def _sers(model: JointModel, corpus: EncodedCorpus) -> dict[str, float]:
    model.eval()
    found = {}
    for split in _SPLITS:
        seen = collect_predictions(model, corpus, split, None, device=_CPU, group=None, features=False)
        assert seen is not None, "there is one process"
        found[split] = round(utility_metrics(seen, corpus.labels)["ser"], 4)
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
