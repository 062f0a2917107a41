"""Encode a corpus as arrays, once per sweep; every worker maps them into memory.

A folder holds flat arrays for each split (`offsets`, `tokens`, `tags`, `intents`, `ids` and, if users are known,
`users`, which are numbers from 0), a table of unique words, `words.json`, `meta.json` and `features/`. A released model
needs only `features/` to encode new utterances. That is public; the rest is the private corpus.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np

from edp.keyed import digests
from edp.spec import UserError
from trainables.config import ModelSpec
from trainables.corpora.labels import LabelCounts, Labels, labels_of
from trainables.corpora.types import UNKNOWN, UNKNOWN_TAGS, Splits, Utterance
from trainables.features.encoded_corpus import SPLITS, EncodedCorpus, Split
from trainables.features.token_features import Features, features_for, make_table, write_table
from trainables.features.word_pieces import WordPieces
from trainables.records.permissions import unfinished_folder

Progress = Callable[[int, int], None]
_PROGRESS_EVERY = 10_000


def encode(
    splits: Splits,
    model: ModelSpec,
    folder: Path,
    *,
    labels: Labels | None = None,
    features: Features | None = None,
    text: Sequence[Utterance] = (),
    progress: Progress | None = None,
) -> EncodedCorpus:
    """Write the corpus to `folder`, whole or not at all, in the form that `model` reads, and replace an earlier one.

    Args:
        labels: the labels of the model; None: those of the splits.
        features: the features of another corpus, such as that of the attacked model for its shadow corpus; None: make
            them.
        text: public text with the labels of the model, as the split `schema`.
        progress: a function that is called with the number of encoded utterances and of all.

    Raises:
        UserError: for a split without utterances, an utterance without tokens, a label outside `labels`, or labels that
            leave nothing to learn.
    """
    every = {name: _checked(getattr(splits, name), name) for name in SPLITS}
    if splits.canaries:
        every["canaries"] = splits.canaries
    if text:
        every["schema"] = list(text)
    if labels is None:
        labels = labels_of(splits)
    _ = labels.task  # raises for labels that leave nothing to learn
    features = features or features_for(model)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside the folder, so that the rename is atomic: a crash leaves nothing that `open` would take for a corpus.
    building = unfinished_folder(folder.parent, f".{folder.name}-")
    try:
        words, digest = _write_splits(every, labels, building, progress)
        features.save(building / "features")
        write_table(make_table(features, words), building)
        (building / "words.json").write_text(json.dumps(words), encoding="utf-8")
        meta = {
            "labels": labels.to_dict(),
            "sizes": {name: len(utterances) for name, utterances in every.items()},
            "planted": splits.planted,
            "label_counts": asdict(LabelCounts.of(splits)),
            "users": any(utterance.user for utterance in every["train"]),
            "vocabulary_size": features.size if isinstance(features, WordPieces) else None,
            "digest": digest,
        }
        (building / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")
        _move(building, folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return EncodedCorpus.open(folder)


def _move(building: Path, folder: Path) -> None:
    """Move a finished corpus to its folder; if another process is faster, its corpus stays."""
    if folder.exists():
        # Moved away in one step: readers can go on with the files that they have open.
        before = building.with_name(f"{building.name}-before")
        with suppress(FileNotFoundError):
            os.replace(folder, before)
        shutil.rmtree(before, ignore_errors=True)
    try:
        os.replace(building, folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _checked(utterances: list[Utterance], split: Split) -> list[Utterance]:
    """Return the utterances of a split if there are any and all have tokens and as many tags."""
    if not utterances:
        raise UserError(f"corpus: split {split} has no utterances; allowed: at least one")
    for index, utterance in enumerate(utterances):
        if not utterance.tokens or len(utterance.tokens) != len(utterance.tags):
            raise UserError(
                f"corpus: utterance {index} of split {split} has {len(utterance.tokens)} tokens and "
                f"{len(utterance.tags)} tags; allowed: as many tags as tokens, and at least one"
            )
    return utterances


def _write_splits(
    every: dict[Split, list[Utterance]], labels: Labels, folder: Path, progress: Progress | None
) -> tuple[list[str], str]:
    """Write the arrays of each split; return the unique words in the order of their ids, and a digest of the corpus."""
    words: dict[str, int] = {}
    users: dict[str, int] = {}
    known = any(utterance.user for utterance in every["train"])
    tag_ids = {tag: index for index, tag in enumerate((*labels.tags, *UNKNOWN_TAGS))}
    intent_ids = {intent: index for index, intent in enumerate((*labels.intents, UNKNOWN))}
    total, done = sum(len(utterances) for utterances in every.values()), 0
    digest = hashlib.sha256(json.dumps(labels.to_dict()).encode())
    for split, utterances in every.items():
        tokens = np.empty(sum(len(u.tokens) for u in utterances), np.int32)
        tags = np.empty(len(tokens), np.int16)
        intents = np.empty(len(utterances), np.int16)
        user_ids = np.empty(len(utterances), np.int32)
        offsets = np.zeros(len(utterances) + 1, np.int64)
        for row, utterance in enumerate(utterances):
            start, end = offsets[row], offsets[row] + len(utterance.tokens)
            try:
                tags[start:end] = [tag_ids[tag] for tag in utterance.tags]
                intents[row] = intent_ids[utterance.intent]
            except KeyError as error:
                raise UserError(f"corpus: split {split} has the label {error}, which the schema lacks") from None
            tokens[start:end] = [words.setdefault(word, len(words)) for word in utterance.tokens]
            offsets[row + 1] = end
            user_ids[row] = users.setdefault(utterance.user, len(users))
            done += 1
            if progress and (done % _PROGRESS_EVERY == 0 or done == total):
                progress(done, total)
        arrays: dict[str, np.ndarray] = {"offsets": offsets, "tokens": tokens, "tags": tags, "intents": intents}
        if known:
            arrays["users"] = user_ids
        arrays["ids"] = digests(repr(utterance).encode(errors="surrogatepass") for utterance in utterances)
        for kind, array in arrays.items():
            np.save(folder / f"{split}_{kind}.npy", array)
            digest.update(array.tobytes())
    digest.update(json.dumps(list(words)).encode())
    return list(words), digest.hexdigest()
