"""Downloading: whole and with the pinned digests, or one clear line and nothing left behind."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path

import pooch
import pytest

from edp.spec import UserError
from tests.support import writers
from trainables.config import CorpusSpec
from trainables.corpora import generate, public, read_corpus
from trainables.corpora.public import PublicCorpus, digest_of_rows, fetch, find_corpus

CORPUS = generate("health", 60, seed=0)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and the address it is served at."""
    folder = tmp_path / "served"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("EDP_DATA_DIR", raising=False)
    monkeypatch.setattr("trainables.corpora.public.user_cache_path", lambda project: tmp_path / "cache")
    return tmp_path / "cache"


def publish(folder: Path, url: str, name: str = "little") -> PublicCorpus:
    writers.three_file_published_splits(CORPUS, folder)
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    digests = {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    return PublicCorpus(name, url, dict(digests))


def test_files_with_the_pinned_digests_are_fetched_once(served: tuple[Path, str], cache: Path) -> None:
    corpus = publish(*served)
    path = fetch(corpus, cache)
    assert read_corpus(path, "auto") == CORPUS
    assert [child.name for child in cache.iterdir()] == [path.name]
    (served[0] / "train" / "seq.in").unlink()
    assert fetch(corpus, cache) == path


def test_a_file_with_another_digest_is_refused(served: tuple[Path, str], cache: Path) -> None:
    corpus = publish(*served)
    (served[0] / "valid" / "label").write_text("tampered\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"corpus little: .* does not match the known hash") as caught:
        fetch(corpus, cache)
    assert "\n" not in str(caught.value)
    assert list(cache.iterdir()) == []


def test_a_server_that_is_down_ends_in_one_line_that_says_what_to_do(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = PublicCorpus("atis", "http://127.0.0.1:9", {"train/seq.in": "0" * 64})
    monkeypatch.setitem(public._PUBLISHED, "atis", down)
    with pytest.raises(UserError) as caught:
        find_corpus(CorpusSpec(name="atis"))
    text = str(caught.value)
    assert text.startswith("corpus atis: corpus.path is not set, it is not in EDP_DATA_DIR (not set), and")
    assert text.endswith("set corpus.path to a copy of it, or EDP_DATA_DIR to a folder with atis/")
    assert "\n" not in text
    assert list(cache.iterdir()) == []


def test_the_rows_of_many_files_become_one_whatever_their_order(served: tuple[Path, str], cache: Path) -> None:
    folder, url = served
    half = len(CORPUS) // 2
    for name, piece in (("one", CORPUS[:half]), ("two", CORPUS[half:])):
        writers.nlu_eval(piece, folder / name)
    files = {"two/annotated.csv": None, "one/annotated.csv": None}
    rows = [(*utterance.intent.split("_", 1), writers.annotation(utterance)) for utterance in reversed(CORPUS)]
    path = fetch(PublicCorpus("many", url, dict(files), digest_of_rows(rows)), cache)
    assert sorted(read_corpus(path, "auto")) == sorted(CORPUS)
    with pytest.raises(UserError, match=r"the rows have SHA-256"):
        fetch(PublicCorpus("many", url, dict(files), digest_of_rows(rows[1:])), cache)
    assert [child.name for child in cache.iterdir()] == [path.name]


def test_a_path_comes_before_the_data_folder_and_the_data_folder_before_a_download(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, shared = tmp_path / "own", tmp_path / "shared"
    writers.three_file(CORPUS, own)
    writers.three_file(CORPUS, shared / "atis")
    monkeypatch.setenv("EDP_DATA_DIR", str(shared))
    assert find_corpus(CorpusSpec(name="atis", path=str(own))) == own
    assert find_corpus(CorpusSpec(name="atis")) == shared / "atis"
    assert not cache.exists()


def test_a_path_that_is_not_there_is_no_reason_to_look_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"corpus.path = .*nowhere: there is no such file or folder"):
        find_corpus(CorpusSpec(name="atis", path=str(tmp_path / "nowhere")))


def test_an_unknown_name_without_a_path_lists_the_known_ones(cache: Path) -> None:
    with pytest.raises(UserError, match=r"corpus\.name = atsi is unknown .* atis, snips, nlu_eval"):
        find_corpus(CorpusSpec(name="atsi"))


def test_the_registry_is_one_that_pooch_reads() -> None:
    pins = pooch.create(path="", base_url="")
    with files("trainables.corpora").joinpath("data", "registry.txt").open("rb") as file:
        pins.load_registry(file)
    assert pins.registry == public._pinned("")
    assert {name.partition("/")[0] for name in pins.registry} == {"atis", "snips", "public"}
