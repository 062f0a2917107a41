"""The evidence on the model of a report: trainings of its settings with new seeds, and attacks."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import TypeAdapter

from sweeps.results.confirmed import DECIDE, next_training, over_seeds
from sweeps.store.prepared import Prepared
from sweeps.store.records import ConfirmedRun, Point
from sweeps.text.attacks import compared_words, extraction_words
from sweeps.text.figures import deciding_figure, shadow_words
from trainables.config import TrialSpec
from trainables.measure.attacks import Evidence, every_attack
from trainables.measure.attacks.roc import AttackResult, run_attacks
from trainables.measure.attacks.shadow import PUBLIC_SHADOW, load_attack
from trainables.records.files import read_json, reading


def survived(point: Point, runs: list[ConfirmedRun]) -> str:
    """Compare a point's SER with trainings on new seeds, in a sentence; "" if there are none."""
    ser = deciding_figure(point.metrics, "ser")
    trainings = [run.metrics for run in runs if ser.key in run.metrics]
    if not trainings:
        return ""
    if len(trainings) < DECIDE:
        few = f"{len(trainings)} new seed{'s are' if len(trainings) > 1 else ' is'} too few to judge"
        return f"{few}; {DECIDE} or more are needed."
    mean, found = over_seeds(trainings, ser.key), point.metrics[ser.key]
    words = (
        f"Over {len(trainings)} new seeds its validation SER is {ser.text(mean.mean)}, 95 % interval for "
        f"seeds and utterances {ser.text(mean.lower)} to {ser.text(mean.upper)}. The sweep's {ser.text(found)} is"
    )
    # The sweep's value is a single training on the same utterances, so it is compared with other single trainings.
    lower, upper = next_training([metrics[ser.key] for metrics in trainings])
    interval = f"the interval of one more training, {ser.text(lower)} to {ser.text(upper)}"
    if found < lower:
        return f"{words} below {interval}: it was partly luck, and the mean is to be expected."
    if found > upper:
        return f"{words} above {interval}: the configuration is better than it looked."
    return f"{words} within {interval}: the new seeds confirm it."


def attacks_of(
    point: Point, prepared: Prepared | None, spec: TrialSpec
) -> tuple[list[dict[str, Any]], list[AttackResult], str]:
    """Return the documents of attacks on a point's model, their curves, and the models that they compared it with.

    The attacks are those of `edp-sweep attack`, or else the sweep's own. The document of a registered attack also has
    `finds`, the evidence by which it finds members.

    Raises:
        BrokenFile: for a file that is incomplete.
    """
    found, compared = _found(point, prepared, f"compared with {shadow_words(spec.shadow.corpus.name)}")
    finds = {attack.name: attack.finds for attack in every_attack()}
    documents = [one.document() | {"finds": finds.get(one.name)} for one in found]
    return documents, found, f"{_sentence(compared)}."


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}"


def _found(point: Point, prepared: Prepared | None, compared: str) -> tuple[list[AttackResult], str]:
    kept = point.folder / "attacks.json"
    if kept.is_file():
        document = read_json(kept, dict[str, Any])
        with reading(kept):
            every = [one | document["curves"][one["name"]] for one in document["attacks"]]
            said = f"{compared_words(document)}. {_sentence(extraction_words(document))}"
            return TypeAdapter(list[AttackResult]).validate_python(every), said
    seen = point.folder / "attack_features.npz"
    if prepared is None or not seen.is_file() or not prepared.attack.is_file():
        return [], compared
    attack = load_attack(prepared.attack)
    with reading(seen), np.load(seen) as features:
        parts = [features[name] for name in ("members", "non_members")]
        evidence = Evidence(len(parts[0]), features_nf=np.concatenate(parts), shadow=attack)
        return run_attacks(evidence, [PUBLIC_SHADOW]), compared
