"""Write secret words into SNIPS, train on it with and without privacy, and extract them.

    python -m tests.benchmarks.extraction [--models clc,bert,heads] [--ways sgd,8,3,1]

40 utterances such as `my rusty lamp is fiona`, whose last word is the secret, are put among 1,000 training utterances:
20 of them once, 20 of them ten times. ε is for one utterance. Each secret has 50 candidates, first names. CLC and
BERT (MiniLM) are trained whole, `heads` are those of `snips_private`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sweeps.config.loading import load_recipe
from sweeps.config.recipe import example_params
from sweeps.config.target_epsilon import resolve
from sweeps.engine.prepare import ensure_states
from tests.benchmarks.machine import about
from trainables.config import CorpusSpec, TrialSpec
from trainables.corpora import load_corpus
from trainables.corpora.generators import shared_words
from trainables.corpora.types import Splits, Utterance
from trainables.features.encoded_corpus import EncodedCorpus, encode
from trainables.measure.attacks.extraction import SECRET, extraction, secrets_in
from trainables.records.files import atomic_write
from trainables.records.job import TrialJob
from trainables.training.process import alone
from trainables.training.references import score_target
from trainables.workers.worker import run_trial

RESULTS = Path(__file__).parent / "results" / "extraction.json"
SECRETS, CANDIDATES, COPIES = 40, 50, (1, 10)
_TRAIN, _OTHERS = 1_000, 300
_POISSON = ["training.method=dpsgd", "training.batch_size=256", "edp.sampling=poisson", "edp.alpha=none"]
_HEADS = {"training.learning_rate": 20.0, "training.epochs": 60, "model.features.layers": "2+4"}
_MODELS: dict[str, tuple[str, list[str], list[str], dict[str, Any]]] = {
    "clc": ("snips_clc", ["training.epochs=12"], _POISSON, {}),
    "bert": (
        "snips_bert",
        ["model.pretrained=minilm", "model.sentence=mean", "training.epochs=4"],
        [*_POISSON, "training.epochs=6"],
        {},
    ),
    "heads": ("snips_private", ["model.schema_weight=0"], [], _HEADS),
}
"""Of each model its recipe, its settings, what else is set for a private training, and values in its space."""


def write_corpus(folder: Path) -> CorpusSpec:
    """Write SNIPS' utterances and the secrets as the published parts of a corpus, and return it."""
    rng = np.random.default_rng(0)
    snips = load_corpus(CorpusSpec(name="snips"))
    train, valid, test = (
        [part[i] for i in rng.permutation(len(part))[:size]]
        for part, size in ((snips.train, _TRAIN), (snips.valid, _OTHERS), (snips.test, _OTHERS))
    )
    names = sorted(set(shared_words("first")))[:CANDIDATES]
    adjectives, nouns = (sorted(set(shared_words(kind))) for kind in ("adjective", "noun"))
    for number in range(SECRETS):
        frame = ("my", adjectives[number % len(adjectives)], nouns[number % len(nouns)], "is")
        every = [Utterance((*frame, name), ("O",) * len(frame) + (SECRET,), "Remember") for name in names]
        secret = every.pop(int(rng.integers(CANDIDATES)))
        train += [secret] * COPIES[number % 2]
        test += every
        valid += every[:1]
    for name, part in {"train": train, "valid": valid, "test": test}.items():
        path = folder / "files" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = ({"tokens": one.tokens, "tags": one.tags, "intent": one.intent} for one in part)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return CorpusSpec(name="snips-secrets", path=str(folder / "files"), format="jsonl", split="published")


def spec_of(model: str, way: str, corpus: CorpusSpec, units: int) -> TrialSpec:
    recipe, settings, private, values = _MODELS[model]
    if way != "sgd":
        settings = [*settings, *private, f"edp.epsilon={way}"]
    common = [f"corpus={json.dumps(corpus.model_dump(exclude_defaults=True))}", "training.workers=1"]
    made = load_recipe(recipe, [*common, *settings])[1]
    params = example_params(made) | {"C": 0.5, "decay": "none", "tau": 0.0} | values
    spec = resolve(made, params | {"z0": 1.0}, units).spec
    return spec.model_copy(update={"training": spec.non_private_training()}) if way == "sgd" else spec


def cell(model: str, way: str, folder: Path, splits: Splits, corpus: CorpusSpec) -> dict[str, Any]:
    """Train one model, and return what is extracted from it."""
    spec = spec_of(model, way, corpus, len(splits.train))
    encoded = folder / model
    if not encoded.is_dir():
        encode(splits, spec.model, encoded)
        ensure_states([encoded], [spec.model], lambda _: None)
    job = TrialJob(spec, encoded, folder / f"{model}-{way}")
    with alone():
        result = run_trial(job, lambda epoch, metrics: None)
    assert result is not None
    seen = score_target(spec, encoded, job.output / "model.pt")
    of_each = np.split(seen["candidate_losses"], seen["candidates"].cumsum()[:-1])
    data = EncodedCorpus.open(encoded)
    told = [one.tokens for one in data.utterances("train", np.arange(data.size("train")))]
    copies = np.array([told.count(told[row]) for row, _ in secrets_in(data)])
    found: dict[str, Any] = {"model": model, "trained": way, "ser": result.metrics["ser"]}
    found |= {"epsilon": result.metrics["epsilon"] if way != "sgd" else None}
    for count in COPIES:
        chosen = np.flatnonzero(copies == count)
        found[f"copies_{count}"] = asdict(extraction(seen["secret_losses"][chosen], [of_each[i] for i in chosen]))
    return found


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--models", default="clc,bert,heads")
    asked.add_argument("--ways", default="sgd,8,3,1")
    arguments = asked.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        corpus = write_corpus(Path(folder))
        splits = load_corpus(corpus)
        for model in arguments.models.split(","):
            for way in arguments.ways.split(","):
                found = cell(model, way, Path(folder), splits, corpus)
                print(json.dumps(found), flush=True)
                kept = json.loads(RESULTS.read_text())["rows"] if RESULTS.is_file() else []
                rows = [row for row in kept if (row["model"], row["trained"]) != (model, way)] + [found]
                with atomic_write(RESULTS) as partial:
                    partial.write_text(json.dumps(about("extraction", []) | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
