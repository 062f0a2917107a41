"""The public corpora: where each one is published, the digests that it must have, and how it is found.

Digests are in `data/registry.txt`, in the form of a pooch registry: of ATIS and SNIPS those of the files at the pinned
commit, of converted corpora those of the converted file. NLU-Evaluation-Data is published as 128 files, one for an
intent of its cross-validation fold 1; pinned is the digest of what is read from them (`digest_of_rows`), computed from
a copy of the rows and not from the 128 files themselves, of which only some were compared.
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
from trainables.corpora.files import problem, read_text
from trainables.records.files import atomic_write, one_line, why_not

DATA_DIR = "EDP_DATA_DIR"
FOLDER = "public"
"""Where converted corpora lie, in `$EDP_DATA_DIR` and in the cache."""
ROW = ("scenario", "intent", "answer_annotation")
_REGISTRY = files("trainables.corpora").joinpath("data", "registry.txt")


def _pinned(prefix: str) -> dict[str, str]:
    """Return the SHA-256 of each file in the registry whose name begins with `prefix`, by the rest of its name."""
    # pooch reads the same file, but takes a sixth of a second to import.
    pins = dict(line.split() for line in _REGISTRY.read_text(encoding="utf-8").splitlines())
    return {name.removeprefix(prefix): sha256 for name, sha256 in pins.items() if name.startswith(prefix)}


@dataclass(frozen=True)
class PublicCorpus:
    """A published corpus: `files` maps a path under `url` to its SHA-256.

    `rows_sha256` is set where the files are CSV files whose rows become one file; they have no digests.
    """

    name: str
    url: str
    files: dict[str, str | None]
    rows_sha256: str | None = None


def _slot_gated(name: str) -> PublicCorpus:
    commit = "61f0307c729b1fad479ef1de94aa5ac5dee601b0"
    url = f"https://raw.githubusercontent.com/MiuLab/SlotGated-SLU/{commit}/data/{name}"
    return PublicCorpus(name, url, {**_pinned(f"{name}/")})


_NLU_EVAL_URL = (
    "https://raw.githubusercontent.com/xliuhw/NLU-Evaluation-Data/4356cd6db2c7d8cb21789d6203e57c580a91de44/"
    "CrossValidation/autoGeneFromRealAnno/autoGene_2018_03_22-13_01_25_169/CrossValidation/KFold_1"
)
_NLU_EVAL_INTENTS = {
    "alarm": "query remove set",
    "audio": "volume_down volume_mute volume_up",
    "calendar": "query remove set",
    "cooking": "recipe",
    "datetime": "convert query",
    "email": "addcontact query querycontact sendemail",
    "general": "affirm commandstop confirm dontcare explain joke negate praise quirky repeat",
    "iot": "cleaning coffee hue_lightchange hue_lightdim hue_lightoff hue_lighton hue_lightup wemo_off wemo_on",
    "lists": "createoradd query remove",
    "music": "likeness query settings",
    "news": "query",
    "play": "audiobook game music podcasts radio",
    "qa": "currency definition factoid maths stock",
    "recommendation": "events locations movies",
    "social": "post query",
    "takeaway": "order query",
    "transport": "query taxi ticket traffic",
    "weather": "query",
}
_NLU_EVAL = PublicCorpus(
    "nlu_eval",
    _NLU_EVAL_URL,
    {
        f"{folder}/{scenario}_{intent}.csv": None
        for folder in ("trainset", "testset/csv")
        for scenario, intents in _NLU_EVAL_INTENTS.items()
        for intent in intents.split()
    },
    "b196d2de55b58f0512c1de8771638f3c5eddb3c5674ecb4bb10e85d380d01abd",
)
_PUBLISHED = {corpus.name: corpus for corpus in (_slot_gated("atis"), _slot_gated("snips"), _NLU_EVAL)}


@dataclass(frozen=True)
class ConvertedCorpus:
    """A corpus in one file, `STEM.jsonl.gz` or the same unpacked.

    It has one utterance a line, all published splits pooled, English, lower-case, distinct. A corpus of intents alone
    has the tag `O` throughout; one of slots alone has one intent for all. The digests of the files that it was made of
    are not known, so nothing is downloaded.
    """

    name: str
    stem: str
    origin: str
    """The repository and commit that it was made of."""
    sha256: dict[str, str]
    """By suffix: packed, and unpacked."""

    def path(self, folder: Path, suffix: str) -> Path:
        """Return the path of the file in a folder of converted ones."""
        return folder / f"{self.stem}{suffix}"

    def where(self) -> str:
        """Say where it comes from, and what the converted file must be."""
        files = " or ".join(f"{self.stem}{suffix} with SHA-256 {sha256}" for suffix, sha256 in self.sha256.items())
        return (
            f"it was made of https://github.com/{self.origin}; needed is {files}, "
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
    """Return where a corpus is: `spec.path`, else in `$EDP_DATA_DIR`, else downloaded, once.

    Args:
        field: the recipe's name of the corpus, for error messages.

    Raises:
        UserError: for a path that is not there, an unknown name, a converted file that is not there or not the pinned
            one, or a download that fails.
    """
    if spec.path is not None:
        path = Path(spec.path).expanduser()
        if not path.exists():
            raise UserError(f"{field}.path = {spec.path}: there is no such file or folder; allowed: one that is there")
        return path
    folder = os.environ.get(DATA_DIR)
    if folder and (found := corpus_in(Path(folder), spec.name)) is not None:
        return found
    cache = user_cache_path("edp-sweeps")
    if spec.name in CONVERTED:
        corpus = CONVERTED[spec.name]
        kept = find_converted(corpus, cache / FOLDER)
        if kept is None:
            raise UserError(
                f"{field} {spec.name}: {field}.path is not set, and it is not in {DATA_DIR} "
                f"({f'= {folder}' if folder else 'not set'}); {corpus.where()}"
            )
        return kept
    if spec.name not in _PUBLISHED:
        raise UserError(
            f"{field}.name = {spec.name} is unknown and has no path; "
            f"allowed: {', '.join(PUBLIC)}, a generated corpus, or any name with {field}.path"
        )
    return fetch(_PUBLISHED[spec.name], cache, field)


def corpus_in(folder: Path, name: str) -> Path | None:
    """Return a corpus by its name in a folder of corpora, None if it is not there.

    Raises:
        UserError: for a converted file that is not the pinned one.
    """
    if name in CONVERTED:  # never whatever else is called so: what is public is so by its digest
        return find_converted(CONVERTED[name], folder / FOLDER)
    return folder / name if (folder / name).exists() else None


def keep(name: str, file: Path) -> Path:
    """Check a converted file, and copy it to where `find_corpus` finds it.

    Raises:
        UserError: for a name of no converted corpus, or a file that is not the pinned one.
    """
    if name not in CONVERTED:
        raise UserError(f"corpus = {name!r}: --from takes a converted file; allowed: {', '.join(CONVERTED)}")
    return keep_converted(CONVERTED[name], file, user_cache_path("edp-sweeps"))


def fetch(corpus: PublicCorpus, cache: Path, field: str = "corpus") -> Path:
    """Return the corpus in `cache`, downloaded if it is not there.

    It appears there whole and with the right digests or not at all, also when several processes fetch it
    at once.

    Args:
        field: as for `find_corpus`.

    Raises:
        UserError: for a download that fails, and for files that are not those that were pinned.
    """
    target = cache / f"{corpus.name}-{_pin(corpus)[:16]}"
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
                if not target.is_dir():  # another process was first otherwise
                    raise
    except (OSError, ValueError) as error:  # those of requests are OSErrors
        folder = os.environ.get(DATA_DIR)
        raise UserError(
            f"{field} {corpus.name}: {field}.path is not set, it is not in {DATA_DIR} "
            f"({f'= {folder}' if folder else 'not set'}), and it could not be downloaded from {corpus.url} "
            f"({one_line(error)}); "
            f"set {field}.path to a copy of it, or {DATA_DIR} to a folder with {corpus.name}/"
        ) from None
    return target


def _pin(corpus: PublicCorpus) -> str:
    return hashlib.sha256(repr((corpus.files, corpus.rows_sha256)).encode()).hexdigest()


def _download(url: str, sha256: str | None, target: Path) -> None:
    import pooch  # slow to import, and needed for downloads alone

    pooch.get_logger().setLevel("WARNING")  # it would report each of the 128 files of NLU-eval
    pooch.retrieve(
        url,
        known_hash=None if sha256 is None else f"sha256:{sha256}",
        fname=target.name,
        path=target.parent,
        downloader=pooch.HTTPDownloader(timeout=30),
    )


def _merge(files: Iterable[Path], rows_sha256: str, folder: Path) -> Path:
    """Write the annotated rows of all files into one file, sorted, and return its folder.

    Raises:
        ValueError: for rows other than those that were pinned.
    """
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
    """Return the SHA-256 of rows of scenario, intent and annotation, which does not depend on order and quoting."""
    return hashlib.sha256("\n".join(";".join(row) for row in sorted(rows)).encode()).hexdigest()


def find_converted(corpus: ConvertedCorpus, folder: Path) -> Path | None:
    """Return the converted file in a folder of them, None if there is none.

    Raises:
        UserError: for a file with another digest than the pinned one.
    """
    for suffix in corpus.sha256:
        path = corpus.path(folder, suffix)
        if path.is_file():
            _checked(corpus, path)
            return path
    return None


def keep_converted(corpus: ConvertedCorpus, file: Path, cache: Path) -> Path:
    """Copy a converted file to where it is found from then on, whole or not at all.

    Raises:
        UserError: for a file that cannot be read, has another digest than the pinned one, or cannot be kept.
    """
    content, suffix = _checked(corpus, file)
    kept = corpus.path(cache / FOLDER, suffix)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(kept) as partial:
            partial.write_bytes(content)
    except OSError as error:
        raise UserError(f"--from = {file}: it cannot be kept in {kept.parent} ({why_not(error)})") from None
    return kept


def _checked(corpus: ConvertedCorpus, path: Path) -> tuple[bytes, str]:
    """Return the file's content and the suffix that its digest is pinned for.

    Raises:
        UserError: for a file that cannot be read, or has no pinned digest.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise problem(path, None, f"cannot be read: {error.strerror}") from None
    digest = hashlib.sha256(content).hexdigest()
    for suffix, sha256 in corpus.sha256.items():
        if digest == sha256:
            return content, suffix
    raise problem(path, None, f"SHA-256 {digest} is not that of corpus {corpus.name}: {corpus.where()}")
