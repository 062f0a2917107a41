"""`search.plan: proxy`: one search on a public corpus, one release, one ε; and the price of a recipe."""

from __future__ import annotations

import json
import math
import re
import shlex
from pathlib import Path

import pytest
import yaml

from edp.accounting.epsilon import epsilon
from edp.accounting.gaussian import gaussian_epsilon, gaussian_mu
from edp.ledger import Ledger
from edp.spec import UserError
from sweeps.config.loading import load_recipe
from sweeps.config.target_epsilon import planned
from sweeps.engine.jobs.release import _chosen, _search_settings
from sweeps.results.headline import private_configuration
from sweeps.store.lock import LOCK
from sweeps.store.plans import Plan
from sweeps.store.sweep import Sweep
from tests.conftest import TINY_RECIPE, Command
from tests.support import writers
from tests.support.synthetic import EXAMPLES, sweep_of
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
    for way in ([], ["--set", "search.plan=proxy"]):
        code, out, err = command("run", *words, *way)
        assert (code, out) == (2, ""), err
        assert "search.proxy = other: " in err.splitlines()[-1]
        assert "(100.00%) are in it too" in err.splitlines()[-1]
    assert not list((tmp_path / "runs").rglob("recipe.yaml"))


def test_a_proxy_may_have_a_schema_which_is_then_that_of_the_searched_corpus(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("slots: [city]\nsamples: ['to [rome](city)']")
    _, recipe = load_recipe("atis_private", [f"search.proxy={{path: {path}, schema: {path}}}"])
    _, searched = load_recipe("atis_private", _search_settings(recipe))
    assert searched.search.proxy is None
    assert searched.corpus == recipe.search.proxy
    assert (searched.corpus.path, searched.corpus.schema) == (str(path), str(path))
    _, recipe = load_recipe("atis_private", ["search.proxy={name: clinc-text, path: clinc150, format: schema}"])
    _, searched = load_recipe("atis_private", _search_settings(recipe))
    assert searched.corpus.path == "clinc150", "a name that comes along is no path"


@pytest.mark.parametrize("trials", [1, 3, 40])
def test_the_price_of_shuffled_trials_is_that_of_one_gaussian_mechanism(
    trials: int, recipe: Path, command: Command
) -> None:
    words = ("epsilon", str(recipe), "--trials", str(trials), "--set", "edp.epsilon=4")
    code, out, err = command(*words, "--json")
    assert code == 0, err
    found = json.loads(out)
    # The mechanisms' μ² add (Dong, Roth & Su 2022).
    composed = gaussian_epsilon(math.sqrt(trials) * gaussian_mu(4, 5e-4), 5e-4)
    assert found["epsilon_of_search"] == pytest.approx(composed, rel=1e-4)
    assert found["epsilon_of_trial"] == found["epsilon_of_proxy_and_release"] == pytest.approx(4, rel=1e-4)
    assert (found["delta"], found["unit"], found["trials"]) == (5e-4, "example", trials)
    code, out, err = command(*words)
    assert code == 0, err
    assert "the check of public corpora for private utterances is not covered" in " ".join(out.split())
    assert "chosen on video" in out
    assert "counts as private" not in err


def test_where_z0_is_searched_only_the_release_has_a_price(recipe: Path, command: Command) -> None:
    settings = ("--set", "space.z0.log_uniform=[0.6,10]", "--set", "edp.epsilon=4")
    code, out, err = command("epsilon", str(recipe), *settings, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["epsilon_of_trial"], found["epsilon_of_search"]) == (None, None)
    assert found["epsilon_of_proxy_and_release"] == pytest.approx(4, rel=1e-4)


@pytest.mark.slow
def test_where_z0_is_searched_the_price_is_that_of_the_limit(command: Command) -> None:
    code, out, err = command("epsilon", "quickstart")
    assert code == 0, err
    assert re.search(r"proxy and release +8 ", out)
    assert re.search(r"a trial +unknown", out)
    assert "z0 is searched: the ε of a trial is known when its z0 is drawn; the release has at most edp.epsilon" in out


PLAN = ("--set", "search.plan=proxy")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["epsilon", "RECIPE", "--set", "edp.epsilon=null"], "edp.epsilon: the recipe has no target"),
        (["epsilon", "RECIPE", "--set", "edp.epsilon=-1"], "epsilon = -1: input should be greater than 0"),
        (["epsilon", "RECIPE", "--z0", "1"], "z0: a recipe is given; allowed: --set, --trials, --json"),
        (["epsilon", "--trials", "3", "--z0", "1", "--epochs", "2"], "recipe: missing; allowed: a recipe"),
        (["epsilon"], "z0: missing; allowed: --z0 and --epochs, or a recipe"),
        (["epsilon", "RECIPE", "--set", "edp.alpha=private", "--set", "edp.epsilon=0.05"], "out of reach"),
        (["run", "RECIPE", *PLAN, "--set", "edp.alpha=private", "--set", "edp.epsilon=0.05"], "out of reach"),
        (["run", "RECIPE", *PLAN, "--set", "edp.epsilon=null"], "it needs a total epsilon"),
        (["run", "RECIPE", *PLAN, "--set", "search.proxy=null"], "give search.proxy"),
        (["run", "RECIPE", "--set", "search.plan=cheapest"], "search.plan = cheapest: removed; use proxy, or null"),
        (["run", "RECIPE", "--plan", "proxy"], "--plan: removed; use --set search.plan=proxy"),
        (
            ["run", "RECIPE", *PLAN, "--set", "search.proxy={name: health, utterances: 130}"],
            "search.plan = proxy: with search.proxy = health as the corpus, shadow.corpus = health: it is",
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
    words = (
        "run",
        str(recipe),
        "--set",
        "search.plan=proxy",
        "--name",
        "s",
        "--storage",
        str(tmp_path / "runs"),
        "--json",
    )
    died = tmp_path / "runs" / "s"  # of somebody who died before anything was kept
    died.mkdir(parents=True)
    (died / LOCK).touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweeps.engine.opening.encode_missing", _ctrl_c)
        code, out, err = command(*words)
    assert (code, out) == (130, "")
    goes_on = shlex.join(["edp-sweep", "resume", "s", "--storage", str(tmp_path / "runs")])
    assert err.splitlines()[-1].endswith(f"; go on with: {goes_on}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweeps.engine.jobs.release.train", _ctrl_c)
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
    (tmp_path / "runs" / "train-s-release" / "result.json").unlink()
    code, out, err = command(*words)
    assert code == 0, err
    ledger = Ledger.model_validate_json((tmp_path / "runs" / "train-s-release" / "ledger.json").read_text())
    assert json.loads(out)["epsilon"] == pytest.approx(epsilon(ledger, found["delta"]))
    assert 10 < json.loads(out)["epsilon"] < 16

    for setting in ("training.seed=5", "corpus.utterances=210"):  # the second one changes the release alone
        code, _, err = command(*words, "--set", setting)
        assert (code, "other settings" in err) == (2, True)


SEARCHED = ("edp.epsilon=null", "space.z0.log_uniform=[0.5, 4]", "search.keep_epochs=1")


@pytest.mark.slow
def test_where_the_noise_is_searched_the_best_trial_within_the_limit_is_released_at_its_own_epsilon(
    tmp_path: Path,
) -> None:
    made = sweep_of(tmp_path / "runs", "s", 6, *SEARCHED, tracked=False)
    ends = [point for trial in made.trials() for point in trial.points if point.last]
    limit = sorted(point.metrics["epsilon"] for point in ends)[3] + 1e-6
    settings = ["space.z0.log_uniform=[0.5, 4]", "search.plan=proxy", "corpus.name=health", "shadow.corpus.name=video"]
    settings += ["model.embeddings.corpus.name=video", "search.proxy.name=communication", f"edp.epsilon={limit}"]
    recipe = load_recipe("quickstart_paper", settings)[1]
    assert recipe.target is None
    assert "search.objectives=[ser]" not in _search_settings(recipe), "the front is of SER, MIA and ε"
    assert "log10_epsilon" in recipe.search.objectives
    made.save_recipe(made.recipe.model_copy(update={"edp": made.recipe.edp.model_copy(update={"epsilon": limit})}))
    within = [point for point in ends if point.metrics["epsilon"] <= limit]
    assert len(within) == 4
    chosen = _chosen(made)
    assert chosen.metrics["ser"] == min(point.metrics["ser"] for point in within)
    units = 2 * EXAMPLES
    spec = private_configuration(Plan(recipe=recipe, examples=units, users=0), chosen)
    assert epsilon(planned(spec, units), spec.edp.delta) == pytest.approx(chosen.metrics["epsilon"], rel=1e-4)
    assert (spec.corpus.name, spec.edp.C) == ("health", chosen.params["C"])
    made.save_recipe(made.recipe.model_copy(update={"edp": made.recipe.edp.model_copy(update={"epsilon": 1e-3})}))
    with pytest.raises(UserError, match=r"edp.epsilon = 0.001: no trial has so small an ε \(the smallest: "):
        _chosen(made)
