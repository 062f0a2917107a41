"""The predictions of a model on a split: one forward pass, spread over workers, shared by utility metrics and attacks.

A membership attack sees features of the predicted scores, which have the same number for every corpus and model.

SER (Su et al. 2018) is (S + I + D) / (C + S + D) over the corpus. Slots are aligned in order with the fewest edits. The
intent counts as one more slot of every utterance, if the corpus has intents; without slots, SER is then the error rate
of the intents. With the fewest edits, S + I + D is the edit distance of the two slot lists, and C + S + D is the number
of slots of the reference. Both are counted for each utterance, so that a bootstrap can redraw them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from trainables.corpora.labels import Labels, slot_spans
from trainables.features.encoded_corpus import EncodedCorpus, Split
from trainables.models.joint import JointModel

_BATCH = 256

MAX_MEMBERS = 5_000
"""Most members to attack, and most non-members. With this many, an AUC is accurate to 0.01."""

TOP = 3
"""Number of sorted scores that are kept: of the intents, and of the tags of a token."""

WIDTH = 3 * TOP
"""F: number of features: sorted intent scores, then mean and minimum over tokens of each sorted tag score."""

# Members and non-members differ in how close to 1 a score is, which logits show and probabilities hide. Probabilities
# are clipped, so that their logits are finite.
_CLIP = 1e-6

OUTCOME = np.dtype(
    [
        ("errors", np.int32),
        ("slots", np.int32),
        ("intent_right", np.bool_),
        ("spans_right", np.int32),
        ("spans_found", np.int32),
    ]
)
"""The result of one utterance, from `semantic_errors` and `slot_matches`.

These are counts and not tags, so that an utterance takes 17 bytes, also in a split of a million."""


@dataclass(frozen=True)
class Predictions:
    """The predictions of n utterances of a split, in the order of the request; None: not requested."""

    outcomes: NDArray[np.void] | None
    """(n,) of `OUTCOME`, against the true intents and tags."""
    features: NDArray[np.float32] | None
    """(n, F) of `attack_features`, which membership attacks see."""
    losses: NDArray[np.float64] | None
    """(n,) negative log-likelihood of the true intent and tags together."""

    def seen(self) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Return features and losses, which must have been requested."""
        assert self.features is not None
        assert self.losses is not None
        return self.features, self.losses


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
    """Return the predictions of a split. Every rank calls this and predicts its share.

    Args:
        indices: the utterances of the split; None: all.
        group: a gloo group of the workers; None: this process alone.
        outcomes: compute the outcomes, which utility metrics need.
        features: compute features and losses, which membership attacks need, in the same forward pass.

    Returns:
        All predictions on rank 0, None on the others.
    """
    chosen = np.arange(corpus.size(split)) if indices is None else np.asarray(indices)
    rank, world = (dist.get_rank(group), dist.get_world_size(group)) if group is not None else (0, 1)
    mine = _predict(model, corpus, split, chosen[rank::world], device, outcomes, features)
    if group is None:
        return mine
    shares = [mine] * world if rank == 0 else None
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
    """Return the predictions of the `chosen` utterances, from this process alone."""
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
    """Return an `OUTCOME` for each of the `chosen` utterances."""
    names, counted = corpus.tag_names, True if corpus.labels.has_intents else None
    right_b = corpus.intent_ids(split, chosen) == intents_b
    gold = zip(corpus.tag_ids(split, chosen), corpus.token_ids(split, chosen), strict=True)
    found = []
    for (tag_ids, tokens), row, right in zip(gold, tags_bt.tolist(), right_b.tolist(), strict=True):
        reference = [names[tag] for tag in tag_ids]
        # An encoder cuts long utterances, and the tokens that it has no room for count as predicted O.
        predicted = [names[tag] for tag in row[: len(reference)]] + ["O"] * (len(reference) - len(row))
        errors, slots = semantic_errors(reference, predicted, tokens.tolist(), counted, right)
        found.append((errors, slots, right, *slot_matches(reference, predicted)))
    return found


def _interleaved(shares: list[Predictions], n: int) -> Predictions:
    """Undo `chosen[rank::world]`."""

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
    """Return `ser` with its 95 % interval (`ser_lower`, `ser_upper`), `intent_accuracy` and `slot_f1`.

    The last two are left out for a corpus without intents or without slots.
    """
    outcomes = predictions.outcomes
    assert outcomes is not None, "they were requested"
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


