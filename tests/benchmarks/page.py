"""Seconds until the Pareto page is drawn, and until a click on a point is answered, by the number of points.

    python -m tests.benchmarks.page [POINTS …]

Makes finished sweeps without training, with two points a trial, and opens each one's page in headless Chromium. `opens`
is the time from navigation until both scatter charts, the table and the recommendation's details are drawn. `again` is
the time in which a browser that has the compiled scripts opens the page: at its third visit. `click` is the time from a
click on a point until its name and details are drawn. Times are medians over new browsers and over clicks.
`reads` is the time in which the server reads the sweep, once. Names that end in `_cpu` are seconds of all processors,
of server and browser together, which other work changes less. Prints one JSON document.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, create_trial

from dashboards.pareto.source import Source
from sweeps.store.sweep import Sweep
from tests.benchmarks.machine import about
from tests.dashboards.conftest import CHROMIUM, QUIET
from tests.support.browser import served
from tests.support.synthetic import sweep_of

SIZES = (200, 2_000, 10_000)
WINDOWS, CLICKS, VISITS = 3, 6, 3
_TRIALS = 20
_PATIENCE_MS = 120_000

_DRAWN = """([names, points]) => names.every((name) => {
  const chart = document.querySelector(`#${name} .js-plotly-plot`);
  const keys = (chart?.calcdata ? chart.data : []).flatMap((trace) => trace.customdata || []);
  return new Set(keys.filter(Boolean)).size >= points && chart._fullLayout.xaxis;
}) && document.querySelector("button.row") && document.querySelector("#statement") && performance.now()"""
"""The time since navigation, once the named charts have been drawn with all points, and the table and details."""

_PLACES = """(wanted) => {
  const chart = document.querySelector("#first .js-plotly-plot"), { xaxis, yaxis } = chart._fullLayout;
  const box = chart.getBoundingClientRect();
  const found = chart.data.filter((trace) => trace.customdata).flatMap((trace) => trace.customdata.map((key, i) => (
    { key, x: box.x + xaxis._offset + xaxis.d2p(trace.x[i]), y: box.y + yaxis._offset + yaxis.d2p(trace.y[i]) })));
  const inside = found.filter(({ x, y }) => x > box.x + xaxis._offset && x < box.x + xaxis._offset + xaxis._length
    && y > box.y + yaxis._offset && y < box.y + yaxis._offset + yaxis._length).sort((a, b) => a.x - b.x);
  return Array.from({ length: wanted }, (_, i) => inside[Math.floor((i + 0.5) * inside.length / wanted)]);
}"""
"""The places of some points in the first chart, from left to right."""

_ANSWER = """() => {
  const before = document.querySelector("#chosen").innerText;
  const of = (selector) => document.querySelector(selector);
  const details = of("#details").firstChild;
  window.answered = new Promise((resolve) => {
    document.addEventListener("mousedown", (event) => {
      const look = () => {
        const done = of("#chosen").innerText !== before && of("#details").firstChild !== details;
        if (done) requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - event.timeStamp)));
        else requestAnimationFrame(look);
      };
      look();
    }, { once: true, capture: true });
  });
}"""
"""Take the time from the next press of the mouse to the frame that shows another point's name and details."""


def main(words: Sequence[str]) -> None:
    """Print one JSON document."""
    from playwright.sync_api import sync_playwright

    rows = []
    with sync_playwright() as started:
        for points in [int(word) for word in words] or SIZES:
            rows.append(_row(started.chromium, points))
            print(rows[-1], file=sys.stderr, flush=True)
    print(json.dumps(about("page", words) | {"rows": rows}, indent=1))


class Grown(Sweep):
    """The sweep `made`, whose trials are repeated with noise until there are `trials`: writing them all takes hours."""

    def __init__(self, storage: Path, trials: int) -> None:
        super().__init__(storage, "made")
        self._trials = trials

    def _study_in(self, url: str) -> tuple[optuna.Study, list[FrozenTrial]]:
        """Return the study with made-up trials."""
        if not hasattr(self, "_told"):
            rng, (study, made) = np.random.default_rng(0), super()._study_in(url)
            self._told = study, [_with_noise(made[i % len(made)], i, rng) for i in range(self._trials)]
        return self._told

    def trial_folder(self, number: int) -> Path:
        """Return the folder of the trial that this one repeats."""
        return super().trial_folder(number % _TRIALS)


