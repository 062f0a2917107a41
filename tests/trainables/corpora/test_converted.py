"""Converted corpora are found by name, with the pinned digest or not at all; who lacks one is told what to do."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest
import yaml

from edp.spec import UserError
from sweeps.config.loading import load_recipe
from tests.conftest import TINY_RECIPE, Command
from tests.support import writers
from tests.support.real_data import real_corpus
from trainables.config import CorpusSpec
from trainables.corpora import PUBLIC, corpus_digest, generate, load_corpus, public
from trainables.corpora.public import CONVERTED, ConvertedCorpus

CORPUS = generate("communication", 120, seed=2)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with nothing in it, an empty cache, and `little`, a converted corpus that is known."""
    content = writers.jsonl(CORPUS, tmp_path / "made").read_bytes()
    digests = {".jsonl.gz": gzip.compress(content, mtime=0), ".jsonl": content}
    sha256 = {suffix: hashlib.sha256(packed).hexdigest() for suffix, packed in digests.items()}
    corpus = ConvertedCorpus("little", "little_en", "someone/little/tree/abc", sha256)
    monkeypatch.setitem(CONVERTED, "little", corpus)
    monkeypatch.setattr("trainables.corpora.PUBLIC", (*PUBLIC, "little"))
    monkeypatch.setattr("sweeps.config.loading.PUBLIC", (*PUBLIC, "little"))
    monkeypatch.setattr("trainables.corpora.public.user_cache_path", lambda project: tmp_path / "cache")
    monkeypatch.setenv("EDP_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "data" / "public").mkdir(parents=True)
    return tmp_path / "data"


def write(folder: Path, suffix: str) -> Path:
    path = folder / f"little_en{suffix}"
    content = (folder.parents[1] / "made" / "corpus.jsonl").read_bytes()
    path.write_bytes(gzip.compress(content, mtime=0) if suffix == ".jsonl.gz" else content)
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_a_converted_corpus_is_found_by_its_name_packed_or_not(suffix: str, data: Path) -> None:
    path = write(data / "public", suffix)
    spec = CorpusSpec(name="little")
    assert public.find_corpus(spec) == path
    splits = load_corpus(spec)
    assert sorted(splits.train + splits.valid + splits.test) == sorted(CORPUS)


@pytest.mark.slow
def test_a_file_at_hand_is_kept_and_found_from_then_on(data: Path, command: Command) -> None:
    suffix = ".jsonl.gz"
    path = write(data / "public", suffix)
    path = path.rename(data / "anything")
    code, said, err = command("data", "fetch", "little", "--from", str(path))
    assert code == 0, err
    kept = data.parent / "cache" / "public" / f"little_en{suffix}"
    assert said == f"little: {kept}\n"
    path.unlink()
    assert public.find_corpus(CorpusSpec(name="little")) == kept
    assert [file.name for file in kept.parent.iterdir()] == [kept.name]


def test_a_file_with_another_digest_is_refused_and_not_kept(data: Path, command: Command) -> None:
    path = write(data / "public", ".jsonl")
    path.write_bytes(path.read_bytes() + b"\n")
    wrong = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(
        UserError, match=rf"little_en\.jsonl: SHA-256 {wrong} is not that of corpus little: it was made from"
    ):
        public.find_corpus(CorpusSpec(name="little"))
    code, said, error = command("data", "fetch", "little", "--from", str(path))
    assert (code, said) == (2, "")
    assert wrong in error
    assert not (data.parent / "cache").exists()


def test_what_is_nowhere_ends_in_one_line_that_says_where_it_is_and_what_it_must_be(
    data: Path, command: Command
) -> None:
    code, said, error = command("data", "fetch", "clinc150")
    assert (code, said) == (2, "")
    assert error.strip().count("\n") == 0
    assert "https://github.com/clinc/oos-eval/tree/828f8093932c8fe6ca7936c3d2e52903b1c523de" in error
    assert "clinc_oos.jsonl.gz with SHA-256 9faeca411a2b2763a8315a5f7e2db735f07095578cccb95a6a2ba8aa1af9c41b" in error
    assert "edp-sweep data fetch clinc150 --from FILE" in error


@pytest.mark.slow
def test_from_takes_one_converted_corpus(data: Path, command: Command) -> None:
    path = write(data / "public", ".jsonl")
    for names, says in (
        (["atis"], "corpus = 'atis': --from takes a converted file; allowed: sgd, clinc150"),
        ([], "allowed: together with exactly one name"),
        (["little", "sgd"], "allowed: together with exactly one name"),
        (["litle"], "corpus = 'litle': allowed: atis, "),
    ):
        code, _, error = command("data", "fetch", *names, "--from", str(path))
        assert code == 2
        assert says in error
    code, _, error = command("data", "fetch", "little", "--from", str(data / "nowhere"))
    assert code == 2
    assert "nowhere: cannot be read: No such file or directory" in error


def test_it_is_looked_for_beside_the_private_corpus_too(data: Path, tmp_path: Path) -> None:
    path = write(data / "public", ".jsonl.gz")
    private = writers.jsonl(CORPUS, data / "mine")
    recipe = yaml.safe_load(TINY_RECIPE)
    recipe["corpus"] = {"name": "mine", "path": str(private.parent)}
    recipe["shadow"]["corpus"] = {"name": "little"}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    _, read = load_recipe(str(tmp_path / "recipe.yaml"), [])
    assert read.shadow.corpus.path == str(path)


@pytest.mark.parametrize("name", CONVERTED)
def test_a_real_converted_corpus_is_the_pinned_one_packed_and_unpacked(name: str) -> None:
    path, corpus = real_corpus(name), CONVERTED[name]
    content = path.read_bytes() if path.suffix == ".jsonl" else gzip.decompress(path.read_bytes())
    assert hashlib.sha256(content).hexdigest() == corpus.sha256[".jsonl"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == corpus.sha256["".join(path.suffixes)]
    assert path.name.removesuffix("".join(path.suffixes)) == corpus.stem
    assert corpus_digest(CorpusSpec(name=name, path=str(path), utterances=100))
