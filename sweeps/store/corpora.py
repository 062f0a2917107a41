"""The digests of the corpora that a sweep or a training began on, in its folder.

The files of a corpus may change. A command that resumes a sweep, retrains a trial or attacks its model must read the
utterances that the model was trained on. With others the attack would take strangers for members, and the test split
would give different figures.
"""

from __future__ import annotations

from pathlib import Path

from edp.spec import UserError
from trainables.config import CorpusSpec, TrialSpec
from trainables.corpora import corpus_digest
from trainables.records.files import read_json_if_any, write_json

CORPORA = "corpora.json"


def keep_corpora(folder: Path, spec: TrialSpec) -> None:
    """Write the digest of each corpus that `spec` reads, by field."""
    digests = {field: corpus_digest(corpus, field) for field, corpus in _corpora(spec).items()}
    write_json(folder / CORPORA, digests)


def check_corpora(folder: Path, spec: TrialSpec) -> None:
    """Raise if a corpus has changed since `keep_corpora`. Skip a corpus whose digest was not kept.

    Raises:
        UserError: naming the field.
    """
    kept = read_json_if_any(folder / CORPORA, dict[str, str]) or {}
    for field, corpus in _corpora(spec).items():
        if kept.get(field) not in (None, corpus_digest(corpus, field)):
            raise UserError(
                f"{field} = {str(corpus.path or corpus.name)!r}: its content has changed since {folder.name} began; "
                "allowed: the corpus as it was"
            )


def _corpora(spec: TrialSpec) -> dict[str, CorpusSpec]:
    return {"corpus": spec.corpus, **spec.public_corpora}
