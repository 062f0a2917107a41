"""A trial whose unit are users: what it trains on, what its ledger says, and that its own steps keep to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from edp.accounting.epsilon import epsilon, epsilon_user
from edp.accounting.gaussian import gaussian_epsilon
from edp.sampling import Epoch
from edp.steps import StepGuard
from tests.support.tiny import run, weights
from tests.support.tiny import spec as tiny_spec
from trainables.config import CorpusSpec
from trainables.corpora import generate, load_corpus
from trainables.corpora.labels import labels_of
from trainables.corpora.splits import split_corpus
from trainables.corpora.types import Splits
from trainables.features.encoded_corpus import EncodedCorpus, encode
from trainables.features.token_features import features_for
from trainables.records.epochs import read_ledger
from trainables.training.process import alone, new_model, pick_device
from trainables.training.trainer import Trainer
from trainables.training.verification import Verified, verify

USERS = 9
TRAINING = {"method": "dpsgd", "batch_size": 3, "workers": 1, "epochs": 2}
EDP = {"unit": "user", "user_utterances": 2}


def said_by_users() -> Splits:
    """Of nine users, who have from one to ten utterances each in train."""
    splits = split_corpus(list(generate("communication", 120, seed=0)), seed=0)
    who = np.minimum(np.sqrt(np.arange(len(splits.train)) * USERS**2 / len(splits.train)).astype(int), USERS - 1)
    train = [one._replace(user=f"u{user}") for one, user in zip(splits.train, who, strict=True)]
    valid, test = ([one._replace(user="u3") for one in part] for part in (splits.valid, splits.test))
    return replace(splits, train=train, valid=valid, test=test)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("said") / "encoded"
    encode(said_by_users(), tiny_spec().model, folder)
    return folder


def trainer_of(corpus: EncodedCorpus, training: dict[str, Any], **edp: Any) -> Trainer:
    spec = tiny_spec(training=TRAINING | training, edp=EDP | edp)
    device = pick_device(spec.training)
    return Trainer(new_model(spec, corpus, device), corpus, spec, device)


@pytest.mark.parametrize(
    ("sampling", "training"),
    [("shuffle", {}), ("poisson", {}), ("shuffle", {"batch_size": "full"})],  # a full batch leaves nothing to draw
    ids=["shuffle", "poisson", "full"],
)
def test_micro_batches_are_users_with_at_most_the_cap_of_each(
    sampling: str, training: dict[str, Any], said: Path
) -> None:
    corpus = EncodedCorpus.open(said)
    users = corpus.train_users
    assert users is not None
    counts = np.bincount(users)
    with alone():
        trainer = trainer_of(corpus, training, sampling=sampling)
        assert trainer.hook is not None
        step_rate = 1.0 if training else 3 / USERS
        for number in range(2):
            seen = []
            for step in trainer.steps_of(number):
                trainer.train_step(step)
                for examples in (one for share in step for one in share if len(one)):
                    (user,) = set(users[examples].tolist())
                    assert len(examples) == min(counts[user], 2)
                    seen.append(user)
            assert sampling == "poisson" or sorted(seen) == list(range(USERS))
    for entry in trainer.ledger.entries:
        m = entry.mechanism
        assert (m.unit, m.rate, m.N, m.sensitivity()) == ("user", step_rate, USERS if training else 3, 0.5)
        assert entry.steps == (1 if training else 3)


@pytest.mark.slow
def test_a_trial_with_users_says_what_it_guarantees_them(said: Path, tmp_path: Path) -> None:
    (result,) = run(said, tmp_path, 1, training=TRAINING, edp=EDP | {"z0": 2.0, "reproducible_noise": None})
    ledger = read_ledger(tmp_path)
    assert ledger == result.ledger
    assert result.metrics["epsilon"] == result.metrics["epsilon_user"] == gaussian_epsilon(np.sqrt(2) / 2, 5e-4)
    examples = {"method": "dpsgd", "batch_size": 8, "epochs": 2}
    (result,) = run(said, tmp_path / "2", 1, training=examples, edp={"z0": 2.0, "reproducible_noise": None})
    most = EncodedCorpus.open(said).most_of_a_user
    assert most == result.ledger.most_of_a_user
    assert result.metrics["epsilon_user"] == epsilon_user(result.ledger, 5e-4) > 3 * epsilon(result.ledger, 5e-4)


@pytest.mark.slow
def test_every_number_of_workers_and_every_cut_trains_the_same_weights(said: Path, tmp_path: Path) -> None:
    two = {"batch_size": 4}
    run(said, tmp_path / "1", 1, training=TRAINING | two, edp=EDP)
    run(said, tmp_path / "2", 2, training=TRAINING | two | {"workers": 2}, edp=EDP)
    run(said, tmp_path / "cut", 1, training=TRAINING | two | {"memory_batch": 1}, edp=EDP)
    for other in ("2", "cut"):
        assert (weights(tmp_path / "1") - weights(tmp_path / other)).abs().max() < 2e-5


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"training": {"method": "edp"}, "edp": {"unit": "user"}}, "edp.unit = user clips each user alone"),
        ({"edp": {"user_utterances": 2}}, "user_utterances = 2 has no meaning with unit = example"),
        ({"training": TRAINING, "edp": {"unit": "user", "user_utterances": 0}}, "greater than or equal to 1"),
        (
            {"training": TRAINING | {"batch_size": "full"}, "edp": EDP | {"sampling": "poisson"}},
            "batch_size = full leaves edp.sampling = poisson nothing to draw",
        ),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        tiny_spec(**changes)


def test_a_corpus_that_does_not_know_its_users_is_refused() -> None:
    spec = tiny_spec(training=TRAINING, edp=EDP)
    with pytest.raises(ValueError, match=r"edp.unit = user: corpus communication does not name the users"):
        spec.check_users(None)
    with pytest.raises(ValueError, match=r"edp.delta = 0.0005: the corpus has 2,000 users .* less than 0.0005"):
        spec.check_users(2000)
    spec.check_users(1999)


def verified(folder: Path, **edp: Any) -> Verified:
    edp = {"C": 0.3, "z0": 0.7, "reproducible_noise": None} | EDP | edp
    spec = tiny_spec(training=TRAINING, edp=edp)
    splits, words = said_by_users(), features_for(spec.model)

    def read(corpus: CorpusSpec, place: Path) -> EncodedCorpus:
        return encode(load_corpus(corpus), spec.model, place, labels=labels_of(splits), features=words)

    own = spec.model_copy(update={"corpus": CorpusSpec(name="mine", path="mine", split="published")})
    with alone():
        return verify(own, splits, read, folder, lambda done, total: None)


@pytest.mark.parametrize(
    "edp",
    [
        {},
        {"sampling": "poisson"},
        {"alpha": "none", "user_utterances": None, "clip": "quantile"},
        {"alpha": "private", "z0": 50.0},
    ],
    ids=str,
)
@pytest.mark.slow
def test_a_whole_user_who_goes_moves_a_step_by_the_clip_and_no_farther(edp: dict[str, Any], tmp_path: Path) -> None:
    found = verified(tmp_path, **edp)
    assert found.violations == []
    assert found.declared_sensitivity == pytest.approx(0.1)  # C over N
    assert found.measured_sensitivity == pytest.approx(0.1, rel=0.02)


@pytest.mark.stress
def test_a_sampler_that_deals_a_users_utterances_to_several_micro_batches_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def torn(epoch: Epoch, *args: Any, **kwargs: Any) -> Epoch:
        """Each user's utterances one by one, in as many micro-batches as there are."""
        users = args[0]
        mine = np.flatnonzero(users == np.bincount(users).argmax())[:3]
        return replace(epoch, steps=[[list(mine.reshape(-1, 1))]], users=users)

    monkeypatch.setattr("trainables.training.batches.group_by_user", torn)
    monkeypatch.setattr(StepGuard, "_take", lambda guard, units: None)  # which would have refused it
    found = verified(tmp_path, user_utterances=None)
    assert found.measured_sensitivity > 2 * found.declared_sensitivity
    assert any("one unit can move" in one.what for one in found.violations)
