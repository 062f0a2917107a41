"""Each JSON document says beside the metrics whether they hold a formal guarantee."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from sweeps.text.figures import delta_remark, measured
from tests.conftest import Command
from tests.support.synthetic import sweep_of


@pytest.mark.parametrize(
    ("epsilon", "formal"), [(0.0, True), (9_999.0, True), (1e4, False), (math.inf, False), (math.nan, False)]
)
def test_an_epsilon_of_ten_thousand_or_more_is_no_guarantee(epsilon: float, formal: bool) -> None:
    assert measured({"epsilon": epsilon})["formal_guarantee"] is formal


def test_what_was_not_measured_neither_has_a_guarantee_nor_lacks_one() -> None:
    assert measured({}) == {"metrics": {}, "formal_guarantee": None}


def test_a_delta_of_one_in_n_or_more_is_remarked_on_unless_users_are_the_unit() -> None:
    remark = delta_remark(5e-4, "example", 2_627)
    assert remark is not None
    assert "edp.delta = 0.0005" in remark
    assert "2,627" in remark
    assert "less than 0.00038" in remark
    assert delta_remark(5e-4, "example", 1_999) is None
    assert delta_remark(5e-4, "micro_batch", 2_627) == remark
    assert delta_remark(5e-4, "user", 2_627) is None, "of users it is refused"


def test_where_the_utterances_are_not_counted_the_remark_says_for_how_many_it_holds() -> None:
    remark = delta_remark(3e-4, "example", None)
    assert remark is not None
    assert "3,334 training utterances or more" in remark
    assert delta_remark(3e-4, "example", 3_333) is None
    assert delta_remark(3e-4, "example", 3_334) is not None
    assert delta_remark(5e-4, "user", None) is None


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
