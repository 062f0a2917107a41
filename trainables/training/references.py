"""Train the models that attacks compare a target with, references and a shadow of the same corpus, and score the
target.

The pool is what the target was and was not trained on: its training split (canaries apart) and its test split.
References come in pairs: one is trained on a random half of the pool, the other on the other half. So every utterance
is inside exactly half of the references, and copies of an utterance go together. Validation is the population: no model
is trained on it. Everything here runs in one process, which is a process group of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from trainables.config import CanariesSpec, TrialSpec
from trainables.features.encoded_corpus import EncodedCorpus, Split
from trainables.measure.attacks import Evidence
from trainables.measure.attacks.shadow import fit_attack, load_attack
from trainables.measure.predictions import Predictions, collect_predictions, membership_indices
from trainables.models import JointModel
from trainables.records.files import reading, save_arrays
from trainables.training.process import alone, new_model, pick_device
from trainables.training.trainer import Trainer

Arrays = dict[str, NDArray[Any]]
Kind = Literal["sgd", "own"]
OnEpoch = Callable[[int], None]

_POPULATION = 5_000


@dataclass(frozen=True)
class ReferenceModel:
    """One model to train beside a target. `what`: a reference by its number, or the shadow of the same corpus."""

    spec: TrialSpec
    corpus: Path
    output: Path
    """The file that its predictions go to."""
    reference: int | None


def reference_spec(spec: TrialSpec, kind: Kind, number: int) -> TrialSpec:
    """Return the configuration of reference `number`: the target's, in one process, with weights and order of its own.

    Args:
        kind: `own`: the target's method, noise and all; `sgd`: without privacy, the same for all trials of a sweep.
    """
    training = spec.non_private_training() if kind == "sgd" else spec.training
    alone = training.model_copy(update={"workers": 1, "seed": (spec.training.seed + 1 + number) % 2**32})
    return spec.model_copy(update={"canaries": CanariesSpec(), "training": alone})


def halves(corpus: EncodedCorpus, seed: int, reference: int) -> dict[Split, NDArray[np.bool_]]:
    """Return the utterances of each split of the pool that a reference is trained on; a pair of references shares the
    pool."""
    pool: list[bytes] = []
    sizes = {}
    for split in _POOL:
        rows = np.arange(corpus.size(split) - (corpus.planted if split == "train" else 0))
        pool += [tokens.tobytes() for tokens in corpus.token_ids(split, rows)]
        sizes[split] = len(rows)
    _, group_n = np.unique(np.array(pool, dtype=object), return_inverse=True)
    order = np.random.default_rng([seed, 0x524546, reference // 2]).permutation(int(group_n.max()) + 1)
    inside_n = (order < len(order) // 2)[group_n]
    inside_n = ~inside_n if reference % 2 else inside_n
    train, test = np.split(inside_n, [sizes["train"]])
    return {"train": train, "test": test}


_POOL: tuple[Split, ...] = ("train", "test")


def same_corpus_parts(corpus: EncodedCorpus, seed: int) -> tuple[NDArray[np.int64], ...]:
    """Split the test split in three: shadow's members (1/4), shadow's non-members (1/4), and utterances to attack
    (1/2).

    Copies of an utterance go together, so the shadow's utterances are disjoint from all that its attack is tried on.
    """
    tokens = corpus.token_ids("test", np.arange(corpus.size("test")))
    _, group_n = np.unique(np.array([one.tobytes() for one in tokens], dtype=object), return_inverse=True)
    groups = int(group_n.max()) + 1
    place_n = np.random.default_rng([seed, 0x534841]).permutation(groups)[group_n]
    cuts = groups // 4, groups // 2
    inside, outside = place_n < cuts[0], (place_n >= cuts[0]) & (place_n < cuts[1])
    return np.flatnonzero(inside), np.flatnonzero(outside), np.flatnonzero(place_n >= cuts[1])


def train_reference(reference_model: ReferenceModel, on_epoch: OnEpoch) -> None:
    """Train one model and write the attacks' inputs to `reference_model.output`, whole or not at all.

    Raises:
        trainables.records.job.TrialFailed: when a gradient or the loss is not finite.
    """
    corpus = EncodedCorpus.open(reference_model.corpus).for_model(reference_model.spec.model)
    seed = reference_model.spec.corpus.seed
    inside = None
    if reference_model.reference is not None:
        inside = halves(corpus, seed, reference_model.reference)
        chosen: dict[Split, Any] = {split: np.flatnonzero(mask) for split, mask in inside.items()}
    else:
        shadow_in, shadow_out, _ = same_corpus_parts(corpus, seed)
        chosen = {"test": shadow_in}
    with alone():
        device = pick_device(reference_model.spec.training)
        model = new_model(reference_model.spec, corpus, device)
        trainer = Trainer(model, corpus.with_train(chosen), reference_model.spec, device)
        for epoch in range(reference_model.spec.training.epochs):
            trainer.run_epoch(epoch)
            on_epoch(epoch + 1)
        if inside is not None:
            members, non_members = attacked(corpus, seed)
            found = _losses(trainer.released, corpus, seed, device) | {
                "inside_members": inside["train"][members],
                "inside_non_members": inside["test"][non_members],
            }
        else:
            parts = {"members": shadow_in, "non_members": shadow_out}
            found = {
                name: _features(_seen(trainer.released, corpus, "test", rows, device)) for name, rows in parts.items()
            }
    _save(reference_model.output, found)


def score_target(spec: TrialSpec, folder: Path, model_file: Path) -> Arrays:
    """Return a trained model's predictions: features and losses of members and non-members, losses of population and
    canaries.

    One forward pass, which all attacks share.

    Args:
        folder: the encoded corpus that it was trained on.
        model_file: the `model.pt` of a trial; tensors and plain data only are loaded.
    """
    corpus = EncodedCorpus.open(folder).for_model(spec.model)
    device = pick_device(spec.training)
    model = new_model(spec, corpus, device)
    model.load_state_dict(torch.load(model_file, map_location=device, weights_only=True)["state_dict"])
    return _losses(model, corpus, spec.corpus.seed, device, features=True)


def read_references(files: Sequence[Path]) -> dict[str, NDArray[Any]]:
    """Return what an `Evidence` holds of reference models: `losses_kn`, `losses_kz` and `inside_kn`.

    Raises:
        BrokenFile: for a file that is not whole.
    """
    rows = []
    for file in files:
        with reading(file), np.load(file) as found:
            losses_n = np.concatenate([found["member_losses"], found["non_member_losses"]])
            inside_n = np.concatenate([found["inside_members"], found["inside_non_members"]])
            rows.append((losses_n, found["population_losses"], inside_n))
    return dict(zip(("losses_kn", "losses_kz", "inside_kn"), map(np.stack, zip(*rows, strict=True)), strict=True))


def gather_evidence(
    seen: Arrays, references: Sequence[Path], shadow: Path, same_corpus: Path, corpus: EncodedCorpus, seed: int
) -> Evidence:
    """Return all that attackers may know of a model.

    Args:
        seen: the arrays that `score_target` returned.
        references: the files of reference models.
        shadow: the attack that was fitted to the shadow of the public corpus.
        same_corpus: the file of the shadow of the same corpus.

    Raises:
        BrokenFile: for a file that is not whole.
    """
    with reading(same_corpus), np.load(same_corpus) as found:
        fitted = fit_attack(found["members"], found["non_members"])
    # The utterances that the shadow was made of are not attacked; as many members are as non-members are left.
    left_n = np.isin(attacked(corpus, seed)[1], same_corpus_parts(corpus, seed)[2])
    members = len(seen["members"])
    chosen = np.random.default_rng(seed).permutation(members)[: int(left_n.sum())]
    apart_n = np.concatenate([np.isin(np.arange(members), chosen), left_n])
    others = read_references(references)
    return Evidence.of(seen, shadow=load_attack(shadow), same_corpus=fitted, apart_n=apart_n, **others)


def attacked(corpus: EncodedCorpus, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return members (of train) and non-members (of test): the same as those of every trial's shadow attack."""
    members, non_members = membership_indices(corpus.size("train") - corpus.planted, corpus.size("test"), seed=seed)
    return members, non_members


