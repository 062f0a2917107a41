"""What a model predicts on a split: one forward pass, spread over workers, shared by utility metrics and attacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from trainables.attacks.intervals import ser_interval
from trainables.attacks.membership_features import WIDTH, attack_features
from trainables.corpora.labels import Labels
from trainables.data.encoded_corpus import EncodedCorpus, Split
from trainables.evaluation.ser import by_length, semantic_error_rate, semantic_errors, slot_f1, slot_matches
from trainables.models.joint import JointModel

_BATCH = 256


OUTCOME = np.dtype(
    [
        ("errors", np.int32),
        ("slots", np.int32),
        ("intent_right", np.bool_),
        ("spans_right", np.int32),
        ("spans_found", np.int32),
    ]
)
"""What came of one utterance: `semantic_errors` and `slot_matches` of `trainables.evaluation.ser`. Counts instead of
tags, so that a split of a million utterances takes no more than 17 bytes of each."""


@dataclass(frozen=True)
class Predictions:
    """What a model made of n utterances of a split, in the order they were asked for; None: not asked for."""

    outcomes: NDArray[np.void] | None
    """(n,) of `OUTCOME`, against the true intents and tags."""
    features: NDArray[np.float32] | None
    """(n, F) what a membership attack sees, see `trainables.attacks.membership_features`."""
    losses: NDArray[np.float64] | None
    """(n,) negative log-likelihood of the true intent and tags together."""


def collect_predictions(
    model: JointModel,
    corpus: EncodedCorpus,
    split: Split,
    indices: NDArray[np.int64] | None = None,
    *,
    device: torch.device,
    group: Any = None,
    outcomes: bool = True,
    features: bool = False,
) -> Predictions | None:
    """Predictions of all workers of `group` (gloo) together: each takes its share. Called on every rank.

    Args:
        indices: of the split; None for all of it.
        group: None: this process alone.
        outcomes: what usefulness is measured by.
        features: what membership attacks need, losses too, from the same forward pass.

    Returns:
        All predictions on rank 0, None on the others.
    """
    chosen = np.arange(corpus.size(split)) if indices is None else np.asarray(indices)
    rank, world = (dist.get_rank(group), dist.get_world_size(group)) if group is not None else (0, 1)
    mine = _predict(model, corpus, split, chosen[rank::world], device, outcomes, features)
    if group is None:
        return mine
    shares: list[Predictions] | None = [mine] * world if rank == 0 else None
    dist.gather_object(mine, shares, dst=0, group=group)
    return _interleaved(shares, len(chosen)) if shares is not None else None


def _predict(
    model: JointModel,
    corpus: EncodedCorpus,
    split: Split,
    chosen: NDArray[np.int64],
    device: torch.device,
    outcomes: bool,
    features: bool,
) -> Predictions:
    found = np.zeros(len(chosen), OUTCOME) if outcomes else None
    rows = np.zeros((len(chosen), WIDTH), np.float32) if features else None
    losses = np.zeros(len(chosen)) if features else None
    was_training = model.training
    model.eval()
    for places in by_length(corpus.lengths(split)[chosen], _BATCH):
        with torch.inference_mode():
            batch = corpus.batch(split, chosen[places]).to(device)
            output = model.outputs(batch)
            if found is not None:
                intents_b, tags_bt = (ids.cpu().numpy() for ids in model.likeliest(output))
                found[places] = _outcomes(corpus, split, chosen[places], intents_b, tags_bt)
            if rows is not None and losses is not None:
                intent_probs_bi, marginals_btk, loss_b = model.certainty(output, batch)
                assert loss_b is not None, "utterances of a corpus have labels"
                lengths_b = batch.lengths_b.cpu().numpy()
                rows[places] = attack_features(
                    intent_probs_bi.float().cpu().numpy(), marginals_btk.float().cpu().numpy(), lengths_b
                )
                losses[places] = loss_b.cpu().numpy()
    model.train(was_training)
    return Predictions(found, rows, losses)


def _outcomes(
    corpus: EncodedCorpus,
    split: Split,
    chosen: NDArray[np.int64],
    intents_b: NDArray[np.int64],
    tags_bt: NDArray[np.int64],
) -> list[tuple[int, int, bool, int, int]]:
    names, counted = corpus.labels.tags, True if corpus.labels.has_intents else None
    right_b = corpus.intent_ids(split, chosen) == intents_b
    gold = zip(corpus.tag_ids(split, chosen), corpus.token_ids(split, chosen), strict=True)
    found = []
    for (tag_ids, tokens), row, right in zip(gold, tags_bt.tolist(), right_b.tolist(), strict=True):
        reference = [names[tag] for tag in tag_ids]
        # What a model cannot read is O.
        predicted = [names[tag] for tag in row[: len(reference)]] + ["O"] * (len(reference) - len(row))
        errors, slots = semantic_errors(reference, predicted, tokens.tolist(), counted, right)
        found.append((errors, slots, right, *slot_matches(reference, predicted)))
    return found


def _interleaved(shares: list[Predictions], n: int) -> Predictions:
    """Undoes `chosen[rank::world]`."""

    def whole(parts: list[NDArray[Any] | None]) -> Any:
        if parts[0] is None:
            return None
        found = np.zeros((n, *parts[0].shape[1:]), parts[0].dtype)
        for rank, part in enumerate(parts):
            found[rank :: len(parts)] = part
        return found

    return Predictions(
        whole([share.outcomes for share in shares]),
        whole([share.features for share in shares]),
        whole([share.losses for share in shares]),
    )


def utility_metrics(predictions: Predictions, labels: Labels) -> dict[str, float]:
    """`ser` with its 95 % interval (`ser_lower`, `ser_upper`); `intent_accuracy` and `slot_f1`, where there are intents
    and slots."""
    outcomes = predictions.outcomes
    assert outcomes is not None, "asked for"
    errors, slots = outcomes["errors"], outcomes["slots"]
    low, high = ser_interval(errors, slots)
    right, found = int(outcomes["spans_right"].sum()), int(outcomes["spans_found"].sum())
    metrics = {"ser": semantic_error_rate(errors, slots), "ser_lower": low, "ser_upper": high}
    if labels.has_intents:
        metrics["intent_accuracy"] = float(outcomes["intent_right"].mean())
    if labels.has_slots:
        wanted = int(slots.sum()) - (len(slots) if labels.has_intents else 0)
        metrics["slot_f1"] = slot_f1(right, found, wanted)
    return metrics
