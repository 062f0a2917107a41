"""The shadow attack: its features, who is attacked, and the model that is chosen for it."""

import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from trainables.measure.attacks import shadow
from trainables.measure.attacks.roc import auc
from trainables.measure.attacks.shadow import attack_scores, fit_attack
from trainables.measure.predictions import TOP, WIDTH, attack_features, members_and_others


def test_features_are_logits_of_sorted_scores_and_read_no_padding():
    intents = np.array([[0.1, 0.7, 0.2, 0.0]], np.float32)
    slots = np.array([[[0.5, 0.3, 0.2], [0.9, 0.1, 0.0], [0.0, 0.0, 1.0]]], np.float32)
    (row,) = attack_features(intents, slots, np.array([2]))
    assert row.shape == (WIDTH,) == (3 * TOP,)

    def logit(p):
        p = min(max(p, 1e-6), 1 - 1e-6)
        return math.log(p / (1 - p))

    expected = [0.7, 0.2, 0.1, (0.5 + 0.9) / 2, (0.3 + 0.1) / 2, 0.1, 0.5, 0.1, 0.0]
    assert row == pytest.approx([logit(p) for p in expected], rel=1e-4)


def test_a_model_with_fewer_labels_than_scores_kept_is_padded():
    (row,) = attack_features(np.array([[1.0]], np.float32), np.array([[[1.0]]], np.float32), np.array([1]))
    assert row.shape == (WIDTH,)
    assert np.isfinite(row).all()


def test_members_and_non_members_are_as_many_and_the_same_for_every_trial():
    def chosen(train, test, seed, **most):
        corpus: Any = SimpleNamespace(size=lambda split: train + 7, planted=7, known=lambda split: np.arange(test))
        return members_and_others(corpus, "test", seed=seed, **most)

    members, others = chosen(90, 100, 3)
    assert len(members) == len(others) == 90
    again = chosen(90, 100, 3)
    assert (members == again[0]).all()
    assert (others == again[1]).all()
    assert (chosen(90, 100, 4)[1] != others).any()
    assert len(chosen(10_000, 20_000, 0, at_most=50)[0]) == 50


def data(kind, n=600, seed=0):
    """Members and non-members whom a line tells apart, or only a curve does."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, WIDTH))
    y = x[:, 0] + 0.3 * rng.normal(size=n) > 0 if kind == "line" else np.abs(x[:, 0]) + 0.1 * rng.normal(size=n) < 0.7
    return x, y.astype(np.int64)


def fit(x, y):
    return fit_attack(x[y == 1].astype(np.float32), x[y == 0].astype(np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["logistic_regression", "gradient_boosting", "mlp"])
def test_a_model_kept_as_numbers_says_what_scikit_learn_says(name, monkeypatch):
    candidate = shadow._CANDIDATES[name]
    monkeypatch.setattr(shadow, "_CANDIDATES", {name: candidate})
    x, y = data("curve")
    x, y = np.concatenate([x[y == 1], x[y == 0]]).astype(np.float32), -np.sort(-y)
    fitted = json.loads(json.dumps(fit(x, y)))
    scaler = StandardScaler().fit(x.astype(np.float64))
    model = candidate.make().fit(scaler.transform(x.astype(np.float64)), y)
    new = np.random.default_rng(1).normal(size=(200, WIDTH)).astype(np.float32)
    probability = model.predict_proba(scaler.transform(new.astype(np.float64)))[:, 1]
    assert fitted["model"] == name
    assert 1 / (1 + np.exp(-attack_scores(fitted, new))) == pytest.approx(probability, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["line", "curve"])
def test_the_model_with_the_best_cross_validated_auc_is_chosen(kind):
    x, y = data(kind)
    fitted = fit(x, y)
    assert set(fitted["cv_auc"]) == {"logistic_regression", "gradient_boosting", "mlp"}
    assert fitted["cv_auc"][fitted["model"]] == max(fitted["cv_auc"].values())
    assert (fitted["model"] == "logistic_regression") == (kind == "line")
    new, truth = data(kind, seed=1)
    scores = attack_scores(fitted, new.astype(np.float32))
    assert auc(scores[truth == 1], scores[truth == 0]) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 19, 20])
def test_few_of_a_kind_are_enough(count):
    x, y = data("line", n=120)
    few = np.concatenate([np.flatnonzero(y == kind)[:count] for kind in (0, 1)])
    fitted = fit(x[few], y[few])
    assert np.isfinite(attack_scores(fitted, x)).all()
    assert (count < 20) == (fitted["cv_auc"] == {})
    assert count >= 20 or fitted["model"] == "logistic_regression"