def _losses(
    model: JointModel, corpus: EncodedCorpus, seed: int, device: torch.device, *, features: bool = False
) -> Arrays:
    members, non_members = attacked(corpus, seed)
    population = np.arange(min(corpus.size("valid"), _POPULATION))
    found: Arrays = {}
    parts: list[tuple[str, Split, NDArray[np.int64]]] = [
        ("member", "train", members),
        ("non_member", "test", non_members),
        ("population", "valid", population),
    ]
    if features and corpus.size("canaries"):
        parts.append(("canary", "canaries", np.arange(corpus.size("canaries"))))
    for name, split, rows in parts:
        seen = _seen(model, corpus, split, rows, device)
        assert seen.losses is not None
        found[f"{name}_losses"] = seen.losses
        if features and name in ("member", "non_member"):
            found[f"{name}s"] = _features(seen)
    return found


def _seen(
    model: JointModel, corpus: EncodedCorpus, split: Split, rows: NDArray[np.int64], device: torch.device
) -> Predictions:
    predictions = collect_predictions(model, corpus, split, rows, device=device, outcomes=False, features=True)
    assert predictions is not None, "this process is alone"
    return predictions


def _features(predictions: Predictions) -> NDArray[np.float32]:
    assert predictions.features is not None, "they were asked for"
    return predictions.features


def _save(path: Path, arrays: Arrays) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_arrays(path, **arrays)
