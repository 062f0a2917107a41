"""The public corpora: where each is published, which digests it must have, and how it is found.

`data/registry.txt` holds the digests in the form of a pooch registry: of the files of ATIS and SNIPS at the pinned
commit, and of each converted corpus. NLU-Evaluation-Data is published as 128 files, two for each intent, of which fold
1 of its cross-validation is used. Here the digest of the rows is pinned (`digest_of_rows`). It was computed from a copy
of the rows; only some of the 128 files were compared with that copy.
"""

from __future__ import annotations

import csv
import hashlib
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from platformdirs import user_cache_path

from edp.spec import UserError
from trainables.config import CorpusSpec
from trainables.corpora.files import opening, problem, read_text, refuse_known
from trainables.corpora.schema import schema_path
from trainables.records.files import atomic_write, one_line, why_not

DATA_DIR = "EDP_DATA_DIR"
FOLDER = "public"
"""The folder of converted corpora, in `$EDP_DATA_DIR` and in the cache."""
ROW = ("scenario", "intent", "answer_annotation")


def _data(name: str) -> list[list[str]]:
    """Return the words of each line of a file in `data/`."""
    text = files(__package__).joinpath("data", name).read_text(encoding="utf-8")
    return [line.split() for line in text.splitlines()]


def _pinned(prefix: str) -> dict[str, str]:
    """Return the SHA-256 of the files in the registry whose names begin with `prefix`, by the rest of the name."""
    # pooch could read this file, but takes a sixth of a second to import.
    pins = _data("registry.txt")
    return {name.removeprefix(prefix): sha256 for name, sha256 in pins if name.startswith(prefix)}


@dataclass(frozen=True)
class PublicCorpus:
    """A published corpus: `files` maps a path under `url` to its SHA-256.

    If `rows_sha256` is set, the files are CSV files without digests, whose rows become one file with that digest.
    """

    name: str
    url: str
    files: dict[str, str | None]
    rows_sha256: str | None = None


def _slot_gated(name: str) -> PublicCorpus:
    commit = "61f0307c729b1fad479ef1de94aa5ac5dee601b0"
    url = f"https://raw.githubusercontent.com/MiuLab/SlotGated-SLU/{commit}/data/{name}"
    return PublicCorpus(name, url, dict(_pinned(f"{name}/")))


_NLU_EVAL_URL = (
    "https://raw.githubusercontent.com/xliuhw/NLU-Evaluation-Data/4356cd6db2c7d8cb21789d6203e57c580a91de44/"
    "CrossValidation/autoGeneFromRealAnno/autoGene_2018_03_22-13_01_25_169/CrossValidation/KFold_1"
)
_NLU_EVAL = PublicCorpus(
    "nlu_eval",
    _NLU_EVAL_URL,
    {
        f"{folder}/{scenario}_{intent}.csv": None
        for folder in ("trainset", "testset/csv")
        for scenario, *intents in _data("nlu_eval.txt")
        for intent in intents
    },
    "b196d2de55b58f0512c1de8771638f3c5eddb3c5674ecb4bb10e85d380d01abd",
)
_PUBLISHED = {corpus.name: corpus for corpus in (_slot_gated("atis"), _slot_gated("snips"), _NLU_EVAL)}


@dataclass(frozen=True)
class ConvertedCorpus:
    """A corpus that was converted to one file, `STEM.jsonl.gz` or the same unpacked.

    The file has one utterance per line, English, lower-case and distinct, with all published splits pooled. A corpus
    that has only intents has the tag `O` throughout; one that has only slots has one intent. The digests of the
    original files are not known, so nothing is downloaded.
    """

    name: str
    stem: str
    origin: str
    """The repository and commit that it was made from."""
    sha256: dict[str, str]
    """The digests of the packed and the unpacked file, by suffix."""

    def where(self) -> str:
        """Return a text on where the corpus comes from, and which converted file is needed."""
        files = " or ".join(f"{self.stem}{suffix} with SHA-256 {sha256}" for suffix, sha256 in self.sha256.items())
        return (
            f"it was made from https://github.com/{self.origin}; needed: {files}, "
            f"in {FOLDER}/ of EDP_DATA_DIR or by edp-sweep data fetch {self.name} --from FILE"
        )


