"""What the report says of one person's share, by what is known of users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dashboards.report.questions import Answer, questions
from edp.accounting.epsilon import epsilon, epsilon_user
from edp.ledger import planned_ledger
from edp.spec import EDPSpec
from sweeps.store.records import Point
from sweeps.text.figures import delta_words
from tests.support.frozen_heads import model_spec, trial_spec
from tests.support.studies import RECIPE
from tests.support.tiny import spec
from trainables.config import TrialSpec


def answers(
    unit: str, most: int | None, users: int | None, trial: TrialSpec | None = None, **edp: Any
) -> dict[str, Answer]:
    settings = {"unit": unit, "z0": 4.0, "reproducible_noise": None, **edp}
    trial = trial or spec(training={"method": "dpsgd", "batch_size": 10}, edp=settings)
    run: dict[str, Any] = {"epochs": 2, "micro_batches": 10, "steps_per_epoch": 5, "rate": 0.2}
    ledger = planned_ledger(EDPSpec(unit=unit, z0=4.0), single_example=unit == "example", **run)
    ledger = ledger.model_copy(update={"most_of_a_user": most})
    user = epsilon_user(ledger, 5e-4)
    metrics = {"ser": 0.2, "mia_auc": 0.5, "epsilon": epsilon(ledger, 5e-4), "delta": 5e-4}
    metrics |= {} if user is None else {"epsilon_user": user}
    point = Point(0, 2, {}, metrics, None, Path(), ledger, RECIPE)
    counted, n = ("user", users) if unit == "user" else ("utterance", 5000)
    record: dict[str, Any] = {"baseline": {}, "users": users, "delta": delta_words(5e-4, counted, n), "attacks": []}
    record |= {"report": "report s", "confirm": "confirm s", "cost": "1", "choice": "given", "proxy": None}
    topics = questions(trial, point, **record, verified=None, seeds=0, versions={})
    return {answer.question: answer for _, topic in topics for answer in topic}


ASKED = "How much may one person contribute?"


def test_where_users_are_the_unit_all_that_one_said_is_bounded() -> None:
    found = answers("user", None, 50, user_utterances=3)
    assert found["What is the unit of privacy?"].text == "One user."
    assert "3 utterances per epoch" in found[ASKED].text
    assert not found[ASKED].open
    assert "50 training users: δ·n = 0.025" in found["Is δ small for so much data?"].text
    assert "twice" not in found["How far can one unit change a step?"].text
    assert "of a user" in found["What are ε and δ?"].text


@pytest.mark.parametrize(("most", "open_"), [(7, False), (7000, True)])
def test_where_they_are_known_it_is_said_how_a_group_is_protected(most: int, open_: bool) -> None:
    found = answers("example", most, 50)
    assert f"one user has at most {most:,} utterances" in found[ASKED].text
    assert found[ASKED].open == open_
    assert "5,000 training utterances" in found["Is δ small for so much data?"].text


def test_where_they_are_not_known_the_question_is_open() -> None:
    found = answers("example", None, None)
    assert "Nothing bounds the number of utterances of one person" in found[ASKED].text
    assert found[ASKED].open
    assert "of a user" not in found["What are ε and δ?"].text


SAMPLES = "Where do the samples of the schema come from?"


def test_who_wrote_the_samples_that_the_heads_began_at_is_an_open_question() -> None:
    assert SAMPLES not in answers("example", None, None)
    model = model_spec(Path("encoder")).model_copy(update={"schema_weight": 0.5})
    trial = trial_spec(model)
    assert SAMPLES not in answers("example", None, None, trial)  # it has no schema
    corpus = trial.corpus.model_copy(update={"schema": "communication"})
    found = answers("example", None, None, trial.model_copy(update={"corpus": corpus}))[SAMPLES]
    assert "the samples of communication" in found.text
    assert found.open
