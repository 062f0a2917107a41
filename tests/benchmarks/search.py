"""Samplers and early stopping on a surrogate, hypervolume against GPU-seconds over many seeds.

    python -m tests.benchmarks.search [--seeds N] [--trials N] [--processes N] [--output FOLDER] [--json]

The searcher, the stopper, the guesses and the choice of kept epochs are the project's own; only training is replaced.

The surrogate (CLC on ATIS in the paper's Tables 1 and 2; E = 30 epochs, 8 GPUs, 9.9 s an epoch), with z_t = z0 d(t):

    speed_t  = C / (C + 0.25) / (1 + (z_t / 0.1)^2)         a small clip is slow, noise drowns the gradient
    s_t      = speed_1 + ... + speed_t                      what has been learnt
    SER_t    = 0.060 + 0.90 exp(-0.35 s_t) + 0.25 n_t       n_t = (C z_t)^2 / ((C z_t)^2 + 0.1^2): weights that shake
    AUC_t    = 0.5 + 0.175 (1 - exp(-0.12 s_t)) / (1 + (C z_t / 0.05)^0.5)
    eps_t    = the honest epsilon of the executed ledger, by `edp.accounting.epsilon`

and normal noise on each measurement: 0.012 (SER) and 0.02 (AUC) on the validation split, a quarter of it on the test
split. At the end plain SGD has SER 6.0 % and AUC 0.669 here (6.3 % and 0.675 there), linear decay from z0 = 0.008 an
AUC 6.6 % less and no decay at z0 = 0.03 one 11.6 % less (11.6 and 8.3 % there). It has the shape of the trade-off, and
is no model of it: SER never falls below plain SGD's here, as it does there.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import multiprocessing
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import optuna
import typer

from edp.accounting.epsilon import epsilon
from edp.ledger import Ledger
from edp.mechanism import noise_multiplier
from edp.spec import EDPSpec
from sweeps.commands.app import main
from sweeps.commands.console import err, out, print_json
from sweeps.config.loading import load_recipe
from sweeps.config.parts import objective_values
from sweeps.config.recipe import Recipe
from sweeps.config.space import ask
from sweeps.config.target_epsilon import planned
from sweeps.engine.early_stopping import Stopper
from sweeps.engine.study import enqueue_initial_points, sampler, set_outcome
from sweeps.text.paths import make_folder, output
from sweeps.text.terminal import print_line
from tests.benchmarks.timing import end_with_parent
from trainables.records.epochs import point_of, worth_keeping
from trainables.records.job import EpochResult, TrialResult
from trainables.records.pareto import hypervolume

EXAMPLES = 2_600
EPOCHS = 30
GPU_SECONDS_PER_EPOCH = 8 * 9.9
LOW, HIGH = (0.0, 0.5, 0.0), (1.0, 0.7, 12.0)
"""Where SER, MIA AUC and log10 ε begin and end in the hypervolume, which is then between 0 and 1."""
SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)
VARIANTS = {
    "TPE, early stopping": ("tpe", True),
    "TPE": ("tpe", False),
    "random, early stopping": ("random", True),
    "random": ("random", False),
    "NSGA-II, early stopping": ("nsga2", True),
    "NSGA-II": ("nsga2", False),
}

Metrics = dict[str, float]


def true_curve(edp: EDPSpec, epochs: int = EPOCHS) -> list[tuple[float, float]]:
    """Return SER and MIA AUC after each epoch, without measurement noise."""
    found, learnt = [], 0.0
    for epoch in range(epochs):
        z = noise_multiplier(edp, epoch)
        learnt += edp.C / (edp.C + 0.25) / (1 + (z / 0.1) ** 2)
        shake = (edp.C * z) ** 2 / ((edp.C * z) ** 2 + 0.1**2)
        ser = min(1.0, 0.060 + 0.90 * math.exp(-0.35 * learnt) + 0.25 * shake)
        auc = 0.5 + 0.175 * (1 - math.exp(-0.12 * learnt)) / (1 + (edp.C * z / 0.05) ** 0.5)
        found.append((ser, auc))
    return found


def epsilons(edp: EDPSpec) -> list[float]:
    """Return the honest ε after each epoch, from a table over Σ 1/z², which alone decides ε of shuffled epochs."""
    z = np.array([noise_multiplier(edp, epoch) for epoch in range(EPOCHS)])
    where = np.log10(np.cumsum(z**-2.0))
    return [float(v) for v in 10 ** np.interp(where, *_epsilon_table())]


@functools.cache
def _epsilon_table() -> tuple[Any, Any]:
    """Return log10 of 1/z² and of the ε of one epoch at z; interpolation is good to 1e-3 of ε."""
    recipe = load_recipe("atis_clc", ["training.epochs=1"])[1]
    places = np.linspace(-1, 28, 291)
    ledgers = (
        planned(recipe.trial({"C": 1.0, "z0": 10 ** (-x / 2), "decay": "none", "tau": 0.0}), EXAMPLES) for x in places
    )
    return places, np.log10([epsilon(ledger, recipe.edp.delta) for ledger in ledgers])


def run(recipe: Recipe, budget: float) -> list[tuple[float, float]]:
    """Run trials one at a time until `budget` GPU-seconds are spent; return (spent, hypervolume) after each."""
    study = optuna.create_study(directions=["minimize"] * 3, sampler=sampler(recipe.search))
    enqueue_initial_points(study, recipe)
    objectives = recipe.search.objectives
    stopper = Stopper(recipe.search.stop, EPOCHS) if recipe.search.stop is not None else None
    rng = np.random.default_rng(recipe.search.seed)
    spent, front, history = 0.0, [], [(0.0, 0.0)]
    while spent < budget:
        trial = study.ask()
        spec = recipe.trial({"tau": 0.0, **ask(recipe.dimensions, trial, recipe.shapes)})
        result, curve = train(recipe, spec.edp, trial.number, stopper, rng)
        spent += GPU_SECONDS_PER_EPOCH * len(curve)
        ended = set_outcome(trial, result, None, curve, objectives)
        study.tell(trial, ended.values, state=ended.state)
        front += [_scaled(objective_values(objectives, kept.metrics)) for kept in result.epochs]
        history.append((spent, hypervolume(front, (1.0, 1.0, 1.0))))
    return history


def train(
    recipe: Recipe, edp: EDPSpec, number: int, stopper: Stopper | None, rng: np.random.Generator
) -> tuple[TrialResult, list[Metrics]]:
    """Return the result of a trial over the epochs that it keeps, and its curve."""
    costs, curve, stopped = epsilons(edp), list[Metrics](), None
    true = true_curve(edp)
    for epoch, ((ser, auc), cost) in enumerate(zip(true, costs, strict=True), start=1):
        valid = {"valid_ser": ser + rng.normal(0, 0.012), "valid_mia_auc": auc + rng.normal(0, 0.02)}
        curve.append({**valid, "epsilon": cost})
        stopped = stopper.after_epoch(number, epoch, point_of(curve[-1])) if stopper is not None else None
        if stopped is not None:
            break
    kept = [
        EpochResult(
            i + 1,
            {
                "ser": true[i][0] + rng.normal(0, 0.003),
                "mia_auc": true[i][1] + rng.normal(0, 0.005),
                "epsilon": costs[i],
            },
        )
        for i in _kept(curve, recipe.search.keep_epochs)
    ]
    early = stopped if len(curve) < EPOCHS else None
    return TrialResult(kept[-1].metrics, Ledger(), {}, tuple(kept), early), curve


def _kept(curve: list[Metrics], most: int) -> list[int]:
    """Return the epochs that a trial keeps, decided epoch by epoch as a trial does."""
    here: list[int] = []
    for i in range(len(curve)):
        here.append(i)
        here = [here[j] for j in worth_keeping([point_of(curve[k]) for k in here], most)]
    return here


def _scaled(values: list[float]) -> tuple[float, ...]:
    return tuple(max(0.0, (v - low) / (high - low)) for v, low, high in zip(values, LOW, HIGH, strict=True))


def at(history: list[tuple[float, float]], spent: float) -> float:
    """Return the hypervolume of the trials that had ended after `spent` GPU-seconds."""
    return max(volume for when, volume in history if when <= spent + 1e-6)


def reached(history: list[tuple[float, float]], volume: float) -> float:
    """Return the GPU-seconds after which a hypervolume was reached, infinity if it never was."""
    return min((when for when, found in history if found >= volume), default=math.inf)


def _one(name: str, seed: int, trials: int, budget: float) -> list[tuple[float, float]]:
    """Run one sweep of a variant."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    kind, stop = VARIANTS[name]
    words = [f"search.sampler={kind}", f"search.seed={seed}", f"search.trials={trials}", f"training.epochs={EPOCHS}"]
    return run(load_recipe("atis_clc", words if stop else [*words, "search.stop=null"])[1], budget)


