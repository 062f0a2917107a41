"""Ray as a sweep starts it."""

from __future__ import annotations

import os
from typing import Any

import pytest
import ray

from sweeps.run.session import connect


def test_workers_keep_the_memory_of_a_step_and_this_process_has_its_environment_back(ray_cluster: str) -> None:
    @ray.remote(num_cpus=0)
    def variables() -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name.startswith("MALLOC_")}

    assert ray.get(variables.remote()).items() >= {"MALLOC_MMAP_MAX_": "0", "MALLOC_ARENA_MAX": "1"}.items()
    assert not [name for name in os.environ if name.startswith("MALLOC_")]


def test_what_a_user_says_of_the_allocator_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr("ray.init", lambda **options: seen.update(os.environ))
    monkeypatch.setenv("MALLOC_ARENA_MAX", "4")
    connect("local")
    assert (seen["MALLOC_ARENA_MAX"], seen["MALLOC_MMAP_MAX_"]) == ("4", "0")
    assert os.environ["MALLOC_ARENA_MAX"] == "4"
