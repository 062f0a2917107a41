"""A sweep that chooses on a public proxy corpus, and the one training on the private corpus that it chooses for.

Such a sweep's recipe names the proxy corpus as its corpus. `plan.json` in its folder holds the recipe with the private
corpus, and `release.json` the released training, which is a final training of the sweep (`sweeps.store.picks`).
"""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, field_validator

from edp.spec import Frozen
from sweeps.config.recipe import Recipe
from sweeps.store.records import Point, known_ledger
from sweeps.store.sweep import Sweep
from sweeps.text.errors import drop_removed
from trainables.records.epochs import read_curve
from trainables.records.files import read_json_if_any
from trainables.records.pareto import Metrics

PLAN, RELEASE = "plan.json", "release.json"


class Plan(Frozen):
    """The private part of a sweep that chooses on a proxy corpus."""

    recipe: Recipe
    """The recipe with the private corpus, as the release is trained."""
    examples: int
    """Private training utterances."""
    users: int
    """Private users; 0 if they are unknown."""

    @field_validator("recipe", mode="before")
    @classmethod
    def _of_an_earlier_version(cls, recipe: Any) -> Any:
        return drop_removed(recipe) if isinstance(recipe, dict) else recipe

    @property
    def units(self) -> int:
        """The number of units of the guarantee: training utterances, or users."""
        return self.users if self.recipe.edp.unit == "user" else self.examples


class Release(Frozen):
    """The training of the chosen configuration on the private corpus."""

    model_config = ConfigDict(ser_json_inf_nan="constants", allow_inf_nan=True)

    trial: int
    """The number of the chosen trial."""
    params: dict[str, Any]
    """The chosen settings, with the noise for the private corpus."""
    epochs: int
    metrics: Metrics
    run_id: str | None
    folder: str
    """The training's folder in the storage."""
    digests: dict[str, str]
    """SHA-256 of its model and its ledger, by name."""


def plan_of(sweep: Sweep) -> Plan | None:
    """Return the private part of a sweep that chooses on a proxy corpus; None for any other sweep.

    Raises:
        BrokenFile: if the file is incomplete.
    """
    return read_json_if_any(sweep.folder / PLAN, Plan)


def released(sweep: Sweep, plan: Plan | None) -> Point | None:
    """Return the released model of a sweep that chooses on a proxy corpus; None if there is none yet.

    Args:
        plan: the sweep's (`plan_of`).

    Raises:
        BrokenFile: if a file is incomplete.
    """
    if plan is None or (found := read_json_if_any(sweep.folder / RELEASE, Release)) is None:
        return None
    folder = sweep.folder.parent / found.folder
    return Point(
        trial=found.trial,
        epoch=found.epochs,
        params=found.params,
        metrics=found.metrics,
        run_id=found.run_id,
        folder=folder,
        ledger=known_ledger(folder, read_curve(folder)),
        recipe=plan.recipe,
        digests=found.digests,
    )
