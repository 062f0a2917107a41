"""The notebook of `examples/` reads a sweep that was really run, picks from it, and starts one as the library does."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from edp.spec import UserError
from sweeps import Sweep, front_frame
from sweeps.config.loading import load_config
from tests.conftest import TINY_RECIPE, TinySweep
from tests.support.synthetic import sweep_of

FILE = Path(__file__).parents[2] / "examples" / "notebook.py"
NOTEBOOK = runpy.run_path(str(FILE))
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(FILE.parents[1])}


def test_the_sweep_that_is_named_is_read_and_nothing_is_trained_or_written(tmp_path: Path) -> None:
    sweep_of(tmp_path / "runs", "mine", 3, tracked=False)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    def run(name: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, str(FILE), name]
        return subprocess.run(line, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)

    done = run("mine")
    assert done.returncode == 0, done.stderr
    assert f"<Sweep mine: finished, in {tmp_path / 'runs' / 'mine'}>" in done.stdout
    assert "recommended" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    missing = run("other")
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert "no sweep of this name in runs; allowed: mine" in missing.stderr


def test_a_finished_sweep_is_read_and_one_configuration_picked(
    tiny_sweep: TinySweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    NOTEBOOK["main"]("tiny", tiny_sweep.storage)
    printed = capsys.readouterr().out
    for heading in ("edp.C", "worker_seconds", "tied_with", "recommended"):
        assert heading in printed
    assert not Path("picked.yaml").exists()
    sweep = Sweep.existing(tiny_sweep.storage, "tiny")
    NOTEBOOK["choose"](sweep, Path("picked.yaml"))
    picked, front = load_config(Path("picked.yaml"), []), front_frame(sweep)
    assert (picked.edp.C, picked.edp.z0) in set(zip(front["edp.C"], front["edp.z0"], strict=True))


@pytest.mark.slow
@pytest.mark.usefixtures("kept_groups")
def test_it_starts_a_sweep_as_the_command_does(long_story: None, tmp_path: Path) -> None:
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(TINY_RECIPE)
    sweep = NOTEBOOK["start"](str(recipe), "begun", tmp_path, trials=1)
    assert sweep.record.state == "finished"
    measured = {point.metrics["ser"] for point in sweep.trials()[0].points}
    assert len(front_frame(sweep)) > 0
    assert set(front_frame(sweep)["ser"]) <= measured
    with pytest.raises(UserError, match=r"name = 'begun': .* exists"):
        NOTEBOOK["start"](str(recipe), "begun", tmp_path, trials=1)
