"""From a spec to splits, counts and a digest, for generated, real and a user's own corpora."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path

import pytest
from pydantic import ValidationError

from edp.spec import UserError
from tests.support import writers
from tests.support.real_data import real_corpus
from trainables.config import CorpusSpec
from trainables.corpora import PUBLIC, Utterance, check_corpus, corpus_digest, generate, load_corpus, public

CORPUS = generate("video", 300, seed=5)

REAL = {
    "atis": (5_871, 5_473, 26, 83),
    "snips": (14_484, 14_213, 7, 39),
    "nlu_eval": (11_036, 11_036, 64, 54),
    "sgd": (113_935, 113_935, 47, 77),
    "clinc150": (23_541, 23_541, 151, 0),
    "banking77": (13_033, 13_033, 77, 0),
    "restaurant8k": (11_336, 11_336, 0, 5),
    "mit_restaurant": (9_174, 9_174, 0, 8),
    "mit_movie": (12_149, 12_149, 0, 12),
    "mit_movie_trivia": (9_765, 9_765, 0, 12),
    "fb_multilingual": (31_057, 31_057, 12, 16),
}
"""Utterances, distinct ones, intents and slot types."""


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLIC)
def test_a_real_corpus_has_its_published_counts(name: str) -> None:
    summary = check_corpus(CorpusSpec(name=name, path=str(real_corpus(name))))
    assert (summary.utterances, summary.distinct, summary.intents, summary.slot_types) == REAL[name]
    assert summary.train + summary.valid + summary.test == summary.utterances


@pytest.mark.parametrize("name", ["atis", "snips"])
def test_the_digests_to_download_are_those_of_the_real_files(name: str) -> None:
    folder = real_corpus(name)
    for file, sha256 in public._PUBLISHED[name].files.items():
        assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == sha256


def test_the_rows_to_download_are_those_of_the_real_file() -> None:
    with open(real_corpus("nlu_eval") / "annotated.csv", encoding="utf-8", newline="") as file:
        rows = [tuple(row[column] for column in public.ROW) for row in csv.DictReader(file, delimiter=";")]
    published = public._PUBLISHED["nlu_eval"]
    assert public.digest_of_rows(rows) == published.rows_sha256
    names = {f"{scenario}_{intent}.csv" for scenario, intent, _ in rows}
    assert {Path(file).name for file in published.files} == names


def test_utterances_of_a_corpus_of_files_is_a_seeded_sample(tmp_path: Path) -> None:
    path = str(writers.jsonl(CORPUS, tmp_path))
    summary = check_corpus(CorpusSpec(name="mine", path=path, utterances=200))
    assert summary.utterances == pytest.approx(200, abs=30)
    first = load_corpus(CorpusSpec(name="mine", path=path, utterances=200))
    assert first == load_corpus(CorpusSpec(name="mine", path=path, utterances=200))
    assert set(first.train) <= set(CORPUS)
    with pytest.raises(UserError, match=r"corpus\.utterances = 301: mine has 300; allowed: at most that many"):
        load_corpus(CorpusSpec(name="mine", path=path, utterances=301))


def test_a_label_only_in_the_published_test_split_is_learned(tmp_path: Path) -> None:
    rare = Utterance(("only", "here"), ("O", "B-only"), "only_in_test")
    writers.three_file(CORPUS, tmp_path / "train")
    writers.three_file([rare], tmp_path / "test")
    assert rare in load_corpus(CorpusSpec(name="mine", path=str(tmp_path))).train


def test_the_digest_follows_content_sample_and_seed_but_not_the_place(tmp_path: Path) -> None:
    here, there = (writers.three_file(CORPUS, tmp_path / "here"), writers.three_file(CORPUS, tmp_path / "there"))
    spec = CorpusSpec(name="mine", path=str(here))
    digest = corpus_digest(spec)
    assert corpus_digest(spec.model_copy(update={"path": str(there), "name": "other"})) == digest
    assert corpus_digest(spec.model_copy(update={"format": "three_file"})) == digest
    variants = [spec.model_copy(update=update) for update in ({"seed": 1}, {"utterances": 100})]
    digests = {digest, *map(corpus_digest, variants)}
    with open(here / "label", "a", encoding="utf-8") as file:
        file.write("\n")
    digests.add(corpus_digest(spec))
    assert len(digests) == 4


def test_the_digest_of_a_generated_corpus_follows_name_number_and_seed() -> None:
    specs = [
        CorpusSpec(name="video"),
        CorpusSpec(name="video", utterances=100),
        CorpusSpec(name="video", seed=1),
        CorpusSpec(name="health"),
    ]
    assert len({corpus_digest(spec) for spec in specs}) == 4
    assert corpus_digest(specs[0]) == corpus_digest(CorpusSpec(name="video", utterances=10_000))


def test_the_published_split_is_as_the_corpus_has_it(tmp_path: Path) -> None:
    path = writers.three_file_published_splits([*CORPUS, *CORPUS[:3]], tmp_path)
    spec = CorpusSpec(name="mine", path=str(path), split="published")
    splits = load_corpus(spec)
    assert splits.test == CORPUS[:101]
    assert splits.train == CORPUS[101:202]
    assert splits.valid == [*CORPUS[202:], *CORPUS[:3]]  # three of which stand in test too
    assert corpus_digest(spec) != corpus_digest(spec.model_copy(update={"split": "paper"}))


def test_a_corpus_without_a_published_split_is_refused(tmp_path: Path) -> None:
    path = str(writers.jsonl(CORPUS, tmp_path / "one"))
    writers.three_file(CORPUS, tmp_path / "two" / "train")
    writers.three_file(CORPUS, tmp_path / "two" / "test")
    two = str(tmp_path / "two")
    for spec, said in (
        ({"name": "video"}, "video is a generated corpus, which has no published split; allowed: paper"),
        ({"name": "mine", "path": path}, "mine has no published split; allowed: paper"),
        ({"name": "mine", "path": two}, "mine lacks valid; allowed: paper"),
        ({"name": "mine", "path": two, "utterances": 30}, "mine has corpus.utterances = 30"),
    ):
        with pytest.raises(UserError, match=f"^corpus.split = published: {said}"):
            load_corpus(CorpusSpec.model_validate({**spec, "split": "published"}))


def test_the_digest_of_a_published_split_follows_which_file_is_in_which_part(tmp_path: Path) -> None:
    files = {name: writers.jsonl(CORPUS[n::4], tmp_path / name) for n, name in enumerate("abcd")}

    def digest(parts: str, split: str) -> str:
        root = tmp_path / f"{parts}{split}"
        for name, part in zip("abcd", parts.split(), strict=True):
            (root / part).mkdir(parents=True, exist_ok=True)
            (root / part / f"{name}.jsonl").write_bytes(files[name].read_bytes())
        return corpus_digest(CorpusSpec.model_validate({"name": "mine", "path": str(root), "split": split}))

    one, other = "test train train valid", "test test train valid"
    assert digest(one, "published") != digest(other, "published")
    assert digest(one, "paper") == digest(other, "paper"), "pooled"


def test_a_file_is_of_the_part_that_it_is_called_whatever_folder_it_lies_in(tmp_path: Path) -> None:
    for part, utterances in (("train", CORPUS[:200]), ("valid", CORPUS[200:220]), ("test", CORPUS[220:])):
        writers.jsonl(utterances, tmp_path / "made").rename(tmp_path / f"{part}.jsonl")
    (tmp_path / "train").mkdir()
    for part in ("train", "valid", "test"):
        (tmp_path / f"{part}.jsonl").rename(tmp_path / "train" / f"{part}.jsonl")
    splits = load_corpus(CorpusSpec(name="mine", path=str(tmp_path / "train"), split="published"))
    assert (splits.train, splits.valid, splits.test) == (CORPUS[:200], CORPUS[200:220], CORPUS[220:])


@pytest.mark.slow
def test_more_labels_than_a_model_could_learn_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text("text,intent\n" + "".join(f"say {n},i{n // 2}\nand {n},i{n // 2}\n" for n in range(20_002)))
    with pytest.raises(UserError, match=r"corpus: it has 10,001 intents, as .* allowed: at most 10,000"):
        check_corpus(CorpusSpec(name="mine", path=str(path)))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("mine.csv", "mine"),
        ("/data/our tickets (2026).jsonl", "our-tickets-2026"),
        ("corpora/sub/", "sub"),
        ("…", "corpus"),
        (f"{'x' * 200}.csv", "x" * 100),
    ],
)
def test_it_is_called_as_its_file_is(path: str, name: str) -> None:
    assert CorpusSpec.model_validate({"path": path}).name == name


def test_a_name_that_is_given_stays_and_without_a_path_there_must_be_one() -> None:
    assert CorpusSpec(name="ours", path="mine.csv").name == "ours"
    with pytest.raises(ValidationError, match="name"):
        CorpusSpec.model_validate({"path": None})
    with pytest.raises(ValidationError, match="name"):
        CorpusSpec.model_validate({"name": "not/one", "path": "mine.csv"})
