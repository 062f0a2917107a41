"""Who said an utterance is read where a corpus says so, kept as numbers, and never told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edp.spec import UserError
from tests.support.toy import CLC, features
from trainables.config import CanariesSpec, CorpusSpec
from trainables.corpora import Utterance, check_corpus, generate, load_corpus, read_corpus
from trainables.features.encoded_corpus import encode
from trainables.measure.attacks.canary import SIBLINGS, make_canaries, plant

SECRET = "Ada-Lovelace-17"


def corpus_of(users: int, utterances: int = 200) -> list[Utterance]:
    return [one._replace(user=f"{SECRET}-{n % users}") for n, one in enumerate(generate("health", utterances, seed=3))]


def jsonl(rows: list[Utterance], path: Path) -> CorpusSpec:
    path.write_text("".join(json.dumps(row._asdict()) + "\n" for row in rows), encoding="utf-8")
    return CorpusSpec(name="mine", path=str(path))


def test_lines_of_json_name_their_user(tmp_path: Path) -> None:
    rows = corpus_of(7)
    path = tmp_path / "a.jsonl"
    jsonl(rows, path)
    assert read_corpus(path, "auto") == rows


def test_a_whole_number_is_a_user_as_its_digits_are(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    row = {"tokens": ["stop"], "tags": ["O"], "intent": "stop"}
    path.write_text("".join(json.dumps(row | {"user": user}) + "\n" for user in (17, "17", " 17 ")), encoding="utf-8")
    assert {one.user for one in read_corpus(path, "auto")} == {"17"}


def test_a_comment_names_the_user_of_a_block(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("# user: u1\n# intent: stop\nstop O\n\n# intent = go\n# user = u 2\ngo O\n", encoding="utf-8")
    assert [(one.intent, one.user) for one in read_corpus(path, "auto")] == [("stop", "u1"), ("go", "u 2")]


@pytest.mark.parametrize("column", ["user", "userid"])
def test_a_column_names_the_user_of_a_row(column: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{column};scenario;intent;answer_annotation\nu9;alarm;query;what [time : now]\n", encoding="utf-8")
    assert [one.user for one in read_corpus(path, "nlu_eval")] == ["u9"]


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ("", "the user is empty"),
        (" \t", "the user is empty"),
        ("x" * 201, "the user has 201 characters; allowed: at most 200"),
        ("secret\u0007", "characters that do not print"),
        ("secret\nname", "characters that do not print"),
        ("secret\ud800", "characters that do not print"),
        (["secret"], "user must be a string or a whole number"),
        (True, "user must be a string or a whole number"),
        (1.5, "user must be a string or a whole number"),
    ],
)
def test_what_can_be_no_user_is_refused_with_its_line_and_without_its_name(
    user: Any, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    row = {"tokens": ["stop"], "tags": ["O"], "intent": "stop"}
    path.write_text(f"{json.dumps(row | {'user': 'u'})}\n{json.dumps(row | {'user': user})}\n", encoding="utf-8")
    with pytest.raises(UserError) as refused:
        read_corpus(path, "auto")
    text = str(refused.value)
    assert "a.jsonl, line 2" in text
    assert said in text
    assert "secret" not in text
    assert "\n" not in text


def test_a_corpus_in_which_some_have_a_user_is_refused_with_the_first_line_that_has_none(tmp_path: Path) -> None:
    rows = corpus_of(3)
    path = tmp_path / "a.jsonl"
    lines = [json.dumps(row._asdict() | ({"user": None} if n in (4, 9) else {})) for n, row in enumerate(rows)]
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(
        UserError, match=r"line 5: the utterance has no user, and 198 others have; needed: user in every"
    ):
        read_corpus(path, "auto")


def test_the_numbers_of_users_are_counted_in_train(tmp_path: Path) -> None:
    spec = jsonl(corpus_of(4), tmp_path / "a.jsonl")
    counts = load_corpus(spec).train_users
    summary = check_corpus(spec)
    assert (summary.train_users, summary.most_of_a_user) == (4, max(counts.values()))
    assert sum(counts.values()) == summary.train == 91
    nobody = jsonl([row._replace(user="") for row in corpus_of(4)], tmp_path / "b.jsonl")
    (tmp_path / "b.jsonl").write_text((tmp_path / "b.jsonl").read_text().replace(', "user": ""', ""))
    assert check_corpus(nobody).train_users is None


def test_an_encoded_corpus_has_numbers_for_names_in_every_split_and_way_to_train(tmp_path: Path) -> None:
    splits = load_corpus(jsonl(corpus_of(40), tmp_path / "a.jsonl"))
    corpus = encode(splits, CLC, tmp_path / "encoded", features=features(CLC))

    def same(names: list[str], numbers: np.ndarray | None) -> None:
        assert numbers is not None
        assert len(set(zip(names, numbers.tolist(), strict=True))) == len(set(names)) == len(set(numbers.tolist()))
        assert set(numbers.tolist()) == set(range(len(set(names))))

    train, valid, test = ([one.user for one in part] for part in (splits.train, splits.valid, splits.test))
    same(train, corpus.train_users)
    assert corpus.most_of_a_user == max(splits.train_users.values())
    same(valid + train, corpus.with_valid_in_train().train_users)
    same(test[:9] + train[5:], corpus.with_train({"test": np.arange(9), "train": np.arange(5, len(train))}).train_users)
    for file in (tmp_path / "encoded").rglob("*"):
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes()
            assert SECRET.encode("utf-32-le") not in file.read_bytes()


def test_a_canary_is_a_user_of_its_own(tmp_path: Path) -> None:
    splits = load_corpus(jsonl(corpus_of(5), tmp_path / "a.jsonl"))
    planted = plant(make_canaries(splits, CanariesSpec(count=10), 0), np.ones(10, bool))
    assert len(planted.train_users) == 15
    assert [planted.train_users[one.user] for one in planted.train[-10:]] == [1] * 10
    assert len({one.user for one in planted.canaries}) == 10
    assert len(planted.canaries) == 10 * (1 + SIBLINGS)
