"""The paper's membership inference attack (section 4.2, after Shokri et al. 2017).

A shadow model of the same architecture is trained on another corpus. Its predictions for its own training utterances
(members) and test utterances (non-members) train the attack model. The attack model is then applied to the predictions
of the model under attack, for equally many of its training and test utterances. Label sets differ between corpora, so
the features are *sorted* scores, cut to a fixed number.

The attack model is fitted by scikit-learn and chosen by cross-validation. It is kept as plain numbers in a JSON file
and evaluated here, in NumPy. So no pickle is ever loaded, and the file does not depend on scikit-learn's version.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from trainables.measure.attacks import Attack, Scores
from trainables.measure.attacks.roc import auc, auc_interval, rates_at_fpr, tpr_interval
from trainables.records.files import read_json, reading

Floats = NDArray[np.float32]
Fitted = dict[str, Any]

_FOLDS = 5
_MIN_OF_A_KIND = 20
"""Fewest members, and fewest non-members, for a choice by cross-validation. With fewer the choice is chance, and some
models cannot be fitted."""


def fit_attack(members: Floats, non_members: Floats) -> Fitted:
    """Return the attack model that best tells members' features (n, F) from non-members', as plain numbers.

    It is logistic regression, gradient boosting or a small neural network, whichever has the best cross-validated AUC
    on the shadow. With few members or non-members it is logistic regression. The same data give the same model.

    Returns:
        `model` (its name), `cv_auc` of each candidate, `mean` and `scale` (F,), and the model's own numbers.
    """
    x = np.concatenate([members, non_members]).astype(np.float64)
    y = np.repeat([1, 0], [len(members), len(non_members)])
    splitter = StratifiedKFold(_FOLDS, shuffle=True, random_state=0)
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a candidate that has not converged is compared as it is
        if min(len(members), len(non_members)) >= _MIN_OF_A_KIND:
            for name, candidate in _CANDIDATES.items():
                pipeline = make_pipeline(StandardScaler(), candidate.make())
                found[name] = float(cross_val_score(pipeline, x, y, cv=splitter, scoring="roc_auc").mean())
        name = max(found, key=lambda one: found[one]) if found else "logistic_regression"
        scaler = StandardScaler().fit(x)
        model = _CANDIDATES[name].make().fit(scaler.transform(x), y)
    kept = {"model": name, "cv_auc": found, "mean": scaler.mean_.tolist(), "scale": scaler.scale_.tolist()}
    return kept | _CANDIDATES[name].numbers(model)


def attack_scores(attack: Fitted, features: Floats) -> Scores:
    """Return the log odds of membership (n,) of each row of `features` (n, F)."""
    scaled = (features.astype(np.float64) - np.array(attack["mean"])) / np.array(attack["scale"])
    return _CANDIDATES[attack["model"]].log_odds(attack, scaled)


def attack_metrics(member_scores: Scores, non_member_scores: Scores) -> dict[str, float]:
    """Return the metrics `mia_auc` and `mia_tpr_at_1pct_fpr` with 95 % intervals, and the realised FPR.

    Scores are higher for members.
    """
    low, high = auc_interval(member_scores, non_member_scores)
    tpr, fpr = rates_at_fpr(member_scores, non_member_scores, 0.01)
    tpr_low, tpr_high = tpr_interval(member_scores, non_member_scores, 0.01)
    return {
        "mia_auc": auc(member_scores, non_member_scores),
        "mia_auc_lower": low,
        "mia_auc_upper": high,
        "mia_tpr_at_1pct_fpr": tpr,
        "mia_tpr_at_1pct_fpr_lower": tpr_low,
        "mia_tpr_at_1pct_fpr_upper": tpr_high,
        "mia_realised_1pct_fpr": fpr,
    }


def load_attack(path: Path) -> Fitted:
    """Read a fitted attack, which `fit_attack` returned, from its JSON file.

    Raises:
        BrokenFile: for a file that is not whole.
    """
    attack = read_json(path, dict[str, Any])
    with reading(path):
        attack_scores(attack, np.zeros((1, len(attack["mean"])), np.float32))
    return attack


def _linear(model: LogisticRegression) -> Fitted:
    return {"coefficients": model.coef_[0].tolist(), "intercept": float(model.intercept_[0])}


def _linear_log_odds(fitted: Fitted, x: Scores) -> Scores:
    return np.asarray(x @ np.array(fitted["coefficients"]) + fitted["intercept"])


def _layers(model: MLPClassifier) -> Fitted:
    pairs = zip(model.coefs_, model.intercepts_, strict=True)
    return {"layers": [{"weights": weights.tolist(), "bias": bias.tolist()} for weights, bias in pairs]}


def _layers_log_odds(fitted: Fitted, x: Scores) -> Scores:
    *hidden, last = fitted["layers"]
    for layer in hidden:
        x = np.maximum(x @ np.array(layer["weights"]) + np.array(layer["bias"]), 0.0)
    return np.asarray(x @ np.array(last["weights"]) + np.array(last["bias"]))[:, 0]


def _trees(model: GradientBoostingClassifier) -> Fitted:
    share = float(model.init_.class_prior_[1])
    trees = [
        {
            "feature": tree.tree_.feature.tolist(),
            "threshold": tree.tree_.threshold.tolist(),
            "left": tree.tree_.children_left.tolist(),
            "right": tree.tree_.children_right.tolist(),
            "value": tree.tree_.value[:, 0, 0].tolist(),
        }
        for tree in model.estimators_[:, 0]
    ]
    return {"start": float(np.log(share / (1 - share))), "rate": float(model.learning_rate), "trees": trees}


def _trees_log_odds(fitted: Fitted, x: Scores) -> Scores:
    x = x.astype(np.float32)  # scikit-learn compares features with thresholds in float32
    total = np.full(len(x), fitted["start"])
    for tree in fitted["trees"]:
        feature, threshold, value = (np.array(tree[key]) for key in ("feature", "threshold", "value"))
        left, right = np.array(tree["left"]), np.array(tree["right"])
        node = np.zeros(len(x), dtype=np.int64)
        while (inner := left[node] >= 0).any():
            rows = np.flatnonzero(inner)
            at = node[rows]
            node[rows] = np.where(x[rows, feature[at]] <= threshold[at], left[at], right[at])
        total += fitted["rate"] * value[node]
    return total


class _Candidate(NamedTuple):
    """A kind of attack model: how to make it, its numbers once fitted, and log odds (n,) of scaled features."""

    make: Callable[[], Any]
    numbers: Callable[[Any], Fitted]
    log_odds: Callable[[Fitted, Scores], Scores]


_CANDIDATES: dict[str, _Candidate] = {
    "logistic_regression": _Candidate(lambda: LogisticRegression(max_iter=2_000), _linear, _linear_log_odds),
    "gradient_boosting": _Candidate(
        lambda: GradientBoostingClassifier(max_depth=3, subsample=0.5, random_state=0), _trees, _trees_log_odds
    ),
    "mlp": _Candidate(
        lambda: MLPClassifier((16,), alpha=1e-2, max_iter=300, early_stopping=True, random_state=0),
        _layers,
        _layers_log_odds,
    ),
}

_FINDS = "sorted intent and slot scores"

PUBLIC_SHADOW = Attack("shadow", _FINDS, "a public corpus", "#4269d0", ("shadow", "features_nf"), attack_scores)
"""The attack on every trial of a sweep."""

ATTACKS = (
    PUBLIC_SHADOW,
    Attack(
        "shadow_same_corpus",
        _FINDS,
        "other utterances of the same corpus",
        "#efb118",
        ("same_corpus", "features_nf", "apart_n"),
        lambda fitted, features_nf, _: attack_scores(fitted, features_nf),
        only="apart_n",
    ),
)
