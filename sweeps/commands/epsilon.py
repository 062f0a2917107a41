"""`edp-sweep epsilon`: the ε of a configuration or of a recipe, without training it."""

from __future__ import annotations

from collections.abc import Container
from typing import Annotated, Any, Literal

import typer
from pydantic import ValidationError
from rich import box
from rich.progress import track
from rich.table import Table

from edp.accounting.composition import composition_of
from edp.accounting.epsilon import epsilon_curve
from edp.ledger import Ledger, planned_ledger
from edp.sampling import steps_at_rate
from edp.spec import EDPSpec, UserError
from sweeps.commands.console import BAR, LIBRARIES, busy, err, out, print_json
from sweeps.commands.options import Json, Set, Trials, with_trials
from sweeps.config.choice import chosen_in
from sweeps.config.loading import apply_overrides, load_recipe
from sweeps.config.spending import price
from sweeps.text.errors import one_line
from sweeps.text.figures import (
    LABELS_PUBLIC,
    NO_GUARANTEE,
    delta_remark,
    epsilon_digits,
    epsilon_text,
    labels_field,
    measured,
)
from sweeps.text.terminal import print_line
from trainables.config.training import MAX_EPOCHS

MAX_LEVELS = 10_000
"""Largest number of noise levels with Poisson sampling. Each takes milliseconds for each epoch that is shown."""
_ROWS = 15
"""Approximate number of rows of the table."""

_UNITS = {
    "example": "one example",
    "micro_batch": "all examples of one micro-batch",
    "user": "one user, all of whose examples are one micro-batch",
}
_NEIGHBOURS = {
    "shuffle": "replaced by nothing, its place kept (shuffled epochs)",
    "poisson": "added or removed (Poisson sampling)",
}


def epsilon_command(
    context: typer.Context,
    recipe: Annotated[
        str | None, typer.Argument(help="a recipe with a target edp.epsilon, to price; without it, --z0 and --epochs")
    ] = None,
    z0: Annotated[float | None, typer.Option(help="noise multiplier of the first epoch")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, max=MAX_EPOCHS, help="number of training epochs")] = None,
    decay: Annotated[
        str, typer.Option(help="decay of the noise multiplier over epochs: none, linear or exponential")
    ] = "none",
    tau: Annotated[float, typer.Option(help="speed of the decay, per epoch")] = 0.0,
    method: Annotated[
        Literal["edp", "dpsgd"] | None,
        typer.Option(help="dpsgd clips each example or user alone; by default dpsgd with --unit user, else edp"),
    ] = None,
    micro_batches: Annotated[
        int,
        typer.Option(
            min=1,
            max=10**12,
            help="number of micro-batches a step (N in the paper); with dpsgd of examples or users a step",
        ),
    ] = 8,
    delta: Annotated[float, typer.Option(help="δ of the guarantee")] = 5e-4,
    noise: Annotated[
        str, typer.Option(help="noise for the sensitivity of a step (corrected), or as the paper has it (paper)")
    ] = "corrected",
    alpha: Annotated[
        str, typer.Option(help="source of the layer scales: fixed, none, public, private or paper")
    ] = "fixed",
    sampling: Annotated[str, typer.Option(help="sampling of the examples: shuffle or poisson")] = "shuffle",
    rate: Annotated[
        float, typer.Option(min=1e-12, max=1, help="share of the data that a step holds, with poisson or banded")
    ] = 1.0,
    unit: Annotated[str, typer.Option(help="unit that is protected: example, micro_batch or user")] = "example",
    trials: Trials = None,
    settings: Set = None,
    as_json: Json = False,
) -> None:
    """Compute the ε of a configuration or of a recipe.

    A configuration (--z0, --epochs, --set edp.KEY=VALUE) has the honest ε, and that of the paper's formula. The row of
    an epoch is the ε of a training that is planned to end there; one on a private corpus that ends earlier keeps the
    ε of its plan. A recipe has the ε of a trial, of its whole search, and of a choice on a proxy corpus with a release.
    """
    given = {name for name in context.params if _is_given(context, name)}
    if recipe is not None:
        if others := sorted(given - {"recipe", "trials", "settings", "as_json"}):
            raise UserError(f"{others[0].replace('_', '-')}: a recipe is given; allowed: --set, --trials, --json")
        _price(recipe, with_trials(settings, trials), as_json)
        return
    if trials is not None:
        raise UserError("recipe: missing; allowed: a recipe with --trials")
    if z0 is None or epochs is None:
        raise UserError(f"{'z0' if z0 is None else 'epochs'}: missing; allowed: --z0 and --epochs, or a recipe")
    names = ("z0", "decay", "tau", "noise", "alpha", "sampling", "unit", "delta")
    data = apply_overrides({"edp": {name: context.params[name] for name in names}}, settings or [])
    try:
        spec = EDPSpec.model_validate(data.pop("edp"))
    except ValidationError as error:
        raise UserError(one_line(error)) from None
    if data:
        raise UserError(f"--set {next(iter(data))}: allowed without a recipe: edp.…, such as edp.clip=quantile")
    method = method or ("dpsgd" if spec.unit == "user" else "edp")
    if spec.unit == "user" and method == "edp":
        raise UserError(
            "unit = user: each user is clipped alone, but method = edp clips micro-batches of several; "
            "allowed: --method dpsgd, with --micro-batches as the number of users a step"
        )
    if rate != 1 and spec.sampling == "shuffle" and not spec.fixed_order:
        raise UserError(
            f"rate = {rate:g} has no meaning with sampling = shuffle, where every example takes part once an epoch; "
            "allowed: together with --sampling poisson or --set edp.noise_correlation=banded"
        )
    ledger = planned_ledger(
        spec,
        epochs=epochs,
        micro_batches=micro_batches,
        steps_per_epoch=steps_at_rate(rate),
        rate=rate,
        single_example=method == "dpsgd",
    )
    # Each epoch takes time to price, so only those that are shown are priced.
    step = max(1, epochs // _ROWS)
    rows = {epoch for epoch in range(epochs) if (epoch + 1) % step == 0 or epoch + 1 == epochs}
    document = _document(ledger, spec, shown=None if as_json else rows)
    if as_json:
        print_json(document)
    else:
        _show(document, spec)


def _is_given(context: typer.Context, name: str) -> bool:
    return getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"


def _price(name: str, overrides: list[str], as_json: bool) -> None:
    """Print the ε of a trial of a recipe, of its whole search, and of a choice on a proxy corpus with its release.

    Raises:
        UserError: without a target ε, or if no noise meets it.
    """
    recipe = load_recipe(name, overrides)[1]
    if recipe.edp.epsilon is None:
        raise UserError("edp.epsilon: the recipe has no target; allowed: --set edp.epsilon=8")
    with busy(LIBRARIES):
        from sweeps.engine.prepare import private_sizes

    examples, users = private_sizes(recipe, lambda line: print_line(err, line))
    units = users if recipe.edp.unit == "user" else examples
    if (remark := delta_remark(recipe.edp.delta, recipe.edp.unit, units)) is not None:
        print_line(err, remark)
    prices = price(recipe, units)
    if as_json:
        print_json({"delta": recipe.edp.delta, "unit": recipe.edp.unit, **prices, **labels_field(recipe.corpus)})
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0))
    table.add_column("what", no_wrap=True)
    table.add_column("ε", justify="right", no_wrap=True)
    names = ("a trial", f"the whole search, {recipe.search.trials} trials", "proxy and release")
    for what, key in zip(names, ("trial", "search", "proxy_and_release"), strict=True):
        epsilon = prices[f"epsilon_of_{key}"]
        table.add_row(what, "unknown" if epsilon is None else epsilon_text(epsilon))
    out.print(table)
    proxy = f"chosen on {recipe.search.proxy.name}" if recipe.search.proxy is not None else "it needs search.proxy"
    lines = [
        f"δ = {recipe.edp.delta:g}; unit: {recipe.edp.unit}",
        f"the whole search: {chosen_in(recipe.search, recipe.search.limits)}",
        f"proxy and release (search.plan=proxy): {proxy}; trained once on {recipe.corpus.name}, for which ε holds; the "
        "check of public corpora for private utterances is not covered",
    ]
    if recipe.target is None:
        lines.append(
            "z0 is searched: the ε of a trial is known when its z0 is drawn; the release has at most edp.epsilon"
        )
    elif recipe.edp.sampling == "poisson" or "edp.sampling" in recipe.space:
        lines.append("Poisson sampling: ε of the search is for the space's first values; status has that of its trials")
    if recipe.corpus.schema is None:
        lines.append(LABELS_PUBLIC)
    for line in lines:
        print_line(out, line)


