"""A secret number of candidates: its bound holds for the whole space, and nothing tells how many there were."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import norm

from edp.accounting.selection import random_stopping_epsilon
from edp.ledger import planned_ledger
from edp.spec import EDPSpec, UserError
from sweeps.commands.finish import finish
from sweeps.config.loading import load_recipe
from sweeps.config.pricing import epsilon_of_best, price
from sweeps.config.recipe import Recipe
from sweeps.config.space import bound_combinations
from sweeps.config.target_epsilon import BudgetExceeded, check_candidates, planned, resolve
from sweeps.run.progress import Progress
from sweeps.run.trials import release_best
from sweeps.store.storage import default_tracking_uri
from sweeps.store.sweep import Sweep
from sweeps.tracking.tracker import Tracker
from tests.conftest import Command
from tests.support import studies
from tests.support.searching import holding
from tests.support.studies import NoTracker, ToldTrials
from tests.support.synthetic import figures
from trainables.records.job import EpochResult, TrialResult

SECRET = ["search.sampler=random_stopping", "edp.epsilon=8", "search.objectives=[ser]"]
NUMBER, COUNT = 741_707_417, 639_606_396
"""The winner's number and the number of candidates: none that is somewhere by chance."""


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


def test_a_release_that_tells_the_winners_number_costs_twice_what_the_bound_states() -> None:
    """Integrate the release of (number, value), where the best of K Gaussian values is the largest."""
    mu, stop, delta, step = 0.875, 1 / 40, 5e-4, 0.01
    values, numbers = np.arange(-9, 10, step), np.arange(1, 1_000)[:, None]

    def log_density(mean: float) -> np.ndarray:
        """Number n won: n or more trials were drawn, and all others are below."""
        below = norm.logcdf(values - mean)
        more = np.log(stop) + (numbers - 1) * (np.log1p(-stop) + below) - np.log1p(-(1 - stop) * np.exp(below))
        return norm.logpdf(values - mean) + more

    one, other = log_density(0), log_density(mu)
    assert np.exp(one).sum() * step == pytest.approx(1, abs=1e-6)
    assert (np.exp(one) * np.maximum(-np.expm1(16.3 + other - one), 0)).sum() * step >= delta
    base = planned_ledger(
        EDPSpec(z0=1 / mu), epochs=1, micro_batches=1, steps_per_epoch=1, rate=1.0, single_example=True
    )
    assert random_stopping_epsilon(base, delta, 40, 1) < 8.05


def searched_in(storage: Path, first: int = NUMBER - 1) -> tuple[Sweep, Tracker]:
    """A sweep whose three candidates ended, and the writer of its run. The second has the lowest validation SER."""
    sweep, searched = studies.sweep(storage, *SECRET)
    uri = default_tracking_uri(storage)
    tracker = Tracker(uri, "quickstart_paper", storage / "mlflow-artifacts")
    tracker.stop_clock(sweep.began)
    run_id = tracker.start("one", params={}, tags={"role": "sweep"})
    sweep.update(tracking_uri=uri, run_id=run_id, wanted=COUNT)
    told = studies.trials(sweep, searched, tracker=None)
    for place, valid in enumerate((0.3, 0.1, 0.2)):
        told.driver._study.enqueue_trial({}, user_attrs={"retry_of": first + place})
        suggestion = told.ask(str(place))
        assert suggestion is not None
        metrics, ledger = figures(searched, suggestion.params, np.random.default_rng(0))
        metrics |= {"ser": 0.5 - valid, "valid_ser": valid, "epsilon": 8.0}
        (sweep.trial_folder(suggestion.number) / "model.pt").write_bytes(b"weights")
        curve = [{"valid_ser": valid, "train_loss": 1.0} for _ in range(searched.training.epochs)]
        result = TrialResult(metrics, ledger, {"device": "cpu"}, (EpochResult(len(curve), metrics),))
        assert told.tell(str(place), result, ledger, curve) == "complete"
    (sweep.folder / "ray" / f"one-{NUMBER}").mkdir(parents=True)
    return sweep, tracker


