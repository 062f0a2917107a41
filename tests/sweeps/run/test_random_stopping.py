"""A secret number of candidates: its bound holds for the whole space, and nothing tells how many there were."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from edp.accounting.selection import random_stopping_epsilon
from edp.ledger import Ledger
from edp.spec import UserError
from sweeps.config.loading import load_recipe
from sweeps.config.pricing import epsilon_of_best, price
from sweeps.config.recipe import Recipe
from sweeps.config.space import bound_combinations
from sweeps.config.target_epsilon import BudgetExceeded, check_candidates, planned, resolve
from sweeps.run.progress import Progress
from tests.conftest import Command
from tests.support import studies
from tests.support.studies import NoTracker, ToldTrials

SECRET = ["search.sampler=random_stopping", "edp.epsilon=8", "search.objectives=[ser]"]


def recipe(*settings: str) -> Recipe:
    return load_recipe("quickstart_paper", [*SECRET, *settings])[1]


@pytest.mark.slow
def test_no_candidate_costs_more_than_the_bound_says_whatever_is_searched() -> None:
    searched = recipe(
        "space.training.batch_size.choice=[128,32,8]",
        "space.training.epochs.choice=[60,1]",
        "space.edp.noise.choice=[paper,corrected]",
        "space.edp.alpha.choice=[fixed,private]",
    )
    bound = epsilon_of_best(searched)
    ledgers = [
        planned(resolve(searched, params, 1_350).spec, 1_350) for params in bound_combinations(searched.dimensions)
    ]
    assert len({ledger.entries[0].mechanism.z for ledger in ledgers}) > 5, "the candidates differ"
    costs = [random_stopping_epsilon(ledger, 5e-4, searched.search.trials, 1) for ledger in ledgers]
    assert max(costs) <= bound < max(costs) + 1e-3


@pytest.mark.parametrize("settings", ["edp.sampling=poisson", "space.edp.sampling.choice=[shuffle,poisson]"])
def test_poisson_samples_whose_worst_candidate_nobody_knows_are_refused(settings: str) -> None:
    with pytest.raises(UserError, match=r"worst trial.*allowed: edp.sampling=shuffle"):
        recipe(settings)


@pytest.mark.parametrize("objective", ["mia_auc", "log10_epsilon", "log10_epsilon_paper"])
def test_an_objective_that_reads_members_without_noise_is_refused(objective: str) -> None:
    with pytest.raises(UserError, match=r"its only objective.*allowed: search.objectives=\[ser\]"):
        recipe(f"search.objectives=[{objective}]")


@pytest.mark.slow
def test_the_fastest_decays_of_the_default_space_are_candidates() -> None:
    check_candidates(recipe("training.epochs=100"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            ["training.epochs=700", "space.decay.choice=[exponential]", "edp.C=1"],
            "edp.epsilon = 8 at decay exponential, tau 0.5",
        ),
        (["edp.epsilon=0.05", "edp.alpha=private"], "edp.epsilon = 0.05 at C 0.1, decay none"),
    ],
)
def test_a_target_out_of_reach_is_found_out_before_anything_is_made(
    settings: list[str], says: str, command: Command, tmp_path: Path
) -> None:
    words = [word for setting in [*SECRET, *settings] for word in ("--set", setting)]
    code, out, err = command("run", "quickstart_paper", "--name", "one", "--storage", str(tmp_path / "runs"), *words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert says in err
    assert "out of reach" in err
    assert not (tmp_path / "runs").exists()


def test_validation_chooses_what_is_released_and_the_test_split_only_measures_it(tmp_path: Path) -> None:
    made, searched = studies.sweep(tmp_path, *SECRET)
    told = studies.trials(made, searched)
    for name, valid, test in (("a", 0.1, 0.3), ("b", 0.3, 0.1)):
        told.ask(name)
        told.tell(name, studies.result(ser=test), Ledger(), [{"valid_ser": 0.9}, {"valid_ser": valid}])
    made.update(state="finished")
    (released,) = made.trials()
    assert released.metrics["ser"] == 0.3


@pytest.mark.parametrize("secret", [True, False])
def test_a_refused_or_interrupted_candidate_is_tracked_and_shown_unless_its_number_is_secret(
    secret: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    searched, tracker = recipe(), NoTracker()
    sweep = studies.sweep_of(searched, tmp_path)
    shown = Progress(Console(quiet=secret))
    search = ToldTrials(studies.driver(sweep, searched, tracker=None if secret else tracker, progress=shown))
    params = next(bound_combinations(searched.dimensions))
    search.driver._refuse(search.driver._study.ask(), BudgetExceeded(1.0, params, 2.0))
    assert search.ask("a") is not None
    assert search.ask("b") is not None
    headings = {file.read_text().partition(" after")[0] for file in sweep.folder.glob("trials/*/config.yaml")}
    assert headings == {"# Trial 0 of sweep one"}, "a number of its own would tell how many came before"
    search.driver.on_trial_result("a", {"message": ("left", "interrupted")})
    search.driver.on_trial_complete("a")
    captured = capsys.readouterr()
    if secret:
        assert (tracker.started, captured.out, captured.err) == ([], "", "")
    else:
        assert tracker.started == ["one-000 refused"]
        assert "trial 0 refused" in captured.out
        assert "trial 1 interrupted" in captured.out


@pytest.mark.slow
def test_a_secret_number_of_candidates_runs_out_whatever_becomes_of_them(tmp_path: Path) -> None:
    made, searched = studies.sweep(tmp_path, *SECRET)
    search = studies.trials(made, searched)
    for i in range(11):
        assert search.ask(str(i)) is not None, "to give up after ten would tell that there were so many"
        search.tell(str(i), "the loss is nan", None, [])
    assert search.driver.gave_up is None


@pytest.mark.slow
@pytest.mark.parametrize("target", [0.3, 8.0])
def test_what_a_plan_says_of_it_is_what_it_costs(target: float) -> None:
    searched = recipe("search.trials=3")
    (way,) = (way for way in price(searched, 1_350, target).ways if way.name == "random_stopping")
    found = epsilon_of_best(recipe("search.trials=3", f"edp.epsilon={way.epsilon_of_release!r}"))
    assert found == pytest.approx(way.epsilon_total, rel=1e-7)
    assert found <= target * (1 + 1e-7)
