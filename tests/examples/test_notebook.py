"""The notebook of `examples/` reads a sweep that was really run, picks from it, and starts one as the library does."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from edp.spec import UserError
from sweeps import Sweep, front_frame
from sweeps.config.loading import load_config
from tests.conftest import TINY_RECIPE, TinySweep

NOTEBOOK = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "notebook.py"))


def test_a_finished_sweep_is_read_and_one_configuration_picked(
    tiny_sweep: TinySweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    NOTEBOOK["main"]("tiny", tiny_sweep.storage)
    printed = capsys.readouterr().out
    front = front_frame(Sweep.existing(tiny_sweep.storage, "tiny"))
    for heading in ("edp.C", "worker_seconds", "tied_with", "picked "):
        assert heading in printed
    picked = load_config(Path("picked.yaml"), [])
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