def _converted(name: str, stem: str, origin: str) -> ConvertedCorpus:
    return ConvertedCorpus(name, stem, origin, {f".{end}": sha for end, sha in _pinned(f"{FOLDER}/{stem}.").items()})


_SLU = "sz128/slot_filling_and_intent_detection_of_SLU/tree/40f334417a93bcfd4bb3da2cf043ab13973ae695"
_POLYAI = "PolyAI-LDN/task-specific-datasets/tree/57ec275d8078af65b7731c2a98be812d844a6d6b"
_SGD = "google-research-datasets/dstc8-schema-guided-dialogue/tree/e852981ae34990f4358979625854259302feaa78"
CONVERTED = {
    corpus.name: corpus
    for corpus in (
        _converted("sgd", "sgd_user", _SGD),
        _converted("clinc150", "clinc_oos", "clinc/oos-eval/tree/828f8093932c8fe6ca7936c3d2e52903b1c523de"),
        _converted("banking77", "banking77", _POLYAI),
        _converted("restaurant8k", "restaurant8k", _POLYAI),
        _converted("mit_restaurant", "mit_restaurant", _SLU),
        _converted("mit_movie", "mit_movie_eng", _SLU),
        _converted("mit_movie_trivia", "mit_movie_trivia10k13", _SLU),
        _converted("fb_multilingual", "fb_multilingual_en", _SLU),
    )
}
DOWNLOADED: tuple[str, ...] = tuple(_PUBLISHED)
PUBLIC: tuple[str, ...] = (*DOWNLOADED, *CONVERTED)


def find_corpus(spec: CorpusSpec, field: str = "corpus") -> Path:
    """Return the path of a corpus: `spec.path`, or else in `$EDP_DATA_DIR`, or else in the cache, after a download.

    Raises:
        UserError: for a missing path, an unknown name, a converted file that is missing or not the pinned one, or a
            download that fails.
    """
    if spec.path is not None:
        path = schema_path(spec.path) if spec.format == "schema" else Path(spec.path).expanduser()
        if not path.exists():
            raise UserError(f"{field}.path = {spec.path}: there is no such file or folder; allowed: one that exists")
        return path
    folder = os.environ.get(DATA_DIR)
    if folder and (found := corpus_in(Path(folder), spec.name)) is not None:
        return found
    cache = user_cache_path("edp-sweeps")
    if spec.name in CONVERTED:
        if (found := corpus_in(cache, spec.name)) is not None:
            return found
        raise UserError(
            f"{field} {spec.name}: {field}.path is not set, and it is not in {DATA_DIR} "
            f"({f'= {folder}' if folder else 'not set'}); {CONVERTED[spec.name].where()}"
        )
    if spec.name not in _PUBLISHED:
        raise UserError(
            f"{field}.name = {spec.name} is unknown and has no path; "
            f"allowed: {', '.join(PUBLIC)}, a generated corpus, or any name with {field}.path"
        )
    return fetch(_PUBLISHED[spec.name], cache, field)


def corpus_in(folder: Path, name: str) -> Path | None:
    """Return the path of a corpus in a folder of corpora, None if it is not there.

    Raises:
        UserError: for a converted file that is not the pinned one.
    """
    if name not in CONVERTED:
        return folder / name if (folder / name).exists() else None
    # Another file with this name does not count: only the digest shows that a file is the public corpus.
    corpus = CONVERTED[name]
    paths = (folder / FOLDER / f"{corpus.stem}{suffix}" for suffix in corpus.sha256)
    path = next((path for path in paths if path.is_file()), None)
    if path is not None:
        _checked(corpus, path)
    return path


