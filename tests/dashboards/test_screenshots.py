"""The pictures in dashboards/screenshots, taken anew from a real quickstart sweep:

    EDP_SCREENSHOTS=FOLDER pytest tests/dashboards/test_screenshots.py

FOLDER is a storage; its sweep `quickstart` is run where there is none yet, which takes minutes.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweeps.tracking.run_note import trials_page
from tests.support.browser import Served

STORAGE = os.environ.get("EDP_SCREENSHOTS")
PICTURES = Path(__file__).parents[2] / "dashboards" / "screenshots"
MOST_BYTES = 250_000

pytestmark = pytest.mark.skipif(
    STORAGE is None, reason="set EDP_SCREENSHOTS to a storage folder to take the pictures anew"
)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    storage = Path(str(STORAGE)).resolve()
    root = str(Path(__file__).parents[2])
    if not (storage / "quickstart" / "sweep.json").is_file():
        words = ["run", "quickstart", "--name", "quickstart", "--storage", str(storage)]
        subprocess.run(
            [sys.executable, "-m", "sweeps.commands", *words], env={**os.environ, "PYTHONPATH": root}, check=True
        )
    # The page shows where it is, so somewhere short.
    here = Path(tempfile.gettempdir()) / "demo"
    here.mkdir()
    running = Served("quickstart", storage, here)
    yield running
    running.end()
    here.rmdir()


def keep(tab: Any, name: str, **more: Any) -> None:
    """Keep a picture of 256 colours, small enough to be kept beside the code."""
    from PIL import Image

    tab.mouse.move(0, 0)
    tab.evaluate("document.activeElement.blur()")
    tab.wait_for_timeout(1500)  # the charts' transitions
    picture = Image.open(io.BytesIO(tab.screenshot(**more))).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    PICTURES.mkdir(exist_ok=True)
    if name == "pareto-top":  # README's first screen has room for the front and the released model
        picture = picture.crop((0, 0, picture.width, 880))
    picture.save(PICTURES / f"{name}.png", optimize=True)
    assert (PICTURES / f"{name}.png").stat().st_size < MOST_BYTES


def opened(chromium: Any, url: str, width: int, height: int) -> Any:
    tab = chromium.new_context(viewport={"width": width, "height": height}).new_page()
    # MLflow opens its assistant on a browser's first visit.
    tab.add_init_script("localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true')")
    tab.set_default_timeout(120_000)
    tab.goto(url)
    return tab


@pytest.mark.parametrize(("name", "width", "height"), [("pareto-top", 1440, 1350), ("pareto-narrow", 390, 1800)])
def test_the_pareto_page(chromium: Any, served: Served, name: str, width: int, height: int) -> None:
    tab = opened(chromium, served.page, width, height)
    tab.wait_for_selector("#first .point")
    tab.wait_for_selector("button.row[aria-pressed=true]")
    keep(tab, name)
    tab.context.close()


def test_the_sweep_in_mlflow(chromium: Any, served: Served) -> None:
    tab = opened(chromium, served.sweep_in_mlflow, 1440, 1150)
    tab.wait_for_selector("text=Go on:")
    tab.click("text=Show more")
    tab.wait_for_timeout(1000)
    keep(tab, "mlflow")
    tab.context.close()


def test_the_trials_in_mlflow(chromium: Any, served: Served) -> None:
    """All columns of the view are within 1600 pixels."""
    experiment = served.sweep_in_mlflow.split("/experiments/")[1].split("/")[0]
    tab = opened(chromium, f"{served.mlflow}/{trials_page(experiment, 'quickstart')}", 1600, 800)
    for column in ("epsilon", "valid_mia_auc", "valid_ser", "C", "decay", "tau", "training.method", "z0"):
        head = tab.get_by_role("columnheader", name=column, exact=True).first
        head.wait_for()
        box = head.bounding_box()
        assert box["x"] + box["width"] <= 1600, column
    keep(tab, "mlflow-trials")
    tab.context.close()
