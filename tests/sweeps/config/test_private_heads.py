"""Sweeps over heads on a frozen encoder: what is searched, and batches larger than the corpus."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from sweeps.config.loading import load_recipe
from sweeps.config.parts import StopSpec
from sweeps.config.recipe import Recipe
from sweeps.config.space import bound_combinations
from sweeps.engine.early_stopping import Stopper
from sweeps.store.prepared import shadow_trial
from trainables.config import BERTSpec
from trainables.training.references import reference_spec

SETTINGS = ["space.model.features.layers.choice=[0+2, 1]", "space.model.head.slots.choice=[softmax, crf]"]


def recipe(*settings: str) -> Recipe:
    return load_recipe("atis_private", list(settings))[1]


def models(found: Recipe) -> list[BERTSpec]:
    trials = [found.trial({**params, "z0": 1.0}).model for params in bound_combinations(found.dimensions)]
    return [model for model in trials if isinstance(model, BERTSpec)]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("space.model.features.public.choice=[snips]", r"space\.model\.features\.public cannot be searched"),
        ("space.training.validate_every.choice=[1, 2]", r"space\.training\.validate_every cannot be searched"),
        ("model.features=null", r"features"),
    ],
)
def test_what_a_sweep_shares_is_not_searched(setting: str, message: str) -> None:
    with pytest.raises((ValidationError, ValueError), match=message):
        recipe(setting)


def test_what_is_trained_without_privacy_has_settings_of_its_own() -> None:
    plain = {"method": "sgd", "optimizer": "adam", "average": None, "validate_every": 1, "memory_batch": 2}
    found = recipe("training.workers=3", "training.memory_batch=2")
    private = found.trial({**next(bound_combinations(found.dimensions)), "z0": 1.0})
    for training in (
        found.baseline().training,
        shadow_trial(private).training,
        reference_spec(private, "sgd", 0).training,
    ):
        assert {name: getattr(training, name) for name in plain} == plain
        assert (training.epochs, training.batch_size, training.learning_rate) == (15, 66, 3e-2)
    found = recipe("training.non_private={epochs: 4, batch_size: 32, optimizer: adamw, learning_rate: 0.01}")
    private = found.trial({**next(bound_combinations(found.dimensions)), "z0": 1.0})
    for spec in (private, found.baseline()):  # the baseline's own shadow and references too: it is plain already
        for training in (
            spec.non_private_training(),
            shadow_trial(spec).training,
            reference_spec(spec, "sgd", 0).training,
        ):
            settings = training.epochs, training.batch_size, training.optimizer, training.learning_rate
            assert settings == (4, 32, "adamw", 0.01)
    with pytest.raises(ValueError, match=r"non_private\.batch_size = 32 is not a multiple of workers = 3"):
        recipe("training.workers=3", "training.non_private.batch_size=32")
    assert found.trial({**next(bound_combinations(found.dimensions)), "z0": 1.0}).training.method == "dpsgd"


def test_trials_that_report_every_so_many_epochs_are_judged_at_the_next_report() -> None:
    stopper = Stopper(StopSpec(grace_epochs=3), epochs=24, every=4)
    verdicts: dict[int, list[int]] = {}
    for trial in range(12):
        for epoch in (4, 8, 12, 16, 20, 24):
            if stopper.after_epoch(trial, epoch, (0.1 + trial / 10, 0.5 + trial / 100, 1 + trial / 10)) is not None:
                verdicts.setdefault(trial, []).append(epoch)
    assert verdicts, "trials that others dominate are stopped"
    assert {epochs[0] for epochs in verdicts.values()} == {4}
    assert not any(24 in epochs for epochs in verdicts.values()), "there is nothing left to stop"
