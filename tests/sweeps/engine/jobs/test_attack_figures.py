"""The pictures and the words of attacks show the figures that were measured."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
from rich.console import Console

from sweeps.commands import attack as cli_attack
from sweeps.engine.jobs.attack_figures import bars_figure, epsilon_figure, roc_figure
from trainables.measure.attacks.roc import AttackResult, measure


@pytest.fixture(scope="module")
def results() -> list[AttackResult]:
    rng = np.random.default_rng(0)
    return [measure(name, rng.normal(gap, 1, 300), rng.normal(0, 1, 250)) for name, gap in (("a", 1.0), ("b", 0.0))]


def document(**epsilons: float | None) -> dict[str, object]:
    found: dict[str, object] = {"epsilon": 95.2, "epsilon_paper": 32.2, "epsilon_audited": 0.8}
    found |= {"references": 4, "reference_training": "sgd", "reference_epochs": 3}
    return found | epsilons | {"delta": 5e-4, "run": "first/3"}


def test_roc_curves_stand_on_logarithmic_axes_and_begin_at_the_left_edge(results: list[AttackResult]) -> None:
    figure = roc_figure(results)
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    assert [trace.name for trace in figure.data] == [*(f"{r.name} (AUC {r.auc:.3f})" for r in results), "guessing"]
    for trace, result in zip(figure.data, results, strict=False):
        assert min(trace.x) >= 1 / 500
        assert max(trace.y) == max(result.tpr) == 1


def test_bars_have_the_figures_and_their_intervals(results: list[AttackResult]) -> None:
    aucs, at_1pct, *_ = bars_figure(results).data
    assert list(aucs.y) == [result.auc for result in results]
    assert list(at_1pct.y) == [result.tpr_at_1pct_fpr for result in results]
    low, high = results[0].auc_ci
    assert aucs.error_y.array[0] == pytest.approx(high - results[0].auc)
    assert aucs.error_y.arrayminus[0] == pytest.approx(results[0].auc - low)


@pytest.mark.parametrize(
    ("epsilons", "texts"),
    [
        ({}, ["0.8", "32.2", "95.2"]),
        ({"epsilon": math.inf, "epsilon_paper": math.inf}, ["0.8", *["∞ (no formal guarantee)"] * 2]),
        ({"epsilon_audited": None}, ["32.2", "95.2"]),
        ({"epsilon_audited": 0.0}, ["0", "32.2", "95.2"]),
        ({"epsilon": 1e5}, ["0.8", "32.2", "1.00e+05 (no formal guarantee)"]),
    ],
)
def test_three_epsilons_stand_on_one_axis_also_where_one_is_zero_infinite_or_missing(
    epsilons: dict[str, float | None], texts: list[str]
) -> None:
    figure = epsilon_figure(document(**epsilons))
    assert [trace.text[0].strip() for trace in figure.data] == texts
    low, high = figure.layout.xaxis.range
    assert all(low <= math.log10(trace.x[0]) <= high for trace in figure.data)


@pytest.mark.parametrize(
    ("epsilons", "words"),
    [
        ({}, "ε honest 95.2, ε paper 32.2, ε audited ≥ 0.8, at δ = 0.0005"),
        (
            {"epsilon": 1e5, "epsilon_audited": None},
            "ε honest 1.00e+05 (no formal guarantee), ε paper 32.2, at δ = 0.0005",
        ),
        ({"epsilon": None, "epsilon_paper": None}, "ε honest unknown, ε paper unknown, ε audited ≥ 0.8, at δ = 0.0005"),
    ],
)
def test_the_three_epsilons_stand_in_one_line(
    results: list[AttackResult], epsilons: dict[str, float | None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.StringIO()
    monkeypatch.setattr(cli_attack, "out", Console(file=written, width=80))
    about = {"strongest": "a", "output": "here"}
    cli_attack.show_attacks(document(**epsilons) | about | {"attacks": [result.document() for result in results]})
    assert words in written.getvalue().splitlines()