def quartiles(values: list[float]) -> list[float]:
    """Return first quartile, median, third quartile."""
    return [round(float(v), 4) for v in np.quantile(values, [0.25, 0.5, 0.75])]


def benchmark(seeds: int, trials: int, processes: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Run all variants over all seeds, with the GPU-seconds that `trials` whole trials take.

    Args:
        say: receives the progress as text.
    """
    budget = trials * EPOCHS * GPU_SECONDS_PER_EPOCH
    histories: dict[str, list[list[tuple[float, float]]]] = {}
    jobs = [(name, seed) for name in VARIANTS for seed in range(seeds)]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn, initializer=end_with_parent) as pool:
        runs = pool.map(_one, *zip(*jobs, strict=True), itertools.repeat(trials), itertools.repeat(budget))
        for i, ((name, _), history) in enumerate(zip(jobs, runs, strict=True), start=1):
            histories.setdefault(name, []).append(history)
            say(f"{i} of {len(jobs)} sweeps")
    rows = []
    for name, found in histories.items():
        plain = histories[name.removesuffix(", early stopping")]
        need = [reached(mine, theirs[-1][1]) / budget for mine, theirs in zip(found, plain, strict=True)]
        rows.append(
            {
                "variant": name,
                "trials": quartiles([len(history) - 1 for history in found]),
                "hypervolume": {f"{share:g}": quartiles([at(h, share * budget) for h in found]) for share in SHARES},
                "share_of_budget_to_the_end_of_no_stopping": round(statistics.median(need), 4)
                if math.isfinite(statistics.median(need))
                else None,
            }
        )
    return {
        "seeds": seeds,
        "gpu_seconds": budget,
        "whole_trials": trials,
        "epochs": EPOCHS,
        "optuna": optuna.__version__,
        "rows": rows,
    }


def as_markdown(found: dict[str, Any]) -> str:
    """Return the table of a result of `benchmark`."""
    shares = list(found["rows"][0]["hypervolume"])
    lines = [
        f"Hypervolume (median, quartiles) over {found['seeds']} seeds when a share of {found['gpu_seconds']:,.0f} "
        f"GPU-seconds was spent ({found['whole_trials']} trials of {found['epochs']} epochs), one trial at a time, on "
        f"the surrogate of `tests/benchmarks/search.py`; Optuna {found['optuna']}.",
        "",
        "| variant | " + " | ".join(f"{float(share):.0%}" for share in shares) + " | trials begun |",
        "|---|" + "---|" * (len(shares) + 1),
    ]
    for row in found["rows"]:
        cells = [f"{m:.3f} ({a:.3f}–{b:.3f})" for a, m, b in row["hypervolume"].values()]
        lines.append(f"| {row['variant']} | " + " | ".join(cells) + f" | {row['trials'][1]:.0f} |")
    lines.append("")
    for row in found["rows"]:
        share = row["share_of_budget_to_the_end_of_no_stopping"]
        if row["variant"].endswith("early stopping") and share is not None:
            plain = row["variant"].removesuffix(", early stopping")
            lines.append(
                f"- {row['variant']} reaches what {plain} has at the end after {share:.0%} of the GPU-seconds (median)."
            )
    return "\n".join(lines) + "\n"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def search(
    seeds: Annotated[int, typer.Option(min=1, max=10_000, help="sweeps of each variant")] = 20,
    trials: Annotated[
        int, typer.Option(min=2, max=100_000, help="whole trials that the GPU-seconds of a sweep are worth")
    ] = 30,
    processes: Annotated[int, typer.Option(min=1, max=1024, help="sweeps at once")] = 2,
    folder: Annotated[Path | None, typer.Option("--output", help="folder for search.json and search.md")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
) -> None:
    """Hypervolume against GPU-seconds on a surrogate: TPE, random, NSGA-II, with and without early stopping."""
    if folder is not None:
        make_folder(folder)
    with err.status("starting") as status:
        found = benchmark(seeds, trials, processes, status.update)
    if folder is not None:
        for name, text in (("search.json", json.dumps(found, indent=1) + "\n"), ("search.md", as_markdown(found))):
            with output(folder / name) as file:
                file.write(text)
    if as_json:
        print_json(found)
    else:
        print_line(out, as_markdown(found))


if __name__ == "__main__":
    main(app)
