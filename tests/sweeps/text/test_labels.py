"""Every statement of a guarantee says that labels are taken to be public, unless a schema makes it so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edp.spec import EDPSpec
from sweeps.engine.prepare import encode_missing, read_missing
from sweeps.registry.card import model_card, privacy_tags
from sweeps.store.prepared import locate
from sweeps.text.figures import LABELS_PUBLIC, metrics_line, privacy_statement
from tests.conftest import Command
from tests.support.synthetic import sweep_of
from tests.support.tiny import spec
from trainables.config import CorpusSpec

METRICS = {"epsilon": 8.0, "epsilon_paper": 4.0, "delta": 5e-4, "ser": 0.1, "mia_auc": 0.5}
WITHOUT, WITH = CorpusSpec(name="video"), CorpusSpec(name="video", schema="video")


def test_a_statement_is_qualified_without_a_schema() -> None:
    plain = "(8, 0.0005)-DP for one utterance, shuffle sampling, trusted aggregator"
    assert privacy_statement(METRICS, EDPSpec(), WITH) == plain
    assert privacy_statement(METRICS, EDPSpec(), WITHOUT) == f"{plain}, {LABELS_PUBLIC}"
    assert LABELS_PUBLIC not in privacy_statement(METRICS | {"epsilon": 1e5}, EDPSpec(), WITHOUT), "no guarantee"
    assert metrics_line(METRICS, WITHOUT).endswith(f"; {LABELS_PUBLIC}")
    assert LABELS_PUBLIC not in metrics_line(METRICS, WITH)


def test_so_are_a_models_card_and_its_tags() -> None:
    for schema in (None, "communication"):
        one = spec(corpus={"schema": schema}, edp={"reproducible_noise": None})
        card = model_card(one, METRICS, {}, None, None, "train", 100)
        assert (f"trusted aggregator, {LABELS_PUBLIC}" in card) is (schema is None)
        assert ("Not covered by ε: names of labels, " in card) is (schema is None)
        assert (LABELS_PUBLIC in privacy_tags(one, METRICS, None)["privacy"]) is (schema is None)


@pytest.mark.stress
@pytest.mark.parametrize("schema", ["null", "communication"])
def test_so_is_what_commands_print_and_write(
    schema: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sweep_of(tmp_path, "made", 6, f"corpus.schema={schema}")
    where = ("--storage", str(tmp_path))
    for words in (("status", "made"), ("front", "made"), ("pick", "made")):
        code, said, err = command(*words, *where)
        assert code == 0, err
        assert (LABELS_PUBLIC in " ".join(said.split())) is (schema == "null"), words
        code, said, err = command(*words, *where, "--json", *(("--force",) if words[0] == "pick" else ()))
        assert json.loads(said)["labels_taken_to_be_public"] is (schema == "null"), words
    assert (f"# {LABELS_PUBLIC.capitalize()}." in Path("picked.yaml").read_text()) is (schema == "null")
    code, said, err = command("report", "made", "--output", "report.html", *where)
    assert code == 0, err
    report = Path("report.html").read_text()
    assert (LABELS_PUBLIC in report) is (schema == "null")
    assert ("The labels are those of the schema communication." in report) is (schema != "null")


def test_the_holder_of_the_data_is_told_before_anything_is_trained(tmp_path: Path) -> None:
    said: list[str] = []
    for number, (changes, wanted) in enumerate(
        (
            ({"schema": None}, None),  # no person's words
            ({"schema": "communication"}, None),
            ({"path": str(_written(tmp_path)), "name": "mine", "utterances": None}, "in at most one. No ε covers"),
        )
    ):
        one, folder = spec(corpus=changes), tmp_path / str(number)
        prepared = locate(one, folder)
        for _ in range(2):
            said.clear()
            encode_missing(one, prepared, read_missing(one, prepared), said.append)
            told = [line for line in said if line.startswith("labels of ")]
            assert len(told) == (wanted is not None), "also if the corpus is encoded already"
            assert wanted is None or wanted in told[0]


def _written(folder: Path) -> Path:
    from tests.support import writers
    from trainables.corpora import generate

    return writers.jsonl(generate("communication", 120, seed=1), folder)
