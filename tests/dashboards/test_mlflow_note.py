"""What MLflow's own page shows of a sweep at first sight: its note, with the picture of the front, on one screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.browser import Served
from tests.support.synthetic import sweep_of

SCREEN = 900


def test_the_note_shows_the_front_and_fits_one_screen(chromium: Any, tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "runs", "made", 12)
    running = Served(sweep.name, sweep.folder.parent, tmp_path)
    try:
        page = chromium.new_context(viewport={"width": 1440, "height": SCREEN}).new_page()
        page.set_default_timeout(120_000)
        page.add_init_script("localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true')")
        page.goto(running.sweep_in_mlflow)
        page.click("text=Show more")
        page.wait_for_function("document.querySelector('img[src*=front]')?.naturalWidth > 0")
        start = page.locator("text=models are Pareto-optimal").bounding_box()
        end = page.locator("text=Go on:").bounding_box()
        assert 0 < end["y"] + end["height"] - start["y"] < SCREEN
        page.context.close()
    finally:
        running.end()
