"""The public corpora: where each one is published, the digests that it must have, and how it is found.

The digests of ATIS and SNIPS are those of the files at the pinned commit. NLU-Evaluation-Data is published
as 128 files, one for an intent of its cross-validation fold 1; pinned is the digest of what is read from
them (`digest_of_rows`), computed from a copy of the rows and not from the 128 files themselves, of which
only some were compared.
"""

from __future__ import annotations

import csv
import hashlib
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from edp.spec import UserError
from trainables.corpora.converted import CONVERTED, FOLDER, find_converted, keep_converted
from trainables.corpora.text import read_text
from trainables.records.files import one_line
from trainables.spec import CorpusSpec

DATA_DIR = "EDP_DATA_DIR"
ROW = ("scenario", "intent", "answer_annotation")


@dataclass(frozen=True)
class PublicCorpus:
    """A published corpus: `files` maps a path under `url` to its SHA-256.

    `rows_sha256` is set where the files are CSV files whose rows become one file; they have no digests.
    """

    name: str
    url: str
    files: dict[str, str | None]
    rows_sha256: str | None = None


def _slot_gated(name: str, digests: tuple[str, ...]) -> PublicCorpus:
    commit = "61f0307c729b1fad479ef1de94aa5ac5dee601b0"
    files = [f"{split}/{file}" for split in ("train", "valid", "test") for file in ("seq.in", "seq.out", "label")]
    return PublicCorpus(
        name,
        f"https://raw.githubusercontent.com/MiuLab/SlotGated-SLU/{commit}/data/{name}",
        dict(zip(files, digests, strict=True)),
    )


_ATIS = (
    "3a670980841b21ab39088b2595efc17d487cdc45769c075a3e5f9458bba28c7f",
    "14c7131bd66562f797dbd7189bc7358f0cf354c6afb0785a9ab973c35b58f34c",
    "d0a771547665eecbdf9f96ea015ef07d1f6ee9f063e861020dafabb3c2a04377",
    "c7435b96e7948393608c34819628e863c5338f11ca68e8f896d2cc041d8e17f8",
    "83ccff3e36f83a993f8e5b5b82adf3256076f234abda4d784051381d7ac76922",
    "06957cfe6fdffac84f8280bc3a1f8ca85c85631b363817aa4543aac611f8addf",
    "4b2119fc59c37f9398c6605db435d4f467505009e6ee3e5af04fed09f39dc397",
    "a4690d6bceadc06876d1ff99bc401744aa981cb321e598ae12a3859d7be53254",
    "ce4bfe6590d9498e1078f30b4137d3e8b3e94277b444b26360c0bf2e9e282761",
)
_SNIPS = (
    "04ad1e3f2121d83c6478f9a4b17d2dbdc21d06d6127f73cb7af835ed733f9855",
    "fd5f2121d8055827e5d6b3d3bac30f3d7e94e82a5d437751960cbdd9e1b4f6d3",
    "bfd7df6cf9dd76c5da5d8b61bc85f90386197bdd3d7510c1d324c051537b962f",
    "64e0f6d8ad8aab3a3828164d7d53731a0993d3ca1aed437ceaca6d3d568d410e",
    "712e6d34feb8d52d208b820a5f8bae6e6ff990f08374507dfde22de389088319",
    "9c1dd041216f647bcfca838aaf1a48eb5781e4404256d31ff07cd38a5436c52f",
    "c1e341173fcea2951a8ca371956a6f81c76de87b9583c62eb87edd6158fa3a7c",
    "58c07c9097d5e1f78889765c2a535a160f6455b90b3142055c8051847afcca47",
    "37a26da3ad079bb41c42c85a3a8f827eb47efec4c5917ce5d08f4b2736e4f830",
)
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
_NLU_EVAL_ROWS = "b196d2de55b58f0512c1de8771638f3c5eddb3c5674ecb4bb10e85d380d01abd"
_NLU_EVAL_FILES: dict[str, str | None] = {
    f"{folder}/{scenario}_{intent}.csv": None
    for folder in ("trainset", "testset/csv")
    for scenario, intents in _NLU_EVAL_INTENTS.items()
    for intent in intents.split()
}
_PUBLISHED = {
    corpus.name: corpus
    for corpus in (
        _slot_gated("atis", _ATIS),
        _slot_gated("snips", _SNIPS),
        PublicCorpus(
            "nlu_eval",
            _NLU_EVAL_URL,
            dict(_NLU_EVAL_FILES),
            "b196d2de55b58f0512c1de8771638f3c5eddb3c5674ecb4bb10e85d380d01abd",
        ),
    )
}
DOWNLOADED: tuple[str, ...] = tuple(_PUBLISHED)
PUBLIC: tuple[str, ...] = (*DOWNLOADED, *CONVERTED)


def find_corpus(spec: CorpusSpec, field: str = "corpus") -> Path:
    """Where the files of a corpus are: `spec.path`, else in `$EDP_DATA_DIR`, else downloaded, once.

    Args:
        field: where the recipe names it, for what is said of it.

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
    """A corpus by its name in a folder of corpora, None where it is not there.

    Raises:
        UserError: for a converted file that is not the pinned one.
    """
    if name in CONVERTED:  # never whatever else is called so: what is public is so by its digest
        return find_converted(CONVERTED[name], folder / FOLDER)
    return folder / name if (folder / name).exists() else None


def keep(name: str, file: Path) -> Path:
    """Checks and keeps a converted file that is at hand, where `find_corpus` finds it.

    Raises:
        UserError: for a name of no converted corpus, or a file that is not the pinned one.
    """
    if name not in CONVERTED:
        raise UserError(f"corpus = {name!r}: --from takes a converted file; allowed: {', '.join(CONVERTED)}")
    return keep_converted(CONVERTED[name], file, user_cache_path("edp-sweeps"))


def fetch(corpus: PublicCorpus, cache: Path, field: str = "corpus") -> Path:
    """The corpus in `cache`, downloaded if it is not there.

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
    import pooch  # with requests, for which nobody waits who downloads nothing

    pooch.get_logger().setLevel("WARNING")  # it would report each of the 128 files of NLU-eval
    pooch.retrieve(
        url,
        known_hash=None if sha256 is None else f"sha256:{sha256}",
        fname=target.name,
        path=target.parent,
        downloader=pooch.HTTPDownloader(timeout=30),
    )


def _merge(files: Iterable[Path], rows_sha256: str, folder: Path) -> Path:
    """The annotated rows of all files as one file, sorted.

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
    """SHA-256 of rows of scenario, intent and annotation, whatever order and quoting a file has them in."""
    return hashlib.sha256("\n".join(";".join(row) for row in sorted(rows)).encode()).hexdigest()
