"""What attacks found on the model that a report is about."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import TypeAdapter

from dashboards.report_figures import Curve
from sweeps.formatting.leakage import compared_words, shadow_words
from sweeps.run.prepare import Prepared
from sweeps.state.records import Point
from trainables.attacks.roc import AttackResult, measure
from trainables.attacks.shadow import attack_scores, load_attack
from trainables.records.files import read_json, reading
from trainables.spec import TrialSpec


def attacks_of(
    point: Point, prepared: Prepared | None, spec: TrialSpec
) -> tuple[list[dict[str, Any]], list[Curve], str]:
    """What attacks found on a point's model, and what they compared it with: the full set where `edp-sweep attack` was
    run, else the sweep's own.

    Raises:
        BrokenFile: for a file that is not whole.
    """
    found, compared = _found(point, prepared, f"compared with {shadow_words(spec.shadow.corpus.name)}")
    curves = [Curve(one.name, one.auc, one.non_members, one.fpr, one.tpr) for one in found]
    return [one.document() for one in found], curves, f"{compared[0].upper()}{compared[1:]}."


def _found(point: Point, prepared: Prepared | None, compared: str) -> tuple[list[AttackResult], str]:
    kept = point.folder / "attacks.json"
    if kept.is_file():
        document = read_json(kept, dict[str, Any])
        with reading(kept):
            every = [one | document["curves"][one["name"]] for one in document["attacks"]]
            return TypeAdapter(list[AttackResult]).validate_python(every), compared_words(document)
    seen = point.folder / "attack_features.npz"
    if prepared is None or not seen.is_file() or not prepared.attack.is_file():
        return [], compared
    attack = load_attack(prepared.attack)
    with reading(seen), np.load(seen) as features:
        scores = (attack_scores(attack, features[name]) for name in ("members", "non_members"))
        return [measure("shadow", *scores)], compared
