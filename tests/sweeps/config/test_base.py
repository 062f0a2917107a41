"""`base`: a recipe over the settings of another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from edp.spec import UserError
from sweeps.config.loading import load_recipe


def written(folder: Path, **texts: str) -> Path:
    """Write a recipe's file for each name, and return the path of the first one."""
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder / f"{next(iter(texts))}.yaml"


def test_what_a_recipe_does_not_give_is_that_of_its_base(tmp_path: Path) -> None:
    own = "base: atis_private\ntraining: {epochs: 5}\nedp: {epsilon: 3}\nspace: {C: null}\n"
    _, found = load_recipe(str(written(tmp_path, mine=own)), [])
    wanted = ["training.epochs=5", "edp.epsilon=3", "space.C=null", "description=''"]
    assert found == load_recipe("atis_private", wanted)[1]


def test_a_corpus_and_a_searched_setting_are_replaced_whole(tmp_path: Path) -> None:
    own = (
        "base: atis_private\ncorpus: {path: mine.jsonl}\nspace: {training.learning_rate: {choice: [1, 2]}}\n"
        "search: {proxy: {name: video}}\n"
    )
    _, found = load_recipe(str(written(tmp_path, mine=own)), [])
    assert (found.corpus.name, found.corpus.schema) == ("mine", None)
    assert found.search.proxy is not None
    assert (found.search.proxy.schema, found.search.proxy.utterances) == (None, None)
    assert found.space["training.learning_rate"].model_dump(exclude_none=True) == {"choice": (1, 2)}


def test_a_base_may_be_a_path_from_the_files_folder_and_have_a_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    (tmp_path / "in").mkdir()
    written(tmp_path, first="base: private\ntraining: {epochs: 7, learning_rate: 9}\n")
    path = written(tmp_path / "in", second="base: ../first.yaml\ntraining: {learning_rate: 8}\n")
    _, found = load_recipe(str(path), ["edp.epsilon=2"])
    assert (found.training.epochs, found.training.learning_rate, found.edp.epsilon) == (7, 8, 2)


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ({"a": "base: nothing\n"}, "base = 'nothing': no such recipe and no such file; allowed: atis_bert, "),
        ({"a": "base: privat\n"}, "base = 'privat': no such recipe and no such file; did you mean private?"),
        ({"a": "base: [private]\n"}, "base = ['private']: allowed: the name of a recipe, or the path of one"),
        ({"a": "base: null\n"}, "base = null: allowed: the name of a recipe"),
        ({"a": "base: ''\n"}, "base = '': no such recipe"),
        ({"a": "base: a.yaml\n"}, "base = 'a.yaml': it has this recipe as its own base; allowed: another recipe"),
        ({"a": "base: b.yaml\n", "b": "base: a.yaml\n"}, "b.yaml: base = 'a.yaml': it has this recipe as its own base"),
        ({"a": "base: private\ntraining: {epoch: 3}\n"}, "training.epoch = 3: unknown setting; did you mean epochs?"),
        ({"a": "base: private\nmodel: 3\n"}, "model = 3: "),
        ({"a": "base: private\nedp: {C: 1}\n"}, "edp.C is fixed at 1.0 and searched in space.C too"),
    ],
)
def test_a_mistake_is_one_line(texts: dict[str, str], says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        load_recipe(str(written(tmp_path, **texts)), [])
    assert says in str(error.value)
    assert "\n" not in str(error.value)
