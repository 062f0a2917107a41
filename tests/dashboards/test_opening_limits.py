"""The page opens with the limits of the recipe, which its user may move."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dashboards.pareto.source import Source
from tests.support.browser import served, settled
from tests.support.synthetic import sweep_of


@contextmanager
def opened(chromium: Any, place: Path, limits: str) -> Iterator[Any]:
    """Yield the page of a sweep of 24 points whose recipe has limits."""
    sweep = sweep_of(place / "limited", "limited", 12, f"search.limits={limits}")
    with served(Source(sweep), place) as url:
        page = chromium.new_page()
        page.goto(url)
        yield page


def test_the_sliders_open_at_the_recipes_limits(chromium: Any, tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "runs", "limited", 12, tracked=False)
    sers = sorted(point.selection_figures["ser"] for trial in sweep.trials() for point in trial.points)
    most = sers[len(sers) // 2]
    with opened(chromium, tmp_path, f"{{ser: {most}, mia_tpr_at_1pct_fpr: 0.9}}") as page:
        page.wait_for_selector("button.row")
        left = sum(ser <= most for ser in sers)
        settled(page, "#remain", f"{left} of {len(sers)} remain")
        assert page.inner_text("[id*=limit-text][id*=ser]").startswith("≤ ")
        assert page.inner_text("label[for=limit-mia_tpr_at_1pct_fpr]") == "MIA TPR at 1 % FPR"
        page.click("#reset")
        settled(page, "#remain", f"{len(sers)} of {len(sers)} remain")


def test_a_limit_below_all_points_leaves_none_until_it_is_reset(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, tmp_path, "{ser: 1e-6}") as page:
        settled(page, "#remain", "0 of 24 remain")
        assert page.inner_text("[id*=limit-text][id*=ser]").startswith("≤ 0")
        settled(page, "#answer", "Nothing is recommended")
        page.press("#limit-ser", "End")
        settled(page, "#remain", "24 of 24 remain")
        settled(page, "#answer", "Recommended: Trial")  # a slider replaces the recipe's limit
        page.press("#limit-ser", "Home")
        settled(page, "#remain", "0 of 24 remain")
        page.click("#reset")
        settled(page, "#remain", "24 of 24 remain")


def test_a_limit_above_all_points_stays_a_limit(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, tmp_path, "{ser: 1.5}") as page:
        settled(page, "#remain", "24 of 24 remain")
        settled(page, "[id*=limit-text][id*=ser]", "≤ 150")
