"""Measure sensitivity and noise of a configuration's steps, and compare them with its ledger."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from edp.spec import UserError
from sweeps.engine.prepare import check_encoders, ensure_states
from trainables.config import CLCSpec, CorpusSpec, TrialSpec
from trainables.corpora import is_generated, load_corpus
from trainables.corpora.labels import labels_of
from trainables.corpora.types import UNKNOWN, Splits
from trainables.features.embeddings import WordVectors
from trainables.features.encoded_corpus import EncodedCorpus, encode
from trainables.records.job import TrialError, TrialFailed
from trainables.training.process import alone
from trainables.training.verification import verify

EXAMPLES = 32
"""Largest number of utterances in a measured step."""
_GENERATED = 20_000
"""Largest number of utterances that are generated. They contain all intents and slots of a grammar."""
_CLIPS = 16
"""Largest number of micro-batches of a measured step."""
MINUTE = 60.0
"""The time limit, in seconds, of a measurement that nobody asked for."""
_OTHERS = 12
"""Number of utterances of valid and of test, which are read and encoded too."""
_USERS = 8
"""Number of users if users are the unit. Each has `EXAMPLES // _USERS` utterances."""


def verify_with_bar(spec: TrialSpec, console: Console, seconds: float | None = None) -> dict[str, Any]:
    """Run steps of `spec` on a few utterances of its corpus, with its model, and compare them with the ledger.

    Show a progress bar meanwhile.

    Args:
        console: shows the bar.
        seconds: a time limit; None: no limit. After each part the time of all parts is estimated.

    Returns:
        The document that `edp-sweep verify --json` prints.

    Raises:
        UserError: for a configuration that cannot be verified, or would take longer than the time limit.
        TrialError: for one that cannot be trained.
    """
    began = time.monotonic()
    spec = small(spec)
    check_encoders([spec])
    splits = load_corpus(spec.corpus, "corpus")
    spec.check_users(len(splits.train_users) or None)
    labels = labels_of(splits)  # of the whole corpus, so that sizes are real
    splits = _cut(splits, spec)
    if spec.edp.unit == "user":
        spec = small(spec, most=len(splits.train_users))
    vectors = _vectors(splits, spec)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with (
        tempfile.TemporaryDirectory() as folder,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task(f"verifying {EXAMPLES} utterances of {spec.corpus.name}", total=None)

        def read(corpus: CorpusSpec, place: Path) -> EncodedCorpus:
            encoded = encode(load_corpus(corpus), spec.model, place, labels=labels, features=vectors)
            ensure_states([place], [spec.model], lambda line: None)
            return encoded.open(place).for_model(spec.model)

        def progress(done: int, total: int) -> None:
            expected = (time.monotonic() - began) * total / done
            if seconds is not None and expected > seconds:
                raise UserError(f"it would take about {expected:.0f} s; --verify measures them all the same")
            bar.update(task, completed=done, total=total)

        try:
            with alone():
                found = verify(spec, splits, read, Path(folder), progress)
        except TrialFailed as error:
            raise TrialError(str(error)) from error
    return {
        "violations": [{"parameter": one.parameter, "what": one.what} for one in found.violations],
        "sensitivity": {"declared": found.declared_sensitivity, "measured": found.measured_sensitivity},
        "noise_std": {"declared": found.declared_std, "measured": found.measured_std},
        "steps": found.steps,
    }


def small(spec: TrialSpec, most: int = EXAMPLES) -> TrialSpec:
    """Return the same mechanism in one worker, with at most `most` utterances or users and 16 micro-batches a step.

    Raises:
        UserError: for a configuration without a mechanism, and for noise that is correlated between steps.
    """
    training = spec.training
    if training.method == "sgd":
        raise UserError("training.method = sgd: nothing is clipped or noised; allowed: edp, dpsgd")
    if spec.edp.noise_correlation != "none":
        raise UserError(
            f"edp.noise_correlation = {spec.edp.noise_correlation}: the noise of several steps is correlated, but a "
            "single step is measured; allowed: none"
        )
    data = spec.model_dump()
    if is_generated(spec.corpus):
        data["corpus"]["utterances"] = min(_GENERATED, spec.corpus.utterances or _GENERATED)
    data["training"] |= {"workers": 1, "batch_size": most}
    if training.batch_size != "full" and isinstance(training.batch_size, int):
        data["training"]["batch_size"] = min(most, training.batch_size)
    if training.method != "dpsgd":
        clips = min(_CLIPS, training.micro_batches)
        data["training"] |= {"micro_batches": clips, "batch_size": data["training"]["batch_size"] // clips * clips}
    return TrialSpec.model_validate(data)


def _cut(splits: Splits, spec: TrialSpec) -> Splits:
    """Keep a few utterances; if users are the unit, those of the users who have most."""
    train = splits.train[:EXAMPLES]
    if spec.edp.unit == "user":
        most = [user for user, _ in splits.train_users.most_common(_USERS)]
        own = ([one for one in splits.train if one.user == user] for user in most)
        train = [one for utterances in own for one in utterances[: EXAMPLES // _USERS]]
    known = [[one for one in part if one.intent != UNKNOWN][:_OTHERS] for part in (splits.valid, splits.test)]
    return replace(splits, train=train, valid=known[0], test=known[1])


def _vectors(splits: Splits, spec: TrialSpec) -> WordVectors | None:
    """Draw word vectors at random: training them takes minutes, and the clip must hold for any public inputs."""
    if not isinstance(spec.model, CLCSpec):
        return None
    words = sorted({token.lower() for one in splits.train for token in one.tokens})
    rng = np.random.default_rng(0)
    shape = spec.model.embedding_size
    return WordVectors(
        words,
        rng.standard_normal((len(words), shape)).astype(np.float32),
        rng.standard_normal((50, shape)).astype(np.float32),
    )
