"""Recipes: read whole, checked whole, refused in one line that names field, value and what is allowed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from edp.spec import UserError
from sweeps.config.loading import apply_overrides, load_config, load_recipe, read_yaml, recipe_names, write_yaml
from sweeps.config.recipe import Recipe, example_params
from sweeps.config.space import bound_combinations
from sweeps.config.target_epsilon import resolve
from trainables.config import BERTSpec, TrialSpec


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_builds_a_trial_at_every_corner_and_round_trips(name: str, tmp_path: Path) -> None:
    stem, recipe = load_recipe(name, [])
    assert stem == name
    for params in bound_combinations(recipe.dimensions):
        trial = recipe.trial(params)
        assert TrialSpec.model_validate_json(trial.model_dump_json()) == trial
    write_yaml(recipe, tmp_path / "again.yaml")
    assert load_recipe(str(tmp_path / "again.yaml"), [])[1] == recipe


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("edp.C=-1", ["edp.C = -1", "greater than 0"]),
        ("edp.z=1", ["edp.z = 1", "unknown setting", "z0"]),
        ("training.epoch=3", ["training.epoch = 3", "did you mean epochs"]),
        ("space.C.choice=[1,-1]", ["space.C = -1", "greater than 0"]),
        ("space.z0.log_uniform=[0,1]", ["space.z0", "low > 0"]),
        ("space.training.epochs.uniform=[10,80]", ["space.training.epochs may suggest 35.9", "or int, or"]),
        ("training.epochs=" + "1" * 5000, ["training.epochs = '111"]),
        ("space.model.kind.choice=[clc,bert]", ["space.model.kind", "shared by all trials"]),
        ("edp.decay=none edp.tau=0.1", ["tau = 0.1", "decay none"]),
        ("edp.decay=linear edp.tau=0", ["tau", "decay linear needs tau > 0"]),
        ("edp.C=1 space.C.choice=[1,2]", ["edp.C is fixed at 1", "space.C=null"]),
        ("training.workers=3", ["workers = 3", "allowed: 1, 2, 4, 8"]),
        ("training.method=sgd", ["training.method = sgd", "allowed: edp, dpsgd"]),
        ("edp.alpha=paper", ["edp.alpha = paper", "log10_epsilon_paper"]),
        ("edp.epsilon=8 space.edp.alpha.choice=[fixed,paper]", ["space.edp.alpha: paper has an infinite epsilon"]),
        ("space.epsilon.choice=[1,8] epsilon_budget=0.5", ["space.epsilon = 1, 8 is over epsilon_budget = 0.5"]),
        ("edp.band=3", ["band = 3 has no meaning with noise_correlation = none", "noise_correlation = banded"]),
        ("space.edp.clip_quantile.uniform=[0.1,0.9]", ["clip_quantile = 0.1", "clip = quantile"]),
        ("edp.reproducible_noise=1", ["edp.reproducible_noise", "infinite"]),
        ("search.objectives=[]", ["search.objectives", "at least one"]),
        ("corpus.name=../x", ["corpus.name = '../x'"]),
        ("shadow.corpus.name=communication", ["shadow.corpus", "must not be the private corpus"]),
        ("nonsense", ["'nonsense'", "key=value"]),
        ("training.epochs.deep=1", ["training.epochs.deep", "no settings below"]),
        ("corpus.format=csv", ["corpus: format = csv has no meaning without path"]),
        ("corpus.path=2024", ["path = 2024: allowed: text; a name of digits as ./2024"]),
        ("training.method=dpsgd training.batch_size=7 training.workers=2", ["does not divide batch_size = 7"]),
    ],
)
def test_a_mistake_is_refused_in_one_line(settings: str, says: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        load_recipe("quickstart_paper", settings.split(" "))
    message = str(caught.value)
    assert "\n" not in message
    for words in says:
        assert words in message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "holds no settings"),
        (b"- a\n", "holds no settings"),
        (b"a: 1\nb: [", "line 2: not YAML"),
        (b"\xff\xfe", "not UTF-8"),
        (b"corpus: {name: health}", "model: missing; allowed: {kind: clc"),
    ],
)
def test_a_broken_recipe_file_is_refused_in_one_line(text: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_bytes(text)
    with pytest.raises(UserError, match=says) as caught:
        load_recipe(str(path), [])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "line 2: not YAML: an alias within an anchor; allowed: values"),
        ("corpus: &a\n  name: *a\n", "line 2: not YAML: an alias"),
        ("corpus: &a\n  <<: *a\n", "line 2: not YAML: an alias"),
        ("space: &a [[*a]]\n", "line 1: not YAML: an alias"),
    ],
)
def test_an_alias_of_an_alias_is_refused(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    for read in (read_yaml, lambda path: load_recipe(str(path), []), lambda path: load_config(path, [])):
        with pytest.raises(UserError, match=re.escape(says)):
            read(path)
    with pytest.raises(UserError, match="space"):
        load_recipe("quickstart", [f"space={text.partition(' ')[2].strip()}"])


def test_any_setting_can_be_searched_by_its_dotted_path() -> None:
    _, recipe = load_recipe(
        "quickstart_paper",
        [
            "space.training.learning_rate.log_uniform=[1e-4, 1e-2]",
            "space.model.hidden_size.int=[16, 64]",
            "space.training.batch_size.choice=[32, 64]",
        ],
    )
    found = list(bound_combinations(recipe.dimensions))
    assert {p["training.batch_size"] for p in found} == {32, 64}
    trial = recipe.trial({**found[0], "model.hidden_size": 48})
    assert trial.model.hidden_size == 48


def test_the_baseline_has_the_recipes_own_training_settings_whatever_is_searched() -> None:
    _, recipe = load_recipe("quickstart_paper", ["space.training.learning_rate.log_uniform=[1e-6, 1]"])
    assert recipe.baseline().training == recipe.training.model_copy(update={"method": "sgd"})


def test_a_pretrained_folder_is_seen_from_everywhere_and_minilm_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("minilm", "mine"):
        (tmp_path / name).mkdir()

    def pretrained(name: str) -> str | None:
        model = load_recipe("atis_bert", [f"model.pretrained={name}", "model.layers=2"])[1].baseline().model
        assert isinstance(model, BERTSpec)
        assert model.layers == 2
        return model.pretrained

    assert pretrained("mine") == pretrained("./mine") == str(tmp_path / "mine")
    assert pretrained("minilm") == "minilm"
    assert pretrained("./minilm") == str(tmp_path / "minilm")
    assert pretrained("someone/some-bert") == "someone/some-bert"


def test_a_configuration_reads_back_and_a_missing_one_is_named(tmp_path: Path) -> None:
    _, recipe = load_recipe("quickstart_paper", [])
    trial = recipe.baseline()
    write_yaml(trial, tmp_path / "picked.yaml", "a heading\nof two lines")
    assert load_config(tmp_path / "picked.yaml", []) == trial
    assert (tmp_path / "picked.yaml").read_text().startswith("# a heading\n# of two lines\n")
    assert yaml.safe_load((tmp_path / "picked.yaml").read_text())["training"]["method"] == "sgd"
    with pytest.raises(UserError, match="no such file"):
        load_config(tmp_path / "other.yaml", [])
    (tmp_path / "recipe.yaml").write_text("search: {trials: 2}\n")
    with pytest.raises(
        UserError, match=r"it is a recipe, because it has search; allowed: a file written by `edp-sweep pick`"
    ):
        load_config(tmp_path / "recipe.yaml", [])


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("edp.epsilon=8 edp.z0=1", "both given"),
        ("space.epsilon.log_uniform=[1,10] edp.z0=1", "allowed: one of them"),
        ("space.epsilon.log_uniform=[1,10] edp.epsilon=8", "fixed at 8.0 and searched in space.epsilon too"),
        ("space.epsilon.choice=[0]", "positive numbers"),
        ("epsilon_budget=0", "epsilon_budget = 0"),
    ],
)
def test_privacy_settings_that_cannot_hold_are_refused(settings: str, says: str) -> None:
    with pytest.raises(UserError, match=says.replace("(", r"\(")):
        load_recipe("quickstart_paper", settings.split(" "))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("edp.z0=0", "honest epsilon is infinite"),
        ("space.edp.alpha.choice=[fixed,paper]", "honest epsilon is infinite"),
        ("space.edp.delta.choice=[0.1,0.01]", "shared by all trials"),
        ("edp.epsilon=8 epsilon_budget=1", "every trial would be refused"),
        ("training.seed=99999999999999", "training.seed"),
        ("search.seed=4294967296", "search.seed"),
    ],
)
def test_what_could_only_fail_after_training_is_refused_before(settings: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        load_recipe("quickstart_paper", settings.split(" "))


@pytest.mark.parametrize(
    ("settings", "objectives"),
    [
        ("", ("ser", "mia_auc", "log10_epsilon")),
        ("space.epsilon.log_uniform=[1,10]", ("ser", "mia_auc", "log10_epsilon")),
        ("edp.epsilon=8", ("ser", "mia_auc")),
        ("edp.epsilon=8 search.objectives=null", ("ser", "mia_auc")),
        ("edp.epsilon=8 search.objectives=[ser,mia_tpr_at_1pct_fpr]", ("ser", "mia_tpr_at_1pct_fpr")),
        ("edp.epsilon=8 search.objectives=[ser,mia_auc,log10_epsilon]", ("ser", "mia_auc", "log10_epsilon")),
    ],
)
def test_the_objectives_follow_what_is_searched_unless_they_are_named(settings: str, objectives: tuple[str]) -> None:
    recipe = load_recipe("quickstart_paper", settings.split())[1]
    assert recipe.search.objectives == objectives
    assert Recipe.model_validate(recipe.model_dump(mode="json")) == recipe


@pytest.mark.parametrize(
    ("settings", "sampling"),
    [
        ("", "shuffle"),
        ("edp.epsilon=8", "poisson"),
        ("space.epsilon.log_uniform=[1,1000]", "poisson"),
        ("space.edp.epsilon.log_uniform=[1,1000]", "poisson"),
        ("edp.epsilon=8 edp.noise_correlation=banded edp.band=4 edp.decay=none", "shuffle"),
        ("edp.epsilon=8 edp.decay=none space.edp.noise_correlation.choice=[none,banded]", "shuffle"),
        ("edp.epsilon=8 edp.sampling=shuffle", "shuffle"),
        ("edp.epsilon=8 training.method=dpsgd training.workers=1 training.batch_size=full", "shuffle"),
        ("edp.epsilon=8 space.training.batch_size.choice=[64,full]", "shuffle"),
    ],
)
def test_the_papers_recipes_draw_batches_where_epsilon_is_a_target(settings: str, sampling: str) -> None:
    for name in ("atis_clc", "snips_bert", "video_clc"):
        recipe = load_recipe(name, settings.split())[1]
        assert recipe.edp.sampling == sampling
        assert Recipe.model_validate(recipe.model_dump(mode="json")) == recipe


def test_the_private_corpus_is_not_taken_for_a_public_one_under_another_name(tmp_path: Path) -> None:
    (tmp_path / "snips").mkdir()
    with pytest.raises(UserError, match="must not be the private corpus"):
        load_recipe("atis_clc", ["corpus.name=mine", f"corpus.path={tmp_path / 'snips'}"])


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-5", 1e-5), ("-2E3", -2000.0), ("1.5e+2", 150.0), ("'1e-5'", "1e-5"), ("e-5", "e-5"), ("1e-5x", "1e-5x")],
)
def test_a_number_with_an_exponent_is_one_without_a_point_too(text: str, value: object, tmp_path: Path) -> None:
    recipe = tmp_path / "own.yaml"
    recipe.write_text(f"space: {{z0: {{choice: [{text}]}}}}\n")
    assert read_yaml(recipe)["space"]["z0"]["choice"] == [value]
    assert apply_overrides({}, [f"space.z0.choice=[{text}]"])["space"]["z0"]["choice"] == [value]


def test_a_corpus_of_ones_own_is_called_by_its_own_name(tmp_path: Path) -> None:
    mine = tmp_path / "mine.jsonl"
    mine.touch()
    _, found = load_recipe("quickstart", [f"corpus.path={mine}"])
    assert (found.corpus.name, found.corpus.utterances, found.description) == ("mine", None, "")
    _, found = load_recipe("quickstart", [f"corpus.path={mine}", "corpus.name=ours", "corpus.utterances=90"])
    assert (found.corpus.name, found.corpus.utterances) == ("ours", 90)
    _, found = load_recipe("quickstart", ["corpus.utterances=90"])
    assert (found.corpus.name, found.corpus.utterances) == ("video", 90)
    assert found.description
    for field in ("shadow.corpus", "search.proxy"):
        _, found = load_recipe("atis_private", [f"{field}.path={mine}"])
        other = found.shadow.corpus if field == "shadow.corpus" else found.search.proxy
        assert other is not None
        assert (other.name, other.utterances, found.corpus.name) == ("mine", None, "atis")
        assert found.description
    # One that is by its path already has moved, and is the same.
    recipe = tmp_path / "recipe.yaml"
    write_yaml(load_recipe("quickstart", [f"corpus.path={mine}", "corpus.name=ours"])[1], recipe)
    moved = mine.rename(tmp_path / "moved.jsonl")
    _, found = load_recipe(str(recipe), [f"corpus.path={moved}"])
    assert found.corpus.name == "ours"


def test_a_schema_is_a_name_that_comes_along_or_a_file_and_goes_with_its_corpus(tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text("slots: [city]")
    schema = f"corpus.schema={tmp_path}/x/../schema.yaml"
    mine = f"corpus.path={tmp_path / 'mine.jsonl'}"
    for settings, wanted in (
        ([], "atis"),
        ([schema], str(tmp_path / "schema.yaml")),
        ([mine], None),
        ([mine, schema], str(tmp_path / "schema.yaml")),
        ([mine, "corpus.schema=snips"], "snips"),
        ([f"corpus.path={tmp_path / 'atis'}"], "atis"),
        (["corpus.name=clinc150"], None),
        (["corpus={name: clinc150}"], None),
        (["corpus.schema=null"], None),
    ):
        _, recipe = load_recipe("atis_private", [*settings, "search.proxy=null"])
        assert recipe.corpus.schema == wanted, settings


@pytest.mark.parametrize("name", ["z0", "edp.z0"])
def test_a_given_epsilon_is_a_limit_where_the_noise_is_searched_and_else_a_target(name: str) -> None:
    _, recipe = load_recipe("quickstart_paper", ["edp.epsilon=8", f"space.{name}.log_uniform=[0.5, 2]"])
    assert (recipe.target, recipe.search.objectives) == (None, ("ser", "mia_auc", "log10_epsilon"))
    assert resolve(recipe, {"C": 1.0, "z0": 0.7, "decay": "none"}, 1350).spec.edp.z0 == 0.7
    _, recipe = load_recipe("quickstart", ["space.z0=null", "search.points_to_evaluate=null"])
    assert (recipe.target, recipe.search.objectives) == (8, ("ser", "mia_auc"))
    assert "z0" not in recipe.dimensions
    assert resolve(recipe, example_params(recipe), 18000).spec.edp.z0 > 1


def test_a_list_that_a_program_writes_twice_is_read(tmp_path: Path) -> None:
    path, choice = tmp_path / "written.yaml", [1, 2]
    path.write_text(yaml.safe_dump({"C": {"choice": choice}, "z0": {"choice": choice}}))
    assert "*id001" in path.read_text()
    assert read_yaml(path) == {"C": {"choice": choice}, "z0": {"choice": choice}}
