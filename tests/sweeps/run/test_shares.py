"""Shares of a core: as many workers as a machine can hold are not refused for what a sum is off by."""

from __future__ import annotations

from sweeps.recipes.parts import ResourcesSpec
from sweeps.run.resources import TUNE_CPUS, _cpus_per_worker


def test_workers_that_fit_are_placed_on_every_machine() -> None:
    for cpus in range(1, 129):
        for workers in range(1, int((cpus - TUNE_CPUS) / 0.1) + 1):
            per_cpu = _cpus_per_worker(workers, ResourcesSpec(), cpus)
            assert workers * per_cpu <= cpus - TUNE_CPUS + 1e-6
