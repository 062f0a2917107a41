"""A sweep in words and tables, for the terminal, `--json` and the parent run in MLflow."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console
from rich.table import Table

from sweeps.formatting.figures import (
    MARK,
    audited_text,
    enumerated,
    epsilon_cell,
    epsilon_words,
    params_text,
    relative_change,
    shared_params,
    user_cell,
    users_remark,
    utility_words,
)
from sweeps.formatting.leakage import tpr_text
from sweeps.formatting.lines import print_line
from sweeps.formatting.shell import command_line
from sweeps.formatting.tables import figures_table, fitting
from sweeps.recipes.recipe import Recipe
from sweeps.results.cost import cost_text, over_budget, sweep_cost, trial_cost
from sweeps.results.front import pareto_front
from sweeps.results.recommendation import recommended
from sweeps.results.ties import ties
from sweeps.results.total import cost_line, epsilon_of_sweep, epsilon_user_of_sweep
from sweeps.state.records import Point, TrialRecord
from sweeps.state.storage import train_line
from sweeps.state.sweep import Sweep

TPR = "mia_tpr_at_1pct_fpr"


def document(sweep: Sweep) -> dict[str, Any]:
    """Return the JSON document of `run`, `resume` and `status`."""
    record, recipe, trials = sweep.record, sweep.recipe, sweep.trials()
    front = pareto_front(trials, recipe.search.objectives)
    return {
        "sweep": sweep.name,
        "state": sweep.state,
        "error": record.error,
        "tracking_uri": record.tracking_uri,
        "run_id": record.run_id,
        "objectives": list(recipe.search.objectives),
        "trials": [t.public() | {"cost": trial_cost(t, recipe)} for t in trials],
        "cost": sweep_cost(trials, record.baseline, recipe),
        "budget": recipe.budget.model_dump(exclude_none=True) if recipe.budget is not None else None,
        "baseline": _baseline(sweep),
        "front": list(dict.fromkeys(point.trial for point in front)),
        "epsilon_of_sweep": epsilon_of_sweep(sweep, trials),
        "epsilon_user_of_sweep": epsilon_user_of_sweep(sweep, trials),
    }


def front_document(sweep: Sweep) -> dict[str, Any]:
    """Return the JSON document of `front`. See `sweeps.results.ties.ties` for `tied_with`."""
    recipe = sweep.recipe
    trials = sweep.trials()
    front = pareto_front(trials, recipe.search.objectives)
    tied = ties(trials, front, recipe.search.objectives)
    on_front = {point.name for point in front}
    return {
        "sweep": sweep.name,
        "objectives": list(recipe.search.objectives),
        "front": [point.public() | {"tied_with": tied.get(point.name, [])} for point in front],
        "dominated_but_tied": [
            point.public() | {"tied_with": tied[point.name]}
            for trial in trials
            for point in trial.points
            if point.name in tied and point.name not in on_front
        ],
        **recommended(sweep).document(),
        "cost": sweep_cost(trials, sweep.record.baseline, recipe),
        "baseline": _baseline(sweep),
        "epsilon_of_sweep": epsilon_of_sweep(sweep, trials),
        "epsilon_user_of_sweep": epsilon_user_of_sweep(sweep, trials),
    }


def _baseline(sweep: Sweep) -> dict[str, Any] | None:
    """Return the SGD baseline's metrics with `formal_guarantee` False."""
    found = sweep.record.baseline
    return found and {**found, "formal_guarantee": False}


def parent_metrics(sweep: Sweep, recipe: Recipe, trials: list[TrialRecord], front: list[Point]) -> dict[str, float]:
    """Return the metrics of the parent run: counts of trials, and the sweep's ε where it is known."""
    costs = {
        "epsilon_of_sweep": epsilon_of_sweep(sweep, trials),
        "epsilon_user_of_sweep": epsilon_user_of_sweep(sweep, trials),
    }
    return {
        "trials_complete": float(sum(t.state == "complete" for t in trials)),
        "trials_failed": float(sum(t.state == "failed" for t in trials)),
        "front_size": float(len(front)),
    } | {name: cost for name, cost in costs.items() if cost is not None}


_FEW = 5
"""Largest number of trials that a line names."""


