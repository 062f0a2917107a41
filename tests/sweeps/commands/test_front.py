"""What a terminal shows of a sweep: three epsilons of each configuration, its own cost, and no word cut."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sweeps.commands.status import print_front, print_sweep
from sweeps.config.target_epsilon import planned
from sweeps.results.front import pareto_front
from sweeps.results.snapshot import Snapshot
from sweeps.store.records import Point
from sweeps.store.sweep import Sweep
from sweeps.text.figures import epsilon_cell, epsilon_text, params_text, read_text, shared_params
from tests.support.studies import sweep as new_sweep
from tests.support.studies import trials
from tests.support.synthetic import sweep_of
from trainables.records.epochs import write_ledger


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return sweep_of(tmp_path_factory.mktemp("runs"), "made", 6)


@pytest.fixture(params=[False, True], ids=["not audited", "audited"])
def audited(plain: Sweep, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether all of the sweep's models were audited."""
    if request.param:
        trials = plain.trials()
        for point in (point for trial in trials for point in trial.points):
            point.metrics.update({"epsilon_read": 7.819, "epsilon_read_upper": 8.191})
        monkeypatch.setattr(Sweep, "trials", lambda self: trials)
    return request.param


def front_of(sweep: Sweep) -> list[Point]:
    return pareto_front(sweep.trials(), sweep.recipe.search.objectives)


def shown(show: Callable[[Any, Console], None], what: Any, width: int = 80) -> str:
    written = io.StringIO()
    show(what, Console(file=written, width=width))
    return written.getvalue()


def epsilons(point: Point) -> list[str]:
    metrics = point.metrics
    return [epsilon_cell(metrics["epsilon"]), epsilon_cell(metrics["epsilon_paper"]), read_text(metrics)]


def missing(texts: list[str], page: str) -> Counter[str]:
    """The words of `texts` that are not on `page` as often as there."""
    return Counter(word for text in texts for word in text.split()) - Counter(page.split())


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("show", [print_front, print_sweep])
def test_no_configuration_and_none_of_its_epsilons_is_cut(show: Any, width: int, plain: Sweep, audited: bool) -> None:
    page = shown(show, Snapshot(plain), width)
    for point in front_of(plain):
        assert f"{point.metrics['ser']:.1%}" in page
    shared = shared_params([p.params for p in front_of(plain)])
    own = [{k: v for k, v in p.params.items() if k not in shared} for p in front_of(plain)]
    words = [params_text(params, short=True) for params in own]
    assert not missing([*words, *(text for p in front_of(plain) for text in epsilons(p))], page)
    assert ("ε read" in page) == audited
    assert "ε of 1e4 or more is no formal guarantee." in " ".join(page.split())


def test_a_sweep_has_an_epsilon_before_any_trial_is_complete_for_failed_ones_have_cost_what_they_ran(
    tmp_path: Path,
) -> None:
    sweep, recipe = new_sweep(tmp_path, "search.sampler=random")
    assert "ε of the whole sweep (all trials composed): 0; a configuration is chosen by " in shown(
        print_sweep, Snapshot(sweep)
    )
    search = trials(sweep, recipe)
    config = search.ask("a")
    assert config is not None
    search.tell("a", "died", None, [])
    assert Snapshot(sweep).epsilon is None, "what it ran is not known, so it is not small"
    write_ledger(planned(recipe.trial(config.params | {"z0": 1.0}), 1_350), sweep.trial_folder(0))
    cost = Snapshot(sweep).epsilon
    assert cost is not None
    assert 0 < cost < 1e4
    page = shown(print_sweep, Snapshot(sweep))
    assert "no complete trial yet, so no front" in page
    assert f"ε of the whole sweep (all trials composed): {epsilon_text(cost)}" in page
