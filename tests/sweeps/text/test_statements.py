"""What is said of an ε: whether it is a guarantee, whom it protects, and what the model's own audit has read."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from edp.spec import EDPSpec
from sweeps.registry.card import model_card, privacy_tags
from sweeps.text.columns import model_cells, model_heads
from sweeps.text.figures import (
    FIGURES,
    delta_remark,
    epsilon_words,
    measured,
    noise_read_words,
    privacy_statement,
    read_text,
    users_remark,
)
from tests.conftest import Command
from tests.support.synthetic import sweep_of
from tests.support.tiny import spec


@pytest.mark.parametrize(
    ("epsilon", "formal"), [(0.0, True), (9_999.0, True), (1e4, False), (math.inf, False), (math.nan, False)]
)
def test_an_epsilon_of_ten_thousand_or_more_is_no_guarantee(epsilon: float, formal: bool) -> None:
    assert measured({"epsilon": epsilon})["formal_guarantee"] is formal


def test_a_delta_of_one_in_n_or_more_is_remarked_on_unless_users_are_the_unit() -> None:
    remark = delta_remark(5e-4, "example", 2_627)
    assert remark is not None
    assert "edp.delta = 0.0005" in remark
    assert "2,627" in remark
    assert "less than 0.00038" in remark
    assert delta_remark(5e-4, "example", 1_999) is None
    assert delta_remark(5e-4, "micro_batch", 2_627) == remark
    assert delta_remark(5e-4, "user", 2_627) is None, "of users it is refused"


@pytest.mark.slow
def test_every_document_says_so_of_every_model_and_keeps_it_out_of_the_metrics(
    tmp_path: Path, command: Command
) -> None:
    sweep_of(tmp_path, "made", 6)
    where = ("--storage", str(tmp_path), "--json")
    documents = {}
    for words in (("status", "made"), ("front", "made"), ("pick", "made", "--output", str(tmp_path / "picked.yaml"))):
        code, out, err = command(*words, *where)
        assert code == 0, err
        documents[words[0]] = json.loads(out)
    status, front = documents["status"], documents["front"]
    models = [*status["trials"], *(point for trial in status["trials"] for point in trial["points"])]
    models += [*front["front"], *front["dominated_but_tied"], documents["pick"]]
    for model in models:
        assert model["formal_guarantee"] is (model["metrics"]["epsilon"] < 1e4)
        assert "formal_guarantee" not in model["metrics"]
    assert {model["formal_guarantee"] for model in models} == {True, False}
    assert status["baseline"]["formal_guarantee"] is front["baseline"]["formal_guarantee"] is False


PRIVATE = {"epsilon": 8.0, "epsilon_paper": 4.0, "delta": 5e-4}


def test_the_epsilon_of_a_user_stands_behind_the_honest_one_where_it_is_known() -> None:
    assert epsilon_words(PRIVATE | {"epsilon_user": 12.0})[:2] == ["ε honest 8", "ε of a user 12"]
    assert epsilon_words(PRIVATE)[:2] == ["ε honest 8", "ε paper 4"]
    cell = FIGURES["epsilon_user"].cell
    assert (cell(PRIVATE | {"epsilon_user": 2e4}), cell(PRIVATE)) == ("2.0e+04 †", "")


def test_it_is_said_that_nobody_knows_users_unless_there_is_nothing_to_say_it_of() -> None:
    (words,) = users_remark(PRIVATE)
    assert words == "users are not known: a person with several utterances is protected less"
    assert users_remark(PRIVATE | {"epsilon_user": 12.0}) == []
    assert users_remark(PRIVATE | {"epsilon": 1e5}) == users_remark({}) == []


def test_a_registered_version_says_whom_it_protects() -> None:
    assert "8, 0.0005)-DP for one user" in privacy_statement(PRIVATE, EDPSpec(unit="user"), spec().corpus)
    group_by_user = spec(training={"method": "dpsgd"}, edp={"unit": "user", "reproducible_noise": None})
    tags = privacy_tags(group_by_user, PRIVATE | {"epsilon_user": 8.0}, None)
    assert (tags["unit"], tags["epsilon_user"]) == ("user", "8")
    assert "epsilon_user" not in privacy_tags(group_by_user, PRIVATE, None)


READ = {
    "epsilon_read": 7.819,
    "epsilon_read_upper": 8.191,
    "noise_factor_at_least": 0.98189,
    "noise_factor_at_most": 1.02011,
}
RATES = {"epsilon": 8.0, "epsilon_paper": 4.0, "delta": 5e-4, "ser": 0.1, "intent_accuracy": 0.9, "slot_f1": 0.9}


def test_a_lower_bound_is_rounded_down_and_an_upper_one_up() -> None:
    assert read_text(READ) == "7.81–8.2"
    assert "98.1 % to 103 % of the noise" in noise_read_words(READ)
    assert read_text(READ | {"epsilon_read": math.inf, "epsilon_read_upper": math.inf}) == "∞ †"
    assert read_text({}) == noise_read_words({}) == ""


def test_it_has_a_column_if_a_model_was_read() -> None:
    assert "ε read" not in model_heads([RATES])
    assert model_heads([RATES, RATES | READ])[3:5] == ["ε honest", "ε read"]
    assert model_cells(RATES | READ)["ε read"] == "7.81–8.2"
    assert "ε read 7.81–8.2" in epsilon_words(RATES | READ)


def test_it_is_on_the_card_and_in_the_tags_of_a_version() -> None:
    private = spec(edp={"reproducible_noise": None})
    card = model_card(private, RATES | READ, {}, None, None, "train", 120)
    assert "Audited by itself: 98.1 % to 103 % of the noise" in card
    assert "Audited" not in model_card(private, RATES, {}, None, None, "train", 120)
    tags = privacy_tags(private, RATES | READ, None)
    assert (tags["noise_factor_at_most"], tags["epsilon_read"]) == ("1.02011", "7.819")
    assert "epsilon_read" not in privacy_tags(private, RATES, None)
