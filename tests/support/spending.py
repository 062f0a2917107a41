"""Trainings of a storage folder that cost a known ε, as `edp-sweep train` leaves them, without a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edp.ledger import Ledger
from sweeps.config.loading import load_recipe, write_yaml
from sweeps.config.recipe import example_params
from sweeps.config.target_epsilon import planned, resolve
from sweeps.engine.recorder import Recorder
from sweeps.store.picks import ORIGIN, Origin
from sweeps.store.unchanged import keep_corpora
from trainables.config import TrialSpec
from trainables.records.epochs import write_ledger
from trainables.records.files import write_json

EXAMPLES = 1350
FULL = ("training.method=dpsgd", "training.batch_size=full")
"""Settings of full batches, so that a training is one Gaussian mechanism."""


def spec_of(*settings: str, recipe: str = "quickstart_paper") -> TrialSpec:
    """Return the first configuration of a recipe, with the noise for its target ε."""
    loaded = load_recipe(recipe, list(settings))[1]
    return resolve(loaded, example_params(loaded), EXAMPLES).spec


def training(
    storage: Path, name: str, *settings: str, origin: Origin | None = None, ledger: Ledger | None = None, **changes: Any
) -> Path:
    """Make the folder of a training that has ended, and return it.

    Args:
        origin: the point whose configuration it trained.
        ledger: of its steps; None: those that were planned.
        changes: parts of its configuration.
    """
    spec = spec_of(*settings).model_copy(update=changes)
    folder = storage / f"train-{name}"
    storage.mkdir(parents=True, exist_ok=True)
    parents = [origin.sweep] if origin is not None else []
    recorder = Recorder(folder, spec, print, parents=parents, alone=True)
    assert recorder.begin("train", spec, units=EXAMPLES, folder=folder) is None
    recorder.end(folder, ledger or planned(spec, EXAMPLES), f"final model of {origin.sweep}" if origin else None)
    write_ledger(ledger or planned(spec, EXAMPLES), folder)
    write_yaml(spec, folder / "config.yaml")
    keep_corpora(folder, spec)
    if origin is not None:
        write_json(folder / ORIGIN, origin)
    return folder
