"""Attack models: fitted by scikit-learn, chosen by cross-validation, kept as plain numbers.

A fitted one is a dictionary that goes into a JSON file and is evaluated here, in NumPy: no pickle is ever loaded, and
the file says the same whatever scikit-learn's version.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

Floats = NDArray[np.float64]

_FOLDS = 5
_FEWEST = 20
"""Of each kind, for cross-validation to choose: on fewer the choice is chance, and some models cannot be fitted."""

_CANDIDATES: dict[str, Callable[[], Any]] = {
    "logistic_regression": lambda: LogisticRegression(max_iter=2_000),
    "gradient_boosting": lambda: GradientBoostingClassifier(max_depth=3, subsample=0.5, random_state=0),
    "mlp": lambda: MLPClassifier((16,), alpha=1e-2, max_iter=300, early_stopping=True, random_state=0),
}


def fit_best(x: Floats, y: NDArray[np.int64]) -> dict[str, Any]:
    """The model with the best cross-validated AUC, fitted to all of it; logistic regression where there are few
    members or non-members. The same data give the same model.

    Args:
        x: features (n, F), standardised here.
        y: (n,) 1 for members, 0 for non-members.

    Returns:
        `model` (its name), `cv_auc` of each candidate, `mean` and `scale` (F,), and the model's own numbers.
    """
    splitter = StratifiedKFold(_FOLDS, shuffle=True, random_state=0)
    found = {}
    with warnings.catch_warnings():
        # A candidate that has not converged is judged as it is.
        warnings.simplefilter("ignore", ConvergenceWarning)
        if np.bincount(y).min() >= _FEWEST:
            for name, make in _CANDIDATES.items():
                pipeline = make_pipeline(StandardScaler(), make())
                found[name] = float(cross_val_score(pipeline, x, y, cv=splitter, scoring="roc_auc").mean())
        name = max(found, key=lambda one: found[one]) if found else "logistic_regression"
        scaler = StandardScaler().fit(x)
        model = _CANDIDATES[name]().fit(scaler.transform(x), y)
    kept = {"model": name, "cv_auc": found, "mean": scaler.mean_.tolist(), "scale": scaler.scale_.tolist()}
    return kept | _NUMBERS[name](model)


def log_odds(fitted: dict[str, Any], x: Floats) -> Floats:
    """Log odds of membership (n,) of features (n, F), from what `fit_best` returned."""
    scaled = (x - np.array(fitted["mean"])) / np.array(fitted["scale"])
    return _VALUES[fitted.get("model", "logistic_regression")](fitted, scaled)


def _linear(model: LogisticRegression) -> dict[str, Any]:
    return {"coefficients": model.coef_[0].tolist(), "intercept": float(model.intercept_[0])}


def _linear_value(fitted: dict[str, Any], x: Floats) -> Floats:
    return np.asarray(x @ np.array(fitted["coefficients"]) + fitted["intercept"])


def _layers(model: MLPClassifier) -> dict[str, Any]:
    pairs = zip(model.coefs_, model.intercepts_, strict=True)
    return {"layers": [{"weights": weights.tolist(), "bias": bias.tolist()} for weights, bias in pairs]}


def _layers_value(fitted: dict[str, Any], x: Floats) -> Floats:
    *hidden, last = fitted["layers"]
    for layer in hidden:
        x = np.maximum(x @ np.array(layer["weights"]) + np.array(layer["bias"]), 0.0)
    return np.asarray(x @ np.array(last["weights"]) + np.array(last["bias"]))[:, 0]


def _trees(model: GradientBoostingClassifier) -> dict[str, Any]:
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


def _trees_value(fitted: dict[str, Any], x: Floats) -> Floats:
    x = x.astype(np.float32)  # as scikit-learn compares
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


_NUMBERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "logistic_regression": _linear,
    "gradient_boosting": _trees,
    "mlp": _layers,
}
_VALUES: dict[str, Callable[[dict[str, Any], Floats], Floats]] = {
    "logistic_regression": _linear_value,
    "gradient_boosting": _trees_value,
    "mlp": _layers_value,
}
