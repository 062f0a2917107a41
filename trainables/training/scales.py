"""Layer scales that are read off gradients before training: of synthetic utterances, or privately of real ones."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

import numpy as np
import torch
import torch.distributed as dist

from edp.alpha import gradient_layer_norms, private_alpha, public_alpha
from edp.keyed import derived_key, uniforms
from edp.ledger import PRIVATE_ALPHA_Z, AlphaRelease, Ledger
from edp.per_example import record_per_example
from edp.sampling import Epoch, Indices, group_by_user, shuffled_epoch
from trainables.config import TrialSpec
from trainables.corpora.labels import Labels
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.features.token_features import Batch, Features, encode_utterances
from trainables.models import JointModel
from trainables.training.batches import dropout_keys

SYNTHETIC_UTTERANCES = 64
_AT_ONCE = 64
VOTES = 512
"""Expected number of votes in the private estimate. With 20 layers, a typical sum of votes is 11 times the noise."""


def layer_scales(
    model: JointModel,
    corpus: EncodedCorpus,
    spec: TrialSpec,
    device: torch.device,
    key: bytes,
    ledger: Ledger,
    write_ahead: Callable[[Ledger], None],
) -> tuple[torch.Tensor | None, AlphaRelease | None]:
    """Return scales (K,) for the hook, and the release that they cost; (None, None) if the hook finds its own scales.

    All workers call this at once, before DDP wraps the model, and all get the same scales. The release is None unless
    private examples are used.

    Args:
        key: the run's, which decides who votes, and the dropout (`trainables.training.batches.run_key`).
        ledger: the ledger at the start of the run.
        write_ahead: called with the ledger and its release before anything is released.

    Raises:
        UnsupportedLayer: if `edp.alpha` is `private` and a layer has no rule for gradients by example.
    """
    model.train()  # cuDNN's recurrent layers have a backward pass in training mode only
    with torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]):
        if spec.edp.alpha == "public":
            batch = synthetic_batch(corpus.features(), corpus.labels).to(device)
            torch.manual_seed(0)
            return public_alpha(gradient_layer_norms(model, model(batch).mean())), None
        if spec.edp.alpha == "private":
            write_ahead(ledger.model_copy(update={"alpha_release": AlphaRelease(z=PRIVATE_ALPHA_Z)}))
            norms = _private_norms(model, corpus, spec, device, key)
            return private_alpha(norms, reproducible_noise=spec.edp.reproducible_noise)
    return None, None


def synthetic_batch(features: Features, labels: Labels) -> Batch:
    """Return utterances of made-up words, with labels drawn uniformly from the public label set.

    They use no private word or frequency, and no public corpus that a worker may not have.
    """
    rng = np.random.default_rng(0)
    letters = np.array(list(string.ascii_lowercase))
    tokens = [
        ["".join(rng.choice(letters, rng.integers(2, 9))) for _ in range(rng.integers(3, 13))]
        for _ in range(SYNTHETIC_UTTERANCES)
    ]
    batch = encode_utterances(tokens, features)
    tags_bt = torch.from_numpy(rng.integers(len(labels.tags), size=tuple(batch.mask_bt.shape)))
    intent_b = torch.from_numpy(rng.integers(len(labels.intents), size=len(tokens)))
    return replace(batch, tags_bt=tags_bt.where(batch.mask_bt, 0), intent_b=intent_b)


def _private_norms(
    model: JointModel, corpus: EncodedCorpus, spec: TrialSpec, device: torch.device, key: bytes
) -> torch.Tensor:
    """Return the layer norms (n, K) of this worker's share of the votes."""
    voters = [np.asarray(indices) for indices in _voters(corpus, spec, derived_key(key, "votes"))]
    mine = voters[dist.get_rank() :: dist.get_world_size()]
    recorder = model.recorder or record_per_example(model)
    if not mine:
        return torch.zeros(0, len(recorder.layer_names), device=device)
    before, model.recorder = model.recorder, recorder
    norms = torch.zeros(len(mine), len(recorder.layer_names), device=device)
    for first in range(0, len(mine), _AT_ONCE):
        votes = mine[first : first + _AT_ONCE]
        vote_b = np.repeat(np.arange(len(votes)), [len(indices) for indices in votes])
        indices = np.concatenate(votes)
        key_b = dropout_keys(key, -1, corpus.ids("example")[indices])
        batch = replace(corpus.batch("train", indices), key_b=key_b).to(device)
        weight_b = torch.tensor([1 / len(votes[v]) for v in vote_b], device=device)
        with recorder.examples(torch.from_numpy(vote_b), len(votes)):
            loss_b = model(batch)
        (loss_b * weight_b).sum().backward()
        norms[first : first + len(votes)] = recorder.squared_norms().sqrt()
        recorder.clear()
    model.recorder = before
    return norms


def _voters(corpus: EncodedCorpus, spec: TrialSpec, key: bytes) -> Iterator[Indices]:
    """Return the examples of each voter. A voter is an example, a user or a micro-batch, whichever is the unit.

    Each example or user votes at most once, if its own coin says so. The accounting claims no amplification for the
    coins. They depend on the key and the voter's id.
    """
    training, unit, examples = spec.training, spec.edp.unit, corpus.units(spec.edp.unit)
    if unit != "micro_batch":
        coins = uniforms(key, corpus.ids(unit))[:, 0]
        chosen = list(np.flatnonzero(coins < VOTES / examples).reshape(-1, 1))
        if unit == "example":
            return iter(chosen)
        assert corpus.train_users is not None, "checked by the trainer"
        drawn = Epoch(0, spec.edp.sampling, examples, examples, [[chosen]])
        most = spec.edp.user_utterances
        users, ids = corpus.train_users, corpus.ids("example")
        (step,) = group_by_user(drawn, users, max_examples=most, key=key, ids=ids)
        return iter(step[0])
    sizes = {"batch_size": training.batch_in(examples), "micro_batches": training.clips_in(examples)}
    steps = shuffled_epoch(examples, seed=training.seed, epoch=0, **sizes)
    return islice((m for step in steps for share in step for m in share if len(m)), VOTES)
