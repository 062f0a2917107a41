"""The optimisers in a recipe: searched with their settings, refused in one line; and settings that were removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from edp.spec import UserError
from sweeps.config.loading import load_recipe
from sweeps.config.space import bound_combinations
from sweeps.store.prepared import shadow_trial
from tests.benchmarks.methods import training_spec
from trainables.config import TrainingSpec
from trainables.training.references import reference_spec


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("training.momentum=0.5", "momentum = 0.5 has no meaning with optimizer = adam; allowed: optimizer = momentum"),
        ("training.optimizer=sgd training.weight_decay=0", "weight_decay = 0 has no meaning with optimizer = sgd"),
        ("training.optimizer=lion", "'adam', 'adamw', 'sgd' or 'momentum'"),
        ("training.average=1", "less than 1"),
        ("training.optimizer=momentum training.momentum=1", "less than 1"),
        ("training.optimizer=adam_bc", "training.optimizer = adam_bc: removed; use adam"),
        ("training.noise_floor=0.1", "training.noise_floor: removed; use training.optimizer"),
        ("search.until.hypervolume_flat=5", "search.until: removed; use search.trials"),
        ("model.embeddings.path=mine.vec", "model.embeddings.path: removed; use model.embeddings.corpus"),
        ("model.trainable=bitfit", "model.trainable = bitfit: removed; use lora, or heads"),
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


def test_a_removed_setting_at_its_default_is_passed_over_as_in_the_recipe_of_an_earlier_sweep(tmp_path: Path) -> None:
    path = tmp_path / "earlier.yaml"
    path.write_text("base: quickstart_paper\nmodel: {embeddings: {path: null}}\nsearch: {until: null}\n")
    found, base = (
        load_recipe(name, [])[1].model_dump(exclude={"description"}) for name in (str(path), "quickstart_paper")
    )
    assert found == base


def test_the_optimizer_its_settings_and_the_average_can_be_searched_together() -> None:
    _, recipe = load_recipe(
        "quickstart_paper",
        [
            "space.training.optimizer.choice=[adam, momentum, adamw]",
            "space.training.momentum.uniform=[0.5, 0.99]",
            "space.training.weight_decay.log_uniform=[1e-4, 0.1]",
            "space.training.average.choice=[0, 0.99]",
        ],
    )
    trials = [recipe.trial(params).training for params in bound_combinations(recipe.dimensions)]
    assert {training.optimizer for training in trials} == {"adam", "momentum", "adamw"}
    assert {training.average for training in trials} == {0, 0.99}
    given = {"momentum": "momentum", "weight_decay": "adamw"}
    for training in trials:
        for name, optimizer in given.items():
            assert (getattr(training, name) is not None) == (training.optimizer == optimizer)
    assert recipe.baseline().training == recipe.training.model_copy(update={"method": "sgd"})


def test_what_is_trained_without_noise_keeps_the_average_of_the_weights() -> None:
    _, recipe = load_recipe("quickstart_paper", ["training.average=0.9"])
    private = recipe.trial(next(bound_combinations(recipe.dimensions)))
    for training in (
        recipe.baseline().training,
        shadow_trial(private).training,
        reference_spec(private, "sgd", 0).training,
        training_spec("sgd", private.training),
    ):
        assert (training.method, training.average) == ("sgd", 0.9)
        assert TrainingSpec.model_validate(training.model_dump()) == training