def _with_noise(trial: FrozenTrial, number: int, rng: np.random.Generator) -> FrozenTrial:
    ser, auc, epsilon = rng.normal(0, 0.03), rng.normal(0, 0.006), 10 ** rng.normal(0, 0.3)

    def changed(name: str, value: float) -> float:
        words = name.split("_")
        return value * epsilon if words[0] == "epsilon" else value + ser * ("ser" in words) + auc * ("auc" in words)

    points = [
        one | {"metrics": {name: changed(name, value) for name, value in one["metrics"].items()}}
        for one in trial.user_attrs["points"]
    ]
    params = trial.user_attrs["params"] | {"z0": trial.user_attrs["params"]["z0"] / epsilon}
    about = trial.user_attrs | {"params": params, "points": points, "metrics": points[-1]["metrics"]}
    made = create_trial(values=trial.values, params=trial.params, distributions=trial.distributions, user_attrs=about)
    made.number = number
    return made


def _row(chromium: Any, points: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        sweep_of(Path(folder), "made", _TRIALS, tracked=False)
        source = Source(Grown(Path(folder), points // 2))
        begin = time.perf_counter()
        found = source.read()[1]
        row: dict[str, Any] = {"points": len(found.candidates), "front": len(found.front)}
        row["reads"] = round(time.perf_counter() - begin, 2)
        with served(source, Path(folder)) as url:
            windows = [_measured(chromium, url, len(found.candidates)) for _ in range(WINDOWS)]
    names = ("opens", "click", "again")
    for name, times in zip(names, zip(*windows, strict=True), strict=True):
        row |= {name: _median([wall for wall, _ in times]), f"{name}_cpu": _median([cpu for _, cpu in times])}
    return row


def _median(seconds: Sequence[float]) -> float:
    return round(statistics.median(seconds), 2)


Seconds = tuple[float, float]
"""Seconds by the clock, and of the processors."""


def _cpu() -> float:
    """Return the seconds that the processors have spent on this process and its children: server and browser."""
    parents, ticks = dict[str, str](), dict[str, int]()
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has ended
            fields = file.read_text().rpartition(")")[2].split()
            parents[file.parent.name], ticks[file.parent.name] = fields[1], int(fields[11]) + int(fields[12])
    own, found = str(os.getpid()), 0
    for process in ticks:
        above = process
        while above not in (own, "0"):
            above = parents.get(above, "0")
        found += ticks[process] * (above == own)
    return found / os.sysconf("SC_CLK_TCK")


def _measured(chromium: Any, url: str, points: int) -> tuple[Seconds, ...]:
    """Return the seconds of `opens`, `click` and `again` in a new browser."""
    with tempfile.TemporaryDirectory() as profile:
        size = {"width": 1440, "height": 900}
        browser = chromium.launch_persistent_context(profile, executable_path=CHROMIUM, args=[*QUIET], viewport=size)
        browser.set_default_timeout(_PATIENCE_MS)
        first = _first_visit(browser.new_page(), url, points)
        visits = [_visit(browser.new_page(), url, points) for _ in range(1, VISITS)]
        browser.close()
    return *first, visits[-1]


def _visit(page: Any, url: str, points: int) -> Seconds:
    """Return the seconds in which a page is opened, and close it."""
    found = _opened(page, url, points)
    page.close()
    return found


def _opened(page: Any, url: str, points: int) -> Seconds:
    begin = _cpu()
    page.goto(url, wait_until="commit")
    wall = page.wait_for_function(_DRAWN, arg=[["first", "scatter"], points]).json_value() / 1000
    found = wall, _cpu() - begin
    page.wait_for_load_state("networkidle")
    return found


def _first_visit(page: Any, url: str, points: int) -> tuple[Seconds, Seconds]:
    """Return the seconds in which the page is opened, and answers a click."""
    opening = _opened(page, url, points)
    page.locator("#first").scroll_into_view_if_needed()
    clicks = []
    for place in page.evaluate(_PLACES, CLICKS):
        page.mouse.move(place["x"], place["y"])
        page.wait_for_timeout(500)  # a person looks at the point before the click
        page.evaluate(_ANSWER)
        begin = _cpu()
        page.mouse.down()
        page.mouse.up()
        clicks.append((page.evaluate("() => window.answered") / 1000, _cpu() - begin))
        page.wait_for_load_state("networkidle")
    page.close()
    wall, cpu = (_median(values) for values in zip(*clicks, strict=True))
    return opening, (wall, cpu)


if __name__ == "__main__":
    main(sys.argv[1:])
