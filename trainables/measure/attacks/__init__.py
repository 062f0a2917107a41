"""Attacks that guess which utterances were trained on, the figures of their guesses, and the canaries of an audit.

A new attack is one file with a tuple `ATTACKS` and a line in `every_attack`, or an `Attack` that another package adds
(`trainables.config.plugins`). Command, tables, figures, report,
documentation and conformance test take the rest from its `Attack`. Must not import training or Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.config.plugins import load_plugin, plugins, refused

Scores = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Evidence:
    """All that attackers may know of a model and of n utterances, members first. None: not available.

    Shapes: n utterances under attack, z of a population that no model was trained on, k reference models, F features.
    """

    members: int
    features_nf: NDArray[np.float32] | None = None
    """Features from `trainables.measure.predictions.attack_features`."""
    losses_n: NDArray[np.float64] | None = None
    """Losses of the true intent and tags together."""
    losses_z: NDArray[np.float64] | None = None
    losses_kn: NDArray[np.float64] | None = None
    losses_kz: NDArray[np.float64] | None = None
    inside_kn: Mask | None = None
    """True where a reference model was trained on an utterance."""
    shadow: dict[str, Any] | None = None
    """An attack model (`trainables.measure.attacks.shadow.fit_attack`) fitted to a shadow of a public corpus."""
    same_corpus: dict[str, Any] | None = None
    """An attack model fitted to a shadow of other utterances of the same corpus."""
    apart_n: Mask | None = None
    """True for utterances that the shadow of the same corpus did not use."""

    @classmethod
    def of(cls, seen: Mapping[str, NDArray[Any]], **compared_with: Any) -> Evidence:
        """Return evidence from the arrays that `trainables.training.references.score_target` returns.

        Args:
            compared_with: the fields about other models.
        """
        return cls(
            members=len(seen["members"]),
            features_nf=np.concatenate([seen["members"], seen["non_members"]]),
            losses_n=np.concatenate([seen["member_losses"], seen["non_member_losses"]]),
            losses_z=seen["population_losses"],
            **compared_with,
        )


@dataclass(frozen=True)
class Attack:
    """One attack, as it is registered."""

    name: str
    """Name in metrics, files and the command's output."""
    finds: str
    """Ends the sentence "It finds members by …"."""
    needs: str
    """Ends the sentence "Its attacker needs …"."""
    colour: str
    """Colour of its curve in every figure, as #rrggbb."""
    sees: tuple[str, ...]
    """The fields of `Evidence` that `score` takes as arguments. The attack runs if all of them are available."""
    score: Callable[..., Scores]
    """Function that returns a score (n,) of each utterance, higher for members."""
    only: str | None = None
    """The field with a mask (n,) of the utterances that the attack is tried on; None: all."""


def every_attack() -> tuple[Attack, ...]:
    """Return all registered attacks, in the order of tables.

    Raises:
        UserError: for a plugin that is no attack, or has the name of another one.
    """
    from trainables.measure.attacks import likelihood, shadow  # they import scikit-learn, which takes seconds

    found = [*shadow.ATTACKS, *likelihood.ATTACKS]
    for name in plugins("attacks"):
        attack = load_plugin("attacks", name)
        if not isinstance(attack, Attack):
            raise refused("attacks", name, "it is no trainables.measure.attacks.Attack")
        if attack.name in {one.name for one in found}:
            raise refused("attacks", name, f"there is another attack {attack.name}")
        found.append(attack)
    return tuple(found)


def colour_of(name: str) -> str:
    """Return the colour of an attack; brown for a name in a file that is no longer registered."""
    return next((attack.colour for attack in every_attack() if attack.name == name), "#9c755f")
