"""A sample of what `tests.benchmarks.deaths` kills: whatever dies, no trial is charged, and the sweep ends whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.deaths import walk

SAMPLE = {
    "job queue": ["first trial", "last trial"],
    "stop signal": ["baseline"],
    "trial's process": ["second trial"],
    "Train's controller": ["first trial"],
}


@pytest.mark.parametrize("kind", SAMPLE)
def test_a_process_of_a_sweep_dies_and_nobody_is_let_down(kind: str, own_ray: None, tmp_path: Path) -> None:
    deaths = list(walk(kind, tmp_path, SAMPLE[kind]))
    assert [death.moment for death in deaths] == SAMPLE[kind]
    assert all(death.held for death in deaths), [death.fate for death in deaths]
    assert deaths[-1].fate == "went on"
