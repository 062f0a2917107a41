"""The study hears of every trial's end exactly once, and no configuration over the budget ever starts."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState
from ray.tune.search import Searcher

from edp.accounting.epsilon import epsilon
from edp.ledger import Ledger
from sweeps.config.loading import load_recipe
from sweeps.config.recipe import Recipe
from sweeps.config.target_epsilon import planned, resolve
from sweeps.engine.study import open_study, requeue_interrupted, sampler
from sweeps.engine.trial import Suggestion
from tests.support import studies
from tests.support.studies import ToldTrials
from trainables.records.job import TrialResult
from trainables.workers.client import SHORT_OF_MEMORY

EXAMPLES = 1_350


def recipe(*settings: str) -> Recipe:
    return load_recipe("quickstart_paper", list(settings))[1]


def study(one: Recipe) -> optuna.Study:
    return optuna.create_study(directions=["minimize"] * len(one.search.objectives), sampler=sampler(one.search))


def trials(one: Recipe, study: optuna.Study, folder: Path) -> ToldTrials:
    return studies.trials(studies.sweep_of(one, folder), one, study=study)


def refusals(study: optuna.Study) -> list[str]:
    return [trial.user_attrs["reason"] for trial in study.trials if trial.user_attrs.get("state") == "refused"]


def result(**metrics: float) -> TrialResult:
    return TrialResult(studies.METRICS | metrics, Ledger(), {})


def suggest(search: ToldTrials, trial_id: str) -> Suggestion:
    found = search.ask(trial_id)
    assert found is not None
    return found


def test_a_complete_a_failed_and_an_unfinished_trial_are_told_as_what_they_are(tmp_path: Path) -> None:
    one = recipe()
    known = study(one)
    search = trials(one, known, tmp_path)
    for trial_id in "abc":
        suggest(search, trial_id)
    assert search.tell("a", result(), Ledger(), []) == "complete"
    assert search.tell("b", "a worker died", Ledger(), []) == "failed"
    assert search.tell("c", result(mia_auc=math.nan), None, []) == "failed"
    states = [trial.state for trial in known.trials]
    assert states == [TrialState.COMPLETE, TrialState.FAIL, TrialState.FAIL]
    assert known.trials[1].user_attrs["reason"] == "a worker died"
    assert "mia_auc is not finite" in known.trials[2].user_attrs["reason"]
    # What a failed trial executed counts in the sweep's epsilon.
    assert json.loads(known.trials[1].user_attrs["ledger"])["private"]


@pytest.mark.stress
@pytest.mark.parametrize("name", ["tpe", "nsga2", "gp", "random"])
def test_the_seed_makes_the_sequence_of_suggestions_repeatable(name: str, tmp_path: Path) -> None:
    count = 6 if name == "gp" else 12  # a GP takes its time

    def sequence(seed: int, place: str) -> list[dict[str, Any]]:
        one = recipe(f"search.sampler={name}", f"search.seed={seed}", f"search.trials={count}")
        search = trials(one, study(one), tmp_path / place)
        found = []
        for i in range(count):
            params = suggest(search, str(i)).params
            found.append(params)
            search.tell(str(i), result(ser=params["C"] / 5, mia_auc=params["z0"]), Ledger(), [])
        return found

    assert sequence(1, "first") == sequence(1, "again")
    assert sequence(1, "once more") != sequence(2, "other")


@pytest.mark.parametrize(
    "setting", ["space.epsilon.log_uniform=[1, 1000]", "space.epsilon.choice=[8]", "edp.epsilon=8"]
)
def test_a_target_epsilon_is_met_by_the_z0_that_is_solved_for(setting: str, tmp_path: Path) -> None:
    one = recipe(setting, "search.sampler=random")
    assert "z0" not in one.dimensions
    search = trials(one, study(one), tmp_path)
    for i in range(5):
        params = suggest(search, str(i)).params
        target = params.get("epsilon", 8.0)
        spec = one.trial(params)
        assert spec.edp.z0 == params["z0"]
        assert epsilon(planned(spec, EXAMPLES), spec.edp.delta) == pytest.approx(target, abs=1e-4)


def test_what_is_over_the_budget_never_starts_and_is_tracked_with_the_reason(tmp_path: Path) -> None:
    one = recipe("epsilon_budget=1000", "search.sampler=random")
    known = study(one)
    search = trials(one, known, tmp_path)
    for i in range(3):
        spec = one.trial(suggest(search, str(i)).params)
        assert epsilon(planned(spec, EXAMPLES), spec.edp.delta) <= 1000
    refused = refusals(known)
    assert refused
    assert all("over the budget of 1000" in reason for reason in refused)
    assert len(search.driver._tracker.started) == len(refused)


@pytest.mark.parametrize("sampling", ["shuffle", "poisson"])
def test_every_kind_of_clip_that_is_searched_gets_the_noise_of_the_same_target(sampling: str) -> None:
    kinds = ("fixed", "automatic", "quantile")
    one = recipe("space.edp.clip.choice=[fixed, automatic, quantile]", "edp.epsilon=30", f"edp.sampling={sampling}")
    settled = [resolve(one, {"C": 1.0, "decay": "none", "tau": 0.0, "edp.clip": clip}, EXAMPLES) for clip in kinds]
    specs = [one.spec for one in settled]
    assert [spec.edp.clip for spec in specs] == list(kinds)
    for trial in specs:
        assert 30 - 1e-4 <= epsilon(planned(trial, EXAMPLES), trial.edp.delta) <= 30
    fixed, automatic, quantile = (spec.edp.z0 for spec in specs)
    assert fixed == automatic < quantile, "the count takes its share"


def test_a_clip_whose_count_alone_exceeds_the_target_is_refused_and_the_others_are_not(tmp_path: Path) -> None:
    one = recipe(
        "space.edp.clip.choice=[fixed, quantile]", "edp.epsilon=0.5", "search.sampler=random", "edp.decay=none"
    )
    known = study(one)
    search = trials(one, known, tmp_path)
    assert {suggest(search, str(i)).params["edp.clip"] for i in range(6)} == {"fixed"}
    refused = refusals(known)
    assert refused
    assert all("out of reach with clip = quantile" in reason for reason in refused)


@pytest.mark.slow
def test_interrupted_trials_are_asked_again_first_and_count_once(tmp_path: Path) -> None:
    one = recipe("search.sampler=random")
    url = f"sqlite:///{tmp_path / 'study.db'}"
    directions = ["minimize"] * 3
    known = optuna.create_study(storage=url, study_name="s", directions=directions, sampler=sampler(one.search))
    search = trials(one, known, tmp_path)
    done, cut = suggest(search, "a"), suggest(search, "b")
    search.tell("a", result(), Ledger(), [])

    again = optuna.load_study(storage=url, study_name="s", sampler=sampler(one.search))
    assert requeue_interrupted(again) == 1
    retried = suggest(trials(one, again, tmp_path / "c"), "c")
    assert retried.params == cut.params
    assert retried.number == cut.number != done.number, "one number, however often it goes on"
    assert requeue_interrupted(again) == 1
    assert suggest(trials(one, again, tmp_path / "d"), "d").number == cut.number


def test_a_trial_that_a_death_has_cut_off_is_not_charged_and_goes_on(tmp_path: Path) -> None:
    one = recipe("search.sampler=random")
    known = study(one)
    search = trials(one, known, tmp_path)
    cut = suggest(search, "a")
    search.driver.on_trial_complete("a", error=True)
    assert search.driver.stopped == "the process that reports on a trial died 4 times; see Ray's logs"
    assert search.driver.suggest("b") == Searcher.FINISHED
    assert [trial.state for trial in known.trials] == [TrialState.RUNNING]
    assert requeue_interrupted(known) == 0
    assert suggest(trials(one, known, tmp_path / "again"), "a").params == cut.params


def test_a_trial_without_enough_memory_goes_on_once_and_fails_the_second_time(tmp_path: Path) -> None:
    one = recipe("search.sampler=random")
    known = study(one)
    for session in ("first", "second"):
        search = trials(one, known, tmp_path / session)
        suggest(search, "a")
        search.driver.on_trial_result("a", {"message": [("left", SHORT_OF_MEMORY)]})
        search.driver.on_trial_complete("a")
        assert search.driver.stopped == (SHORT_OF_MEMORY if session == "first" else None)
        assert requeue_interrupted(known) == (0 if session == "first" else 1)
    assert known.trials[-1].user_attrs["reason"] == SHORT_OF_MEMORY


_POINTS = [{"C": 0.25, "z0": 0.125, "decay": "linear", "tau": 0.3}, {"z0": 0.5, "decay": "none"}]

_KILLED = """
import os, signal, sys
from sweeps.config import space
from sweeps.config.space import Dimension
from sweeps.engine.study import open_study
from sweeps.store.sweep import Sweep
from pathlib import Path

made = Sweep.existing(Path(sys.argv[1]), "one")
left, ask = int(sys.argv[2]), Dimension.ask

def dies(dimension, trial, name):  # between the study's answer and the trial's values, of which it has had so many
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    return ask(dimension, trial, name)

Dimension.ask = dies
space.ask(made.recipe.dimensions, open_study(made, made.recipe).ask(), made.recipe.shapes)
"""


@pytest.mark.usefixtures("kill")
@pytest.mark.parametrize("had", [0, 2])
def test_a_queued_configuration_survives_a_kill_before_its_values_were_set(had: int, tmp_path: Path) -> None:
    points = json.dumps(_POINTS)
    made, one = studies.sweep(tmp_path, f"search.points_to_evaluate={points}", "search.sampler=random")
    for _ in range(2):  # killed, gone on with, and killed again
        killed = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path), str(had)], check=False)
        assert killed.returncode == -signal.SIGKILL
        again = open_study(made, one)
        assert sum(trial.state == TrialState.RUNNING for trial in again.trials) == 1
        requeue_interrupted(again)
    search = studies.trials(made, one)
    asked = [suggest(search, str(i)).params for i in range(2)]
    for point in _POINTS:
        assert [params for params in asked if point.items() <= params.items()], (point, asked)
