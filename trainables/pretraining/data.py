"""Several public corpora as one pool of utterances, and the batches of a stage.

Shapes: b utterances of a batch, u utterances of the pool, n tokens of the pool in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from trainables.config import CorpusSpec
from trainables.corpora import Utterance, corpus_digest, load_corpus
from trainables.corpora.labels import Labels
from trainables.features.batch import Batch
from trainables.features.token_features import Table, make_batch, make_table
from trainables.features.word_pieces import WordPieces
from trainables.pretraining.spec import PretrainSpec, StageSpec

IGNORED = -1
"""Label of tokens and utterances whose corpus has no labels of that kind."""
_BUCKET = 50
"""Number of batches whose utterances are sorted by length together, to save padding."""


@dataclass(frozen=True)
class Column:
    """A tag or an intent of one corpus, by the corpus' number."""

    corpus: int
    label: str


@dataclass(frozen=True)
class Pool:
    """All utterances of a pretraining's corpora.

    A corpus without slot types has no tag columns, and one with a single intent has no intent columns. Their labels are
    `IGNORED`.
    """

    corpora: tuple[dict[str, str | int], ...]
    """Name, digest and sizes of each corpus."""
    tag_columns: tuple[Column, ...]
    intent_columns: tuple[Column, ...]
    table: Table
    offsets: np.ndarray
    words_n: np.ndarray
    tags_n: np.ndarray
    intents: np.ndarray
    corpus: np.ndarray
    slotless: np.ndarray
    """(U,) bool: True if the utterance has no slot but its corpus has some."""

    def batch(self, rows_b: np.ndarray) -> tuple[Batch, Tensor]:
        """Return utterances, their labels counted over all corpora, and the corpus of each, (B,) int64."""
        at = np.concatenate([np.arange(self.offsets[row], self.offsets[row + 1]) for row in rows_b])
        lengths_b = self.offsets[rows_b + 1] - self.offsets[rows_b]
        batch = make_batch(self.table, self.words_n[at], lengths_b, self.tags_n[at], self.intents[rows_b])
        return batch, torch.from_numpy(self.corpus[rows_b])


def read_utterances(spec: CorpusSpec, field: str = "corpus") -> list[Utterance]:
    """Read all utterances of a corpus, of every split.

    Args:
        field: the setting that names the corpus, for error messages.

    Raises:
        UserError: as `load_corpus` does.
    """
    splits = load_corpus(spec, field)
    return [*splits.train, *splits.valid, *splits.test]


def make_pool(specs: Sequence[CorpusSpec], corpora: Sequence[Sequence[Utterance]], pieces: WordPieces) -> Pool:
    """Pool the utterances of the corpora that `specs` name, in the sub-words of an encoder."""
    words: dict[str, int] = {}
    about: list[dict[str, str | int]] = []
    tag_columns: list[Column] = []
    intent_columns: list[Column] = []
    tags: list[int] = []
    intents: list[int] = []
    slotless: list[bool] = []
    for number, (spec, utterances) in enumerate(zip(specs, corpora, strict=True)):
        labels = Labels.of(utterances)
        kept_tags = labels.tags if labels.has_slots else ()
        kept_intents = labels.intents if labels.has_intents else ()
        tag_of = {tag: index for index, tag in enumerate(kept_tags, start=len(tag_columns))}
        intent_of = {intent: index for index, intent in enumerate(kept_intents, start=len(intent_columns))}
        tag_columns += [Column(number, tag) for tag in kept_tags]
        intent_columns += [Column(number, intent) for intent in kept_intents]
        tags += [tag_of.get(tag, IGNORED) for utterance in utterances for tag in utterance.tags]
        intents += [intent_of.get(utterance.intent, IGNORED) for utterance in utterances]
        slotless += [len(kept_tags) > 0 and set(utterance.tags) == {"O"} for utterance in utterances]
        about.append(
            {
                "name": spec.name,
                "digest": corpus_digest(spec, f"corpora.{number}"),
                "utterances": len(utterances),
                "tokens": sum(len(utterance.tokens) for utterance in utterances),
                "intents": len(kept_intents),
                "slot_types": len(kept_tags) // 2,
            }
        )
    every = [utterance.tokens for utterance in chain(*corpora)]
    words_n = np.array([words.setdefault(word, len(words)) for tokens in every for word in tokens])
    return Pool(
        corpora=tuple(about),
        tag_columns=tuple(tag_columns),
        intent_columns=tuple(intent_columns),
        table=make_table(pieces, list(words)),
        offsets=np.cumsum([0, *(len(tokens) for tokens in every)]),
        words_n=words_n,
        tags_n=np.array(tags),
        intents=np.array(intents),
        corpus=np.repeat(np.arange(len(corpora)), [len(utterances) for utterances in corpora]),
        slotless=np.array(slotless),
    )


def stage_batches(spec: PretrainSpec, number: int, pool: Pool) -> list[np.ndarray]:
    """Return the rows of each step of a stage, from passes over its utterances, each pass in a new order.

    The same spec and pool give the same batches, so that a resumed stage takes those that are left.
    """
    stage = spec.stages[number]
    rows = _stage_rows(spec, number, pool)
    lengths = np.diff(pool.offsets)
    batches: list[np.ndarray] = []
    passes = 0
    while len(batches) < stage.steps:
        rng = np.random.default_rng([spec.training.seed, number, passes])
        batches += _one_pass(rng.permutation(rows), lengths, stage.batch_size, rng)
        passes += 1
    return batches[: stage.steps]


def _stage_rows(spec: PretrainSpec, number: int, pool: Pool) -> np.ndarray:
    """Return the rows of a stage: its corpora's, and those that are replayed."""
    stage: StageSpec = spec.stages[number]
    # All stages keep the same utterances without slots.
    kept = ~pool.slotless | (np.random.default_rng(spec.training.seed).random(len(pool.slotless)) < spec.slotless)
    chosen = [
        index for index, corpus in enumerate(spec.corpora) if stage.corpora is None or corpus.name in stage.corpora
    ]
    inside = np.isin(pool.corpus, chosen)
    others = np.flatnonzero(~inside & kept)
    replayed = np.random.default_rng([spec.training.seed, number]).permutation(others)[: stage.replay]
    return np.concatenate([np.flatnonzero(inside & kept), replayed])


def _one_pass(rows: np.ndarray, lengths: np.ndarray, size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return batches of all rows, those of like length together, in a random order."""
    batches: list[np.ndarray] = []
    for start in range(0, len(rows), size * _BUCKET):
        bucket = rows[start : start + size * _BUCKET]
        bucket = bucket[np.argsort(lengths[bucket], kind="stable")]
        batches += [bucket[first : first + size] for first in range(0, len(bucket), size)]
    return [batches[index] for index in rng.permutation(len(batches))]