def by_length(lengths: NDArray[np.int64], batch_size: int) -> Iterator[NDArray[np.int64]]:
    """Yield the places of all utterances, `batch_size` of like length at a time, which needs little padding."""
    order = np.argsort(lengths, kind="stable")
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def attack_features(
    intent_probs: NDArray[np.float32], slot_marginals: NDArray[np.float32], lengths: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return the features of a batch that membership attacks see: logits of sorted scores, (B, F).

    Sorted scores are comparable between corpora, whose label sets differ. With fewer labels than `TOP`, scores of 0 are
    added.

    Args:
        intent_probs: (B, I) probabilities of the intents.
        slot_marginals: (B, T, K) probabilities of the tags; padding is not read.
        lengths: (B,) tokens of each utterance.
    """
    batch, time, _ = slot_marginals.shape
    intents = _largest(intent_probs)
    tags = _largest(slot_marginals)
    inside = (np.arange(time)[None, :] < lengths[:, None])[:, :, None]
    mean = np.where(inside, tags, 0.0).sum(axis=1) / np.maximum(lengths, 1)[:, None]
    least = np.where(inside, tags, 1.0).min(axis=1)
    scores = np.clip(np.concatenate([intents, mean, least], axis=1), _CLIP, 1 - _CLIP)
    return np.log(scores / (1 - scores)).astype(np.float32).reshape(batch, WIDTH)


def _largest(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the `TOP` largest along the last axis, descending, padded with zeros."""
    kept: NDArray[np.float32] = np.sort(scores, axis=-1)[..., ::-1][..., :TOP]
    missing = TOP - kept.shape[-1]
    return np.pad(kept, [(0, 0)] * (kept.ndim - 1) + [(0, missing)]) if missing else kept


def members_and_others(
    corpus: EncodedCorpus, split: Split, *, seed: int, at_most: int = MAX_MEMBERS
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Choose members among the training utterances without canaries, and as many non-members among those of `split`.

    They are sorted indices, the same for every trial of a sweep. Utterances whose intents the schema lacks are no
    non-members, since they could not have been members.
    """
    rng, known = np.random.default_rng([seed, 0x4D4941]), corpus.known(split)
    own = corpus.size("train") - corpus.planted
    n = min(own, len(known), at_most)
    members = np.sort(rng.choice(own, n, replace=False))
    return members, known[np.sort(rng.choice(len(known), n, replace=False))]


_RESAMPLES = 2_000

Slot = tuple[str, tuple[Hashable, ...]]


def slots_of(tags: Sequence[str], tokens: Sequence[Hashable]) -> list[Slot]:
    """Return the slots in order: (type, value), where the value is the tuple of tokens."""
    return [(kind, tuple(tokens[start:end])) for kind, start, end in slot_spans(tags)]


def edit_distance(reference: Sequence[Hashable], hypothesis: Sequence[Hashable]) -> int:
    """Count the fewest substitutions, insertions and deletions that turn one list into the other (Levenshtein)."""
    row = list(range(len(hypothesis) + 1))
    for i, wanted in enumerate(reference, start=1):
        diagonal, row[0] = row[0], i
        for j, found in enumerate(hypothesis, start=1):
            diagonal, row[j] = row[j], min(diagonal + (wanted != found), row[j] + 1, row[j - 1] + 1)
    return row[-1]


def semantic_errors(
    reference_tags: Sequence[str],
    predicted_tags: Sequence[str],
    tokens: Sequence[Hashable],
    reference_intent: Hashable,
    predicted_intent: Hashable,
) -> tuple[int, int]:
    """Count errors (S + I + D) and reference slots (C + S + D) of one utterance, including its intent.

    Args:
        reference_intent: None: the corpus has no intents, and none is counted.
    """
    reference = slots_of(reference_tags, tokens)
    if list(reference_tags) == list(predicted_tags):  # a shortcut that most utterances of a trained model take
        wrong = 0
    else:
        wrong = edit_distance(reference, slots_of(predicted_tags, tokens))
    if reference_intent is None:
        return wrong, len(reference)
    return wrong + (reference_intent != predicted_intent), len(reference) + 1


def semantic_error_rate(errors: np.ndarray, slots: np.ndarray) -> float:
    """Return the SER of a corpus from its utterances' errors and reference slots; without slots, the errors."""
    return float(errors.sum() / max(slots.sum(), 1))


def slot_matches(reference_tags: Sequence[str], predicted_tags: Sequence[str]) -> tuple[int, int]:
    """Count the predicted slots of an utterance that are right in type and place, and all predicted slots."""
    found = set(slot_spans(predicted_tags))
    return len(found.intersection(slot_spans(reference_tags))), len(found)


def slot_f1(right: int, found: int, wanted: int) -> float:
    """Return the micro-averaged F1 of the slots of a corpus; 1 if there are none and none was found."""
    return 2 * right / (found + wanted) if found + wanted else 1.0


def ser_interval(errors: NDArray[np.int64], slots: NDArray[np.int64]) -> tuple[float, float]:
    """Return the 95 % interval of SER by a percentile bootstrap over utterances, with a fixed seed.

    It is an interval for other utterances with the same model. Utterances with equal errors and slots are drawn
    together, as a multinomial. This is the same distribution as resampling them one by one, at a cost that does not
    grow with their number.

    Args:
        errors: (n,) as `semantic_errors` returns them.
        slots: (n,) likewise.
    """
    kinds, counts = np.unique(np.stack([errors, slots]), axis=1, return_counts=True)
    drawn = np.random.default_rng(0).multinomial(len(errors), counts / len(errors), size=_RESAMPLES)
    found = (drawn @ kinds[0]) / np.maximum(drawn @ kinds[1], 1)  # a resample of a small split may have no slot
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)
