"""`edp-sweep plan`: the ways to choose a configuration and release its model within one total ε, and their prices."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError
from rich import box
from rich.table import Table

from edp.spec import UserError
from sweeps.commands.console import err, out, print_json
from sweeps.commands.options import Json, Set, Trials, with_trials
from sweeps.commands.options import Recipe as RecipeName
from sweeps.config.loading import apply_overrides, load_recipe
from sweeps.config.recipe import Recipe
from sweeps.text.errors import one_line
from sweeps.text.figures import (
    LABELS_PUBLIC,
    delta_remark,
    epsilon_text,
    labels_field,
)
from sweeps.text.terminal import print_line
from trainables.config import CorpusSpec
from trainables.corpora import load_corpus
from trainables.corpora.labels import TASKS, task_of
from trainables.corpora.overlap import check_public
from trainables.corpora.types import Splits

if TYPE_CHECKING:
    from sweeps.config.pricing import Prices, SelectionStrategy

PROXY = "proxy"
"""Name of the way that chooses on a proxy corpus."""


def plan_command(
    recipe: RecipeName,
    epsilon: Annotated[
        float | None, typer.Option(help="total ε of search and release; by default the recipe's edp.epsilon")
    ] = None,
    trials: Trials = None,
    settings: Set = None,
    as_json: Json = False,
) -> None:
    """Price each valid way to choose and release within one total ε: what is left of it for the release."""
    overrides = with_trials(settings, trials)
    if epsilon is not None:
        overrides.append(f"edp.epsilon={epsilon!r}")
    loaded = load_recipe(recipe, overrides)[1]
    priced, examples, users = priced_ways(loaded, lambda line: print_line(err, line))
    units = users if loaded.edp.unit == "user" else examples
    if (remark := delta_remark(loaded.edp.delta, loaded.edp.unit, units)) is not None:
        print_line(err, remark)
    runs, refused = runnable(loaded, priced)
    document = {**priced.document(), "runs": list(runs), **labels_field(loaded.corpus)}
    if as_json:
        print_json(document)
        return
    _show([recipe, *(word for setting in overrides for word in ("--set", setting))], document)
    for way, why in refused.items() if not runs else ():
        print_line(out, f"{way} does not run here: {why}")


def _show(words: list[str], document: dict[str, Any]) -> None:
    """Print the ways as a table, what each ε covers, and the command that runs the cheapest.

    Args:
        words: recipe and settings of that command.
    """
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0))
    for head in ("way", "ε of choosing", "ε of the release", "ε in all"):
        table.add_column(head, justify="left" if head == "way" else "right", no_wrap=True)
    for way in document["ways"]:
        table.add_row(
            way["name"],
            *(epsilon_text(way[f"epsilon_{key}"]) for key in ("of_choice", "of_release", "total")),
        )
    out.print(table)
    print_line(out, f"{document['ways'][0]['trials']} trials, δ = {document['delta']:g}. Each ε covers:")
    for way in document["ways"]:
        print_line(out, f"  {way['name']}: {way['covers']}")
    if document.get("labels_taken_to_be_public"):
        print_line(out, f"For all of them {LABELS_PUBLIC}.")
    if document["out_of_reach"]:
        print_line(out, f"No noise brings these to ε = {document['target']:g}: {', '.join(document['out_of_reach'])}")
    for cheapest in document["runs"][:1]:
        run = shlex.join(["edp-sweep", "run", *words, "--plan", cheapest])
        print_line(out, f"The cheapest{' that runs' if cheapest != document['cheapest'] else ''} is {cheapest}: {run}")


def priced_ways(recipe: Recipe, say: Callable[[str], None]) -> tuple[Prices, int, int]:
    """Price every way to choose among a recipe's trials and to release within its `edp.epsilon`.

    Returns:
        The prices, and the numbers of private training utterances and of private users.

    Raises:
        UserError: if there is no target, if no noise meets it, or if the proxy corpus contains the private corpus.
    """
    from sweeps.config.pricing import price
    from sweeps.run.watch import notice  # imports Ray

    wanted = recipe.edp.epsilon
    if wanted is None:
        raise UserError("epsilon: the recipe has no edp.epsilon; allowed: --epsilon, or --set edp.epsilon=8")
    with notice("reading the corpus", say):
        splits = load_corpus(recipe.corpus, "corpus")
        if recipe.search.proxy is not None:
            check_public(recipe.corpus, splits, {"search.proxy": recipe.search.proxy})
            _check_task(recipe.search.proxy, splits)
    spec, examples, users = recipe.baseline(), len(splits.train), len(splits.train_users)
    spec.check_users(users or None)
    units = users if spec.edp.unit == "user" else examples
    return price(recipe, units, wanted), examples, users


def _check_task(proxy: CorpusSpec, splits: Splits) -> None:
    """Raise if the proxy corpus has another task than the corpus: the choice would not carry over."""
    task, other = task_of(splits), task_of(load_corpus(proxy, "search.proxy"))
    if task != other:
        raise UserError(
            f"search.proxy = {proxy.name}: it has {TASKS[other]}, the corpus {TASKS[task]}; "
            f"allowed: a corpus of {TASKS[task]}"
        )


def runnable(recipe: Recipe, priced: Prices) -> tuple[dict[str, SelectionStrategy], dict[str, str]]:
    """Return the ways that `run --plan` accepts, the cheapest first, and the reason against each other way."""
    from sweeps.config.pricing import is_shuffled

    runs, refused = {}, {}
    for way in priced.ways:
        if way.name == "all_trials" and not is_shuffled(recipe):
            refused[way.name] = (
                "the cost of all trials is known beforehand only with shuffled epochs; "
                "allowed: edp.sampling=shuffle, or search.proxy, a public corpus"
            )
            continue
        try:
            Recipe.model_validate(apply_overrides(recipe.model_dump(mode="json"), search_settings(way, recipe)))
            runs[way.name] = way
        except ValidationError as error:
            other = recipe.search.proxy if way.name == PROXY else None
            where = f"with search.proxy = {other.name} as the corpus, " if other is not None else ""
            refused[way.name] = where + one_line(error)
    return runs, refused


def search_settings(way: SelectionStrategy, recipe: Recipe) -> list[str]:
    """Return the settings of the search. Only SER chooses, so there is one objective and one kept epoch."""
    settings = [f"edp.epsilon={way.epsilon_of_release!r}", "search.objectives=[ser]", "search.keep_epochs=1"]
    settings.append("search.plan=null")
    if way.name == "random_stopping":
        settings.append("search.sampler=random_stopping")
    if way.name == PROXY:
        assert recipe.search.proxy is not None
        settings.append(f"corpus={recipe.search.proxy.model_dump_json(exclude_none=True)}")
        settings.append("search.proxy=null")  # the proxy is the corpus of this search
    return settings
