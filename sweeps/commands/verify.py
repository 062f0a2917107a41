"""`edp-sweep verify`: measure sensitivity and noise of a configuration's steps, and compare them with its ledger."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from sweeps.commands.console import LIBRARIES, busy, err, out, print_json
from sweeps.commands.options import Json, Set
from sweeps.config.loading import load_config, load_recipe, read_yaml, recipe_names
from sweeps.config.recipe import Recipe, example_params
from sweeps.text.terminal import print_line
from trainables.config import TrialSpec

_OF_RECIPES = {"base", *Recipe.model_fields} - TrialSpec.model_fields.keys()
"""Settings that only a recipe has. `pick` does not write them."""


def verify_command(
    config: Annotated[str, typer.Argument(help="a configuration that `pick` wrote, or a recipe's name or path")],
    settings: Set = None,
    as_json: Json = False,
) -> None:
    """Measure clip and noise of a few steps, and compare with the ledger.

    The exit code is 1 if they differ.
    """
    spec = load(config, settings or [])
    with busy(LIBRARIES):
        from sweeps.engine.jobs.verify import verify_with_bar

    document = verify_with_bar(spec, err)
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
