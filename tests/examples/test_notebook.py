"""The notebook of `examples/` runs a sweep, reads it, draws its front and picks from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes

import sweeps
from edp.spec import UserError
from sweeps.config.loading import load_config
from tests.conftest import TINY_RECIPE
from tests.support.synthetic import sweep_of

CELLS = json.loads((Path(__file__).parents[2] / "examples" / "notebook.ipynb").read_text())["cells"]
CODE = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]


def cells(**given: Any) -> dict[str, Any]:
    """Run the cells in turn, with these values in place of the first one's; return their variables."""
    found: dict[str, Any] = {"__name__": "notebook", **given}
    for code in CODE[1:]:
        exec(compile(code, "notebook", "exec"), found)
    return found


def test_it_holds_no_outputs_and_its_first_cell_the_parameters() -> None:
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in CELLS)
    assert CODE[0] == 'RECIPE, NAME, STORAGE = "quickstart", "notebook", "runs"'


@pytest.mark.slow
def test_it_reads_a_sweep_and_picks_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep_of(tmp_path / "runs", "mine", 5)
    drawn, scatter = list[int](), Axes.scatter

    def noting(axes: Axes, x: Any, *about: Any, **more: Any) -> Any:
        drawn.append(len(x))
        return scatter(axes, x, *about, **more)

    monkeypatch.setattr(Axes, "scatter", noting)
    monkeypatch.setattr("sweeps.run", lambda *a, **k: sweeps.load_sweep("mine"), raising=False)
    found = cells(RECIPE="", NAME="mine", STORAGE="runs")
    assert drawn == [len(found["front"])] == [len(found["sweep"].front())]
    assert found["best"].name == found["point"].name
    assert found["best"].params["C"] == load_config(Path("picked.yaml"), []).edp.C


@pytest.mark.slow
@pytest.mark.usefixtures("kept_groups")
def test_it_runs_a_sweep(
    long_story: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = Path("tiny.yaml")
    recipe.write_text(TINY_RECIPE)
    run = sweeps.run
    monkeypatch.setattr("sweeps.run", lambda *a, **k: run(*a, **k | {"trials": 1}), raising=False)
    found = cells(RECIPE=recipe, NAME="begun", STORAGE="runs")
    assert capsys.readouterr().out.startswith("0 COMPLETE ["), "the callback, which is not sent to Ray's log"
    assert found["sweep"].record.state == "finished"
    assert found["best"] in found["sweep"].front()
    assert (Path(found["best"].checkpoint.path) / "model.pt").is_file()
    with pytest.raises(UserError, match=r"name = 'begun': .* exists"):
        run(recipe, name="begun", storage="runs")
