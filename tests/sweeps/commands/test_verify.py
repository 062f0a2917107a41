"""`edp-sweep verify` says whether a configuration's own steps are what its ledger says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from edp.mechanism import Mechanism
from edp.spec import UserError
from sweeps.commands.verify import load
from sweeps.config.loading import write_yaml
from sweeps.engine.jobs.verify import verify_with_bar
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
        verify_with_bar(spec(), Console(), 0.0)


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


def test_a_space_whose_first_choices_do_not_fit_together_has_a_configuration_that_does() -> None:
    shapes = ["space.training.batch_size.choice=[8, 64]", "space.training.micro_batches.choice=[64, 8]"]
    found = load("quickstart_paper", shapes).training
    assert (found.batch_size, found.micro_batches) in {(8, 8), (64, 64), (64, 8)}
