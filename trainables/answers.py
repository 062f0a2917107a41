"""What a model answers on a split: one forward pass, spread over workers, shared by utility metrics and attacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from trainables.attacks.features import FEATURES, attack_features
from trainables.confidence import ser_interval
from trainables.encoding import EncodedCorpus, Split
from trainables.models.joint import JointModel
from trainables.ser import by_length, semantic_error_rate, semantic_errors, slot_f1

_BATCH = 256


@dataclass(frozen=True)
class Answers:
    """Answers on utterances of a split, in the order of `indices` (n,)."""

    split: Split
    indices: NDArray[np.int64]
    intents: NDArray[np.int64]
    """(n,) likeliest intent."""
    tags: list[NDArray[np.int64]]
    """n arrays of the likeliest tags, as long as what the model read of the utterance."""
    features: NDArray[np.float32] | None
    """(n, F) what a membership attack sees, see `trainables.attacks.shadow`; None where not asked for."""
    losses: NDArray[np.float64] | None
    """(n,) negative log-likelihood of the true intent and tags together; None where not asked for."""


def collect_answers(
    model: JointModel,
    corpus: EncodedCorpus,
    split: Split,
    indices: NDArray[np.int64] | None = None,
    *,
    device: torch.device,
    group: Any = None,
    features: bool = False,
) -> Answers | None:
    """Answers of all workers of `group` (gloo) together: each takes its share. Called on every rank.

    Args:
        indices: of the split; None for all of it.
        group: None: this process alone.
        features: also what membership attacks need, from the same forward pass.

    Returns:
        All answers on rank 0, None on the others.
    """
    chosen = np.arange(corpus.size(split)) if indices is None else np.asarray(indices)
    rank, world = (dist.get_rank(group), dist.get_world_size(group)) if group is not None else (0, 1)
    mine = _answer(model, corpus, split, chosen[rank::world], device, features)
    if group is None:
        return mine
    shares: list[Answers | None] | None = [None] * world if rank == 0 else None
    dist.gather_object(mine, shares, dst=0, group=group)
    return _interleaved(shares, split, chosen) if shares is not None else None


def _answer(
    model: JointModel,
    corpus: EncodedCorpus,
    split: Split,
    chosen: NDArray[np.int64],
    device: torch.device,
    features: bool,
) -> Answers:
    intents = np.zeros(len(chosen), dtype=np.int64)
    tags: list[NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)] * len(chosen)
    rows = np.zeros((len(chosen), FEATURES), np.float32) if features else None
    losses = np.zeros(len(chosen)) if features else None
    was_training = model.training
    model.eval()
    for places in by_length(corpus.lengths(split)[chosen], _BATCH):
        batch = corpus.batch(split, chosen[places])
        lengths = batch.lengths_b.numpy()
        with torch.inference_mode():
            batch = batch.to(device)
            if rows is not None and losses is not None:
                answer = model.predict(batch)
                intents_b, tags_bt = answer.intents_b, answer.tags_bt
                rows[places] = attack_features(
                    answer.intent_probs_bi.float().cpu().numpy(),
                    answer.slot_marginals_btk.float().cpu().numpy(),
                    lengths,
                )
                assert answer.loss_b is not None, "utterances of a corpus have labels"
                losses[places] = answer.loss_b.cpu().numpy()
            else:
                intents_b, tags_bt, _ = model.decode(batch)
        intents[places] = intents_b.cpu().numpy()
        for place, row, length in zip(places, tags_bt.cpu().numpy(), lengths, strict=True):
            tags[place] = row[:length]
    model.train(was_training)
    return Answers(split, chosen, intents, tags, rows, losses)


def _interleaved(shares: list[Any], split: Split, chosen: NDArray[np.int64]) -> Answers:
    """Undoes `chosen[rank::world]`."""
    world, n = len(shares), len(chosen)
    intents = np.zeros(n, dtype=np.int64)
    tags: list[NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)] * n
    asked = shares[0].features is not None
    features = np.zeros((n, FEATURES), np.float32) if asked else None
    losses = np.zeros(n) if asked else None
    for rank, share in enumerate(shares):
        intents[rank::world] = share.intents
        tags[rank::world] = share.tags
        if features is not None and losses is not None:
            features[rank::world] = share.features
            losses[rank::world] = share.losses
    return Answers(split, chosen, intents, tags, features, losses)


def utility_metrics(answers: Answers, corpus: EncodedCorpus) -> dict[str, float]:
    """`ser` with its 95 % interval (`ser_lower`, `ser_upper`), `intent_accuracy` and `slot_f1` of the answers."""
    names, split, chosen = corpus.labels.tags, answers.split, answers.indices
    gold = zip(corpus.tag_ids(split, chosen), corpus.token_ids(split, chosen), strict=True)
    references, predictions, errors = [], [], []
    for (tag_ids, tokens), found in zip(gold, answers.tags, strict=True):
        reference = [names[tag] for tag in tag_ids]
        # What a model cannot read is O.
        predicted = [names[tag] for tag in found] + ["O"] * (len(reference) - len(found))
        references.append(reference)
        predictions.append(predicted)
        errors.append(semantic_errors(reference, predicted, tokens.tolist(), 0, 0))
    wrong, slots = np.array(errors).T
    right = corpus.intent_ids(split, chosen) == answers.intents
    low, high = ser_interval(wrong + ~right, slots)
    return {
        "ser": semantic_error_rate(wrong + ~right, slots),
        "ser_lower": low,
        "ser_upper": high,
        "intent_accuracy": float(right.mean()),
        "slot_f1": slot_f1(references, predictions),
    }
