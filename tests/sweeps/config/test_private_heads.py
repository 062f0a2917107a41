"""Sweeps over heads on a frozen encoder: what is searched, and batches larger than the corpus."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from sweeps.config.loading import load_recipe
from sweeps.config.parts import StopSpec
from sweeps.config.recipe import Recipe
from sweeps.config.space import bound_combinations
from sweeps.config.target_epsilon import schedule_of
from sweeps.engine.early_stopping import Stopper
from sweeps.store.prepared import shadow_trial
from tests.support.real_data import real_corpus
from trainables.config import BERTSpec
from trainables.corpora import load_corpus
from trainables.corpora.labels import Labels, task_of
from trainables.features.compute_states import all_state_names
from trainables.records.epochs import by_epoch
from trainables.training.references import reference_spec

SETTINGS = ["space.model.features.layers.choice=[0+2, 1]", "space.model.head.slots.choice=[softmax, crf]"]


def recipe(*settings: str) -> Recipe:
    return load_recipe("atis_private", list(settings))[1]


def models(found: Recipe) -> list[BERTSpec]:
    trials = [found.trial({**params, "z0": 1.0}).model for params in bound_combinations(found.dimensions)]
    return [model for model in trials if isinstance(model, BERTSpec)]


def test_fields_of_features_and_head_are_searched_by_their_paths() -> None:
    found = models(recipe(*SETTINGS))
    assert {model.features.layers for model in found if model.features} == {"0+2", "1"}
    assert {model.head.slots for model in found} == {"softmax", "crf"}
    assert all_state_names(found, Labels(("a", "b"), ("O", "B-x", "I-x"))) == [
        "sentence_auto_last",
        "token_auto_0",
        "token_auto_1",
        "token_auto_2",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "task"), [("clinc_private", "intents"), ("mit_restaurant_private", "slots")])
def test_recipes_of_one_task_alone_are_of_corpora_of_that_task(name: str, task: str) -> None:
    found = load_recipe(name, [])[1]
    assert found.edp.epsilon == 8
    splits = load_corpus(found.corpus.model_copy(update={"path": str(real_corpus(found.corpus.name))}))
    assert task_of(splits) == task
    assert found.edp.delta < 1 / len(splits.train), "an utterance's share of a delta that lets it be published"


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


def test_what_training_non_private_does_not_say_is_the_private_setting() -> None:
    """Of a model that is trained whole: its rate is no rate of heads."""
    settings = [
        "training.learning_rate_decay=linear",
        "training.non_private.epochs=2",
        "training.non_private.batch_size=40",
    ]
    _, found = load_recipe("atis_bert", settings)
    plain = found.baseline().training
    assert (plain.epochs, plain.batch_size, plain.optimizer, plain.learning_rate) == (2, 40, "adam", 2e-4)
    assert (plain.learning_rate_decay, plain.method) == ("linear", "sgd")


def test_its_plan_is_one_step_an_epoch_of_everybody() -> None:
    found = recipe()
    plan = schedule_of(found.trial({**next(bound_combinations(found.dimensions)), "z0": 1.0}), units=2641)
    assert plan == {"micro_batches": 2641, "steps_per_epoch": 1, "rate": 1.0, "single_example": True}


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


def test_a_curve_with_gaps_says_which_epochs_it_is_of() -> None:
    assert list(by_epoch([{"a": 1.0}, {"a": 2.0}])) == [1, 2]
    assert list(by_epoch([{"epoch": 20, "a": 1.0}, {"epoch": 40, "a": 2.0}, {"a": 3.0}])) == [20, 40, 41]
