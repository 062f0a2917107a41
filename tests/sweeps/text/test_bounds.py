"""Wherever an ε is written it is rounded up, and an audited one down: each shown number is read back and compared."""

from __future__ import annotations

import io
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dashboards.pareto.data import METRICS
from edp.spec import EDPSpec
from sweeps.commands.epsilon import _show
from sweeps.registry.card import model_card, privacy_tags
from sweeps.text.columns import model_cells
from sweeps.text.figures import (
    FIGURES,
    epsilon_cell,
    epsilon_digits,
    epsilon_text,
    epsilon_words,
    permitted_words,
    privacy_statement,
    read_text,
)
from tests.support.tiny import spec

EPSILON = st.one_of(st.floats(1e-3, 20), st.floats(20, 1e4), st.floats(1e4, 1e25))
AUDITED = st.just(0.0) | st.floats(1e-3, 12)


def numbers(words: str) -> list[float]:
    return [float(found) for found in re.findall(r"\d+(?:\.\d+)?(?:e[+-]\d+)?", words)]


def close(shown: float, value: float, digits: int) -> bool:
    """Return True if `shown` is less than a unit of the last of `digits` digits away."""
    return abs(shown - value) <= 10.0 ** (math.floor(math.log10(value)) + 1 - digits) * (1 + 1e-9)


@given(EPSILON)
def test_no_text_shows_less_than_an_epsilon(epsilon: float) -> None:
    metrics = {"epsilon": epsilon, "epsilon_user": epsilon, "epsilon_paper": epsilon, "delta": 5e-4}
    three = [epsilon_text(epsilon), *epsilon_words(metrics)[:3]]
    two = [epsilon_cell(epsilon), *[model_cells(metrics)[f"ε {k}"] for k in ("honest", "user", "paper")]]
    two += [axis.text(epsilon) for axis in METRICS if axis.key in ("epsilon", "epsilon_user", "epsilon_paper")]
    more = [epsilon_digits(epsilon), *(privacy_tags(spec(), metrics, epsilon)[k] for k in ("epsilon", "epsilon_paper"))]
    more += [privacy_tags(spec(), metrics, epsilon)[k] for k in ("epsilon_user", "epsilon_of_sweep")]
    for digits, every in ((3, three), (2, two), (6, more)):
        for words in every:
            shown = numbers(words)[0]
            assert shown >= epsilon, words
            assert close(shown, epsilon, digits), words
    assert numbers(privacy_statement(metrics, EDPSpec(), spec().corpus).replace("(", " "))[0] >= epsilon


@given(AUDITED)
@pytest.mark.slow
def test_no_text_shows_more_than_an_audit_has_proved(audited: float) -> None:
    metrics: dict[str, Any] = {"epsilon_audited": audited, "epsilon": 8.0, "epsilon_paper": 4.0, "delta": 5e-4}
    texts = [
        FIGURES["epsilon_audited"].text(audited),
        epsilon_words(metrics)[-1],
    ]
    read = {"epsilon_read": audited, "epsilon_read_upper": 1e9}
    read |= {"noise_factor_at_least": 0.0, "noise_factor_at_most": 9.0}
    texts += [read_text(read), privacy_tags(spec(), metrics | read, None)["epsilon_read"]]
    for words in texts:
        shown = numbers(words)[0]
        assert shown <= audited, words
        assert audited == 0 or close(shown, audited, 3), words


def test_what_the_ledger_permits_an_attack_is_rounded_up() -> None:
    figures = {"permitted_tpr_at_1pct_fpr": 0.24001, "permitted_tpr_at_01pct_fpr": 0.03141, "gaussian_mu": 1.2301}
    words = permitted_words(figures)
    assert "24.1 %" in words
    assert "3.15 %" in words
    assert "μ = 1.24" in words


def test_an_epsilon_a_little_over_8_reads_8_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = Console(width=200, file=io.StringIO())
    monkeypatch.setattr("sweeps.commands.epsilon.out", printed)
    metrics = {"epsilon": 8.0049, "epsilon_paper": 8.0049, "delta": 5e-4, "ser": 0.1}
    assert epsilon_text(8.0049) == epsilon_cell(8.0049) == "8.01"
    assert privacy_statement(metrics, EDPSpec(), spec().corpus).startswith("(8.005, 0.0005)-DP")
    card = model_card(spec(edp={"reproducible_noise": None}), metrics, {}, 8.0049, None, "train", 100)
    assert "all of them together have an ε of 8.01" in card
    row = {"epoch": 1, "epsilon": 8.0049, "epsilon_paper": 8.0049}
    _show({**metrics, "neighbours": "", "unit": "example", "per_epoch": [row]}, EDPSpec())
    assert isinstance(printed.file, io.StringIO)
    out = printed.file.getvalue()
    assert "8.01" in out
    assert "ε = 8.0049 (honest)" in out
