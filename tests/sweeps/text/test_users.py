"""What is said of users: their ε where they are known, and a remark where they are not."""

from __future__ import annotations

from edp.spec import EDPSpec
from sweeps.registry.register import privacy_tags
from sweeps.text.figures import epsilon_words, privacy_statement, user_cell, users_remark
from tests.support.tiny import spec

METRICS = {"epsilon": 8.0, "epsilon_paper": 4.0, "delta": 5e-4}


def test_the_epsilon_of_a_user_stands_behind_the_honest_one_where_it_is_known() -> None:
    assert epsilon_words(METRICS | {"epsilon_user": 12.0})[:2] == ["ε honest 8", "ε of a user 12"]
    assert epsilon_words(METRICS)[:2] == ["ε honest 8", "ε paper 4"]
    assert (user_cell(METRICS | {"epsilon_user": 2e4}), user_cell(METRICS)) == ("2.0e+04 †", "")


def test_it_is_said_that_nobody_knows_users_unless_there_is_nothing_to_say_it_of() -> None:
    (words,) = users_remark(METRICS)
    assert words == "users are not known: a person with several utterances is protected less"
    assert users_remark(METRICS | {"epsilon_user": 12.0}) == []
    assert users_remark(METRICS | {"epsilon": 1e5}) == users_remark({}) == []


def test_a_registered_version_says_whom_it_protects() -> None:
    assert "8, 0.0005)-DP for one user" in privacy_statement(METRICS, EDPSpec(unit="user"), spec().corpus)
    group_by_user = spec(training={"method": "dpsgd"}, edp={"unit": "user", "reproducible_noise": None})
    tags = privacy_tags(group_by_user, METRICS | {"epsilon_user": 8.0}, None)
    assert (tags["unit"], tags["epsilon_user"]) == ("user", "8")
    assert "epsilon_user" not in privacy_tags(group_by_user, METRICS, None)
