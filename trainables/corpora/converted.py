"""Public corpora that are read as converted files, `NAME.jsonl.gz` or the same unpacked: one utterance a line, all
published splits pooled, English, lower-case, distinct.

Pinned are the digests of the converted files. Those of the files that they were made of are not known, so nothing is
downloaded: a converted file is put into `$EDP_DATA_DIR/public`, or kept by `edp-sweep data fetch NAME --from FILE`.

A corpus of intents alone has the tag `O` throughout; one of slots alone has one intent for all.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from edp.spec import UserError
from trainables.corpora.text import problem
from trainables.records.files import atomic_write, why_not

FOLDER = "public"


@dataclass(frozen=True)
class ConvertedCorpus:
    """A corpus as one file: `stem` is its name without suffixes, `origin` the repository and commit it was made of."""

    name: str
    stem: str
    origin: str
    sha256: dict[str, str]
    """By suffix: packed, and unpacked."""

    def path(self, folder: Path, suffix: str) -> Path:
        """Where the file is in a folder of converted ones."""
        return folder / f"{self.stem}{suffix}"

    def where(self) -> str:
        """Where it comes from, and what the converted file must be."""
        files = " or ".join(f"{self.stem}{suffix} with SHA-256 {sha256}" for suffix, sha256 in self.sha256.items())
        return (
            f"it was made of https://github.com/{self.origin}; needed is {files}, "
            f"in {FOLDER}/ of EDP_DATA_DIR or by edp-sweep data fetch {self.name} --from FILE"
        )


def _corpus(name: str, stem: str, origin: str, packed: str, unpacked: str) -> ConvertedCorpus:
    return ConvertedCorpus(name, stem, origin, {".jsonl.gz": packed, ".jsonl": unpacked})


_SLU = "sz128/slot_filling_and_intent_detection_of_SLU/tree/40f334417a93bcfd4bb3da2cf043ab13973ae695"
_POLYAI = "PolyAI-LDN/task-specific-datasets/tree/57ec275d8078af65b7731c2a98be812d844a6d6b"
CONVERTED = {
    corpus.name: corpus
    for corpus in (
        _corpus(
            "sgd",
            "sgd_user",
            "google-research-datasets/dstc8-schema-guided-dialogue/tree/e852981ae34990f4358979625854259302feaa78",
            "bddc64f059e25ab93573a897f4eeb2822e20f95a5ea23858f3cd39c91ae4572d",
            "8a6fd3eea086d07177afa1b1f0204e11c01a8232dc77fcfa95efc859153a6d1f",
        ),
        _corpus(
            "clinc150",
            "clinc_oos",
            "clinc/oos-eval/tree/828f8093932c8fe6ca7936c3d2e52903b1c523de",
            "9faeca411a2b2763a8315a5f7e2db735f07095578cccb95a6a2ba8aa1af9c41b",
            "f87ff1a9cf92ab9f5b9083b4722fa72d5d5f9f1f1401b3e8863673040850957a",
        ),
        _corpus(
            "banking77",
            "banking77",
            _POLYAI,
            "9e06d5f155c637d7cc83bc76d7fa798a2fd6defb4fef58afff30529908193689",
            "09625fb6440dc9c50cc34fc609383bf2fbe4c01eb2501d01bee65d36edfa72e1",
        ),
        _corpus(
            "restaurant8k",
            "restaurant8k",
            _POLYAI,
            "39b476a9e2ebadf42a4dad28e32a1bca9dcc0909d5a3ffb7b7eb3926ad7c8787",
            "e8f69a6467b86a5ac36368f2736a57acf85dd693b9d2123986865f5cf33110af",
        ),
        _corpus(
            "mit_restaurant",
            "mit_restaurant",
            _SLU,
            "fd3edefd680a8058ed651024d29e264c2b7d33da16200933a6d123eb7876d277",
            "0c1f68ce2f575c4a698c3bcd25af1714be23dc1769c2a550ac88d3b5b6c00802",
        ),
        _corpus(
            "mit_movie",
            "mit_movie_eng",
            _SLU,
            "776e109157b0c680835cfdc9537ccf2095f464dd6a79a186b01ec1ea691655ab",
            "0bccede52082e6314098601321daccc5f64671dc22a6367ddfc2c46c5b75f746",
        ),
        _corpus(
            "mit_movie_trivia",
            "mit_movie_trivia10k13",
            _SLU,
            "e352b4c59b7de6ce573d0b230df32e8be56312df548e1377dfeed41af2d4011b",
            "634771582fe90834ee4250ad0e94d36f784118cc3857a4ea49948a92dcbe8f61",
        ),
        _corpus(
            "fb_multilingual",
            "fb_multilingual_en",
            _SLU,
            "187a830d45a6e4cb19df4ff2de960b92488ab1043987db99e94265b30e8d89d0",
            "0c67b2162361deed98424ef106182cdc68b293e411875f849cecb1a2750140bb",
        ),
    )
}


def find_converted(corpus: ConvertedCorpus, folder: Path) -> Path | None:
    """The converted file in a folder of them, None where there is none.

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
    """Copies a converted file to where it is found from then on, whole or not at all.

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
    """The file's content, and the suffix of what it is."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise problem(path, None, f"cannot be read: {error.strerror}") from None
    digest = hashlib.sha256(content).hexdigest()
    for suffix, sha256 in corpus.sha256.items():
        if digest == sha256:
            return content, suffix
    raise problem(path, None, f"SHA-256 {digest} is not that of corpus {corpus.name}: {corpus.where()}")
