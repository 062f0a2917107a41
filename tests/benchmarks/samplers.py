"""Samplers on the recorded trainings of real sweeps: hypervolume by trials, widths, and the help of an earlier sweep.

    python -m tests.benchmarks.samplers STORAGE SWEEP… [--earlier SWEEP] [--seeds N] [--samplers tpe,nsga2,random]

A recording is a finished sweep, best one of `search.sampler=random` with some hundred trials. A sampler of the project
is asked for a configuration, and gets the figures of the recorded one that is nearest and was not given yet. Prints one
JSON document: for each sampler and number of trials the median and quartiles over seeds of the hypervolume, as a share
of that of all recorded trainings, and seconds an ask; the same for several trials at once; and the trials until an SER
of 105 % of the lowest, with and without the points of the sweep `--earlier`. With 20 seeds `gp` takes half an hour.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from sweeps.config.initial_points import fitted, under_sampler_names
from sweeps.config.parts import SearchSpec, objective_values
from sweeps.config.recipe import Recipe
from sweeps.config.space import Dimension, ask
from sweeps.engine.study import sampler
from sweeps.results.earlier import best_first
from sweeps.store.sweep import Sweep
from tests.benchmarks.machine import machine, versions
from trainables.records.pareto import deciding, hypervolume

TRIALS = (8, 16, 60)
WIDTHS = (1, 4, 16, 64)
SAMPLERS = ("tpe", "gp", "nsga2", "random")
NEAR = 1.05
"""Of the lowest recorded SER: what a search is to reach."""

Params = dict[str, Any]


@dataclass(frozen=True)
class Recording:
    """The trainings of a sweep: configurations, their objectives scaled to [0, 1], and their SER."""

    recipe: Recipe
    params: list[Params]
    values: list[tuple[float, ...]]
    sers: list[float]

    @property
    def volume(self) -> float:
        """The hypervolume of all of them."""
        return hypervolume(self.values, (1.0,) * len(self.values[0]))

    def nearest(self, wanted: Params, free: set[int]) -> int:
        """Return the configuration of `free` that is nearest to a wanted one."""
        return min(free, key=lambda i: (self._distance(wanted, self.params[i]), i))

    def _distance(self, one: Params, other: Params) -> float:
        found = 0.0
        for name, dimension in self.recipe.dimensions.items():
            a, b = one.get(name), other.get(name)
            if a == b or not isinstance(dimension, Dimension):
                continue
            if dimension.choice is not None or a is None or b is None:
                found += 1.0
                continue
            low, high, a, b = (math.log(x) if dimension.log_uniform else x for x in (*dimension.ends(), a, b))
            found += ((a - b) / (high - low)) ** 2
        return found


def recording(sweep: Sweep) -> Recording:
    """Read the complete trials of a sweep."""
    recipe = sweep.recipe
    trials = [trial for trial in sweep.trials() if trial.state == "complete"]
    values = np.array([objective_values(recipe.search.objectives, deciding(trial.metrics)) for trial in trials])
    low, high = values.min(0), values.max(0)
    scaled = (values - low) / np.where(high > low, high - low, 1.0)
    sers = [deciding(trial.metrics)["ser"] for trial in trials]
    return Recording(recipe, [trial.params for trial in trials], [tuple(map(float, row)) for row in scaled], sers)


def search(
    known: Recording, kind: str, trials: int, seed: int, width: int = 1, first: Sequence[Params] = ()
) -> tuple[list[int], float]:
    """Return the recorded trainings that a search gets, in the order of their ends, and the seconds of an ask.

    Args:
        width: trials that run at once; they end in the order of their starts.
        first: configurations to begin at.
    """
    spec = SearchSpec.model_validate({"sampler": kind, "seed": seed, "trials": trials})
    study = optuna.create_study(directions=["minimize"] * len(known.values[0]), sampler=sampler(spec))
    for point in first:
        study.enqueue_trial(under_sampler_names(point, known.recipe.dimensions, known.recipe.shapes, "point"))
    free, running, ended = set(range(len(known.params))), list[tuple[optuna.Trial, int]](), list[int]()
    seconds, asked = 0.0, 0
    trials = min(trials, len(free))
    while len(ended) < trials:
        while len(running) < width and asked < trials:
            begin = time.perf_counter()
            trial = study.ask()
            wanted = ask(known.recipe.dimensions, trial, known.recipe.shapes)
            seconds, asked = seconds + time.perf_counter() - begin, asked + 1
            given = known.nearest(wanted, free)
            free.remove(given)
            running.append((trial, given))
        trial, given = running.pop(0)
        study.tell(trial, known.values[given])
        ended.append(given)
    return ended, seconds / asked


def _quartiles(values: Sequence[float]) -> list[float]:
    return [round(float(v), 4) for v in np.quantile(values, [0.25, 0.5, 0.75])]


def _samplers(known: Recording, kinds: Sequence[str], seeds: int, width: int = 1) -> dict[str, Any]:
    """Return hypervolumes and seconds an ask, by sampler and number of trials."""
    found: dict[str, Any] = {}
    for kind in kinds:
        for trials in TRIALS:
            if width > 1 and (trials != TRIALS[-1] or kind == "gp"):
                continue  # a wide search has many trials
            if trials >= len(known.params):
                continue  # every sampler gets all of them
            runs = [search(known, kind, trials, seed, width) for seed in range(seeds)]
            shares = [
                hypervolume([known.values[i] for i in ended], (1.0,) * len(known.values[0])) / known.volume
                for ended, _ in runs
            ]
            ask_ms = 1000 * float(np.median([seconds for _, seconds in runs]))
            found.setdefault(kind, {})[str(trials)] = {"share": _quartiles(shares), "ask_ms": round(ask_ms, 1)}
    return found


def _until_near(known: Recording, seeds: int, first: Sequence[Params]) -> list[float]:
    """Return quartiles of the trials until an SER of `NEAR` times the lowest one."""
    most, wanted = len(known.params), NEAR * min(known.sers)
    counts = []
    for seed in range(seeds):
        ended, _ = search(known, "tpe", most, seed, first=first)
        counts.append(next(n for n, i in enumerate(ended, 1) if known.sers[i] <= wanted))
    return _quartiles(counts)


def main() -> None:
    """Print one JSON document."""
    parser = argparse.ArgumentParser()
    parser.add_argument("storage", type=Path)
    parser.add_argument("sweeps", nargs="+")
    parser.add_argument("--earlier")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--samplers", default=",".join(SAMPLERS))
    asked = parser.parse_args()
    kinds = asked.samplers.split(",")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    found: dict[str, Any] = {"date": f"{date.today()}", "machine": machine(), "versions": versions(), "sweeps": {}}
    for name in asked.sweeps:
        known = recording(Sweep.existing(asked.storage, name))
        one: dict[str, Any] = {"trainings": len(known.params), "corpus": known.recipe.corpus.name}
        one["by_trials"] = _samplers(known, kinds, asked.seeds)
        one["at_once"] = {str(width): _samplers(known, kinds, asked.seeds, width) for width in WIDTHS[1:]}
        one["trials_until_near"] = {"without": _until_near(known, asked.seeds, ())}
        if asked.earlier:
            good = (point.params for point in best_first(Sweep.existing(asked.storage, asked.earlier)))
            first = fitted(good, known.recipe.dimensions, known.recipe.shapes, max(1, len(known.params) // 10))
            one["trials_until_near"][f"from {asked.earlier}"] = _until_near(known, asked.seeds, first)
        found["sweeps"][name] = one
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
