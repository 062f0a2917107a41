"""What a training's own audit read is shown so that neither bound looks better than it is."""

from __future__ import annotations

import math

from sweeps.registry.card import model_card, privacy_tags
from sweeps.text.columns import epsilon_cells, epsilon_heads
from sweeps.text.figures import epsilon_words, noise_read_words, read_text
from tests.support.tiny import spec

READ = {
    "epsilon_read": 7.819,
    "epsilon_read_upper": 8.191,
    "noise_factor_at_least": 0.98189,
    "noise_factor_at_most": 1.02011,
}
METRICS = {"epsilon": 8.0, "epsilon_paper": 4.0, "delta": 5e-4, "ser": 0.1, "intent_accuracy": 0.9, "slot_f1": 0.9}


def test_a_lower_bound_is_rounded_down_and_an_upper_one_up() -> None:
    assert read_text(READ) == "7.81–8.2"
    assert "98.1 % to 103 % of the noise" in noise_read_words(READ)
    assert read_text(READ | {"epsilon_read": math.inf, "epsilon_read_upper": math.inf}) == "∞ †"
    assert read_text({}) == noise_read_words({}) == ""


def test_it_has_a_column_if_a_model_was_read() -> None:
    assert "ε read" not in epsilon_heads([METRICS])
    assert epsilon_heads([METRICS, METRICS | READ])[:2] == ["ε honest", "ε read"]
    assert epsilon_cells(METRICS | READ)["ε read"] == "7.81–8.2"
    assert "ε read 7.81–8.2" in epsilon_words(METRICS | READ)


def test_it_is_on_the_card_and_in_the_tags_of_a_version() -> None:
    private = spec(edp={"reproducible_noise": None})
    card = model_card(private, METRICS | READ, {}, None, None, "train", 120)
    assert "Audited by itself: 98.1 % to 103 % of the noise" in card
    assert "Audited" not in model_card(private, METRICS, {}, None, None, "train", 120)
    tags = privacy_tags(private, METRICS | READ, None)
    assert (tags["noise_factor_at_most"], tags["epsilon_read"]) == ("1.02011", "7.819")
    assert "epsilon_read" not in privacy_tags(private, METRICS, None)
