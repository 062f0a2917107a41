"""From files to sums: without one unit, the clipped sum of every step differs by what the ledger charges, and no more.

Two corpora on disk, one of which lacks a unit, are loaded, split, encoded, batched, drawn and trained as a trial does,
with the same secrets and without noise. Blanks, whose losses are 0, keep the number of units, which is public: in the
unit's place if epochs are shuffled, at the end of the file with Poisson sampling.
"""

from __future__ import annotations

import gc
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edp.alpha import votes
from edp.sampling import shuffled_epoch
from tests.support.encoder_folders import make_encoder, make_frozen
from tests.support.toy import features
from trainables.config import CorpusSpec, ModelSpec, TrialSpec
from trainables.corpora import generate, load_corpus
from trainables.corpora.splits import TRAIN_SHARE, places
from trainables.corpora.types import Utterance
from trainables.features.compute_states import all_state_names, write_moments, write_states
from trainables.features.encoded_corpus import EncodedCorpus, encode
from trainables.features.states import has_states
from trainables.training import scales
from trainables.training.batches import run_key
from trainables.training.neighbours import Difference, Neighbour, differences
from trainables.training.process import alone, new_model
from trainables.training.scales import _private_norms

ROUNDING = 2e-5
"""Share of the charge of all units of a step by which rounding may move its sum. bfloat16 has its own."""
ROUNDING_BFLOAT16 = 0.02
LOUD = 100.0
"""Factor of the losses: every gradient is longer than the clip, so that each clipped one is a whole C long."""
PUBLIC: dict[str, Any] = {"name": "health", "utterances": 60}

CLC: dict[str, Any] = {
    "kind": "clc",
    "embeddings": {"corpus": PUBLIC},
    **{"embedding_size": 8, "hidden_size": 6, "char_filters": 5, "char_embedding_size": 4, "layers": 2},
}
BERT: dict[str, Any] = {"kind": "bert", "pretrained": None, "hidden_size": 8, "layers": 2, "heads": 2}
LORA: dict[str, Any] = {
    "kind": "bert",
    "pretrained": "llama",
    **{"trainable": "lora", "lora_target": "all", "sentence": "last"},
}
HEADS: dict[str, Any] = {
    "kind": "bert",
    "pretrained": "bert",
    "trainable": "heads",
    "features": {"layers": "1+3", "public": [PUBLIC]},
}
MODELS = {"clc": CLC, "bert": BERT, "lora": LORA, "heads": HEADS}

EDP: dict[str, Any] = {"method": "edp", "batch_size": 8, "micro_batches": 4}
DPSGD: dict[str, Any] = {"method": "dpsgd", "batch_size": 8}
POISSON: dict[str, Any] = {"sampling": "poisson"}
MECHANISMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "edp shuffled": (EDP, {}),
    "edp poisson": (EDP, POISSON),
    "edp micro-batches": (EDP, {"unit": "micro_batch"}),
    "dpsgd shuffled": (DPSGD, {}),
    "dpsgd poisson": (DPSGD, POISSON),
    "dpsgd full": ({**DPSGD, "batch_size": "full"}, {}),
    "users shuffled": ({**DPSGD, "batch_size": 3}, {"unit": "user"}),
    "users poisson": ({**DPSGD, "batch_size": 3}, {"unit": "user", **POISSON}),
    "two of a user shuffled": ({**DPSGD, "batch_size": 3}, {"unit": "user", "user_utterances": 2}),
    "two of a user poisson": ({**DPSGD, "batch_size": 3}, {"unit": "user", "user_utterances": 2, **POISSON}),
    "two of a user full": ({**DPSGD, "batch_size": "full"}, {"unit": "user", "user_utterances": 2}),
}
ALPHAS = ("none", "fixed", "public", "private")
CLIPS = ("fixed", "quantile")


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoders")
    make_encoder("bert", folder / "bert")
    make_frozen("llama", folder / "llama")
    return folder


def said() -> list[Utterance]:
    """72 utterances of 9 users, some of them said twice, also by the same user."""
    found = [one._replace(user=f"user {n % 9}") for n, one in enumerate(generate("communication", 60, seed=1))]
    return [*found, *found[3:9], *(one._replace(user="user 2") for one in found[20:26])]


