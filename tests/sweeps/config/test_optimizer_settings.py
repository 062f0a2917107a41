"""The optimisers in a recipe: searched with their settings, refused in one line, replaced where there is no noise."""

from __future__ import annotations

import pytest

from edp.spec import UserError
from sweeps.config.loading import load_recipe
from sweeps.config.space import bound_combinations
from sweeps.run.prepare import shadow_trial
from tests.benchmarks.methods import training_spec
from trainables.config import TrainingSpec
from trainables.training.references import reference_spec


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            "training.momentum=0.5",
            "momentum = 0.5 has no meaning with optimizer = adam; allowed: optimizer = momentum",
        ),
        ("training.optimizer=sgd training.weight_decay=0", "weight_decay = 0 has no meaning with optimizer = sgd"),
        ("training.optimizer=adamw training.noise_floor=0.1", "allowed: optimizer = adam_bc"),
        ("training.optimizer=lion", "'adam', 'adamw', 'sgd', 'momentum' or 'adam_bc'"),
        ("training.optimizer=adam_bc training.noise_floor=0", "greater than 0"),
        ("training.average=1", "less than 1"),
        ("training.optimizer=momentum training.momentum=1", "less than 1"),
        ("training.optimizer=adam_bc training.method=sgd", "optimizer = adam_bc has no meaning with method sgd"),
        (
            "space.training.optimizer.choice=[adam,momentum] space.training.weight_decay.choice=[0,1]",
            "weight_decay = 0 has no meaning with optimizer = adam",
        ),
    ],
)
def test_a_setting_without_a_meaning_is_refused_in_one_line(settings: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        load_recipe("quickstart_paper", settings.split(" "))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_optimizer_its_settings_and_the_average_can_be_searched_together() -> None:
    _, recipe = load_recipe(
        "quickstart_paper",
        [
            "space.training.optimizer.choice=[adam, momentum, adamw, adam_bc]",
            "space.training.momentum.uniform=[0.5, 0.99]",
            "space.training.weight_decay.log_uniform=[1e-4, 0.1]",
            "space.training.noise_floor.choice=[0.05, 0.2]",
            "space.training.average.choice=[0, 0.99]",
        ],
    )
    trials = [recipe.trial(params).training for params in bound_combinations(recipe.dimensions)]
    assert {training.optimizer for training in trials} == {"adam", "momentum", "adamw", "adam_bc"}
    assert {training.average for training in trials} == {0, 0.99}
    given = {"momentum": "momentum", "weight_decay": "adamw", "noise_floor": "adam_bc"}
    for training in trials:
        for name, optimizer in given.items():
            assert (getattr(training, name) is not None) == (training.optimizer == optimizer)
    assert recipe.baseline().training == recipe.training.model_copy(update={"method": "sgd"})


def test_a_quantile_is_searched_beside_clips_that_have_none() -> None:
    changes = ["space.edp.clip.choice=[fixed, quantile]", "space.edp.clip_quantile.choice=[0.2, 0.8]"]
    _, recipe = load_recipe("quickstart_paper", [*changes, "edp.clip_quantile=0.3"])
    trials = [recipe.trial(params).edp for params in bound_combinations(recipe.dimensions)]
    assert {(edp.clip, edp.clip_quantile) for edp in trials} == {("fixed", 0.5), ("quantile", 0.2)}
    params = {**next(bound_combinations(recipe.dimensions)), "edp.clip": "quantile", "edp.clip_quantile": 0.8}
    assert recipe.trial(params).edp.clip_quantile == 0.8


def test_what_is_trained_without_noise_beside_a_private_run_takes_adam_for_adam_bc() -> None:
    changes = ["training.optimizer=adam_bc", "training.noise_floor=0.2", "training.average=0.9"]
    _, recipe = load_recipe("quickstart_paper", changes)
    private = recipe.trial(next(bound_combinations(recipe.dimensions)))
    for training in (
        recipe.baseline().training,
        shadow_trial(private).training,
        reference_spec(private, "sgd", 0).training,
        training_spec("sgd", private.training),
    ):
        assert (training.method, training.optimizer, training.noise_floor) == ("sgd", "adam", None)
        assert training.average == 0.9
        assert TrainingSpec.model_validate(training.model_dump()) == training
    assert reference_spec(private, "own", 0).training.optimizer == "adam_bc"
