"""A sweep that chooses on a proxy corpus has one ε: that of the training on the private corpus."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dashboards.pareto.data import snapshot
from dashboards.report.page import write_report
from edp.spec import UserError
from sweeps.commands.run import next_steps
from sweeps.config.loading import load_config, load_recipe
from sweeps.registry.pick import Wanted, pick_point
from sweeps.results.headline import configuration_of, headline, private_configuration
from sweeps.results.snapshot import Snapshot
from sweeps.results.sweep import load_sweep
from sweeps.store.picks import ORIGIN, Origin
from sweeps.store.plans import PLAN, RELEASE, Plan, Release
from sweeps.store.sweep import Sweep
from tests.support.synthetic import sweep_of
from trainables.records.files import digest, write_json

SETTINGS = ["search.objectives=[ser]", "search.keep_epochs=1"]
PRIVATE = [
    *("corpus.name=health", "corpus.utterances=3000", "shadow.corpus.name=video", "edp.epsilon=8"),
    *("model.embeddings.corpus.name=video", "search.plan=proxy", "search.proxy.name=communication"),
]


def planned(storage: Path, *settings: str, tracked: bool = False) -> Sweep:
    """Return a sweep whose trials ran on a proxy corpus, without a release."""
    sweep = sweep_of(storage, "one", 4, *SETTINGS, *settings, tracked=tracked)
    plan = Plan(recipe=load_recipe("quickstart_paper", PRIVATE)[1], examples=1350, users=0)
    write_json(sweep.folder / PLAN, plan)
    return sweep


def release(sweep: Sweep) -> float:
    """Leave what a release of the best trial leaves, and return its ε."""
    best = min((p for t in sweep.trials() for p in t.points if p.last), key=lambda point: point.metrics["ser"])
    folder = sweep.folder.parent / "train-one-release"
    shutil.copytree(best.folder, folder)
    write_json(folder / ORIGIN, Origin(sweep="one", trial=best.trial, epoch=best.epoch))
    plan = Plan(recipe=load_recipe("quickstart_paper", PRIVATE)[1], examples=1350, users=0)
    spec = private_configuration(plan, best)
    made = Release(
        trial=best.trial,
        params=best.params | {"z0": spec.edp.z0, "training.epochs": spec.training.epochs},
        epochs=spec.training.epochs,
        metrics=best.metrics | {"ser": 0.123, "epsilon": 7.999},
        run_id=best.run_id,
        folder=folder.name,
        digests={"ledger.json": digest(folder / "ledger.json")},
    )
    write_json(sweep.folder / RELEASE, made)
    found = Snapshot(sweep).epsilon
    assert found is not None
    return found


@pytest.mark.slow
def test_trials_on_a_proxy_corpus_cost_nothing_and_the_release_costs_its_own(tmp_path: Path) -> None:
    sweep = planned(tmp_path)
    assert Snapshot(sweep).epsilon == 0
    assert headline(Snapshot(sweep)) == [
        "Nothing is released yet. The trials run on communication, which is public: they cost health no ε. "
        f"Go on with: edp-sweep resume one --storage {tmp_path}"
    ]
    cost, point = release(sweep), Snapshot(sweep).release
    assert point is not None
    assert cost == pytest.approx(snapshot(sweep).epsilon)
    (trial,) = (trial for trial in sweep.trials() if trial.number == point.trial)
    alone = sweep_of(tmp_path / "alone", "one", 4, *SETTINGS, tracked=False)
    assert cost < (Snapshot(alone).epsilon or 0)
    assert trial.ledger == point.ledger
    assert "ε in all (1 training on health; the trials ran on communication" in Snapshot(sweep).cost_line


@pytest.mark.slow
def test_the_headline_has_one_epsilon_and_says_what_chose(tmp_path: Path) -> None:
    sweep = planned(tmp_path)
    release(sweep)
    first, covers, compared, *_ = headline(Snapshot(sweep))
    assert first == (
        "Released: a model of health with a SER of 12.3%, at ε = 8 in all (search and release), δ = 0.0005, "
        "for one utterance."
    )
    assert covers.startswith("ε covers the choice and the release; ")
    assert compared.startswith("On communication, the public proxy corpus: SER 21.0% without privacy and ")
    earlier = planned(tmp_path / "from", "search.points_from=sweep first (its ε of 27 belongs to this choice)")
    release(earlier)
    first, covers, *_ = headline(Snapshot(earlier))
    assert ", at ε = 8 of the release, δ = 0.0005" in first
    assert "nor are the points of sweep first (its ε of 27 belongs to this choice)" in covers
    shutil.copytree(tmp_path / "train-one-release", tmp_path / "train-later")
    assert headline(Snapshot(sweep))[-1].startswith("With 1 later training on health: ε = ")


@pytest.mark.slow
def test_a_pick_is_the_released_model_or_a_configuration_for_the_private_corpus(tmp_path: Path) -> None:
    sweep = planned(tmp_path, tracked=True)
    release(sweep)
    point, why, _ = pick_point(Snapshot(sweep), {}, Wanted(tmp_path / "picked.yaml"))
    assert (point, why) == (
        Snapshot(sweep).release,
        "It is the released model, chosen on the proxy corpus by the lowest SER.",
    )
    within = pick_point(Snapshot(sweep), {"epsilon": 8.0}, Wanted(tmp_path / "within.yaml"))
    assert within[0] == point, "a release within the limits costs no more ε"
    best = load_sweep("one", tmp_path).best
    assert (best(max_epsilon=8), best()) == (point, point)
    with pytest.raises(UserError, match=r"the released model does not fit ser <= 0\.1 \(its own: 16\.2%\)"):
        best(max_ser=0.1)  # another trial would be chosen by private figures without noise
    spec = load_config(tmp_path / "picked.yaml", [])
    assert (spec.corpus.name, spec.edp.z0) == ("health", point.params["z0"])
    other = next(trial for trial in sweep.trials() if trial.number != point.trial)
    picked, _, _ = pick_point(Snapshot(sweep), {}, Wanted(tmp_path / "other.yaml"), str(other.number))
    assert load_config(tmp_path / "other.yaml", []) == configuration_of(Snapshot(sweep), picked)
    assert "On communication, which is public: validation SER" in (tmp_path / "other.yaml").read_text()
    with pytest.raises(UserError, match="is a model of communication, on which the sweep only chooses"):
        pick_point(Snapshot(sweep), {}, Wanted(tmp_path / "third.yaml", "voice"), str(other.number))
    assert not (tmp_path / "third.yaml").exists()


@pytest.mark.slow
def test_the_report_is_about_the_released_model(tmp_path: Path) -> None:
    sweep = planned(tmp_path, tracked=True)
    with pytest.raises(UserError, match="nothing is released yet; go on with: edp-sweep resume one"):
        write_report(sweep, tmp_path / "report.html")
    release(sweep)
    write_report(sweep, tmp_path / "report.html")
    text = " ".join((tmp_path / "report.html").read_text().split())
    assert "Released: a model of health with a SER of 12.3%" in text
    assert "chosen on communication, another corpus, so ε covers the choice" in text
    assert "ε of the whole sweep" not in text
    assert "Nothing: the trials ran on communication, a public corpus." in text
    assert "Against plain SGD" not in text
    assert "pick one" in next_steps(Snapshot(sweep))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["search.plan=proxy", "edp.epsilon=8"], "search.plan = proxy: it needs a public corpus to choose on"),
        (["search.plan=proxy", "search.proxy.name=video"], "search.plan = proxy: it needs a total epsilon"),
        (["search.plan=best", "edp.epsilon=8"], "search.plan = 'best'"),
    ],
)
def test_a_plan_that_cannot_be_followed_is_refused(settings: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        load_recipe("quickstart_paper", settings)
