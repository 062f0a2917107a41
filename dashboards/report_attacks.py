"""The results of attacks on the model that a report is about."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import TypeAdapter

from dashboards.report_figures import Curve
from sweeps.execution.prepare import Prepared
from sweeps.formatting.leakage import compared_words, shadow_words
from sweeps.state.records import Point
from trainables.attacks import Evidence, every_attack
from trainables.attacks.roc import AttackResult, run_attacks
from trainables.attacks.shadow import PUBLIC_SHADOW, load_attack
from trainables.records.files import read_json, reading
from trainables.spec import TrialSpec


def attacks_of(
    point: Point, prepared: Prepared | None, spec: TrialSpec
) -> tuple[list[dict[str, Any]], list[Curve], str]:
    """Return the documents of attacks on a point's model, their curves, and the models that they compared it with.

    They are those of `edp-sweep attack` where it was run, else the sweep's own. A document also says what its attack
    `finds` members by, where the attack is registered.

    Raises:
        BrokenFile: for a file that is not whole.
    """
    found, compared = _found(point, prepared, f"compared with {shadow_words(spec.shadow.corpus.name)}")
    curves = [Curve(one.name, one.auc, one.non_members, one.fpr, one.tpr) for one in found]
    finds = {attack.name: attack.finds for attack in every_attack()}
    documents = [one.document() | {"finds": finds.get(one.name)} for one in found]
    return documents, curves, f"{compared[0].upper()}{compared[1:]}."


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
        parts = [features[name] for name in ("members", "non_members")]
        evidence = Evidence(len(parts[0]), features_nf=np.concatenate(parts), shadow=attack)
        return run_attacks(evidence, [PUBLIC_SHADOW]), compared