def print_sweep(sweep: Sweep, console: Console) -> None:
    """Print the sweep's state, trials and front."""
    record, recipe, trials = sweep.record, sweep.recipe, sweep.trials()
    counts = {
        state: sum(t.state == state for t in trials)
        for state in ("complete", "stopped", "failed", "refused", "running", "interrupted")
    }
    shown = ", ".join(f"{n} {state}" for state, n in counts.items() if n) or "no trials yet"
    wanted = "a secret number" if recipe.search.secret else str(record.wanted)
    state = sweep.state
    print_line(console, f"sweep {sweep.name}: {state}; {shown} of {wanted}")
    if state == "interrupted":
        print_line(console, f"whatever drove it is gone; go on with: {sweep.command('resume')}")
    if record.error is not None:
        print_line(console, f"  {state}: {record.error}")
    same: dict[tuple[str, str | None], list[int]] = {}
    for trial in trials:
        if trial.state in ("stopped", "failed", "refused"):
            same.setdefault((trial.state, trial.reason), []).append(trial.number)
    for (ended, reason), numbers in same.items():
        few = ", ".join(map(str, numbers[:_FEW])) + (f" and {len(numbers) - _FEW} more" if len(numbers) > _FEW else "")
        print_line(console, f"  trial{'s' * (len(numbers) > 1)} {few} {ended}: {reason}")
    spent = sweep_cost(trials, record.baseline, recipe)
    print_line(console, f"cost of trials and baseline: {cost_text(spent)}")
    if (reason := over_budget(spent, recipe)) is not None:
        print_line(console, reason)
    print_front(sweep, console)


def print_front(sweep: Sweep, console: Console) -> None:
    """Print the front and the ε of the whole sweep, which failed and stopped trials have added to."""
    recipe, trials = sweep.recipe, sweep.trials()
    front = pareto_front(trials, recipe.search.objectives)
    if front:
        tied = ties(trials, front, recipe.search.objectives)
        # Changes go first where a terminal is too narrow: a figure without its interval misleads. The epsilons stay.
        ways = ((True, True), (True, False), (False, False))
        tables = (_front_table(sweep, trials, front, tied, intervals=i, changes=c) for i, c in ways)
        console.print(fitting(console, tables))
        for line in tie_lines(tied, {point.name for point in front}):
            print_line(console, f"~ {line}")
        print_line(console, recommended(sweep).why)
    else:
        print_line(console, "no complete trial yet, so no front")
    print_line(console, cost_line(sweep, trials))


def _front_table(
    sweep: Sweep,
    trials: list[TrialRecord],
    front: list[Point],
    tied: dict[str, list[str]],
    *,
    intervals: bool,
    changes: bool,
) -> Table:
    """Return the table of the front, with the changes against SGD that the paper's Table 1 reports."""
    baseline = sweep.record.baseline or {}
    models = sum(len(trial.points) for trial in trials)
    audited = any("epsilon_audited" in point.metrics for point in front)
    rare = TPR in sweep.recipe.search.objectives
    shared = shared_params([point.params for point in front])
    alike = params_text(shared)
    heads = ["trial", "SER", "MIA AUC", "ε honest", "ε paper"]
    if any("epsilon_user" in point.metrics for point in front):
        heads.insert(-1, "ε user")
    if changes:
        heads[1:3] = ["SER", "ΔSER", "MIA AUC", "ΔMIA"]
    if rare:
        heads.insert(heads.index("ε honest"), "MIA TPR")
    if audited:
        heads.append("ε audited")
    table = figures_table(
        f"Pareto front of {sweep.name}: {len(front)} of {models} models from {len(trials)} trials",
        _caption(front, intervals, changes, bool(tied), audited, rare)
        + about_users(front)
        + (f" All have {alike}." if alike else ""),
        heads,
        "configuration",
    )
    if baseline:
        sgd = _figures("SGD", baseline, {}, intervals)
        table.add_row(*(sgd[head] for head in heads), "", end_section=True)
    for point in front:
        row = _figures(f"{'~' if point.name in tied else ''}{point.name}", point.metrics, baseline, intervals)
        own = {name: value for name, value in point.params.items() if name not in shared}
        table.add_row(*(row[head] for head in heads), params_text(own, short=True))
    return table


def _figures(name: str, metrics: dict[str, Any], baseline: dict[str, Any], intervals: bool) -> dict[str, str]:
    """Return a model's cells by column."""
    return {
        "trial": name,
        "SER": f"{metrics['ser']:.1%}{_spread(metrics, 'ser', 100, 1) if intervals else ''}",
        "ΔSER": _change(metrics["ser"], baseline.get("ser")),
        "MIA AUC": f"{metrics['mia_auc']:.3f}{_spread(metrics, 'mia_auc', 1, 3) if intervals else ''}",
        "ΔMIA": _change(metrics["mia_auc"], baseline.get("mia_auc")),
        "MIA TPR": _tpr(metrics, intervals),
        "ε honest": epsilon_cell(metrics["epsilon"]),
        "ε user": user_cell(metrics),
        "ε paper": epsilon_cell(metrics["epsilon_paper"]),
        "ε audited": audited_text(metrics),
    }


