"""A gate for pipelines: exit code 0 within all limits, 1 with the figure that is over one, 2 for a wrong question."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mlflow import MlflowClient

from sweeps.results.confirmed import seed_folder
from sweeps.results.snapshot import Snapshot
from sweeps.store.records import ConfirmedRun
from sweeps.store.storage import default_tracking_uri
from sweeps.store.sweep import Sweep
from tests.conftest import Command
from tests.support.synthetic import sweep_of
from tests.sweeps.results.test_headline import planned, release
from trainables.records.pareto import SelectionFigures


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return sweep_of(tmp_path_factory.mktemp("checking") / "runs", "one", 4)


def test_a_model_within_all_limits_passes_and_one_over_some_fails_with_them(sweep: Sweep, command: Command) -> None:
    point = Snapshot(sweep).choose()[0]
    figures, where = SelectionFigures(point.metrics), ("--storage", str(sweep.folder.parent))
    within = ("--max-epsilon", str(figures["epsilon"]), "--max-ser", str(figures["ser"]))
    code, out, err = command("check", "one", *within, *where)
    assert (code, err) == (0, "")
    assert f"trial {point.name} of one: SER" in out
    over = ("--max-epsilon", str(figures["epsilon"] / 2), "--max-ser", "1000", "--max-mia-auc", "0")
    code, out, err = command("check", "one", *over, *where)
    assert (code, out) == (1, "")
    (line,) = err.splitlines()
    assert line.startswith(f"edp-sweep: trial {point.name} of one: ε ")
    assert "MIA AUC" in line
    assert "SER" not in line
    code, out, _ = command("check", "one", *over, *where, "--json")
    found = json.loads(out)
    assert code == 1
    assert (found["passed"], found["over"]) == (False, ["epsilon", "mia_auc"])
    assert found["figures"]["ser"] == figures["ser"]


@pytest.mark.slow
def test_a_released_model_is_checked_by_its_own_figures(tmp_path: Path, command: Command) -> None:
    sweep = planned(tmp_path)
    release(sweep)
    point = Snapshot(sweep).release
    assert point is not None
    for seed in range(1, 4):  # means over new seeds of the trial, on the proxy corpus
        folder = seed_folder(sweep, point, seed)
        folder.mkdir(parents=True)
        metrics = point.metrics | {"ser": 0.001, "valid_ser": 0.001}
        (folder / "result.json").write_text(ConfirmedRun(seed=seed, metrics=metrics, run_id=None).model_dump_json())
    code, _, err = command("check", "one", "--max-ser", "0.1", "--storage", str(tmp_path))
    assert code == 1
    assert "SER 16.2%, over 10.0%" in err


def test_a_registered_model_is_checked_by_its_tags(tmp_path: Path, command: Command) -> None:
    storage = tmp_path / "runs"
    storage.mkdir()
    client = MlflowClient(default_tracking_uri(storage))
    client.create_registered_model("voice")
    for epsilon, ser in (("8", "0.05"), ("∞", "0.01")):
        client.create_model_version(
            "voice", f"file://{tmp_path}", tags={"epsilon": epsilon, "valid_ser": ser, "ser": "1"}
        )
    client.set_registered_model_alias("voice", "champion", "1")
    where, limits = ("--storage", str(storage)), ("--max-epsilon", "8", "--max-ser", "0.05")
    for name in ("voice", "voice@champion", "voice/1", "models:/voice@champion"):
        code, out, err = command("check", name, *limits, *where)
        assert (code, err) == (0, ""), name
        assert "voice, version 1: SER 5.0%, at most 5.0%" in out
    code, _, err = command("check", "voice/2", *limits, *where)
    assert code == 1
    assert "voice, version 2: ε ∞" in err
    code, _, err = command("check", "voice", "--max-mia-tpr", "1", *where)
    assert code == 1
    assert "MIA TPR at 1 % FPR unknown, over 100.0%" in err
    client.delete_registered_model_alias("voice", "champion")
    assert command("check", "voice", *limits, *where)[0] == 1, "without a champion the newest version counts"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("one",), "no limit is given; allowed: one or more of --max-epsilon"),
        (("one", "--max-ser", "-1"), "--max-ser = '-1': input should be greater than or equal to 0"),
        (("nothing", "--max-ser", "1"), "name = 'nothing': there is no sweep in"),
        (("one", "77", "--max-ser", "1"), "point = '77': sweep one has no model of this name"),
    ],
)
def test_a_wrong_question_is_one_line(sweep: Sweep, command: Command, words: tuple[str, ...], says: str) -> None:
    code, out, err = command("check", *words, "--storage", str(sweep.folder.parent))
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert says in err


def test_a_model_whose_own_audit_is_unknown_or_wide_fails(tmp_path: Path, command: Command) -> None:
    storage = tmp_path / "runs"
    storage.mkdir()
    client = MlflowClient(default_tracking_uri(storage))
    client.create_registered_model("voice")
    where, limit = ("--storage", str(storage)), ("--max-noise-factor", "1.05")
    for tags, code, words in (
        ({"noise_factor_at_most": "1.031"}, 0, "noise over the ledger's 1.04, at most 1.05"),
        ({"noise_factor_at_most": "1.2"}, 1, "noise over the ledger's 1.2, over 1.05"),
        ({}, 1, "noise over the ledger's unknown, over 1.05"),
    ):
        client.create_model_version("voice", f"file://{tmp_path}", tags=tags)
        found = command("check", "voice", *limit, *where)
        assert found[0] == code
        assert words in "".join(found[1:])
