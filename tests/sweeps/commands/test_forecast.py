"""`edp-sweep forecast`: what it answers about a sweep and about a recipe's sweeps, and wrong questions in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweeps.store.sweep import Sweep
from tests.conftest import Command
from tests.support import writers
from tests.support.synthetic import EXAMPLES, sweep_of
from tests.sweeps.results.test_forecast import SEARCHED, heads
from trainables.corpora import generate


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sweeps at three ε, the second of smaller batches, one at one ε, and one of the paper's model."""
    folder = tmp_path_factory.mktemp("forecasting") / "runs"
    heads(folder, "three", SEARCHED)
    heads(folder, "longer", SEARCHED, "training.batch_size=675", "training.workers=1")
    heads(folder, "alone", "space.epsilon.choice=[8]", trials=2)
    sweep_of(folder, "paper", 2, tracked=False)
    return folder


def test_it_answers_for_another_epsilon_and_twice_the_utterances_and_steps(storage: Path, command: Command) -> None:
    code, out, err = command("forecast", "three", "--epsilons", "2,3", "--json", "--storage", str(storage))
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["sweeps"], found["utterances"]) == (["three"], EXAMPLES)
    assert [(one["epsilon"], round(one["missed_by"], 6)) for one in found["measured"]] == [(1, 0), (3, 0), (8, 0)]
    at_2, more, longer, at_3, more_at_3, _ = found["forecasts"]
    assert [one["change"] for one in (at_2, more, longer)] == ["as it is", "twice the utterances", "twice the steps"]
    sers = [one["valid_ser"] for one in found["measured"]]
    assert sers[1] == pytest.approx(at_3["ser"])
    assert sers[0] > at_2["ser"] > at_3["ser"] > more_at_3["ser"] > sers[2]
    assert more["noise_to_batch"] == pytest.approx(at_2["noise_to_batch"] / 2)
    assert longer["ser"] == pytest.approx(at_2["ser"], rel=1e-4)
    assert 0.88 * at_2["ser"] < at_2["ser_lower"] < 0.9 * at_2["ser"]
    assert (found["cost"], "no ε covers" in found["remark"]) == (
        ["three: video is generated, so they cost nothing"],
        True,
    )


def test_text_shows_the_range_the_measured_trials_and_what_is_left_out(storage: Path, command: Command) -> None:
    code, out, err = command("forecast", "three", "--epsilons", "1,100", "--storage", str(storage))
    assert (code, err) == (0, "")
    assert "SER to expect on video, whose 1,350 training utterances" in out
    assert "measured: ε = 1: " in out
    assert "the law of the others is 0% off" in out
    assert "left out: noise or SER would be more than 2.6 times from the nearest trial's" in out
    assert "cost of three: video is generated" in out
    row = next(line for line in out.splitlines() if line.split()[:1] == ["100"])
    assert row.split() == ["100", "–", "–", "–"]


def test_by_default_it_shows_the_ends_half_and_twice(storage: Path, command: Command) -> None:
    code, out, _ = command("forecast", "longer", "--json", "--storage", str(storage))
    rows = json.loads(out)["forecasts"]
    assert code == 0
    assert list(dict.fromkeys(row["epsilon"] for row in rows)) == [0.5, 1, 8, 16]
    steps = next(row for row in rows if row["change"] == "twice the steps")
    assert (steps["ser"], steps["reason"]) == (None, "measured for full batches and 40 steps or more alone")


def test_a_recipe_stands_for_its_ended_sweeps_on_the_newest_corpus(tmp_path: Path, command: Command) -> None:
    heads(tmp_path, "other", "space.epsilon.choice=[3]", "corpus.utterances=50000", trials=2)
    one, other = (heads(tmp_path, f"at-{e}", f"space.epsilon.choice=[{e}]", trials=2) for e in (1, 8))
    code, out, err = command("forecast", "quickstart", "--json", "--storage", str(tmp_path))
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["sweeps"] == [one.name, other.name]
    assert [row["sweep"] for row in found["measured"]] == [one.name, other.name]
    assert [row["missed_by"] for row in found["measured"]] == [None, None]


def test_a_private_corpus_pays_for_the_forecast(tmp_path: Path, command: Command) -> None:
    mine = writers.jsonl(generate("communication", 120, seed=1), tmp_path)
    heads(tmp_path / "runs", "own", SEARCHED, f"corpus={{name: mine, path: {mine}}}")
    code, out, _ = command("forecast", "own", "--storage", str(tmp_path / "runs"))
    assert code == 0
    assert "cost of own: if utterances of mine are private, its ε of " in out
    assert "for them belongs to this forecast" in out
    assert "no ε covers a forecast" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("three", "--epsilons", "1,x"), "--epsilons = '1,x': allowed: positive numbers, such as 1,3"),
        (("three", "--epsilons", "0"), "--epsilons = '0': allowed: positive numbers"),
        (("three", "--epsilons", "inf"), "--epsilons = 'inf': allowed: positive numbers"),
        (("nothing",), "name = 'nothing': there is no such sweep in"),
        (("atis_private",), "allowed: alone, longer, paper, three"),
        (("alone",), "name = alone: the best trials are at ε = 8; allowed: two ε or more"),
        (("paper",), "name = paper: model.kind = clc: allowed: heads"),
    ],
)
def test_a_wrong_question_is_one_line(storage: Path, command: Command, words: tuple[str, ...], says: str) -> None:
    code, out, err = command("forecast", *words, "--storage", str(storage))
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert says in err


def test_a_sweep_that_runs_has_no_forecast_yet(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads(tmp_path, "one", SEARCHED)
    monkeypatch.setattr(Sweep, "state", property(lambda self: "running"))
    code, _, err = command("forecast", "one", "--storage", str(tmp_path))
    assert code == 2
    assert "name = one: the sweep still runs; allowed: one that has ended" in err
