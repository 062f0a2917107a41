"""A mistake of the user's ends at once: one line on standard error, exit code 2, nothing half-made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import TINY_RECIPE, Command


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("list --storage RECIPE", "it is a file; allowed: a folder"),
        ("run RECIPE --name a/b", "name = 'a/b'"),
        ("run RECIPE --tracking-uri nonsense://x", "tracking-uri = 'nonsense://x'"),
        ("resume nothing", "no sweep of this name"),
        ("nonsense", "No such command 'nonsense'"),
        ("confirm x --seeds 0", "--seeds = '0'"),
    ],
)
def test_a_mistake_is_refused_before_ray_starts(
    words: str, says: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(words, says, tmp_path, command, monkeypatch)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("training.workers=51 training.micro_batches=51 training.batch_size=51", "training.workers = 51 can never run"),
        ("training.device=cuda", "training.device = cuda"),
        ("resources.gpus_per_worker=1", "the cluster has 0 GPUs"),
        ("search.concurrency=4", "search.concurrency = 4"),
    ],
)
def test_what_the_cluster_cannot_hold_is_refused_before_anything_is_made(
    settings: str, says: str, tmp_path: Path, ray_cluster: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = " ".join(["run RECIPE", *(f"--set {setting}" for setting in settings.split())])
    refused(words, says, tmp_path, command, monkeypatch)


def refused(words: str, says: str, folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    recipe = folder / "tiny.yaml"
    recipe.write_text(TINY_RECIPE)
    before = set(folder.rglob("*"))
    code, out, err = command(*words.replace("RECIPE", str(recipe)).split())
    assert code == 2, err
    assert says in err
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    assert out == ""
    made = {path for path in set(folder.rglob("*")) - before if "logs" not in path.parts}
    assert {path.name for path in made} <= {"runs"}, made


@pytest.mark.slow
def test_the_installed_command_does_the_same(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sweeps.commands", "run", "quikstart"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "did you mean quickstart" in done.stderr
