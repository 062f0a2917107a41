"""What a user does, in a real browser: `edp-sweep ui` on a real sweep, load, filter, click, pick, and see the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from mlflow.tracking import MlflowClient

from sweeps.config.loading import load_config
from sweeps.results.snapshot import Snapshot
from sweeps.store.sweep import Sweep
from tests.conftest import TinySweep
from tests.support.browser import Served, settled
from tests.support.waiting import wait_for

PATIENCE = 60_000
"""Milliseconds: of a machine that does other things too."""


@pytest.fixture(scope="module")
def swept(chromium: Any, tiny_sweep: TinySweep) -> tuple[Path, dict[str, Any]]:
    """The storage of one small sweep, and what `run --json` printed of it."""
    return tiny_sweep.storage, tiny_sweep.document


@pytest.fixture(scope="module")
def served(swept: tuple[Path, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    running = Served("tiny", swept[0], tmp_path_factory.mktemp("here"))
    yield running
    if running.process.poll() is None:
        running.end()


@pytest.fixture
def page(chromium: Any, served: Served) -> Iterator[Any]:
    """The page, loaded; whatever it complains of, and whatever it asks of another machine, fails the test."""
    context = chromium.new_context(viewport={"width": 1400, "height": 1000}, color_scheme="light")
    context.set_default_timeout(PATIENCE)
    tab = context.new_page()
    wrong: list[str] = []
    tab.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("request", lambda ask: None if ask.url.startswith((served.page, "data:")) else wrong.append(ask.url))
    tab.goto(served.page)
    tab.wait_for_selector("#scatter .point")
    tab.wait_for_selector("button.row")
    yield tab
    assert wrong == []
    context.close()


def test_the_page_shows_the_sweep_its_front_and_its_baseline(page: Any, swept: tuple[Path, dict[str, Any]]) -> None:
    points = [point for trial in swept[1]["trials"] for point in trial["points"]]
    assert page.inner_text("h1") == "Sweep tiny"
    assert "finished: 2 complete of 2 trials" in page.inner_text("#state")
    rows = [button.inner_text() for button in page.query_selector_all("button.row")]
    assert all(row.startswith(("◆ Trial ", "◇ Trial ")) for row in rows), "of so few utterances noise alone may lead"
    assert {int(re.findall(r"\d+", row)[0]) for row in rows} == set(swept[1]["front"])
    n, m = len(rows), len(points)
    assert settled(page, "#remain", "remain") == f"{m} of {m} remain, {n} of {n} Pareto-optimal"
    assert "SGD" in page.inner_text("#scatter")
    advice = Snapshot(Sweep.existing(swept[0], "tiny")).recommended()
    shown = page.inner_text("#why").lower()
    assert shown in advice.why.lower() or shown.startswith(advice.why.lower())
    assert ("Nothing" in page.inner_text("#answer")) is (advice.point is None)
    # Nothing is wider than the window, here or on a telephone.
    for width in (1400, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function("() => document.documentElement.scrollWidth <= window.innerWidth")


def test_a_slider_filters_charts_and_table(page: Any, swept: tuple[Path, dict[str, Any]]) -> None:
    sers = sorted(p["metrics"]["valid_ser"] for t in swept[1]["trials"] for p in t["points"])
    n = len(sers)
    page.check("#dominated input")
    page.wait_for_function("n => document.querySelectorAll('button.row').length == n", arg=n)
    page.locator("button.row").first.click()  # nothing is recommended here, so nothing is selected
    settled(page, "#chosen", "Trial")
    page.focus("#limit-ser")
    page.keyboard.press("Home")  # the smallest SER of all, rounded down: nothing is left unless it is round
    least = sum(ser <= float(page.input_value("#limit-ser")) for ser in sers)
    settled(page, "#remain", f"{least} of {n} remain")
    if not least:
        settled(page, "#rows", "Nothing is within the limits.")
        settled(page, "#excluded", "is outside the limits: SER (validation)")
    while float(page.input_value("#limit-ser")) < sers[0]:
        page.keyboard.press("ArrowRight")
    left = sum(ser <= float(page.input_value("#limit-ser")) for ser in sers)
    assert left >= 1
    settled(page, "#remain", f"{left} of {n} remain")
    page.wait_for_function("n => document.querySelectorAll('button.row').length == n", arg=left)
    limit = page.inner_text("[id*=limit-text][id*=ser]")
    assert limit.startswith("≤ ") or left == n  # all models may have one SER
    page.click("#reset")
    settled(page, "#remain", f"{n} of {n} remain")
    assert page.inner_text("[id*=limit-text][id*=ser]") == "no limit"
    page.wait_for_function("() => document.querySelector('#excluded').innerText === ''")


def test_a_click_shows_a_configuration_and_pick_writes_the_file_that_train_accepts_and_registers_the_model(
    page: Any, served: Served, swept: tuple[Path, dict[str, Any]]
) -> None:
    served.picked.unlink(missing_ok=True)
    # The topmost trace with points is the front's.
    page.locator("#scatter .scatterlayer .trace:has(path.point)").last.locator("path.point").first.click(force=True)
    title = settled(page, "#chosen", "Trial")
    trial = swept[1]["trials"][int(title.split()[1].strip(","))]
    kept = {point["epoch"]: point["metrics"] for point in trial["points"]}
    epoch = int(title.split()[3]) if "epoch" in title else max(kept)
    shown = settled(page, "#details", "Configuration")
    metrics = kept[epoch]
    assert f"{metrics['ser']:.1%}" in shown
    assert trial["params"]["decay"] in shown
    assert "-DP for one utterance" in shown or "no formal guarantee" in shown
    assert f"{metrics['mia_auc_lower']:.3f} – {metrics['mia_auc_upper']:.3f}" in shown
    assert str(served.picked) in page.inner_text("#pick-where")

    page.fill("#model-name", "not/a name")
    page.click("#pick")
    settled(page, "#picked", "allowed: letters, digits")
    assert not served.picked.exists(), "nothing half-made"
    page.fill("#model-name", "tiny model")
    page.click("#pick")
    settled(page, "#picked", "has no guarantee")
    assert not served.picked.exists(), "a person is asked before a model without a guarantee is registered"
    page.click("#pick")
    said = settled(page, "#picked", "Picked")
    assert f"Picked trial {trial['number']} after epoch {epoch}: wrote {served.picked}" in said
    spec = load_config(served.picked, [])
    assert (spec.edp.C, spec.edp.z0) == (trial["params"]["C"], trial["params"]["z0"])
    assert spec.training.epochs == epoch
    client = MlflowClient(swept[1]["tracking_uri"])
    assert client.get_run(trial["run_id"]).data.tags["picked"] == "true"
    assert client.get_model_version("tiny model", "1").run_id == trial["run_id"]


def test_the_keyboard_alone_picks(page: Any, served: Served) -> None:
    served.picked.unlink(missing_ok=True)

    def focused() -> str:
        return str(page.evaluate("document.activeElement.className + ' ' + document.activeElement.id"))

    def tab_to(what: str, key: str = "Tab") -> None:
        for _ in range(80):
            page.keyboard.press(key)
            if what in focused():
                return
        raise AssertionError(f"{what} is not reached")

    page.wait_for_load_state("networkidle")  # a table that is drawn anew between two keys would take the second one
    tab_to("skip")
    page.keyboard.press("Enter")  # to the table, past limits and charts
    tab_to("row")
    row = page.evaluate("document.activeElement.innerText")
    page.keyboard.press("Enter")
    assert settled(page, "#chosen", "Trial") in row
    page.wait_for_selector("button.row[aria-pressed=true]")
    assert "row" in focused(), "the focus stays where it was"
    page.wait_for_selector("#pick:enabled")
    tab_to("pick")
    page.keyboard.press("Enter")
    settled(page, "#picked", "Picked")
    assert load_config(served.picked, []).edp.C > 0


def test_mlflow_stands_beside_it_and_is_linked(page: Any, served: Served, swept: tuple[Path, dict[str, Any]]) -> None:
    assert requests.get(f"{served.mlflow}/health", timeout=30).ok
    parent = page.get_attribute("#mlflow", "href")
    assert parent.startswith(f"{served.mlflow}/#/experiments/")
    assert swept[1]["run_id"] in parent
    page.click("button.row >> nth=0")
    settled(page, "#details", "Its run in MLflow")
    runs = {trial["run_id"] for trial in swept[1]["trials"]}
    assert re.findall(r"/runs/(\w+)", page.get_attribute("#details a", "href"))[0] in runs


def test_ctrl_c_ends_all_and_leaves_nothing(served: Served) -> None:
    assert served.end() == 0
    for url in (served.page, served.mlflow):
        wait_for(lambda url=url: not _answers(url))


def _answers(url: str) -> bool:
    try:
        requests.get(url, timeout=5)
    except requests.ConnectionError:
        return False
    except requests.Timeout:  # it is there, and busy
        pass
    return True
