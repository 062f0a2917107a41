"""In a browser the page opens on the recommended configuration; its address, notes and phone do what they say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from dashboards.pareto.source import Source
from sweeps.results.snapshot import Snapshot
from sweeps.store.sweep import Sweep
from tests.support.browser import served, settled, window
from tests.support.synthetic import sweep_of

MARKS = "() => document.querySelector('#first .js-plotly-plot').layout.shapes.filter(s => s.name).length"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    storage = tmp_path_factory.mktemp("runs")
    sweep_of(storage, "other", 3, tracked=False)
    return sweep_of(storage, "made", 40, tracked=False)


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


def test_two_side_by_side_a_note_and_a_link_that_holds_it_all(tab: Any, url: str, sweep: Sweep) -> None:
    settled(tab, "#chosen", "Trial")
    tab.click("#pin")
    tab.wait_for_selector("#unpin:visible")
    tab.locator("button.row").nth(2).click()
    tab.wait_for_selector("table.two")
    chosen = tab.inner_text("#chosen")
    tab.fill("#note", "for <b>Monday</b>")
    tab.click("#save-note")
    settled(tab, "#noted", "Saved")
    tab.wait_for_function("() => document.querySelector('button.row[aria-pressed=true]').innerText.includes('✎')")
    tab.focus("#limit-ser")
    for _ in range(3):
        tab.keyboard.press("ArrowLeft")
    tab.wait_for_function("() => location.hash.includes('ser=')")
    link, remain = tab.url, settled(tab, "#remain", "remain")
    assert re.search(r"#at=[\d@]+&with=[\d@]+&ser=[\d.]+$", link)
    fresh = tab.context.new_page()
    fresh.goto(link)
    fresh.wait_for_selector("table.two")
    assert settled(fresh, "#chosen", "Trial") == chosen
    fresh.wait_for_function("text => document.querySelector('#remain').innerText === text", arg=remain)
    assert fresh.input_value("#note") == "for <b>Monday</b>"
    fresh.click("#unpin")
    fresh.wait_for_selector("table.two", state="detached")
    fresh.goto(f"{url}/#at=nowhere&ser=x&epsilon=-1")
    fresh.reload()
    assert settled(fresh, "#chosen", "Trial")
    assert "80 of 80" in settled(fresh, "#remain", "remain"), "what is no limit limits nothing"


def test_csv_and_another_sweep(tab: Any, url: str) -> None:
    answer = requests.get(url + str(tab.get_attribute("#csv", "href")), timeout=60)
    assert answer.headers["Content-Disposition"] == 'attachment; filename="made.csv"'
    assert len(answer.text.splitlines()) == 81
    tab.click("#beside")
    tab.get_by_role("option", name="other").click()
    settled(tab, "#sweeps", "lowest validation SER at ε ≤ 10")
    tab.wait_for_function("() => document.querySelector('#first .legend').textContent.includes('front of other')")


@pytest.mark.parametrize("tab", [390], indirect=True)
def test_on_a_telephone_a_selection_scrolls_to_its_panel_and_nothing_is_cut_off(tab: Any) -> None:
    assert tab.evaluate("scrollY") == 0, "the recommended one, which nobody chose, leaves the page where it is"
    tab.locator("button.row").nth(3).click()
    tab.wait_for_function("() => Math.abs(document.querySelector('.details').getBoundingClientRect().top) < 3")
    cut = """() => [...document.querySelectorAll('main *')].filter((e) => !e.closest('.scroll, svg')
      && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.id || e.className || e.tagName)"""
    assert tab.evaluate(cut) == []
    assert tab.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
