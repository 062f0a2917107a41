"""Corpora: from a `CorpusSpec` to train, valid and test utterances.

`load_corpus` is the entry point. A corpus is public (`PUBLIC`; those in `DOWNLOADED` are fetched), generated
(`GENERATED`), or a user's own files in a format of `read_corpus`. Must not import PyTorch models or encoders.
"""

from trainables.corpora.formats import read_corpus
from trainables.corpora.generators import GENERATED, generate, stream
from trainables.corpora.load import check_corpus, corpus_digest, is_generated, load_corpus
from trainables.corpora.public import DOWNLOADED, PUBLIC, corpus_in, find_corpus, keep
from trainables.corpora.schema import SCHEMAS
from trainables.corpora.splits import split_corpus
from trainables.corpora.types import CorpusSummary, Splits, Utterance

__all__ = [
    "DOWNLOADED",
    "GENERATED",
    "PUBLIC",
    "SCHEMAS",
    "CorpusSummary",
    "Splits",
    "Utterance",
    "check_corpus",
    "corpus_digest",
    "corpus_in",
    "find_corpus",
    "generate",
    "is_generated",
    "keep",
    "load_corpus",
    "read_corpus",
    "split_corpus",
    "stream",
]
