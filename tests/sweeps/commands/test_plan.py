"""`edp-sweep plan`, and `run --plan`: one search, one release, one ε."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml

from edp.accounting.epsilon import epsilon
from edp.ledger import Ledger
from sweeps.commands.plan import search_settings
from sweeps.commands.release import _chosen
from sweeps.config.loading import load_recipe
from sweeps.config.pricing import SelectionStrategy
from sweeps.store.lock import LOCK
from sweeps.store.sweep import Sweep
from tests.conftest import TINY_RECIPE, Command
from tests.support import writers
from tests.support.synthetic import sweep_of
from trainables.corpora import generate

SETTINGS = {
    "edp": {"epsilon": 8, "decay": "none", "alpha": "none"},
    "search": {"trials": 2, "seed": 1, "proxy": {"name": "video", "utterances": 130}},
}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    settings = yaml.safe_load(TINY_RECIPE) | SETTINGS
    settings["training"]["method"] = "dpsgd"
    settings["training"].pop("micro_batches")
    settings["shadow"]["corpus"] = {"name": "health", "utterances": 120}
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def test_a_stand_in_that_holds_the_corpus_is_refused_with_a_plan_and_without(
    recipe: Path, tmp_path: Path, command: Command
) -> None:
    path = writers.jsonl(generate("communication", 200, seed=3), tmp_path / "mine")
    settings = [f"corpus={{path: {path}}}", f"search.proxy={{name: other, path: {path}}}"]
    words = [str(recipe), "--storage", str(tmp_path / "runs"), *(x for one in settings for x in ("--set", one))]
    for way in ([], ["--plan", "proxy"]):
        code, out, err = command("run", *words, *way)
        assert (code, out) == (2, ""), err
        assert "search.proxy = other: " in err.splitlines()[-1]
        assert "(100.00%) are in it too" in err.splitlines()[-1]
    assert not list((tmp_path / "runs").rglob("recipe.yaml"))


def test_a_proxy_may_have_a_schema_which_is_then_that_of_the_searched_corpus(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("slots: [city]\nsamples: ['to [rome](city)']")
    _, recipe = load_recipe("atis_private", [f"search.proxy={{path: {path}, schema: {path}}}"])
    way = SelectionStrategy("proxy", 0.0, 8.0, 8.0, 1, "")
    _, searched = load_recipe("atis_private", search_settings(way, recipe))
    assert searched.search.proxy is None
    assert searched.corpus == recipe.search.proxy
    assert (searched.corpus.path, searched.corpus.schema) == (str(path), str(path))
    _, recipe = load_recipe("atis_private", ["search.proxy={name: clinc-text, path: clinc150, format: schema}"])
    _, searched = load_recipe("atis_private", search_settings(way, recipe))
    assert searched.corpus.path == "clinc150", "a name that comes along is no path"


@pytest.mark.slow
def test_it_prints_what_each_way_costs(recipe: Path, command: Command) -> None:
    code, out, err = command("plan", str(recipe), "--epsilon", "4", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["target"], found["delta"], found["cheapest"]) == (4.0, 0.0005, "proxy")
    assert found["runs"] == ["proxy", "random_stopping", "all_trials"]
    keys = {"name", "epsilon_of_choice", "epsilon_of_release", "epsilon_total", "trials", "covers"}
    assert all(set(way) == keys for way in found["ways"])
    code, out, err = command("plan", str(recipe), "--trials", "3", "--epsilon", "2")
    assert code == 0, err
    line = f"edp-sweep run {recipe} --set search.trials=3 --set edp.epsilon=2.0 --plan proxy"
    assert line in " ".join(out.split())
    assert "the check of public corpora for private utterances is not covered" in " ".join(out.split())
    assert "counts as private" not in err


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["example", "micro_batch"])
def test_it_says_that_a_delta_is_large_for_the_corpus(unit: str, recipe: Path, command: Command) -> None:
    words = ["plan", str(recipe), "--set", "edp.delta=0.05", "--set", f"edp.unit={unit}"]
    code, _, err = command(*words, "--json")
    assert code == 0, err
    assert "edp.delta = 0.05: at this delta, publishing one of the " in " ".join(err.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["plan", "RECIPE", "--set", "edp.epsilon=null"], "epsilon: the recipe has no edp.epsilon"),
        (
            ["run", "RECIPE", "--plan", "cheapest", "--set", "edp.epsilon=null"],
            "no edp.epsilon; allowed: --set edp.epsilon=8\n",
        ),
        (["plan", "RECIPE", "--epsilon", "-1"], "epsilon = -1.0: input should be greater than 0"),
        (
            ["run", "RECIPE", "--plan", "best"],
            "plan = 'best': allowed for this recipe: ",
        ),
        (
            ["run", "quickstart", "--plan", "all_trials"],
            "plan = 'all_trials': the cost of all trials is known",
        ),
        (
            ["plan", "RECIPE", "--trials", "3", "--set", "search.trials=4"],
            "--trials = 3: --set search.trials=4 is",
        ),
        (["run", "RECIPE", "--plan", "stand_in"], "plan = 'stand_in': it is called proxy now; allowed: --plan proxy"),
        (["run", "RECIPE", "--plan", "proxy", "--set", "search.proxy=null"], "; proxy: needs search.proxy"),
        (
            ["run", "RECIPE", "--plan", "proxy", "--set", "search.proxy={name: health, utterances: 130}"],
            "plan = 'proxy': with search.proxy = health as the corpus, shadow.corpus = health: it is",
        ),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_made(
    words: list[str], says: str, recipe: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = command(*(str(recipe) if word == "RECIPE" else word for word in words))
    assert code == 2, err
    assert says in err
    assert not (tmp_path / "runs").exists()


def _ctrl_c(*args: object, **named: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.usefixtures("kept_groups")
def test_the_release_alone_touches_the_private_corpus(
    long_story: None, ray_cluster: str, recipe: Path, tmp_path: Path, command: Command
) -> None:
    words = ("run", str(recipe), "--plan", "cheapest", "--name", "s", "--storage", str(tmp_path / "runs"), "--json")
    died = tmp_path / "runs" / "s"  # of somebody who died before anything was kept
    died.mkdir(parents=True)
    (died / LOCK).touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweeps.commands.start.encode_missing", _ctrl_c)
        code, out, err = command(*words)
    assert (code, out) == (130, "")
    goes_on = shlex.join(["edp-sweep", "resume", "s", "--storage", str(tmp_path / "runs")])
    assert err.splitlines()[-1].endswith(f"; go on with: {goes_on}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweeps.commands.train.train", _ctrl_c)
        code, out, err = command(*words)
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == f"edp-sweep: stopped by Ctrl-C; go on with: {goes_on}"

    code, out, err = command(*shlex.split(goes_on)[1:], "--json")
    assert code == 0, err
    assert "trial 0" not in err
    shown = json.loads(out)
    assert shown["released_corpus"] == "communication"
    code, out, err = command(*words)
    assert code == 0, err
    assert "training" not in err
    found = json.loads(out)
    assert found["output"] == shown["released"]["output"]
    assert shown["epsilon_of_sweep"] == pytest.approx(found["epsilon"])
    assert found["plan"] == "proxy"
    searched = yaml.safe_load((tmp_path / "runs" / "s" / "recipe.yaml").read_text())
    assert searched["corpus"]["name"] == "video"
    trials = Sweep.existing(tmp_path / "runs", "s").trials()
    # On the proxy each epoch states its own ε, and the release is planned to end at the chosen one.
    curves = [[metrics["epsilon"] for metrics in trial.curve] for trial in trials]
    assert all(0 < first < last == pytest.approx(8, rel=1e-4) for first, last in curves)
    assert all(m["epsilon"] == m["epsilon_executed"] for trial in trials for m in trial.curve)
    sers = [point.metrics["ser"] for trial in trials for point in trial.points if point.last]
    assert found["chosen"]["metrics"]["ser"] == min(sers)
    released = yaml.safe_load((Path(found["output"]) / "config.yaml").read_text())
    assert released["corpus"]["name"] == "communication"
    assert released["edp"]["C"] == found["chosen"]["params"]["C"]
    ledger = Ledger.model_validate_json((Path(found["output"]) / "ledger.json").read_text())
    assert epsilon(ledger, found["delta"]) == pytest.approx(found["epsilon"])
    assert 7.99 < found["epsilon"] <= 8

    # What is there already is not searched for or trained again: ε would not be that of one training.
    code, out, err = command(*words)
    assert code == 0, err
    assert json.loads(out) == found
    assert "trial 0" not in err
    assert "training" not in err

    # Where the result is gone it is trained again, and both trainings are in ε.
    (tmp_path / "runs" / "s" / "s-release.json").unlink()
    code, out, err = command(*words)
    assert code == 0, err
    ledger = Ledger.model_validate_json((tmp_path / "runs" / "train-s-release" / "ledger.json").read_text())
    assert json.loads(out)["epsilon"] == pytest.approx(epsilon(ledger, found["delta"]))
    assert 10 < json.loads(out)["epsilon"] < 16

    for setting in ("training.seed=5", "corpus.utterances=210"):  # the second one changes the release alone
        code, _, err = command(*words, "--set", setting)
        assert (code, "other settings" in err) == (2, True)


@pytest.mark.slow
def test_a_choice_is_made_where_a_trials_curve_is_lost(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "runs", "s", 4, tracked=False)
    chosen = _chosen(sweep, public=False)
    for trial in sweep.trials():
        (sweep.trial_folder(trial.number) / "curve.json").unlink()
    assert _chosen(sweep, public=False).name == chosen.name
