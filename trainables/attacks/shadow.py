"""The paper's membership inference attack (section 4.2, after Shokri et al. 2017).

A shadow model of the same architecture is trained on another, public corpus. What it answers on its own training
utterances (members) and test utterances (non-members) trains the attack model, which is then evaluated on the answers
of the model under attack, on as many of its training as of its test utterances. Label sets differ between corpora, so
the features are the *sorted* scores, cut to a fixed number.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.attacks.classifiers import fit_best, log_odds
from trainables.attacks.intervals import auc_interval, clopper_pearson
from trainables.attacks.membership_features import Floats
from trainables.attacks.roc import auc, rates_at_fpr
from trainables.records.files import atomic_write, read_json, reading


def fit_attack(members: Floats, non_members: Floats) -> dict[str, Any]:
    """The attack model that tells members' features (n, F) from non-members' best, as plain numbers.

    Logistic regression, gradient boosting or a small neural network: whichever has the best cross-validated AUC here,
    on the shadow, where the attacker knows who is who (`trainables.attacks.classifiers`).
    """
    x = np.concatenate([members, non_members]).astype(np.float64)
    return fit_best(x, np.repeat([1, 0], [len(members), len(non_members)]))


def attack_scores(attack: dict[str, Any], features: Floats) -> NDArray[np.float64]:
    """Log odds of membership (n,) of each row of `features` (n, F)."""
    return log_odds(attack, features.astype(np.float64))


def attack_metrics(member_scores: NDArray[np.float64], non_member_scores: NDArray[np.float64]) -> dict[str, float]:
    """`mia_auc` and `mia_tpr_at_1pct_fpr` with their 95 % intervals, of scores that are higher for members; and the FPR
    that was realised.

    The TPR's interval is Clopper and Pearson's over members, for the threshold that the non-members at hand set.
    """
    low, high = auc_interval(member_scores, non_member_scores)
    (tpr, fpr), members = rates_at_fpr(member_scores, non_member_scores, 0.01), len(member_scores)
    tpr_low, tpr_high = clopper_pearson(round(tpr * members), members)
    return {
        "mia_auc": auc(member_scores, non_member_scores),
        "mia_auc_lower": low,
        "mia_auc_upper": high,
        "mia_tpr_at_1pct_fpr": tpr,
        "mia_tpr_at_1pct_fpr_lower": tpr_low,
        "mia_tpr_at_1pct_fpr_upper": tpr_high,
        "mia_realised_1pct_fpr": fpr,
    }


def save_attack(attack: dict[str, Any], path: Path) -> None:
    """Writes a fitted attack as JSON, in one step."""
    with atomic_write(path) as partial:
        partial.write_text(json.dumps(attack, indent=1))


def load_attack(path: Path) -> dict[str, Any]:
    """Reads what `save_attack` wrote.

    Raises:
        BrokenFile: for a file that is not whole.
    """
    attack = read_json(path, dict[str, Any])
    with reading(path):
        log_odds(attack, np.zeros((1, len(attack["mean"]))))
    return attack