def end(sweep: Sweep, tracker: Tracker) -> None:
    release_best(sweep, tracker)
    finish(sweep, sweep.recipe, tracker, "finished", Progress(Console(quiet=True)))


def test_validation_chooses_what_is_released_and_the_test_split_only_measures_it(tmp_path: Path) -> None:
    sweep, tracker = searched_in(tmp_path)
    assert sweep.trials() == [], "nothing before all have ended"
    release_best(sweep, tracker)
    (released,) = sweep.trials()
    assert (released.metrics["valid_ser"], released.metrics["ser"]) == (0.1, 0.4)
    assert released.ledger is not None


@pytest.mark.slow
def test_neither_the_winners_number_nor_how_many_there_were_is_in_anything_after_the_release(
    tmp_path: Path, command: Command
) -> None:
    sweep, tracker = searched_in(tmp_path)
    assert len(holding(tmp_path, [str(NUMBER)])) > 5, "the search finds it where it is"
    assert "one/sweep.json" in holding(tmp_path, [str(COUNT)])
    end(sweep, tracker)
    said = []
    where = ("one", "--storage", str(tmp_path))
    for words in (
        ("status", *where),
        ("status", *where, "--json"),
        ("front", *where, "--json"),
        ("pick", *where, "--output", str(tmp_path / "picked.yaml")),
        ("report", *where, "--output", str(tmp_path / "report.html")),
        ("list", "--storage", str(tmp_path), "--json"),
    ):
        code, out, err = command(*words)
        assert code == 0, err
        said.append(out + err)
    (released,) = sweep.trials()
    assert (released.number, released.points[0].folder) == (0, sweep.folder / "released")
    for number in (NUMBER - 1, NUMBER, NUMBER + 1, COUNT):
        forms = [str(number), f"{number:,}", f"{number:x}"]
        assert holding(tmp_path, forms) == []
        assert not [form for form in forms for text in said if form in text]


def test_no_time_of_what_is_released_tells_how_long_the_search_took(tmp_path: Path) -> None:
    sweep, tracker = searched_in(tmp_path)
    time.sleep(0.01)
    end(sweep, tracker)
    files = [*sweep.released.rglob("*"), sweep.released]
    files += [path for path in (tmp_path / "mlflow-artifacts").rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"model.pt", "ledger.json", "config.yaml", "front.svg"}
    assert {path.stat().st_mtime for path in files} == {sweep.began}
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as store:
        times = [t for row in store.execute("select start_time, end_time from runs") for t in row]
        times += [t for (t,) in store.execute("select timestamp from metrics")]
    assert set(times) == {int(sweep.began * 1000)}


@pytest.mark.slow
def test_a_release_that_was_cut_off_goes_on_at_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, tracker = searched_in(tmp_path)
    for place in ("sweeps.store.trial_file.atomic_write", "sweeps.store.sweep.shutil.rmtree"):
        with monkeypatch.context() as patch:
            patch.setattr(place, lambda *args, **options: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                release_best(sweep, tracker)
    end(sweep, tracker)
    (released,) = sweep.trials()
    assert (released.metrics["valid_ser"], released.run_id) == (0.1, sweep.record.released_run_id)
    assert released.run_id is not None
    assert not (sweep.folder / "trials").exists()


def test_a_lost_study_names_no_candidate(tmp_path: Path) -> None:
    sweep, _ = searched_in(tmp_path, first=0)
    (sweep.folder / "study.db").unlink()
    with pytest.raises(UserError) as gone:
        sweep.told(sweep.recipe)
    assert not re.search(r"trials?[ /]\d", str(gone.value))


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
    search.driver.on_trial_result("a", {"message": [("left", "interrupted")]})
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
