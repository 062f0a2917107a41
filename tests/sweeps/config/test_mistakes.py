"""What is said of a mistake names what stands in the file or on the command line."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from edp.spec import UserError
from sweeps.config.loading import load_recipe
from sweeps.config.recipe import Recipe
from sweeps.store.prepared import locate
from trainables.config import BERTSpec, CLCSpec


def refusal(name: str, *settings: str) -> str:
    with pytest.raises(UserError) as caught:
        load_recipe(name, list(settings))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "path", ["training.epochs", "training.non_private.epochs", "search.stop.margin", "edp.C", "model.layers"]
)
def test_a_truth_value_is_no_number(path: str) -> None:
    assert f"{path} = true: a truth value is no number" in refusal("atis_clc", f"{path}=true")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("corpus: {name: health}\ncorpus: {name: health}\n", "corpus"),
        ("corpus: {name: health}\nsearch:\n  stop:\n    margin: 1\n    margin: 1\n", "margin"),
        ("corpus: {name: health}\nstages: [{C: 1, C: 1}]\n", "C"),
    ],
)
def test_a_key_that_stands_twice_is_refused_wherever_it_stands(text: str, key: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(text)
    found = refusal(str(tmp_path / "recipe.yaml"))
    assert f"{key} is given twice; allowed: once" in found
    assert "recipe.yaml, line " in found


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("space.z0.uniform=[1]", "space.z0.uniform = [1]: allowed: [low, high], two numbers with low < high"),
        ("space.z0.int=[1.5,2]", "space.z0.int = [1.5, 2]: allowed: [low, high], two whole numbers"),
        ("space.z0.log_uniform=[0,1]", "space.z0.log_uniform = [0, 1]: allowed: [low, high] with low > 0"),
        ("space.z0.log_uniform=[true,2]", "space.z0.log_uniform = [True, 2]: a truth value is no number"),
        ("space.z0.choice=[[1]]", "space.z0.choice.0 = [1]: allowed: a number, a text, true or false"),
        ("space.z0={}", "space.z0: nothing to search"),
        ("space.tau={linear: {choise: [1]}}", "space.tau.linear.choise = [1]: unknown setting; did you mean choice?"),
        ("space.tau={linaer: {choice: [1]}}", "space.tau.linaer: this is no decay with a tau"),
        ("space.tau={linear: {choice: [-1]}}", "space.tau = -1"),
        ("space.training.epochs.int=[0,2]", "space.training.epochs = 0"),
        ("space.model.layres.choice=[1]", "model.layres = 1: unknown setting of kind = clc; did you mean layers?"),
        ("space.tau={linear: {uniform: [1]}}", "space.tau.linear.uniform = [1]: allowed: [low, high], two numbers"),
        ("model={kind: gpt}", "model.kind = 'gpt': allowed: clc, bert"),
        ("shadow.corpus=atis", "shadow.corpus = 'atis': allowed: a mapping of settings"),
        ("search.objectives=ser", "search.objectives = 'ser': allowed: a list"),
        ('shadow.corpus={name: mine, path: "\\0"}', "shadow.corpus.path"),
    ],
)
def test_the_line_names_the_setting_as_it_was_written(setting: str, says: str) -> None:
    assert says in refusal("atis_clc", setting)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["shadow.corpus.name=wether"], "shadow.corpus.name = wether is unknown"),
        (["shadow.corpus={name: mine, path: /not/there}"], "shadow.corpus.path = /not/there: there is no such"),
        (["corpus.path=/not/there"], "corpus.path = /not/there"),
        (["model.embeddings={corpus: {name: wether}}"], "model.embeddings.corpus.name = wether is unknown"),
        (["shadow.corpus.utterances=1e12"], "shadow.corpus.utterances = 1000000000000: they are held in memory"),
    ],
)
def test_a_corpus_is_named_by_the_setting_that_asks_for_it(settings: list[str], says: str, tmp_path: Path) -> None:
    _, recipe = load_recipe("quickstart_paper", settings)
    with pytest.raises(UserError) as caught:
        locate(recipe.baseline(), tmp_path)
    assert str(caught.value).startswith(says)


def _types(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in typing.get_args(annotation):
        yield from _types(part)


def texts(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """The settings that take any text, whatever section they stand in."""
    for name, field in model.model_fields.items():
        if path == "" and name in ("model", "space"):
            continue
        types = set(_types(field.annotation))
        if str in types:
            yield f"{path}{name}"
        for inner in types:
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from texts(inner, f"{path}{name}.")


@pytest.mark.parametrize(
    "text", ["x" * 300, f"/{'x' * 300}", "x/" * 3000, r'"a\0b"', '""'], ids=["long", "root", "deep", "nul", "empty"]
)
@pytest.mark.slow
def test_a_text_that_no_file_system_takes_is_refused_or_never_asked_for(text: str, tmp_path: Path) -> None:
    fields = [
        *(("health_clc", field) for field in (*texts(Recipe), *texts(CLCSpec, "model."))),
        *(("atis_private" if "features" in field else "atis_bert", field) for field in texts(BERTSpec, "model.")),
    ]
    assert {("health_clc", "corpus.path"), ("health_clc", "search.proxy.path"), ("atis_bert", "model.pretrained")} < {
        *fields
    }
    for name, field in fields:
        said = said_of(name, field, text, tmp_path)
        assert said is None or ("\n" not in said and field.rpartition(".")[2] in said)


def said_of(name: str, field: str, text: str, cache: Path) -> str | None:
    proxy = ["search.proxy.name=video"] if field.startswith("search.proxy.") else []
    try:
        _, recipe = load_recipe(name, [*proxy, f"{field}={text}"])
        if name == "health_clc":  # no other has all its corpora everywhere
            locate(recipe.baseline(), cache)
    except UserError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            ["edp.alpha=paper", "search.objectives=[ser,mia_auc]", "epsilon_budget=10"],
            "epsilon_budget = 10: the honest epsilon is infinite for every trial with edp.alpha = paper",
        ),
        (
            ["edp.reproducible_noise=3", "search.objectives=[ser,mia_auc]", "epsilon_budget=10"],
            "for every trial with edp.reproducible_noise",
        ),
        (["edp.z0=0", "search.objectives=[ser,mia_auc]", "epsilon_budget=10"], "for every trial with edp.z0 = 0"),
        (["space.training.seed.choice=[1,2]"], "space.training.seed cannot be searched: it is shared by all trials"),
        (["edp.decay=none", "space.tau.linear.choice=[0.1]"], "space.tau.linear: edp.decay is fixed at none, which"),
        (["edp.decay=linear", "space.tau.exponential.choice=[0.1]"], "space.tau.exponential: edp.decay is fixed"),
        (
            ["search.points_to_evaluate=[{tau: 0.02}]"],
            "points_to_evaluate[0].tau = 0.02: it belongs to a decay; allowed: together with decay = linear",
        ),
        (
            ["canaries.kind=outliers"],
            "canaries: kind = outliers has no meaning without any canary; allowed: with a count of at",
        ),
        (["budget={}"], "budget: no limit is given; allowed: gpu_hours, worker_hours or both, or null"),
        (["search.points_to_evaluate=[{decay: none, tau: 0.1}]"], "points_to_evaluate[0].tau = 0.1: it belongs to a"),
    ],
    ids=str,
)
def test_what_would_be_dropped_or_refused_in_every_trial_is_refused_here(settings: list[str], says: str) -> None:
    assert says in refusal("atis_clc", *settings)
