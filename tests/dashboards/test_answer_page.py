"""In a browser the page opens on the recommended configuration; on a telephone nothing is cut off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dashboards.pareto.source import Source
from sweeps.results.snapshot import Snapshot
from sweeps.store.sweep import Sweep
from tests.support.browser import served, settled, window
from tests.support.synthetic import sweep_of

MARKS = "() => document.querySelectorAll('#first .rings circle').length"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return sweep_of(tmp_path_factory.mktemp("runs"), "made", 40, tracked=False)


@pytest.fixture(scope="module")
def url(sweep: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(Source(sweep), tmp_path_factory.mktemp("here")) as address:
        yield address


@pytest.fixture
def tab(chromium: Any, url: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A window of the page, as wide as the test asks for; what it complains of fails the test."""
    with window(chromium, getattr(request, "param", 1440)) as page:
        page.goto(url)
        page.wait_for_selector("button.row")
        page.wait_for_selector("#first .point")
        yield page


def test_it_opens_on_the_recommended_configuration_with_the_reason(tab: Any, sweep: Sweep) -> None:
    advice = Snapshot(sweep).recommended()
    assert advice.point is not None, "the figures are made so"
    name = f"Trial {advice.point.trial}" + ("" if advice.point.last else f", epoch {advice.point.epoch}")
    assert settled(tab, "#chosen", "Trial") == name
    assert tab.inner_text("#answer") == f"Recommended: {name}"
    covered = "It is chosen by validation SER and MIA AUC of the private corpus, which no ε covers."
    assert tab.inner_text("#why") == f"{advice.why} {covered}"
    assert tab.is_enabled("#pick")
    tab.wait_for_function(f"() => ({MARKS})() > 0")
    tab.locator("button.row").first.click()
    tab.wait_for_function("name => document.querySelector('#chosen').innerText !== name", arg=name)
    tab.click("#best")
    tab.wait_for_function("name => document.querySelector('#chosen').innerText === name", arg=name)


def test_a_selection_marks_its_row_and_keeps_the_table_as_it_is(tab: Any) -> None:
    settled(tab, "#chosen", "Trial")
    tab.wait_for_load_state("networkidle")
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.post_data or ""))
    row = tab.locator("button.row").nth(3)
    words = row.inner_text()
    row.click()
    tab.wait_for_selector("button.row[aria-pressed=true] >> text=" + words.split(" ", 1)[1].split(" ~")[0])
    tab.wait_for_function("name => name.includes(document.querySelector('#chosen').innerText)", arg=words)
    assert not any("rows-tree.data" in one for one in asked), "drawing the table anew takes longer than the answer"
    assert tab.locator("tr.chosen, button.row[aria-pressed=true]").count() == 2
    tab.check("#dominated input")  # more than one page of rows
    tab.click("#next")
    tab.wait_for_selector("button.row[aria-pressed=true]", state="detached")
    tab.click("#previous")
    tab.wait_for_function(
        "name => document.querySelector('button.row[aria-pressed=true]')?.innerText === name", arg=words
    )


def test_two_stand_side_by_side_until_it_is_said(tab: Any) -> None:
    settled(tab, "#chosen", "Trial")
    tab.click("#pin")
    tab.wait_for_selector("#unpin:visible")
    tab.locator("button.row").nth(2).click()
    tab.wait_for_selector("table.two")
    tab.click("#unpin")
    tab.wait_for_selector("table.two", state="detached")


@pytest.mark.parametrize("tab", [390], indirect=True)
def test_on_a_telephone_a_selection_scrolls_to_its_panel_and_nothing_is_cut_off(tab: Any) -> None:
    assert tab.evaluate("scrollY") == 0, "the recommended one, which nobody chose, leaves the page where it is"
    tab.locator("button.row").nth(3).click()
    tab.wait_for_function("() => Math.abs(document.querySelector('.details').getBoundingClientRect().top) < 3")
    cut = """() => [...document.querySelectorAll('main *')].filter((e) => !e.closest('.scroll, svg')
      && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.id || e.className || e.tagName)"""
    assert tab.evaluate(cut) == []
    assert tab.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