def _tpr(metrics: dict[str, Any], intervals: bool) -> str:
    if TPR not in metrics:
        return ""
    spread = _spread(metrics, TPR, 100, 1) if intervals else ""
    return tpr_text(metrics[TPR], metrics.get("mia_realised_1pct_fpr")) + spread


def tie_lines(tied: dict[str, list[str]], on_front: set[str]) -> list[str]:
    """Return the ties in words. A mutual tie is said once."""
    lines, order = [], list(tied)
    for i, (name, others) in enumerate(tied.items()):
        alike = [other for other in others if name in tied.get(other, [])]
        ahead = [other for other in others if other not in alike]
        said = enumerated([other for other in alike if other in order[i + 1 :]])
        if said:
            lines.append(f"Trial {name} differs from {said} by less than the measurement's noise.")
        if ahead:
            verb = "beats" if name in on_front else "is behind"
            lines.append(f"Trial {name} {verb} {enumerated(ahead)} by less than the measurement's noise.")
    return lines


def _caption(front: list[Point], intervals: bool, changes: bool, tied: bool, audited: bool, rare: bool) -> str:
    above = any(point.metrics["ser"] > 1 for point in front)
    return (
        ("2@3: trial 2 after epoch 3. " if any("@" in point.name for point in front) else "")
        + ("Δ: against the SGD baseline. " if changes else "")
        + ("±: half the 95 % interval. " if intervals else "")
        + ("~: hangs on noise. " if tied else "")
        + ("MIA TPR: at the FPR beside it, at most 1 %, by a shadow model without privacy. " if rare else "")
        + ("SER above 100 %: more errors than there are slots and intents. " if above else "")
        + f"{MARK}: ε of 1e4 or more is no formal guarantee."
        + ("" if audited else " No audit was run.")
    )


def about_users(front: list[Point]) -> str:
    """Return the remark on unknown users below a front; "" where users are known."""
    remarks = {remark for point in front for remark in users_remark(point.metrics)}
    return "".join(f" {remark.capitalize()}." for remark in remarks)


def _spread(metrics: dict[str, float], name: str, scale: float, digits: int) -> str:
    """Return half the width of a metric's interval; "" without one."""
    low, high = metrics.get(f"{name}_lower"), metrics.get(f"{name}_upper")
    return "" if low is None or high is None else f" ±{scale * (high - low) / 2:.{digits}f}"


def _change(value: float, baseline: float | None) -> str:
    if baseline is None:
        return ""
    change = relative_change(value, baseline)
    return "" if math.isnan(change) else f"{change:+.1f}%"


def metrics_line(metrics: dict[str, float]) -> str:
    """Return a trained model's metrics in one line."""
    privacy = "; ".join([f"{', '.join(epsilon_words(metrics))}, at δ = {metrics['delta']:g}", *users_remark(metrics)])
    return f"{utility_words(metrics)}, MIA AUC {metrics['mia_auc']:.3f}, {privacy}"


def point_line(point: Point) -> str:
    """Return a point in one line."""
    return f"trial {point.trial}, epoch {point.epoch} ({params_text(point.params)}): {metrics_line(point.metrics)}"


def next_steps(sweep: Sweep) -> str:
    """Return the commands to type next."""
    storage, uri = sweep.folder.parent, sweep.record.tracking_uri
    # What was planted to audit the search is nobody's, and need not be in what is released.
    unplanted = ["--set", "canaries.count=0"] if sweep.recipe.canaries.count else []
    train = train_line("picked.yaml", "--on", "train+valid", *unplanted, storage=storage, tracking_uri=uri)
    what = "the recommended configuration" if recommended(sweep).point else "the best one, which has no guarantee"
    steps = [
        (sweep.command("pick"), f"{what}, as picked.yaml; --max-ser and others limit it"),
        (sweep.command("report"), "report.html, for a privacy review"),
        (sweep.command("confirm"), "the front again with new seeds: what of it was luck"),
        (train, "the final model"),
        (command_line("status", sweep.name, storage=storage), "trials, front and the sweep's own epsilon"),
        (sweep.command("ui"), "a page to look at all of it and pick, and the MLflow UI"),
        (str(sweep.folder / "front.svg"), "the front as a picture: open it in a browser"),
    ]
    return "\n".join(["", "What to do next:", *(f"  {command}\n      {what}" for command, what in steps)])
