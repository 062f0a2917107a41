"""`edp-sweep forecast`: the SER to expect at another ε, with twice the utterances, or with twice the steps."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edp.spec import UserError
from sweeps.commands.console import busy, out, print_json
from sweeps.commands.options import RUNS, Json, Storage, named
from sweeps.text.figures import epsilon_cell, number
from sweeps.text.paths import is_name, short
from sweeps.text.terminal import figures_table, print_line

if TYPE_CHECKING:
    from sweeps.config.recipe import Recipe
    from sweeps.results.forecast import Best, Forecast
    from sweeps.store.sweep import Sweep
    from trainables.config import TrialSpec

NOW, UTTERANCES, STEPS = "as it is", "twice the utterances", "twice the steps"
REMARK = "validation figures have no noise, so no ε covers a forecast; it is for people who already hold the data"
_OUT_OF_REACH = "out of reach"


def forecast_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|RECIPE",
            help="a sweep that has ended, or a recipe: all its ended sweeps on the newest's corpus",
        ),
    ],
    epsilons: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="comma-separated ε, such as 1,3; by default those that were measured, half and twice"
        ),
    ] = None,
    storage: Storage = RUNS,
    as_json: Json = False,
) -> None:
    """Forecast the SER at another ε, with twice the utterances or steps, from what ended sweeps have measured."""
    asked = None if epsilons is None else _numbers(epsilons)
    with busy("reading trials, and computing the noise"):
        from sweeps.results.forecast import best_at_each_epsilon

        sweeps = _ended(storage, name)
        best = best_at_each_epsilon(name, sweeps)
        document = forecast_document(sweeps, best, asked or _around([one.epsilon for one in best]))
    if as_json:
        print_json(document)
    else:
        _show(document)


def _numbers(text: str) -> list[float]:
    """Return the numbers of a comma-separated list.

    Raises:
        UserError: if one is no positive number.
    """
    try:
        found = list(dict.fromkeys(float(word) for word in text.split(",")))
    except ValueError:
        found = []
    if not found or not all(0 < value < math.inf for value in found):
        raise UserError(f"--epsilons = {short(text)}: allowed: positive numbers, such as 1,3")
    return found


def _around(epsilons: list[float]) -> list[float]:
    """Return the smallest and the largest ε, half the one, and twice the other."""
    low, high = (float(f"{value:.3g}") for value in (min(epsilons), max(epsilons)))
    return [low / 2, low, high, 2 * high]


def _ended(storage: Path, name: str) -> list[Sweep]:
    """Return the sweep of this name; else the ended sweeps of a recipe, with the corpus and model of the newest one.

    Raises:
        UserError: if there is none, or the sweep still runs.
    """
    from sweeps.store.sweep import Sweep, all_sweeps

    if is_name(name) and any((storage / name / file).is_file() for file in ("sweep.json", "recipe.yaml")):
        sweep = named(storage, name)
        if sweep.state == "running":
            raise UserError(f"name = {name}: the sweep still runs; allowed: one that has ended")
        return [sweep]
    every = all_sweeps(storage)
    ended: list[Sweep] = [one for one in every if one.record.recipe == name and one.state != "running"]
    if not ended:
        names = ", ".join(one.name for one in every) or "none yet"
        raise UserError(
            f"name = {short(name)}: there is no such sweep in {storage}, and no ended one of such a recipe; allowed: "
            f"{names}"
        )
    newest = max(ended, key=lambda one: one.began).recipe
    return [Sweep(storage, one.name) for one in ended if _alike(one.recipe, newest)]


def _alike(one: Recipe, other: Recipe) -> bool:
    """Return True if two recipes have the same corpus and model."""
    return one.corpus == other.corpus and one.model == other.model


def forecast_document(sweeps: list[Sweep], best: list[Best], epsilons: list[float]) -> dict[str, Any]:
    """Return what `--json` prints.

    Args:
        best: the measured trials that the law is fitted to.
    """
    from sweeps.results.earlier import cost_words
    from sweeps.results.forecast import fitted, misses

    points = [one.measured for one in best]
    examples = sweeps[0].record.examples
    assert examples is not None, "the trials were trained"
    used = {one.sweep for one in best}
    law, wrong = fitted(points), misses(points)
    return {
        "sweeps": [one.name for one in sweeps],
        "corpus": sweeps[0].recipe.corpus.name,
        "utterances": examples,
        "delta": best[0].point.metrics["delta"],
        "law": {"intercept": law.intercept, "slope": law.slope},
        "measured": [
            {
                "sweep": one.sweep,
                "number": one.point.trial,
                "epsilon": one.epsilon,
                "noise_to_batch": one.measured.ratio,
                "valid_ser": one.measured.ser,
                "missed_by": wrong[i] if wrong else None,
            }
            for i, one in enumerate(best)
        ],
        "forecasts": [row for epsilon in epsilons for row in _rows(best, epsilon, examples)],
        "cost": [f"{one.name}: {cost_words(one, 'forecast')}" for one in sweeps if one.name in used],
        "remark": REMARK,
    }


def _rows(best: list[Best], epsilon: float, examples: int) -> list[dict[str, Any]]:
    """Return the forecasts at an ε: as it is, with twice the utterances, and with twice the steps.

    The settings besides the noise are those of the measured trial whose ε is nearest.
    """
    from sweeps.results.forecast import ENOUGH_STEPS, forecast, ratio_at

    spec = min(best, key=lambda one: abs(math.log(one.epsilon / epsilon))).point.spec
    points = [one.measured for one in best]

    def row(change: str, changed: TrialSpec, units: int) -> dict[str, Any]:
        found = forecast(points, ratio_at(changed, epsilon, units))
        return {"epsilon": epsilon, "change": change} | _figures(found)

    rows = [row(NOW, spec, examples), row(UTTERANCES, spec, 2 * examples)]
    training = spec.training
    if training.batch_size == "full" and training.epochs >= ENOUGH_STEPS:
        longer = training.model_copy(update={"epochs": 2 * training.epochs})
        return [*rows, row(STEPS, spec.model_copy(update={"training": longer}), examples)]
    reason = f"measured for full batches and {ENOUGH_STEPS} steps or more alone"
    return [*rows, {"epsilon": epsilon, "change": STEPS} | _figures(None, reason)]


def _figures(found: Forecast | None, reason: str = _OUT_OF_REACH) -> dict[str, Any]:
    """Return a forecast's part of the document. One that is left out has a reason."""
    return {
        "noise_to_batch": found and found.ratio,
        "ser": found and found.ser,
        "ser_lower": found and found.lower,
        "ser_upper": found and found.upper,
        "reason": None if found else reason,
    }


