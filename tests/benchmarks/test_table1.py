"""The benchmark of Table 1: the paper's points, the settings of each row, what a result holds, and how it is shown."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from edp.accounting.epsilon import log10_epsilon_paper
from sweeps.config.loading import load_recipe
from sweeps.text.signals import Terminated
from tests.benchmarks.table1.__main__ import COMMAND, app
from tests.benchmarks.table1.points import (
    DECAYS,
    PAPER,
    ROWS,
    Entry,
    Measurement,
    Note,
    Result,
    delta_of,
    merged,
    names_of,
    paper_entries,
    printed_ledger,
)
from tests.benchmarks.table1.report import as_markdown, figure, verdicts
from tests.benchmarks.table1.row import Run, paper_mechanism, private_recipe
from tests.conftest import Command
from tests.support.encoder_folders import make_encoder


def entry(point: str, ser: float, auc: float, row: str = "clc_atis", epsilon: float | None = 8.0) -> Entry:
    corpus, model = names_of(row)
    return Entry(corpus, model, point, ser, auc, epsilon, 5e-4, epsilon, 12.5, 2, COMMAND)


def measurement(row: str = "clc_atis") -> Measurement:
    notes = [Note("sgd", [0.05], [0.65], 0.02, None), Note("private_8", [0.04, 0.06], [0.5, 0.5], 0.01, {"C": 0.5})]
    return Measurement(*names_of(row), "2026-11-23", 4, {"processor": "one", "cores": 2}, {"torch": "2"}, notes)


def test_the_papers_points_are_its_percents_of_sgd() -> None:
    none, linear, exponential = paper_entries("clc_atis")
    assert [one.point for one in (none, linear, exponential)] == [f"paper_{decay}" for decay in DECAYS]
    assert (none.ser, none.mia_auc) == (pytest.approx(0.063 * 0.871), pytest.approx(0.675 * 0.9174))
    assert exponential.ser == pytest.approx(0.063 * 0.881)
    assert none.epsilon_paper == pytest.approx(25_118.86, rel=1e-6)
    assert (none.delta, delta_of("bert_video")) == (5e-4, 5e-5)


def test_the_papers_honest_epsilon_is_that_of_its_mechanism_as_printed() -> None:
    # 30 epochs at z = 1, 36.355424 by the paper's formula, are 581.003124 at a sensitivity of 2 and the noise of 8.
    from edp.accounting.epsilon import epsilon

    assert epsilon(printed_ledger(36.355424, 5e-4), 5e-4) == pytest.approx(581.003124, rel=1e-6)
    for row in ROWS:
        for one, (_, _, claimed) in zip(paper_entries(row), PAPER[row][2], strict=True):
            assert one.delta is not None
            assert log10_epsilon_paper(printed_ledger(10**claimed, one.delta), one.delta) == pytest.approx(claimed)
            assert one.epsilon is not None
            assert one.epsilon_paper is not None
            assert one.epsilon > 15 * one.epsilon_paper


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("utterances", [400, 20_000, 1_000_000])
def test_a_row_is_recipes_of_the_projects_own(row: str, utterances: int, tmp_path: Path) -> None:
    run = Run(row, 5, utterances, 2, "minilm", tmp_path, None, "", "")
    recipe = load_recipe(*paper_mechanism(run))[1]
    assert (recipe.corpus.name, recipe.model.kind, recipe.search.trials) == (run.corpus, run.model, 5)
    assert recipe.training.micro_batches == 8
    assert recipe.edp.delta == delta_of(row)
    private = load_recipe(*private_recipe(run, 3))[1]
    assert (private.corpus.name, private.edp.epsilon, private.training.method) == (run.corpus, 3, "dpsgd")
    assert private.search.proxy is not None
    proxy = private.search.proxy.model_dump_json(exclude_none=True)
    name, settings = private_recipe(run, 3)
    assert load_recipe(name, [*settings, f"corpus={proxy}"])[1].corpus == private.search.proxy
    assert private.edp.delta <= delta_of(row)


def test_points_that_are_measured_again_replace_their_like_and_the_others_stay() -> None:
    first = [*paper_entries("clc_atis"), entry("private_8", 0.05, 0.5), entry("sgd", 0.06, 0.6, epsilon=None)]
    known = merged(Result([], []), first, measurement())
    notes = [Note("sgd", [0.04], [0.7], 0.03, None), Note("edp_front", [0.3], [0.4], 0.123, {"C": 1.0})]
    later = Measurement("ATIS", "CLC", "2026-11-24", 9, {"processor": "another"}, {}, notes)
    front = [entry("sgd", 0.04, 0.7, epsilon=None), entry("edp_front", 0.2, 0.5), entry("edp_front", 0.3, 0.4)]
    again = merged(known, [*paper_entries("clc_atis"), *front], later)
    assert [(one.point, one.ser) for one in again.rows if not one.point.startswith("paper")] == [
        ("sgd", 0.04),
        ("edp_front", 0.2),
        ("edp_front", 0.3),
        ("private_8", 0.05),
    ]
    assert [(one.trials, [note.point for note in one.points]) for one in again.measurements] == [
        (9, ["sgd", "edp_front"]),
        (4, ["private_8"]),
    ]
    shown = as_markdown(again)
    assert shown.count("### ATIS, CLC") == 1
    front = [line.split("|") for line in shown.splitlines() if "searched |" in line]
    assert [(line[2].strip(), line[6].strip()) for line in front] == [("20.0", ""), ("30.0", "12.3")]
    assert "trained without privacy (SGD; the paper's mechanism, searched; private recipe, ε = 8)" in shown
    assert shown.index("9 trials a search, 2026-11-24, another") < shown.index("4 trials a search, 2026-11-23, one")


def test_a_verdict_says_by_how_much_a_point_dominates_or_misses() -> None:
    paper = paper_entries("clc_atis")[:1]
    (line,) = verdicts([*paper, entry("private_8", 0.064873, 0.519245)])
    assert "does not dominate paper, no decay: SER 1.0 points higher, MIA AUC 10.0 points lower" in line
    (line,) = verdicts([*paper, entry("edp_front", 0.9, 0.5), entry("edp_front", 0.044873, 0.609245)])
    assert "searched, dominates paper, no decay: SER 1.0 points lower, MIA AUC 1.0 points lower" in line
    (line,) = verdicts([*paper, entry("private_8", 0.044873, 0.3)])
    assert "MIA AUC 11.9 points lower" in line, "an attack that is worse than guessing is as good as guessing"


@pytest.mark.slow
def test_the_report_shows_what_was_measured(tmp_path: Path, command: Command) -> None:
    points = [entry("sgd", 0.05, 0.65, epsilon=None), *paper_entries("clc_atis"), entry("private_8", 0.05, 0.5)]
    known = merged(Result([], []), points, measurement())
    (tmp_path / "table1.json").write_text(json.dumps(known.document()))
    code, out, err = command("--report", "--output", str(tmp_path), commands=app)
    assert code == 0, err
    assert "| private recipe, ε = 8 | 5.0 ± 12.7 | +0.0 | 50.0 ± 0.0 | -23.1 | 1.0 | 8 |" in out
    assert (tmp_path / "table1.md").read_text() == as_markdown(known)
    assert (tmp_path / "table1.svg").read_text() == figure(known)
    assert "ATIS, CLC" in figure(known)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--row is missing; allowed: clc_atis"),
        (["--corpus", "ATIS"], "--model is missing; allowed: CLC, BERT"),
        (["--corpus", "ATIS", "--row", "clc_atis"], "allowed: one of both ways"),
        (["--report"], "no table1.json is there yet"),
        (["--row", "clc_atis", "--encoder", "./nowhere"], "nowhere"),
        (["--row", "clc_health", "--utterances", "20"], "--utterances"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str], said: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = command(*words, commands=app)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_a_row_that_is_stopped_between_its_sweeps_says_it_too(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def terminated(*args: object, **named: object) -> None:
        raise Terminated

    monkeypatch.setattr("tests.benchmarks.table1.row.run_proxy", terminated)
    words = ["--row", "clc_communication", "--trials", "2", "--seeds", "3", "--utterances", "400"]
    words += ["--part", "private", "--encoder", str(make_encoder("bert", tmp_path / "encoder"))]
    words += ["--output", str(tmp_path / "table"), "--storage", str(tmp_path / "runs")]
    code, out, err = command(*words, commands=app)
    assert (code, out) == (143, "")
    assert err.splitlines()[-1] == f"edp-sweep: stopped by SIGTERM; go on with: {COMMAND} {shlex.join(words)}"
