"""Settings of the recipe `private` for a user's corpus, for `edp-sweep run FILE`.

They follow from the number of training utterances, which is taken to be public, and from the task, which is that of a
reviewed schema, or of labels that the user declares public. Nothing else of the corpus decides a setting.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from edp.spec import UserError
from sweeps.config.loading import load_recipe
from sweeps.config.recipe import Recipe
from trainables.config import BERTSpec
from trainables.corpora import Splits, load_corpus
from trainables.corpora.labels import TASKS, Task, labels_of
from trainables.corpora.load import check_private, unread
from trainables.features.pretrained import available_encoder

PRIVATE = "private"
_FEWEST = 100
"""Fewest training utterances. With fewer, noise hides all that could be learnt."""
_DRAWN = 7_000
"""Training utterances from which batches are drawn at random instead of full (docs/which.md)."""


class Unreviewed(Exception):
    """Labels of a corpus that nobody has reviewed, in its `splits`. `name` is the corpus' name."""

    def __init__(self, splits: Splits, name: str) -> None:
        super().__init__(name)
        self.splits, self.name = splits, name


def settings_for(
    corpus: str,
    overrides: list[str],
    *,
    schema: str | None,
    labels_are_public: bool,
    epsilon: float | None,
    encoder: Path | None,
    say: Callable[[str], None],
) -> tuple[list[str], Recipe, int]:
    """Fit the recipe `private` to a corpus, and say the chosen settings.

    Returns:
        The settings, the recipe with them, and the number of training utterances.

    Args:
        corpus: a file or folder.
        overrides: the user's own settings, which come last.

    Raises:
        UserError: for an encoder or a corpus that cannot be read or learnt from.
        Unreviewed: without a schema, unless labels are public.
    """
    given = [f"corpus.path={_yaml(corpus)}", f"corpus.schema={_yaml(schema)}"]
    if epsilon is not None:
        given.append(f"edp.epsilon={epsilon}")
    if encoder is not None:
        given.append(f"model.pretrained={_yaml(str(encoder.resolve()))}")
    recipe = load_recipe(PRIVATE, [*given, *overrides])[1]
    check_private(recipe.corpus)
    layers = _layers(recipe)
    splits = load_corpus(recipe.corpus)
    task, units = labels_of(splits).task, len(splits.train)
    if units < _FEWEST:
        raise UserError(f"{corpus}: it has {units} training utterances, 45 % of all; allowed: at least {_FEWEST}")
    if beside := unread(recipe.corpus):
        say(f"{corpus}: not read: {', '.join(beside)}")
    if recipe.corpus.schema is None and not labels_are_public:
        raise Unreviewed(splits, recipe.corpus.name)
    chosen = [*given, *_by_size(units), *_by_task(task, layers), *overrides]
    recipe = load_recipe(PRIVATE, chosen)[1]
    edp, proxy, batch = recipe.edp, recipe.search.proxy, recipe.training.batch_size
    batches = "full batches" if batch == "full" else f"batches of {batch:,}"
    labelled = "taken to be public" if recipe.corpus.schema is None else f"of {schema or recipe.corpus.schema}"
    say(f"{corpus}: {TASKS[task]}, labels {labelled}; {units:,} training utterances")
    say(
        f"recipe {PRIVATE}: heads on {encoder or 'minilm'}, {batches}; "
        f"ε = {edp.epsilon:g} {_where(recipe)}, δ = {edp.delta:g}"
        + (f", the largest power of ten below 1/{units}" if edp.delta == _delta(units) else ""),
    )
    if proxy is not None and recipe.search.plan is not None:
        size = f"{proxy.utterances:,} utterances of " if proxy.utterances else ""
        line = f"{recipe.search.trials} trials on {size}{proxy.name}, a public corpus, cost no ε"
        say(f"{line}; the best one is trained once on {recipe.corpus.name}")
    return chosen, recipe, units


def _where(recipe: Recipe) -> str:
    """Return what has `edp.epsilon`, in words."""
    if recipe.target is None:
        return "at most for the release"
    return "for each trial" if recipe.search.plan is None else "for each trial and for the release"


def _yaml(value: str | None) -> str:
    return json.dumps(value, ensure_ascii=False)  # YAML reads an escaped surrogate pair as two halves


def _layers(recipe: Recipe) -> list[int]:
    """Return the last layer of each third of the encoder.

    Raises:
        UserError: for an encoder that is not there, or another model.
    """
    if not isinstance(recipe.model, BERTSpec) or recipe.model.features is None or recipe.model.pretrained is None:
        raise UserError("model: `run FILE` fits heads on a frozen encoder; for another, run a recipe with corpus.path")
    count = available_encoder(recipe.model).config.num_hidden_layers
    return sorted({max(1, count * third // 3) for third in (1, 2, 3)})


def _delta(units: int) -> float:
    """Return the largest power of ten below 1/units."""
    return float(f"1e-{len(str(units))}")


def _by_size(units: int) -> list[str]:
    """Return the settings that follow from the number of training utterances."""
    total = float(f"{units / 0.45:.1e}")  # of a corpus with so many of them, in two digits
    settings = [f"edp.delta={_delta(units)}", f"search.proxy.utterances={min(max(total, 1_000), 100_000):.0f}"]
    if units >= _DRAWN:
        settings += [
            f"training.batch_size={round(units / 1_200) * 100}",
            "training.epochs=20",
            "training.average=0.99",
            "training.validate_every=10",
            "space.training.epochs.choice=[12, 20, 30]",
        ]
    return settings


def _by_task(task: Task, layers: list[int]) -> list[str]:
    """Return the settings that follow from the task and the encoder's layers."""
    if task == "intents":
        return [
            "search.proxy.schema=communication_intents",
            f"model.features.layers={json.dumps(str(layers[-1]))}",
            "space.model.features.layers=null",
            "space.model.features.sentence.choice=[first, mean]",
        ]
    ways = ["+".join(map(str, some)) for some in (layers, layers[:2])]
    settings = [f"model.features.layers={json.dumps(ways[0])}"]
    settings.append(f"space.model.features.layers.choice={json.dumps(sorted(set(ways)))}")
    return settings if task == "joint" else [*settings, "search.proxy.schema=communication_slots"]