def blank(user: str) -> Utterance:
    """An utterance that the split puts into train."""
    place = places("split 0")
    texts = (("blank", str(number)) for number in itertools.count())
    made = (Utterance(words, ("O", "O"), said()[0].intent, user) for words in texts)
    return next(one for one in made if place(one) < TRAIN_SHARE)


def write(path: Path, utterances: list[Utterance]) -> CorpusSpec:
    rows = ({"tokens": u.tokens, "tags": u.tags, "intent": u.intent, "user": u.user} for u in utterances)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return CorpusSpec(name="mine", path=str(path), schema="communication")


def gone_from(train: list[Utterance], spec: TrialSpec) -> list[int]:
    """The training utterances that are one unit."""
    if spec.edp.unit == "user":
        return [n for n, one in enumerate(train) if one.user == "user 1"]
    if spec.edp.unit == "micro_batch":
        steps = shuffled_epoch(len(train), batch_size=8, micro_batches=4, seed=spec.training.seed, epoch=0)
        return sorted(map(int, next(iter(steps))[0][1]))
    return [len(train) // 3]


def trial(model: dict[str, Any], training: dict[str, Any], edp: dict[str, Any], encoders: Path) -> TrialSpec:
    model = {**model} if model["kind"] == "clc" else {**model, "vocabulary": PUBLIC}
    if model.get("pretrained"):
        model["pretrained"] = str(encoders / model["pretrained"])
    training = {"epochs": 2, "workers": 1, "learning_rate": 0.05, "validate_every": 2, **training}
    training["epochs"] = 1 if edp.get("unit") == "micro_batch" else training["epochs"]
    return TrialSpec.model_validate(
        {
            "corpus": {"name": "mine", "path": "mine.jsonl"},
            "shadow": {"corpus": {"name": "video", "utterances": 60}},
            "model": model,
            "training": training,
            "edp": {"C": 0.5, "delta": 1e-2, **edp},
        }
    )


def read(path: Path, utterances: list[Utterance], model: ModelSpec) -> tuple[EncodedCorpus, list[Utterance]]:
    """Return the corpus of a file of these utterances, as `model` reads it, and its training split."""
    splits = load_corpus(write(path, utterances))
    folder = path.with_suffix("")
    own = None if has_states(model) or getattr(model, "pretrained", None) else features(model)
    corpus = encode(splits, model, folder, features=own)
    if has_states(model):
        names = all_state_names([model], corpus.labels)
        write_states(folder, model, names)
        write_moments(folder, model, names)
    return EncodedCorpus.open(folder).for_model(model), splits.train


def neighbours(
    spec: TrialSpec, tmp_path: Path, utterances: list[Utterance] | None = None
) -> tuple[Neighbour, Neighbour]:
    """Return a corpus, and the same one without a unit, from files of their own."""
    utterances = said() if utterances is None else utterances
    corpus, train = read(tmp_path / "with.jsonl", utterances, spec.model)
    gone = gone_from(train, spec)
    user = train[gone[0]].user if spec.edp.unit == "user" else "nobody"
    lines: list[Utterance] = []
    at_the_end: list[Utterance] = []
    row = 0  # of train, which keeps the file's order
    for one in utterances:
        in_train = row < len(train) and one == train[row]
        if in_train and row in gone:
            (at_the_end if spec.edp.sampling == "poisson" else lines).append(blank(user))
        else:
            lines.append(one)
        row += in_train
    other, its = read(tmp_path / "without.jsonl", [*lines, *at_the_end], spec.model)
    assert len(its) == len(train), "the number of units is public"
    blanks = [n for n, one in enumerate(its) if one.tokens[0] == "blank"]
    assert len(blanks) == len(gone)
    return Neighbour(corpus, np.array(gone)), Neighbour(other, np.array(blanks))


def check(found: list[Difference], micro_batches: int, rounding: float) -> None:
    assert any(one.charged for one in found), "the unit is in some step"
    for step, one in enumerate(found):
        assert one.moved <= one.charged + rounding * micro_batches * one.clip, f"step {step}: {one}"
    if rounding < 1e-3:
        assert max(one.moved / one.clip for one in found if one.charged) >= 0.1, "the unit moves the sum"


def run(spec: TrialSpec, tmp_path: Path, rounding: float = ROUNDING) -> None:
    pair = neighbours(spec, tmp_path)
    with alone():
        found = list(differences(spec, *pair, loud=LOUD))
    gc.collect()  # mapped files of a trainer, which refers to itself
    check(found, max(8, len(pair[0].corpus.ids("example"))), rounding)


def cell(model: str, mechanism: str, dropout: float = 0.1, alpha: str = "none", clip: str = "fixed") -> Any:
    return pytest.param(model, mechanism, dropout, alpha, clip, id=f"{model}, {mechanism}, {dropout}, {alpha}, {clip}")


FIRST = [
    cell("clc", "dpsgd poisson", 0.5),
    cell("clc", "edp poisson", 0.1, "fixed", "quantile"),
    cell("clc", "edp shuffled", 0.5, "private"),
    cell("clc", "two of a user poisson", 0.5),
    cell("clc", "two of a user full", 0.1, "fixed"),
    cell("bert", "dpsgd poisson", 0.1, "fixed"),
    cell("bert", "edp micro-batches", 0.0, "public"),
    cell("bert", "users poisson", 0.5, "none", "quantile"),
    cell("lora", "dpsgd poisson"),
    cell("heads", "dpsgd poisson"),
    cell("heads", "dpsgd full", 0.1, "fixed"),
    cell("heads", "edp poisson", 0.0, "private"),
]


@pytest.mark.parametrize(("model", "mechanism", "dropout", "alpha", "clip"), FIRST)
@pytest.mark.slow
def test_one_unit_moves_only_itself(
    model: str, mechanism: str, dropout: float, alpha: str, clip: str, encoders: Path, tmp_path: Path
) -> None:
    training, edp = MECHANISMS[mechanism]
    run(trial(MODELS[model] | {"dropout": dropout}, training, edp | {"alpha": alpha, "clip": clip}, encoders), tmp_path)


@pytest.mark.stress
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("model", MODELS)
def test_one_unit_moves_only_itself_in_every_setting(
    model: str, mechanism: str, encoders: Path, tmp_path: Path
) -> None:
    training, edp = MECHANISMS[mechanism]
    for number, (dropout, alpha, clip) in enumerate(itertools.product((0.0, 0.1, 0.5), ALPHAS, CLIPS)):
        if model == "heads" and (alpha == "public" or dropout != 0.1):
            continue  # heads read no words, and have no dropout
        spec = trial(MODELS[model] | {"dropout": dropout}, training, edp | {"alpha": alpha, "clip": clip}, encoders)
        (folder := tmp_path / str(number)).mkdir()
        run(spec, folder)


@pytest.mark.parametrize("model", [pytest.param(m, marks=[pytest.mark.stress] * (m != "clc")) for m in MODELS])
@pytest.mark.slow
def test_bfloat16_rounds_the_others_within_its_bound(model: str, encoders: Path, tmp_path: Path) -> None:
    training, edp = MECHANISMS["dpsgd poisson"]
    spec = trial(MODELS[model] | {"dropout": 0.1}, training | {"precision": "bfloat16"}, edp, encoders)
    run(spec, tmp_path, ROUNDING_BFLOAT16)


@pytest.mark.parametrize("model", ["clc", "bert"])
@pytest.mark.parametrize("mechanism", ["dpsgd poisson", "two of a user poisson", "dpsgd shuffled"])
def test_one_unit_changes_no_other_vote_for_the_scales(
    mechanism: str, model: str, encoders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scales, "VOTES", 6 if "user" in mechanism else 20)  # coins decide
    training, edp = MECHANISMS[mechanism]
    spec = trial(MODELS[model] | {"dropout": 0.5}, training, edp | {"reproducible_noise": 3}, encoders)
    pair = neighbours(spec, tmp_path)
    with alone():
        start = new_model(spec, pair[0].corpus, torch.device("cpu"))
        norms = [_private_norms(start.train(), one.corpus, spec, torch.device("cpu"), run_key(spec)) for one in pair]
    one, other = map(votes, norms)
    apart = torch.cdist(one, other)
    assert min(apart.shape) >= 4
    for nearest in (apart.amin(0), apart.amin(1)):
        assert int((nearest > 1e-5).sum()) <= 1
