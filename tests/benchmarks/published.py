"""Tag parts of speech at a small ε on the treebanks of a published table, and print ours beside it:

    git clone -b r2.5 https://github.com/UniversalDependencies/UD_English-GUM TREEBANKS/UD_English-GUM   # and EWT
    python -m tests.benchmarks.published TREEBANKS [--treebanks gum,ewt] [--seeds 5] [--folder runs/published]

The table is that of Senge, Igamberdiev and Habernal (EMNLP 2022): a linear head on a frozen BERT-base, trained with
Opacus at δ = 1e-5. Here it is the private recipe: heads on MiniLM, whole batches clipped by sentence.

Settings are chosen on a *proxy*, sentences of the other treebank, which costs no ε. The noise of a trial there has the
same ratio to the batch as on the private treebank. What is in `published.json` is not done again.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from sklearn.metrics import accuracy_score, f1_score

from edp.accounting.epsilon import epsilon
from edp.audit import read_audit
from sweeps.config.loading import load_recipe
from sweeps.config.recipe import example_params
from sweeps.config.target_epsilon import resolve
from sweeps.engine.prepare import ensure_states
from tests.benchmarks.machine import about
from trainables.config import TrialSpec
from trainables.corpora import load_corpus
from trainables.features.encoded_corpus import EncodedCorpus, Split, encode
from trainables.measure.predictions import by_length
from trainables.models import JointModel
from trainables.records.files import atomic_write
from trainables.training.process import alone, new_model, pick_device
from trainables.training.trainer import Trainer

RESULTS = Path(__file__).parent / "results" / "published.json"
DELTA = 1e-5
TREEBANKS = {"gum": "UD_English-GUM", "ewt": "UD_English-EWT"}
PAPER = {
    "gum": {"1": 0.62, "2": 0.68, "5": 0.73, "inf": 0.83},
    "ewt": {"1": 0.69, "2": 0.71, "5": 0.75, "inf": 0.82},
}
"""Their macro-F1 by treebank and ε."""
_PARTS = {"train": "train", "valid": "dev", "test": "test"}
_PROXY_SENTENCES = 3_500
_LAYERS = ("1", "2", "1+2", "2+4")


@dataclass(frozen=True)
class Place:
    """A treebank, the other one as its proxy, and their encoded corpora."""

    private: str
    folder: Path

    @property
    def other(self) -> str:
        """The name of the public treebank."""
        return next(name for name in TREEBANKS if name != self.private)

    def spec_of(self, corpus: str, target: float, units: int, settings: dict[str, Any]) -> TrialSpec:
        """Return the training on `corpus`, `private` or `proxy`, with the noise for a corpus of `units` sentences."""
        files = {"format": "conll", "path": str(self.folder / "files")}
        name = self.private if corpus == "private" else f"{self.other}-proxy"
        own = files | {"name": name, "path": f"{files['path']}/{name}", "split": "published"}
        public = files | {"name": self.other, "path": f"{files['path']}/{self.other}", "utterances": 4000}
        optimizer = settings.get("training.optimizer", "momentum")
        given = {
            "corpus": own,
            "model.head": {"slots": "softmax", "shared_types": True, "bio": True},
            "model.features.public": [public],
            "edp.delta": DELTA,
            "edp.epsilon": target,
            "training.optimizer": optimizer,
        }
        recipe = load_recipe("private", [f"{key}={json.dumps(value)}" for key, value in given.items()])[1]
        searched = {key: value for key, value in settings.items() if key != "training.optimizer"}
        return resolve(recipe, example_params(recipe) | searched, units).spec

    def encoded(self, corpus: str) -> Path:
        """Return the folder of the encoded corpus `private` or `proxy`, with its states."""
        return self.folder / f"{self.private}-{corpus}"


def prepare(place: Place, source: Path) -> None:
    """Write the files of both treebanks, and encode the private one and its proxy, unless that was done."""
    for name in TREEBANKS:
        for part, theirs in _PARTS.items():
            sentences = list(_sentences(source / TREEBANKS[name] / f"en_{name}-ud-{theirs}.conllu"))
            _write(sentences, place.folder / "files" / name / f"{part}.conll")
            if part == "train":
                rng = np.random.default_rng(0)
                sentences = [sentences[i] for i in rng.permutation(len(sentences))[:_PROXY_SENTENCES]]
            _write(sentences, place.folder / "files" / f"{name}-proxy" / f"{part}.conll")
    specs = [
        place.spec_of(corpus, 1.0, 1000, {"model.features.layers": layers})
        for corpus in ("private", "proxy")
        for layers in _LAYERS
    ]
    folders = [place.encoded("private"), place.encoded("proxy")]
    for folder, spec in zip(folders, specs[:: len(_LAYERS)], strict=True):
        if not folder.is_dir():
            encode(load_corpus(spec.corpus), spec.model, folder)
    ensure_states(folders, [spec.model for spec in specs], lambda line: print(line, flush=True))


def _sentences(path: Path) -> Iterator[list[tuple[str, str]]]:
    """Yield the words and universal parts of speech of each sentence of a CoNLL-U file."""
    sentence: list[tuple[str, str]] = []
    for line in [*path.read_text(encoding="utf-8").splitlines(), ""]:
        cells = line.split("\t")
        if cells[0].isdecimal():
            sentence.append(("".join(cells[1].split()), cells[3]))
        elif not line and sentence:
            yield sentence
            sentence = []


def _write(sentences: list[list[tuple[str, str]]], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    blocks = ["".join(f"{word}\tB-{tag}\n" for word, tag in sentence) for sentence in sentences]
    path.write_text("\n".join(blocks), encoding="utf-8")


def candidates(trials: int, steps: list[int]) -> list[dict[str, Any]]:
    """Return the settings of the trials on a proxy, drawn at random."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(trials):
        plain = bool(rng.integers(2))
        rate = math.exp(rng.uniform(math.log(5), math.log(60)))
        found.append(
            {
                "training.optimizer": "sgd" if plain else "momentum",
                "training.learning_rate": round(rate * (5 if plain else 1), 1),
                "training.epochs": int(rng.choice(steps)),
                "C": float(rng.choice([0.25, 1.0])),
                "model.features.layers": str(rng.choice(_LAYERS)),
                "model.features.whiten": float(rng.choice([0.5, 0.75, 1.0])),
            }
        )
    return found