def _document(ledger: Ledger, spec: EDPSpec, *, shown: Container[int] | None = None) -> dict[str, Any]:
    """Return what `--json` prints.

    Args:
        shown: the epochs, counted from 0, that are listed. The last epoch is one of them. None: all epochs.

    Raises:
        UserError: for more than `MAX_LEVELS` noise levels.
    """
    levels = len({(s.rate, s.z) for s in composition_of(ledger).sampled})
    if levels > MAX_LEVELS:
        raise UserError(
            f"epochs = {levels}: with decay {spec.decay} and Poisson sampling each has a noise level of its own; "
            f"allowed: at most {MAX_LEVELS}, or --sampling shuffle, or --decay none"
        )
    curve = epsilon_curve(ledger, spec.delta, wanted=shown, each=lambda every: track(every, "pricing epochs", **BAR))
    _, epsilon, paper = curve[-1]
    return {
        "epsilon": epsilon,
        "epsilon_user": epsilon if spec.unit == "user" else None,
        "epsilon_paper": paper,
        "formal_guarantee": measured({"epsilon": epsilon})["formal_guarantee"],
        "delta": spec.delta,
        "unit": spec.unit,
        "neighbours": _NEIGHBOURS[spec.sampling],
        "aggregator": "trusted",
        "per_epoch": [
            {"epoch": epoch + 1, "epsilon": honest, "epsilon_paper": paper} for epoch, honest, paper in curve
        ],
    }


def _show(document: dict[str, Any], spec: EDPSpec) -> None:
    """Print some epochs as a table, and the guarantee in words."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0))
    for name in ("planned epochs", "ε honest", "ε paper"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = document["per_epoch"]
    for row in rows:
        table.add_row(str(row["epoch"]), epsilon_text(row["epsilon"]), epsilon_digits(row["epsilon_paper"]))
    out.print(table)
    honest, paper = (epsilon_digits(document[name]) for name in ("epsilon", "epsilon_paper"))
    lines = [
        f"ε = {honest} (honest), {paper} (by the paper's formula), at δ = {spec.delta:g}",
        f"protects: {_UNITS[spec.unit]}, {document['neighbours']}; the aggregator is trusted",
    ]
    if spec.unit != "user":
        lines.append(
            "a person with several utterances is protected less; --unit user protects all of a user's utterances"
        )
    if (remark := delta_remark(spec.delta, spec.unit, None)) is not None:
        lines.append(remark)
    if len(rows) > 1:
        lines.append(
            "each row is a training that is planned to end there; one that figures of its epochs end earlier has the "
            "ε of its plan"
        )
    if document["epsilon"] >= NO_GUARANTEE:
        lines.append("an ε of 1e4 or more is no formal guarantee")
    for line in lines:
        print_line(out, line)
