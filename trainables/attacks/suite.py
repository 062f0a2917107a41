"""All attacks on one model, from what it and the reference models answered."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.attacks.likelihood import lira_scores, loss_scores, rmia_a, rmia_scores
from trainables.attacks.roc import AttackResult, measure
from trainables.attacks.shadow import attack_scores
from trainables.records.files import reading

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class References:
    """What K reference models answered. Members first, then non-members: n utterances in all; z of the population."""

    losses_kn: NDArray[np.float64]
    inside_kn: NDArray[np.bool_]
    losses_kz: NDArray[np.float64]

    @classmethod
    def read(cls, files: list[Path]) -> References:
        """From the files that `trainables.training.references.train_side` wrote.

        Raises:
            BrokenFile: for one that is not whole.
        """
        rows = []
        for file in files:
            with reading(file), np.load(file) as found:
                losses = np.concatenate([found["member_losses"], found["non_member_losses"]])
                inside = np.concatenate([found["inside_members"], found["inside_non_members"]])
                rows.append((losses, inside, found["population_losses"]))
        losses_k, inside_k, population_k = zip(*rows, strict=True)
        return cls(np.stack(losses_k), np.stack(inside_k), np.stack(population_k))


def loss_and_reference_attacks(target: Arrays, references: References) -> list[AttackResult]:
    """Loss threshold, RMIA and LiRA, each of the last two without and with references trained on the utterance.

    Args:
        target: what `trainables.training.references.score_target` returned.
    """
    losses_n = np.concatenate([target["member_losses"], target["non_member_losses"]])
    losses_z = target["population_losses"]
    kn, inside, kz = references.losses_kn, references.inside_kn, references.losses_kz
    scores = {"loss": loss_scores(losses_n)}
    for online, kind in ((False, "offline"), (True, "online")):
        a = 1.0 if online else rmia_a(kn, inside, kz)
        scores[f"rmia_{kind}"] = rmia_scores(losses_n, kn, inside, losses_z, kz, online=online, a=a)
        scores[f"lira_{kind}"] = lira_scores(losses_n, kn, inside, online=online)
    cut = len(target["member_losses"])
    return [measure(name, found[:cut], found[cut:]) for name, found in scores.items()]


def shadow_attack(name: str, attack: dict[str, Any], members: Any, non_members: Any) -> AttackResult:
    """A fitted shadow attack on the target's features, (n, F) of members and of non-members."""
    return measure(name, attack_scores(attack, members), attack_scores(attack, non_members))