def train(spec: TrialSpec, folder: Path, parts: tuple[Split, ...]) -> dict[str, Any]:
    """Train, and return ε, seconds, and accuracy and macro-F1 on `parts`."""
    began = time.process_time()
    corpus = EncodedCorpus.open(folder).for_model(spec.model)
    with alone():
        device = pick_device(spec.training)
        trainer = Trainer(new_model(spec, corpus, device), corpus, spec, device)
        for epoch in range(spec.training.epochs):
            trainer.run_epoch(epoch)
        found: dict[str, Any] = {}
        if trainer.audit is not None:
            read = read_audit(trainer.audit.scores(), trainer.guarantee, DELTA)
            assert read.audit_alarm is None, read.audit_alarm
            found = {"epsilon": epsilon(trainer.guarantee, DELTA), "epsilon_read": read.epsilon_read}
        for part in parts:
            found |= {f"{part}_{name}": value for name, value in scores(trainer.released, corpus, part).items()}
    del trainer
    gc.collect()  # a trainer refers to itself, and holds the states
    return found | {"seconds": time.process_time() - began}


def scores(model: JointModel, corpus: EncodedCorpus, part: Split) -> dict[str, float]:
    """Return the accuracy of the tokens of a split, and the mean over the parts of speech there of their F1."""
    model.eval()
    names = np.array([tag[2:] for tag in corpus.tag_names])
    gold, predicted = [], []
    for places in by_length(corpus.lengths(part), 256):
        with torch.inference_mode():
            _, tags_bt = model.likeliest(model.outputs(corpus.batch(part, places)))
        for row, true in zip(tags_bt.numpy(), corpus.tag_ids(part, places), strict=True):
            gold.append(names[true])
            # An encoder cuts long sentences; a token that it has no room for counts as wrong.
            predicted.append(np.append(names[row[: len(true)]], [""] * (len(true) - len(row))))
    true_n, found_n = np.concatenate(gold), np.concatenate(predicted)
    f1 = f1_score(true_n, found_n, labels=np.unique(true_n), average="macro", zero_division=0)
    return {"accuracy": float(accuracy_score(true_n, found_n)), "f1": float(f1)}


