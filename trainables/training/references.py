"""Train the models that attacks compare a target with: references, and a shadow of the same corpus; score the target.

The pool holds the target's training split without canaries, and its test split without unknown intents. References
come in pairs: one is trained on a random half of the pool, the other on the other half. So every utterance is inside
exactly half of the references. All copies of an utterance are in the same half. The validation split is the population,
which no model is trained on. Everything here runs in one process, which is a process group of its own.
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
from trainables.measure.attacks.extraction import secrets_in
from trainables.measure.attacks.shadow import fit_attack, load_attack
from trainables.measure.predictions import collect_predictions, members_and_others
from trainables.models import JointModel
from trainables.records.files import reading, save_arrays
from trainables.training.process import alone, new_model, pick_device
from trainables.training.trainer import Trainer

Arrays = dict[str, NDArray[Any]]
Indices = NDArray[np.int64]
Kind = Literal["sgd", "own"]
OnEpoch = Callable[[int], None]

_POPULATION = 5_000


@dataclass(frozen=True)
class ReferenceModel:
    """One model to train for comparison with a target."""

    spec: TrialSpec
    corpus: Path
    output: Path
    """The file that its predictions are written to."""
    reference: int | None
    """Number of the reference; None: the shadow of the same corpus."""


def reference_spec(spec: TrialSpec, kind: Kind, number: int) -> TrialSpec:
    """Return the configuration of reference `number`: the target's, on one worker, with a seed of its own.

    Args:
        kind: `own`: with the target's method and noise; `sgd`: without privacy, the same for all trials of a sweep.
    """
    training = spec.non_private_training() if kind == "sgd" else spec.training
    alone = training.model_copy(update={"workers": 1, "seed": (spec.training.seed + 1 + number) % 2**32})
    return spec.model_copy(update={"canaries": CanariesSpec(), "training": alone})


def halves(corpus: EncodedCorpus, seed: int, reference: int) -> dict[Split, NDArray[np.bool_]]:
    """Return masks of the train and the test split: True for utterances that a reference is trained on."""
    train = corpus.size("train") - corpus.planted
    pool = [*corpus.token_ids("train", np.arange(train)), *corpus.token_ids("test", np.arange(corpus.size("test")))]
    place_n, groups = _shuffled(pool, [seed, 0x524546, reference // 2])
    inside_n = (place_n < groups // 2) != bool(reference % 2)
    return {"train": inside_n[:train], "test": inside_n[train:] & _is_known(corpus)}


def _is_known(corpus: EncodedCorpus) -> NDArray[np.bool_]:
    """Return a mask of the test split: True for utterances whose intents the schema has."""
    return np.isin(np.arange(corpus.size("test")), corpus.known("test"))


def same_corpus_parts(corpus: EncodedCorpus, seed: int) -> tuple[Indices, Indices, Indices]:
    """Split the test split into the shadow's members (1/4), its non-members (1/4), and utterances to attack (1/2).

    All copies of an utterance are in the same part, so the attack is tried on no utterance of the shadow.
    """
    place_n, groups = _shuffled(corpus.token_ids("test", np.arange(corpus.size("test"))), [seed, 0x534841])
    inside, left, known = place_n < groups // 4, place_n >= groups // 2, _is_known(corpus)
    return np.flatnonzero(inside & known), np.flatnonzero(~inside & ~left & known), np.flatnonzero(left & known)


def _shuffled(utterances: Sequence[NDArray[Any]], seed: list[int]) -> tuple[Indices, int]:
    """Return places (n,) of utterances in a random order of distinct ones, the same for copies, and their number."""
    _, group_n = np.unique(np.array([one.tobytes() for one in utterances], dtype=object), return_inverse=True)
    groups = int(group_n.max()) + 1
    return np.random.default_rng(seed).permutation(groups)[group_n], groups


def train_reference(reference_model: ReferenceModel, on_epoch: OnEpoch) -> None:
    """Train one model, and write the attacks' inputs to `reference_model.output`, whole or not at all.

    Raises:
        trainables.records.job.TrialFailed: if a gradient or the loss is not finite.
    """
    spec = reference_model.spec
    corpus = EncodedCorpus.open(reference_model.corpus).for_model(spec.model)
    seed = spec.corpus.seed
    inside = None
    if reference_model.reference is not None:
        inside = halves(corpus, seed, reference_model.reference)
        chosen: dict[Split, Any] = {split: np.flatnonzero(mask) for split, mask in inside.items()}
    else:
        shadow_in, shadow_out, _ = same_corpus_parts(corpus, seed)
        chosen = {"test": shadow_in}
    with alone():
        device = pick_device(spec.training)
        trainer = Trainer(new_model(spec, corpus, device), corpus.with_train(chosen), spec, device)
        for epoch in range(spec.training.epochs):
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
            found = {name: _seen(trainer.released, corpus, "test", rows, device)[0] for name, rows in parts.items()}
    reference_model.output.parent.mkdir(parents=True, exist_ok=True)
    save_arrays(reference_model.output, **found)


def score_target(spec: TrialSpec, folder: Path, model_file: Path) -> Arrays:
    """Return the arrays of a trained model that all attacks share, from one forward pass.

    These are features and losses of members and non-members, and losses of the population, the canaries, and the
    secrets (`trainables.measure.attacks.extraction`) with the candidates of each in turn, and the numbers of these.

    Args:
        folder: the folder of the encoded corpus that it was trained on.
        model_file: the `model.pt` of a trial. Only tensors and plain data are loaded from it.
    """
    corpus = EncodedCorpus.open(folder).for_model(spec.model)
    device = pick_device(spec.training)
    model = new_model(spec, corpus, device)
    model.load_state_dict(torch.load(model_file, map_location=device, weights_only=True)["state_dict"])
    return _losses(model, corpus, spec.corpus.seed, device, features=True)


def read_references(files: Sequence[Path]) -> Arrays:
    """Return the fields of an `Evidence` about reference models: `losses_kn`, `losses_kz` and `inside_kn`.

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
        shadow: the file of the attack that was fitted to the shadow of the public corpus.
        same_corpus: the file of the shadow of the same corpus.

    Raises:
        BrokenFile: for a file that is not whole.
    """
    with reading(same_corpus), np.load(same_corpus) as found:
        fitted = fit_attack(found["members"], found["non_members"])
    # This attack is not tried on the shadow's own utterances. Members are sampled to as many as non-members are left.
    left_n = np.isin(attacked(corpus, seed)[1], same_corpus_parts(corpus, seed)[2])
    members = len(seen["members"])
    chosen = np.random.default_rng(seed).permutation(members)[: int(left_n.sum())]
    apart_n = np.concatenate([np.isin(np.arange(members), chosen), left_n])
    others = read_references(references)
    return Evidence.of(seen, shadow=load_attack(shadow), same_corpus=fitted, apart_n=apart_n, **others)


def attacked(corpus: EncodedCorpus, seed: int) -> tuple[Indices, Indices]:
    """Return members (of train) and non-members (of test), the same ones as every trial's shadow attack uses."""
    return members_and_others(corpus, "test", seed=seed)


