"""What would make the account of a corpus pass `corpus.budget` does not start, and says what it would cost."""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from edp.accounting.gaussian import gaussian_epsilon, gaussian_mu
from edp.ledger import Ledger
from edp.spec import UserError
from sweeps.config.loading import load_config, load_recipe, write_yaml
from sweeps.config.spending import of_training, of_trials, together
from sweeps.config.target_epsilon import planned
from sweeps.engine.jobs.confirm import confirm
from sweeps.engine.jobs.search import resume_sweep, start_sweep
from sweeps.engine.jobs.train import train
from sweeps.engine.progress import Progress
from sweeps.engine.recorder import Recorder
from sweeps.text.figures import epsilon_digits
from tests.conftest import Command
from tests.support import studies
from tests.support.fuzzing import begin
from tests.support.spending import EXAMPLES, spec_of, training
from tests.support.synthetic import sweep_of
from trainables.config import PrivacyBudget, TrialSpec
from trainables.corpora import corpus_digest
from trainables.records.epochs import read_ledger
from trainables.training.checkpoint import BEFORE, NAME, Checkpoint, save_checkpoint, spec_key

DELTA = 5e-4
EIGHT = ("edp.epsilon=8", "search.objectives=[ser]")
PROXY = [
    *("--set", "search.proxy={name: video, utterances: 600}"),
    *("--set", "shadow.corpus={name: health, utterances: 600}"),
]
WATCH = Progress(Console(quiet=True))


def budget(epsilon: float, delta: float = DELTA) -> str:
    return f"corpus.budget={{epsilon: {epsilon}, delta: {delta}}}"


def composed(count: int) -> float:
    return gaussian_epsilon(math.sqrt(count) * gaussian_mu(8, DELTA), DELTA)


def test_a_budget_changes_no_digest_and_no_key() -> None:
    plain = spec_of(*EIGHT)
    limited = plain.model_copy(update={"corpus": plain.corpus.model_copy(update={"budget": _budget(8)})})
    assert corpus_digest(limited.corpus) == corpus_digest(plain.corpus)
    assert spec_key(limited) == spec_key(plain)