def choose(place: Place, target: str, units: int, tried_settings: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the settings that are best on the proxy's validation sentences, and what all trials found there."""
    proxy_units = EncodedCorpus.open(place.encoded("proxy")).size("train")
    tried = []
    for settings in tried_settings:
        spec = place.spec_of("proxy", float(target), units, settings)
        z0 = spec.edp.z0 * proxy_units / units
        spec = spec.model_copy(update={"edp": spec.edp.model_copy(update={"z0": z0})})
        found = train(spec, place.encoded("proxy"), ("valid",))
        tried.append({"settings": settings, "accuracy": found["valid_accuracy"], "f1": found["valid_f1"]})
        print(place.private, target, json.dumps(tried[-1]), f"{found['seconds']:.1f} s", flush=True)
    return {"chosen": max(tried, key=lambda one: one["f1"])["settings"], "tried": tried}


def table(document: dict[str, Any]) -> str:
    """Return the table for the documentation."""
    lines = ["| | ε = 1 | 2 | 5 | ∞ |", "|---|---|---|---|---|"]
    for treebank in PAPER:
        rows = [row for row in document["rows"] if row["treebank"] == treebank]
        lines.append(f"| {treebank}: paper, F1 | {' | '.join(f'{f1:.2f}' for f1 in PAPER[treebank].values())} |")
        for name in ("f1", "accuracy"):
            cells = []
            for target in PAPER[treebank]:
                found = [row[f"test_{name}"] for row in rows if row["target"] == target]
                spread = f" ± {stdev(found):.3f}" if len(found) > 1 else ""
                cells.append(f"{fmean(found):.3f}{spread} ({len(found)})" if found else "")
            lines.append(f"| {treebank}: here, {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Train what `published.json` lacks, the cells of ε = 1 first, and print the table."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("source", type=Path, help="folder with clones of both treebanks")
    asked.add_argument("--treebanks", default="gum,ewt")
    asked.add_argument("--seeds", type=int, default=5)
    asked.add_argument("--trials", type=int, default=10, help="on the proxy, for each epsilon")
    asked.add_argument("--steps", type=int, nargs="+", default=[20, 40, 60], help="of a training, to choose from")
    asked.add_argument("--folder", type=Path, default=Path("runs/published"))
    arguments = asked.parse_args()
    torch.set_num_threads(1)
    document = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {"choices": {}, "rows": []}
    document |= about("published", ["TREEBANKS"], "scikit-learn") | {"delta": DELTA, "paper": PAPER}

    def keep() -> None:
        with atomic_write(RESULTS) as partial:
            partial.write_text(json.dumps(document, indent=1) + "\n")

    places = [Place(name, arguments.folder.resolve()) for name in arguments.treebanks.split(",")]
    for place in places:
        prepare(place, arguments.source)
        units = EncodedCorpus.open(place.encoded("private")).size("train")
        choices = document["choices"].setdefault(place.private, {})
        for target in ("1", "2", "5"):
            if target not in choices:
                choices[target] = choose(place, target, units, candidates(arguments.trials, arguments.steps))
                keep()
    done = {(row["treebank"], row["target"], row["seed"]) for row in document["rows"]}
    for seed in range(arguments.seeds):
        for place in places:
            units = EncodedCorpus.open(place.encoded("private")).size("train")
            for target in PAPER[place.private]:
                if (place.private, target, seed) in done:
                    continue
                private = target != "inf"
                chosen = document["choices"][place.private][target if private else "5"]["chosen"]
                spec = place.spec_of("private", float(target) if private else 8.0, units, chosen)
                training = spec.training if private else spec.non_private_training()
                spec = spec.model_copy(update={"training": training.model_copy(update={"seed": seed})})
                found = train(spec, place.encoded("private"), ("valid", "test"))
                print(f"{found.pop('seconds'):.1f} s", end=" ")
                row = {"treebank": place.private, "target": target, "seed": seed, **found}
                document["rows"].append(row)
                keep()
                print(json.dumps(row), flush=True)
    print(table(document))


if __name__ == "__main__":
    main()