def _losses(
    model: JointModel, corpus: EncodedCorpus, seed: int, device: torch.device, *, features: bool = False
) -> Arrays:
    """Return losses of members, non-members and population; with `features`, see `score_target`."""
    members, non_members = attacked(corpus, seed)
    found: Arrays = {}
    parts: list[tuple[str, Split, Indices]] = [
        ("member", "train", members),
        ("non_member", "test", non_members),
        ("population", "valid", corpus.known("valid")[:_POPULATION]),
    ]
    if features and corpus.size("canaries"):
        parts.append(("canary", "canaries", np.arange(corpus.size("canaries"))))
    if features and (secrets := secrets_in(corpus)):
        parts.append(("secret", "train", np.array([row for row, _ in secrets])))
        parts.append(("candidate", "test", np.concatenate([rows for _, rows in secrets])))
        found["candidates"] = np.array([len(rows) for _, rows in secrets])
    for name, split, rows in parts:
        seen, found[f"{name}_losses"] = _seen(model, corpus, split, rows, device)
        if features and name in ("member", "non_member"):
            found[f"{name}s"] = seen
    return found


def _seen(
    model: JointModel, corpus: EncodedCorpus, split: Split, rows: Indices, device: torch.device
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Return features (n, F) and losses (n,) of utterances."""
    predictions = collect_predictions(model, corpus, split, rows, device=device, outcomes=False, features=True)
    assert predictions is not None, "this process is alone"
    return predictions.seen()
