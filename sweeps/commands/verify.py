"""`edp-sweep verify`: measure sensitivity and noise of a configuration's steps, and compare them with its ledger."""

from __future__ import annotations

import math
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from edp.spec import UserError
from sweeps.commands.console import err, out, print_json
from sweeps.commands.options import Json, Set
from sweeps.config.loading import load_config, load_recipe, read_yaml, recipe_names
from sweeps.config.recipe import Recipe, example_params
from sweeps.text.terminal import print_line
from trainables.config import CLCSpec, CorpusSpec, TrialSpec
from trainables.corpora import is_generated, load_corpus
from trainables.corpora.labels import labels_of
from trainables.corpora.types import UNKNOWN, Splits
from trainables.features.embeddings import WordVectors
from trainables.records.job import TrialError, TrialFailed

if TYPE_CHECKING:
    from trainables.features.encoded_corpus import EncodedCorpus

EXAMPLES = 32
"""Largest number of utterances in a measured step."""
_GENERATED = 20_000
"""Largest number of utterances that are generated. They contain all intents and slots of a grammar."""
_OF_RECIPES = {"base", *Recipe.model_fields} - TrialSpec.model_fields.keys()
"""Settings that only a recipe has. `pick` does not write them."""
_CLIPS = 16
"""Largest number of micro-batches of a measured step."""
MINUTE = 60.0
"""The time limit, in seconds, of a measurement that nobody asked for."""
_OTHERS = 12
"""Number of utterances of valid and of test, which are read and encoded too."""
_USERS = 8
"""Number of users if users are the unit. Each has `EXAMPLES // _USERS` utterances."""


def verify_command(
    config: Annotated[str, typer.Argument(help="a configuration that `pick` wrote, or a recipe's name or path")],
    settings: Set = None,
    as_json: Json = False,
) -> None:
    """Measure clip and noise of a few steps, and compare them with the ledger; exit code 1 if they differ."""
    document = verify_with_bar(load(config, settings or []))
    if as_json:
        print_json(document)
    else:
        _show(document)
    if document["violations"]:
        raise typer.Exit(1)


def load(config: str, overrides: list[str]) -> TrialSpec:
    """Return the configuration of a file that `pick` wrote, or an example from a recipe's space.

    Raises:
        UserError: as `load_recipe`.
    """
    if config not in recipe_names() and os.path.isfile(config) and not (_OF_RECIPES & read_yaml(Path(config)).keys()):
        return load_config(Path(config), overrides)
    recipe = load_recipe(config, overrides)[1]
    return recipe.trial(example_params(recipe))


def verify_with_bar(spec: TrialSpec, seconds: float | None = None) -> dict[str, Any]:
    """Run steps of `spec` on a few utterances of its corpus, with its model, and compare them with the ledger.

    Show a progress bar meanwhile.

    Args:
        seconds: a time limit; None: no limit. After each part the time of all parts is estimated.

    Returns:
        The document that `edp-sweep verify --json` prints.

    Raises:
        UserError: for a configuration that cannot be verified, or would take longer than the time limit.
        TrialError: for one that cannot be trained.
    """
    from sweeps.engine.prepare import check_encoders, ensure_states
    from trainables.features.encoding import encode
    from trainables.training.process import alone
    from trainables.training.verification import verify

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
        Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar,
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


def _show(document: dict[str, Any]) -> None:
    """Print the declared and the measured values, and each violation."""
    sensitivity, noise = document["sensitivity"], document["noise_std"]
    endless = math.isinf(sensitivity["declared"])
    lines = [
        f"sensitivity  at most {sensitivity['declared']:.6g} declared, {sensitivity['measured']:.6g} measured over "
        f"{document['steps']} steps with and without a unit",
        f"noise        std {noise['declared']:.6g} declared, {noise['measured']:.6g} measured",
        *(
            ["             the influence of one unit has no bound: the layer scales depend on the data"]
            if endless
            else []
        ),
        *(f"VIOLATION    {one['parameter']}: {one['what']}" for one in document["violations"]),
    ]
    if not document["violations"]:
        lines.append("no violation: every trainable parameter is clipped and noised as the ledger says")
    for line in lines:
        print_line(out, line)