def _show(document: dict[str, Any]) -> None:
    """Print the forecasts as a table, what they are made of, and what that cost."""
    from sweeps.results.forecast import REACH

    rows = document["forecasts"]
    title = f"SER to expect on {document['corpus']}, whose {document['utterances']:,} training utterances are used now"
    caption = (
        f"SER on the validation split, in parentheses its range by the law's errors; δ = {document['delta']:g}; "
        f"–: left out, see below"
    )
    table = figures_table(title, caption, ["ε", NOW, UTTERANCES, STEPS])
    for epsilon in dict.fromkeys(row["epsilon"] for row in rows):
        table.add_row(number(epsilon), *(_cell(row) for row in rows if row["epsilon"] == epsilon))
    out.print(table)
    measured = [
        f"ε = {epsilon_cell(one['epsilon'])}: {one['valid_ser']:.1%} (trial {one['number']} of {one['sweep']}"
        + (")" if one["missed_by"] is None else f"; the law of the others is {abs(one['missed_by']):.0%} off)")
        for one in document["measured"]
    ]
    reasons = dict.fromkeys(row["reason"] for row in rows if row["reason"])
    said = {_OUT_OF_REACH: f"noise or SER would be more than {REACH:g} times from the nearest trial's"}
    lines = [
        f"measured: {'; '.join(measured)}",
        *(f"left out: {said.get(reason, f'{STEPS}, {reason}')}" for reason in reasons),
        "a wider model or another encoder has no forecast: the noise does not decide what these are worth",
        *(f"cost of {line}" for line in document["cost"]),
    ]
    for line in [*lines, document["remark"]]:
        print_line(out, line)


def _cell(row: dict[str, Any]) -> str:
    """Return a forecast with its range for a column."""
    if row["ser"] is None:
        return "–"
    return f"{row['ser']:.1%} ({row['ser_lower']:.1%} to {row['ser_upper']:.1%})"
