"""Intents alone and slots alone: trained with the heads that there is something for, measured and attacked by the same
functions as both together."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch

from edp.spec import UserError
from tests.support.tiny import spec
from tests.support.toy import SPLITS
from trainables.config import BERTSpec, CanariesSpec, HeadSpec
from trainables.corpora import load_corpus
from trainables.corpora.labels import Labels, Task, for_task, labels_of
from trainables.features.encoded_corpus import encode
from trainables.measure.attacks import Evidence
from trainables.measure.attacks.canary import make_canaries, plant
from trainables.measure.attacks.roc import run_attacks
from trainables.measure.attacks.shadow import fit_attack
from trainables.models import build_model
from trainables.records.files import write_json
from trainables.records.job import TrialJob
from trainables.training.process import alone
from trainables.training.references import (
    ReferenceModel,
    read_references,
    reference_spec,
    score_target,
    train_reference,
)
from trainables.workers.worker import run_trial

USELESS = Labels(("call",), ("O",))
MISSING: dict[Task, str] = {"intents": "slot_f1", "slots": "intent_accuracy"}


@pytest.mark.parametrize("task", get_args(Task))
def test_the_labels_that_are_left_say_the_task(task: Task) -> None:
    assert labels_of(SPLITS).task == "joint"
    left = for_task(SPLITS, task, "corpus")
    assert labels_of(left).task == task
    assert [one.tokens for one in left.train] == [one.tokens for one in SPLITS.train]
    before, after = labels_of(SPLITS), labels_of(left)
    assert after.intents == (before.intents if task != "slots" else ("",))
    assert after.tags == (before.tags if task != "intents" else ("O",))


def test_a_corpus_that_lacks_what_a_task_has_is_refused() -> None:
    for task, kind in (("intents", "slots"), ("slots", "intents")):
        left = for_task(SPLITS, task, "corpus")
        with pytest.raises(
            UserError, match=rf"shadow\.corpus: it has no {kind}, unlike the private corpus; allowed: a corpus"
        ):
            for_task(left, "joint", "shadow.corpus")
    with pytest.raises(UserError, match="one intent and no slots; allowed: at least two intents, or a slot"):
        _ = USELESS.task


@pytest.mark.parametrize("kind", ["clc", "bert"])
@pytest.mark.parametrize("task", MISSING)
def test_a_model_has_no_weights_for_labels_that_are_not_there(task: Task, kind: str) -> None:
    head = HeadSpec.model_validate({"slots": "crf", "bio": True, "shared_types": True, "shared_parts": True})
    model = spec().model
    if kind == "bert":
        model = BERTSpec(pretrained=None, vocabulary=spec().corpus, hidden_size=8, layers=1, heads=2)
    net = build_model(model.model_copy(update={"head": head}), labels_of(for_task(SPLITS, task, "corpus")), seed=0)
    weights = {name.split(".")[0] for name, _ in net.named_parameters()}
    there, lacking = ("intent_head", "slot_head") if task == "intents" else ("slot_head", "intent_head")
    assert there in weights
    assert lacking not in weights
    assert ("crf" in weights) == (task == "slots")


@pytest.mark.slow
@pytest.mark.parametrize("task", MISSING)
def test_one_worker_trains_measures_and_attacks(task: Task, tmp_path: Path) -> None:
    one, canaries = spec(training={"method": "sgd"}), CanariesSpec(count=4, kind="outliers")
    target = make_canaries(for_task(load_corpus(one.corpus), task, "corpus"), canaries, seed=0)
    coins = np.array([True, False, True, False])
    shadow = for_task(load_corpus(one.shadow.corpus), task, "shadow.corpus")
    features = encode(plant(target, coins), one.model, tmp_path / "target").features()
    encode(shadow, one.model, tmp_path / "shadow", features=features)
    (tmp_path / "coins.json").write_text("[1, 0, 1, 0]")
    with alone():
        run_trial(TrialJob(one, tmp_path / "shadow", tmp_path / "a"), lambda epoch, metrics: None)
        with np.load(tmp_path / "a" / "attack_features.npz") as seen:
            write_json(tmp_path / "attack.json", fit_attack(seen["members"], seen["non_members"]))
        job = TrialJob(one, tmp_path / "target", tmp_path / "b", tmp_path / "attack.json", tmp_path / "coins.json")
        found = run_trial(job, lambda epoch, metrics: None)
    assert found is not None
    assert MISSING[task] not in found.metrics
    assert 0 <= found.metrics["mia_auc_lower"] <= found.metrics["mia_auc"] <= found.metrics["mia_auc_upper"] <= 1
    assert "epsilon_audited" in found.metrics
    if task == "intents":
        assert found.metrics["ser"] == pytest.approx(1 - found.metrics["intent_accuracy"]), "the error rate"
    else:
        assert 0 <= found.metrics["slot_f1"] <= 1
    files = [tmp_path / f"{number}.npz" for number in (0, 1)]
    for number, file in enumerate(files):
        reference = ReferenceModel(reference_spec(one, "sgd", number), tmp_path / "target", file, number)
        train_reference(reference, lambda epoch: None)
    seen = score_target(one, tmp_path / "target", tmp_path / "b" / "model.pt")
    attacks = run_attacks(Evidence.of(seen, **read_references(files)))
    assert {"loss", "rmia_offline", "lira_online"} <= {attack.name for attack in attacks}
    assert all(0 <= attack.auc <= 1 for attack in attacks)
    saved = torch.load(tmp_path / "b" / "model.pt", weights_only=True)
    assert Labels.from_dict(saved["labels"]).task == task
