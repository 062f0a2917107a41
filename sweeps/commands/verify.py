"""`edp-sweep verify`: holds a configuration's own steps against its ledger: sensitivity, and noise."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from edp.spec import UserError
from sweeps.commands.console import err, out, print_json
from sweeps.commands.options import Json, Set
from sweeps.config.loading import load_config, load_recipe, read_yaml, recipe_names
from sweeps.config.recipe import Recipe, example_params
from sweeps.text.terminal import print_line
from trainables.config import CLCSpec, TrialSpec
from trainables.corpora import is_generated, load_corpus
from trainables.corpora.labels import Labels
from trainables.corpora.types import Splits
from trainables.records.job import TrialError, TrialFailed

if TYPE_CHECKING:
    from trainables.features.embeddings import WordVectors

EXAMPLES = 32
"""Number of utterances of the corpus that a measured step holds at most."""
_GENERATED = 20_000
"""Number of utterances that are generated at most: all intents and slots of a grammar are in them."""
_OF_RECIPES = Recipe.model_fields.keys() - TrialSpec.model_fields.keys()
"""Settings that only a recipe has, not a configuration that `pick` wrote."""
_CLIPS = 16
_USERS = 8
"""Number of users where they are the unit: of each as many utterances."""

Say = Callable[[str], None]


def verify_command(
    config: Annotated[str, typer.Argument(help="a configuration that `pick` wrote, or a recipe's name or path")],
    settings: Set = None,
    as_json: Json = False,
) -> None:
    """Measures clip and noise of a few steps against the ledger; exit code 1 where they are not what it says."""
    document = verify_with_bar(load(config, settings or []))
    if as_json:
        print_json(document)
    else:
        _show(document)
    if document["violations"]:
        raise typer.Exit(1)


def load(config: str, overrides: list[str]) -> TrialSpec:
    """Return the configuration of a file that `pick` wrote, or some configuration of a recipe's space.

    Raises:
        UserError: as `load_recipe`.
    """
    if config not in recipe_names() and os.path.isfile(config) and not (_OF_RECIPES & read_yaml(Path(config)).keys()):
        return load_config(Path(config), overrides)
    recipe = load_recipe(config, overrides)[1]
    return recipe.trial(example_params(recipe))


def verify_with_bar(spec: TrialSpec) -> dict[str, Any]:
    """Return what `--json` prints of a configuration, measured under a progress bar."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("steps", total=None)
        return verify(
            spec,
            lambda line: bar.update(task, description=line),
            lambda done, total: bar.update(task, description="steps", completed=done, total=total),
        )


def verify(spec: TrialSpec, say: Say, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Run steps of `spec` on a few utterances of its corpus, with its model, and hold them against the ledger.

    Args:
        say: called with what is prepared.
        progress: called with the steps run and in all.

    Returns:
        What `edp-sweep verify --json` prints.

    Raises:
        UserError: for a configuration that cannot be verified.
        TrialError: for one that cannot be trained.
    """
    spec = small(spec)
    from sweeps.run.frozen_states import ensure_states
    from sweeps.run.prepare import check_encoders
    from trainables.features.encoding import encode
    from trainables.training.process import alone
    from trainables.training.verification import verify as measure

    check_encoders([spec])
    splits = load_corpus(spec.corpus, "corpus")
    spec.check_users(len(splits.train_users) or None)
    labels = Labels.of([*splits.train, *splits.valid, *splits.test])  # all, for a model of its own size
    splits = _cut(splits, spec)
    if spec.edp.unit == "user":
        spec = small(spec, most=len(splits.train_users))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / f"{spec.corpus.name}-verified"
        say(f"encoding {EXAMPLES} utterances of {spec.corpus.name}")
        corpus = encode(splits, spec.model, place, labels=labels, features=_vectors(splits, spec))
        ensure_states([place], [spec.model], say)
        with alone():
            try:
                found = measure(spec, corpus.open(place).for_model(spec.model), progress)
            except TrialFailed as error:
                raise TrialError(str(error)) from error
    return {
        "violations": [{"parameter": one.parameter, "what": one.what} for one in found.violations],
        "sensitivity": {"declared": found.declared_sensitivity, "measured": found.measured_sensitivity},
        "noise_std": {"declared": found.declared_std, "measured": found.measured_std},
        "pairs": found.pairs,
    }


def small(spec: TrialSpec, most: int = EXAMPLES) -> TrialSpec:
    """Return the same mechanism in one worker, on steps of at most `most` utterances or users, in a few micro-batches.

    Raises:
        UserError: for what has no mechanism, or one that a single step does not show.
    """
    training = spec.training
    if training.method == "sgd":
        raise UserError("training.method = sgd: nothing is clipped or noised; allowed: edp, dpsgd")
    if spec.edp.noise_correlation != "none":
        raise UserError(
            f"edp.noise_correlation = {spec.edp.noise_correlation}: its noise is not that of a single step, which is "
            "what is measured; allowed: none"
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
    """Keep a few utterances; where users are the unit, of those who have most."""
    train = splits.train[:EXAMPLES]
    if spec.edp.unit == "user":
        most = [user for user, _ in splits.train_users.most_common(_USERS)]
        own = ([one for one in splits.train if one.user == user] for user in most)
        train = [one for utterances in own for one in utterances[: EXAMPLES // _USERS]]
    return replace(splits, train=train, valid=splits.valid[:2], test=splits.test[:2])


def _vectors(splits: Splits, spec: TrialSpec) -> WordVectors | None:
    """Draw word vectors at random: no clip may depend on what public inputs are, and training them takes minutes."""
    if not isinstance(spec.model, CLCSpec):
        return None
    import numpy as np

    from trainables.features.embeddings import WordVectors

    words = sorted({token.lower() for one in splits.train[:EXAMPLES] for token in one.tokens})
    rng = np.random.default_rng(0)
    shape = spec.model.embedding_size
    return WordVectors(
        words,
        rng.standard_normal((len(words), shape)).astype(np.float32),
        rng.standard_normal((50, shape)).astype(np.float32),
    )


def _show(document: dict[str, Any]) -> None:
    sensitivity, noise = document["sensitivity"], document["noise_std"]
    endless = math.isinf(sensitivity["declared"])
    lines = [
        f"sensitivity  at most {sensitivity['declared']:.6g} declared, {sensitivity['measured']:.6g} measured over "
        f"{document['pairs']} pairs of neighbours",
        f"noise        std {noise['declared']:.6g} declared, {noise['measured']:.6g} measured",
        *(["             nothing bounds one unit: the layer scales are read off the data"] if endless else []),
        *(f"VIOLATION    {one['parameter']}: {one['what']}" for one in document["violations"]),
    ]
    if not document["violations"]:
        lines.append("no violation: every trainable parameter is clipped and noised as the ledger says")
    for line in lines:
        print_line(out, line)