def _budget(epsilon: float) -> PrivacyBudget:
    return PrivacyBudget(epsilon=epsilon, delta=DELTA)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["corpus.budget={epsilon: 0, delta: 0.1}"], "corpus.budget.epsilon = 0"),
        (["corpus.budget={epsilon: 8}"], "corpus.budget.delta"),
        (["shadow.corpus.budget={epsilon: 8, delta: 0.1}"], "shadow.corpus.budget: this corpus is read as public"),
        (["search.proxy={name: health, budget: {epsilon: 8, delta: 0.1}}"], "search.proxy.budget: this corpus is read"),
    ],
)
def test_a_budget_is_a_pair_of_the_private_corpus_alone(settings: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        load_recipe("quickstart_paper", settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "trials", "costs"),
    [
        (["edp.epsilon=8"], 3, composed(3)),
        (["space.epsilon.log_uniform=[1,8]"], 3, composed(3)),
        (["edp.epsilon=8", "edp.delta=1e-5"], 2, None),
        (["edp.epsilon=8", "edp.sampling=poisson", "training.method=dpsgd"], 1, 8),
    ],
)
def test_the_cost_of_trials_is_known_beforehand_at_a_target(
    settings: list[str], trials: int, costs: float | None
) -> None:
    recipe = load_recipe("quickstart_paper", settings)[1]
    found = of_trials(recipe, EXAMPLES, trials)
    assert found is not None
    expected = costs or gaussian_epsilon(math.sqrt(2) * gaussian_mu(8, 1e-5), DELTA)
    assert together(found, DELTA) == pytest.approx(expected, rel=1e-4)
    assert of_trials(load_recipe("quickstart_paper", [])[1], EXAMPLES, 1) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "adds"),
    [
        (["run", "quickstart_paper", "--trials", "2"], composed(2)),
        (["run", "quickstart_paper", "--set", "search.plan=proxy", *PROXY], 8),
    ],
)
def test_a_run_is_refused_before_it_starts(
    words: list[str], adds: float, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.init", begin)
    training(tmp_path, "one", *EIGHT)
    settings = [word for one in (*EIGHT, budget(12.6)) for word in ("--set", one)]
    before = {place.name for place in tmp_path.iterdir()}
    code, out, err = command(*words, *settings, "--storage", str(tmp_path))
    assert (code, out) == (2, ""), err
    line = err.splitlines()[-1]
    assert "corpus.budget = (ε 12.6, δ 0.0005): the account of corpus communication is ε = 8" in line
    assert f"would add {epsilon_digits(adds, 4)} and" in line
    assert {place.name for place in tmp_path.iterdir()} - before <= {"logs", "cache"}


@pytest.mark.slow
def test_a_training_is_refused_and_one_that_goes_on_is_not_counted_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.init", begin)
    training(tmp_path, "one", *EIGHT)
    config = tmp_path / "config.yaml"
    spec = spec_of(*EIGHT)
    write_yaml(spec.model_copy(update={"corpus": spec.corpus.model_copy(update={"budget": _budget(12)})}), config)

    def refused(*settings: str, name: str | None = None, valid: bool = False) -> str:
        with pytest.raises(UserError, match=r"corpus\.budget") as error:
            train(config, [*settings], storage=tmp_path, tracking_uri=None, progress=WATCH, name=name, with_valid=valid)
        return str(error.value)

    assert "this training would add 8 and make it 12.66" in refused()
    assert "this training would add 8 and make it 12.66" in refused(valid=True)
    assert "would add ∞ and make it ∞" in refused("training.method=sgd")
    goes_on = training(tmp_path, "two", *EIGHT)
    assert "is ε = 12.66" in refused(name="two"), "it would begin anew"
    whole = read_ledger(goes_on)
    assert whole is not None
    checkpointed(goes_on, whole, spec)
    assert "is ε = 8, this training would add 8" in refused(name="two")
    assert "is ε = 12.66" in refused("edp.C=0.7", name="two"), "with other settings it begins anew"
    checkpointed(goes_on, whole.until(1), spec)
    assert re.search(r"is ε = (8\.[1-9]|9|1[0-2]\.[0-6])", refused(name="two")), "it runs its later epochs again"
    (goes_on / NAME).write_bytes(b"broken")
    (goes_on / BEFORE).unlink()
    assert "is ε = 12.66" in refused(name="two")
    assert load_config(config, [budget(13)]).corpus.budget is not None


def checkpointed(folder: Path, kept: Ledger, spec: TrialSpec) -> None:
    """Write a checkpoint whose weights were made by the steps of `kept`."""
    about = dict.fromkeys(("alpha", "average", "clip", "audit"))
    made = {"spec": spec_key(spec), "ledger": kept.model_dump_json()}
    state = Checkpoint(step=0, seconds=[], model={}, optimizer={}, **made, **about)
    save_checkpoint(state, folder)


@pytest.mark.slow
def test_resume_and_confirm_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.init", begin)
    sweep = sweep_of(tmp_path, "s", 2, *EIGHT, budget(13))
    with pytest.raises(UserError, match=r"is ε = 12\.66, \d+ trainings of confirm would add"):
        confirm(sweep, 2, WATCH)
    sweep.update(state="stopped", wanted=3)
    with pytest.raises(UserError, match=r"is ε = 12\.66, sweep s would add 8 and make it 16\.\d+"):
        resume_sweep(sweep, WATCH)
    assert sweep.record.state == "stopped"


@pytest.mark.slow
def test_a_driver_starts_no_trial_that_would_pass_the_budget(tmp_path: Path) -> None:
    settings = (*EIGHT, "search.sampler=random", budget(composed(2) + 0.01))
    search = studies.trials(*studies.sweep(tmp_path, *settings))
    first = search.ask("a")
    assert first is not None
    assert search.ask("b") is not None
    assert search.ask("c") is None, "two that run would cost all of it"
    assert search.driver.budget_spent is not None
    assert "trial 2 would add 8" in search.driver.budget_spent
    assert search.ask("d") is None

    search = studies.trials(*studies.sweep(tmp_path / "early", *settings))
    first = search.ask("a")
    assert first is not None
    search.tell("a", studies.result("early"), planned(first.spec, EXAMPLES).until(0), [])
    assert search.ask("b") is not None
    assert search.ask("c") is not None, "the first has not spent what it might have"


@pytest.mark.slow
def test_without_a_target_a_driver_refuses_the_configurations_that_cost_too_much(tmp_path: Path) -> None:
    made, recipe = studies.sweep(tmp_path, "search.sampler=random", "space.z0.choice=[0.01, 50]", budget(20))
    search = studies.trials(made, recipe)
    started = [one for one in (search.ask(str(i)) for i in range(4)) if one is not None]
    assert started
    assert {one.params["z0"] for one in started} == {50}
    assert search.driver.budget_spent is None
    refused = [trial for trial in made.trials() if trial.state == "refused"]
    assert refused
    assert "corpus.budget" in str(refused[0].reason)


@pytest.mark.slow
def test_sweeps_that_run_at_once_share_the_budget(tmp_path: Path) -> None:
    spec = spec_of(*EIGHT, budget(composed(2) + 0.01))
    one, two = (Recorder(tmp_path / name, spec, print, alone=True) for name in ("train-one", "train-two"))
    for recorder in (one, two):
        recorder.check([of_training(spec, EXAMPLES)] * 2, "two trainings")
    assert one.begin("train", spec, units=EXAMPLES, folder=tmp_path / "train-one") is None
    assert two.begin("train", spec, units=EXAMPLES, folder=tmp_path / "train-two") is None
    refused = two.begin("train", spec, units=EXAMPLES, folder=tmp_path / "train-three")
    assert "is ε = 12.66, this training would add 8" in str(refused)
    assert not (tmp_path / "train-three").exists()


@pytest.mark.slow
def test_a_journal_that_was_cut_or_removed_admits_nothing(tmp_path: Path) -> None:
    training(tmp_path, "one", *EIGHT)
    shutil.rmtree(tmp_path / "train-one")
    spec, journal = spec_of(*EIGHT, budget(1000)), tmp_path / "account.jsonl"
    Recorder(tmp_path / "train-two", spec, print, alone=True).check([], "nothing")
    text = journal.read_bytes()
    for damage in (text[:-20], text.partition(b"\n")[0] + b"\n", b"", None):
        journal.unlink() if damage is None else journal.write_bytes(damage)
        with pytest.raises(UserError, match=r"is not known, because account\.jsonl has lost lines"):
            Recorder(tmp_path / "train-two", spec, print, alone=True).check([], "nothing")
    journal.write_bytes(text)
    Recorder(tmp_path / "train-two", spec, print, alone=True).check([], "nothing")


def test_a_sweep_without_a_target_is_refused_once_all_is_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.init", begin)
    training(tmp_path, "one", *EIGHT)
    with pytest.raises(UserError, match=r"is ε = 8, sweep s would add 0 and make it 8"):
        start_sweep("quickstart_paper", [budget(7)], name="s", storage=tmp_path, progress=WATCH)
    assert not (tmp_path / "s").exists()
