"""`edp-sweep account`: a table of what was trained, and two totals."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from edp.accounting.gaussian import gaussian_epsilon, gaussian_mu
from sweeps.results.account import UNKNOWN
from sweeps.store.picks import Origin
from sweeps.text.figures import epsilon_digits
from tests.conftest import Command
from tests.support.spending import training
from tests.support.synthetic import sweep_of

EIGHT = ("edp.epsilon=8", "search.objectives=[ser]")


@pytest.mark.slow
def test_it_shows_every_training_and_what_all_of_them_cost_together(tmp_path: Path, command: Command) -> None:
    code, out, err = command("account", "--storage", str(tmp_path))
    assert (code, out, "nothing was trained" in err) == (0, "", True)
    training(tmp_path, "one-release", *EIGHT, origin=Origin(sweep="gone", trial=1, epoch=4))
    sweep_of(tmp_path, "first", 2, *EIGHT, tracked=False)
    code, out, err = command("account", "--storage", str(tmp_path))
    assert code == 0, err
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "Account of corpus communication" in lines[0]
    assert any(
        line.startswith("train train-one-release") and line.endswith("1 8 final model of gone") for line in lines
    )
    assert any(line.startswith("sweep first") and line.endswith("communication 2 12.7") for line in lines)
    assert "ε of what was released, and of the trainings that chose it: 8" in lines
    all_three = gaussian_epsilon(math.sqrt(3) * gaussian_mu(8, 5e-4), 5e-4)
    assert f"ε of everything, also of what was only looked at: {epsilon_digits(all_three, 4)}" in lines
    assert "first: baseline" in lines
    assert out.endswith(f"{UNKNOWN}\n")
    code, out, err = command("account", "communication", "--storage", str(tmp_path), "--json")
    (found,) = json.loads(out)["corpora"]
    assert found["epsilon_released"] == pytest.approx(8, rel=1e-4)
    assert [one["trainings"] for one in found["activities"]] == [1, 2]
    assert (found["delta"], found["unit"], found["uncounted"]) == (5e-4, "example", [])
    code, out, _ = command("account", "--delta", "1e-5", "--storage", str(tmp_path), "--json")
    assert json.loads(out)["corpora"][0]["epsilon_released"] == pytest.approx(10.01, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere"], "corpus = 'nowhere': nothing in "),
        (["--delta", "1"], "--delta = 1: allowed: a number between 0 and 1"),
        (["--storage", "no/such"], "no such folder"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], says: str, tmp_path: Path, command: Command) -> None:
    training(tmp_path, "one", *EIGHT)
    code, out, err = command("account", *words, *([] if "--storage" in words else ["--storage", str(tmp_path)]))
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert says in err
    if words == ["nowhere"]:
        assert "allowed: communication" in err
