"""`edp-sweep plan`: what choosing a configuration costs, under each valid way, before anything runs."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from sweeps.commands.console import err, out, print_json
from sweeps.commands.options import with_trials
from sweeps.formatting.lines import print_line


def plan(
    recipe: Annotated[str, typer.Argument(help="a recipe's name, or a path to a YAML file")],
    epsilon: Annotated[
        float | None, typer.Option(help="of search and release together; the recipe's by default")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="how many trials; short for --set search.trials=N")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="change a setting, such as training.epochs=2; may be repeated"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
) -> None:
    """What choosing costs: the noise that is left for the release under each valid way, at one total ε."""
    from sweeps.recipes.loading import load_recipe

    overrides = with_trials(settings, trials)
    loaded = load_recipe(recipe, overrides)[1]  # as in `run`

    from sweeps.commands.plan import plan as price
    from sweeps.commands.plan import runnable

    priced = price(loaded, epsilon, lambda line: print_line(err, line))
    document = {**priced.document(), "runs": list(runnable(loaded, priced)[0])}
    if as_json:
        print_json(document)
        return
    if epsilon is not None:
        overrides.append(f"edp.epsilon={epsilon!r}")
    _show([recipe, *(word for setting in overrides for word in ("--set", setting))], document)


def _show(words: list[str], document: dict[str, Any]) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0))
    for head in ("way", "ε of choosing", "ε of the release", "ε in all"):
        table.add_column(head, justify="left" if head == "way" else "right", no_wrap=True)
    for way in document["ways"]:
        table.add_row(
            way["name"],
            *(f"{way[f'epsilon_of_{key}']:.3g}" for key in ("choice", "release")),
            f"{way['epsilon_total']:.3g}",
        )
    out.print(table)
    print_line(out, f"{document['ways'][0]['trials']} trials, δ = {document['delta']:g}. What each ε covers:")
    for way in document["ways"]:
        print_line(out, f"  {way['name']}: {way['covers']}")
    if document["out_of_reach"]:
        print_line(out, f"No noise brings these to ε = {document['target']:g}: {', '.join(document['out_of_reach'])}")
    for cheapest in document["runs"][:1]:
        run = shlex.join(["edp-sweep", "run", *words, "--plan", cheapest])
        print_line(out, f"The cheapest{' that runs' if cheapest != document['cheapest'] else ''} is {cheapest}: {run}")