def keep(name: str, file: Path) -> Path:
    """Check a converted file, and copy it into the cache, where `find_corpus` finds it.

    Raises:
        UserError: for a name that is not a converted corpus, or a file that cannot be read or copied, or is not the
            pinned one.
    """
    if name not in CONVERTED:
        raise UserError(f"corpus = {name!r}: --from takes a converted file; allowed: {', '.join(CONVERTED)}")
    content, suffix = _checked(CONVERTED[name], file)
    kept = user_cache_path("edp-sweeps") / FOLDER / f"{CONVERTED[name].stem}{suffix}"
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(kept) as partial:
            partial.write_bytes(content)
    except OSError as error:
        raise UserError(f"--from = {file}: it cannot be copied to {kept.parent} ({why_not(error)})") from None
    return kept


def fetch(corpus: PublicCorpus, cache: Path, field: str = "corpus") -> Path:
    """Return the folder of a corpus in `cache`, downloaded if it is not there.

    It appears there whole and with the right digests or not at all, even if several processes fetch it at once.

    Raises:
        UserError: for a download that fails, or files that are not the pinned ones.
    """
    pin = hashlib.sha256(repr((corpus.files, corpus.rows_sha256)).encode()).hexdigest()
    target = cache / f"{corpus.name}-{pin[:16]}"
    if target.is_dir():
        return target
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=f".{corpus.name}-") as scratch:
            whole = Path(scratch) / "whole"
            for name, sha256 in corpus.files.items():
                _download(f"{corpus.url}/{name}", sha256, whole / name)
            if corpus.rows_sha256 is not None:
                whole = _merge([whole / name for name in corpus.files], corpus.rows_sha256, Path(scratch) / "merged")
            try:
                whole.rename(target)
            except OSError:
                if not target.is_dir():  # if it is there, another process was faster
                    raise
    except (OSError, ValueError) as error:  # errors of requests are OSErrors
        folder = os.environ.get(DATA_DIR)
        raise UserError(
            f"{field} {corpus.name}: {field}.path is not set, it is not in {DATA_DIR} "
            f"({f'= {folder}' if folder else 'not set'}), and it could not be downloaded from {corpus.url} "
            f"({one_line(error)}); "
            f"set {field}.path to a copy of it, or {DATA_DIR} to a folder with {corpus.name}/"
        ) from None
    return target


def _download(url: str, sha256: str | None, target: Path) -> None:
    """Download a file, and check its digest if one is given."""
    import pooch  # slow to import, and needed only for downloads

    pooch.get_logger().setLevel("WARNING")  # it would report each of the 128 files of NLU-eval
    pooch.retrieve(
        url,
        known_hash=None if sha256 is None else f"sha256:{sha256}",
        fname=target.name,
        path=target.parent,
        downloader=pooch.HTTPDownloader(timeout=30),
    )


def _merge(files: Iterable[Path], rows_sha256: str, folder: Path) -> Path:
    """Write the annotated rows of all files into one file, sorted, and return its folder."""
    rows: list[tuple[str, ...]] = []
    for file in files:
        for row in csv.DictReader(read_text(file).split("\n"), delimiter=";"):
            rows.append(tuple((row.get(column) or "").strip() for column in ROW))
    rows.sort()
    if digest_of_rows(rows) != rows_sha256:
        raise ValueError(f"the rows have SHA-256 {digest_of_rows(rows)}, pinned is {rows_sha256}")
    folder.mkdir()
    with open(folder / "annotated.csv", "w", encoding="utf-8", newline="") as sink:
        writer = csv.writer(sink, delimiter=";", lineterminator="\n")
        writer.writerows([ROW, *rows])
    return folder


def digest_of_rows(rows: Iterable[tuple[str, ...]]) -> str:
    """Return the SHA-256 of rows of scenario, intent and annotation, whatever their order and quoting."""
    return hashlib.sha256("\n".join(";".join(row) for row in sorted(rows)).encode()).hexdigest()


def _checked(corpus: ConvertedCorpus, path: Path) -> tuple[bytes, str]:
    """Return the file's content and the suffix that its digest is pinned for."""
    with opening(path):
        content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    for suffix, sha256 in corpus.sha256.items():
        if digest == sha256:
            return content, suffix
    refuse_known(path, content)
    raise problem(path, None, f"SHA-256 {digest} is not that of corpus {corpus.name}: {corpus.where()}")
