"""`edp-sweep verify` says whether a configuration's own steps are what its ledger says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from edp.mechanism import Mechanism
from edp.spec import UserError
from sweeps.commands.verify import EXAMPLES, load, small, verify_with_bar
from sweeps.config.loading import RECIPES, recipe_names, write_yaml
from tests.conftest import Command
from tests.support.tiny import spec


@pytest.fixture
def config(tmp_path: Path) -> Path:
    write_yaml(spec(), tmp_path / "picked.yaml")
    return tmp_path / "picked.yaml"


@pytest.mark.slow
def test_what_is_right_is_one_document_and_exit_code_0(config: Path, command: Command) -> None:
    code, out, err = command("verify", str(config), "--set", "edp.z0=2", "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["violations"] == []
    assert document["sensitivity"] == {
        "declared": pytest.approx(2 * 0.5 / 8),
        "measured": pytest.approx(2 * 0.5 / 8, rel=0.4),
    }
    assert document["noise_std"] == {"declared": pytest.approx(0.5 * 2 / 8), "measured": pytest.approx(0.125, rel=0.2)}
    assert document["steps"] >= 12
    assert [path.name for path in config.parent.iterdir()] == ["picked.yaml"], "nothing is left behind"


@pytest.mark.slow
def test_a_violation_is_named_and_exit_code_1(config: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mechanism, "can_reverse", False)
    code, out, _ = command("verify", str(config))
    assert code == 1
    assert "VIOLATION" in out
    assert "one unit can move" in out


@pytest.mark.slow
def test_with_a_time_limit_it_stops_once_it_expects_to_take_longer() -> None:
    with pytest.raises(UserError, match=r"it would take about \d+ s; --verify measures them all the same"):
        verify_with_bar(spec(), 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["training.method=sgd"], "training.method = sgd: nothing is clipped or noised; allowed: edp, dpsgd"),
        (["edp.noise_correlation=banded", "edp.band=2"], "edp.noise_correlation = banded"),
    ],
)
def test_what_cannot_be_verified_is_refused_in_one_line(
    settings: list[str], words: str, config: Path, command: Command
) -> None:
    code, _, err = command("verify", str(config), *(word for one in settings for word in ("--set", one)))
    assert code == 2
    assert words in err
    code, _, err = command("verify", str(config.parent / "nothing.yaml"))
    assert (code, "no such" in err) == (2, True)


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_one_that_can_be_verified(name: str) -> None:
    found = small(load(name, []))
    whole = load(name, [])
    assert found.edp == whole.edp
    assert found.training.workers == 1
    assert found.training.batch_in(EXAMPLES) <= EXAMPLES


@pytest.mark.parametrize(("batch", "clips"), [(48, 3), (60, 6), (20, 20), (64, 8), (100, 25), (1000, 1000)])
def test_a_smaller_step_has_whole_micro_batches(batch: int, clips: int) -> None:
    training = small(spec(training={"batch_size": batch, "micro_batches": clips, "workers": 1})).training
    assert isinstance(training.batch_size, int)
    assert training.batch_size % training.micro_batches == 0
    assert 0 < training.batch_size <= EXAMPLES


def test_a_space_whose_first_choices_do_not_fit_together_has_a_configuration_that_does() -> None:
    shapes = ["space.training.batch_size.choice=[8, 64]", "space.training.micro_batches.choice=[64, 8]"]
    found = load("quickstart_paper", shapes).training
    assert (found.batch_size, found.micro_batches) in {(8, 8), (64, 64), (64, 8)}


def test_a_recipe_of_ones_own_is_one_though_it_names_no_space(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    shutil.copy(RECIPES / "atis_clc.yaml", own)
    assert load(str(own), []) == load("atis_clc", [])
