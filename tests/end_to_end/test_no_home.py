"""A user without a name and a home folder, as in a container, needs a storage folder and one for temporary files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.conftest import TINY_RECIPE, Command

USER = 54321
"""It has no name, and no file of its own."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose parents every user may pass: pytest's own are closed."""
    with TemporaryDirectory(prefix="edp-no-home-") as made:
        yield Path(made)


def foreign(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `edp-sweep WORDS…` as that user, who may read every file, in `folder`."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("runs as another user, which only root may, by setpriv")
    shutil.chown(folder, USER, USER)
    reads = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    user = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups", *reads]
    own = {k: v for k, v in os.environ.items() if k not in ("HOME", "TMPDIR", "RAY_ADDRESS") and k[:3] != "XDG"}
    command = [*user, sys.executable, "-m", "sweeps.commands", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=own | variables)


@pytest.mark.usefixtures("own_ray")
def test_a_sweep_runs_where_neither_home_nor_tmpdir_can_be_written(folder: Path) -> None:
    recipe, locked = folder / "tiny.yaml", folder / "locked"
    recipe.write_text(TINY_RECIPE)
    locked.mkdir()
    words = ["run", str(recipe), "--name", "s", "--set", "training.workers=1", "--storage", str(folder / "runs")]
    done = foreign(folder, *words, TMPDIR=str(locked), HOME="/")
    assert done.returncode == 0, done.stderr


def test_without_a_home_every_library_is_loaded(long_story: None, folder: Path) -> None:
    done = foreign(folder, "run", "quickstart_paper", "--tracking-uri", "http://127.0.0.1:9")
    assert done.returncode == 2, done.stderr
    assert "tracking-uri = 'http://127.0.0.1:9' cannot be opened" in done.stderr
    assert not {path.name for path in folder.iterdir()} - {"runs"}, "nothing in ./~"


@pytest.mark.parametrize("variables", [{}, {"HOME": "/nonexistent"}, {"HOME": "/"}])
@pytest.mark.slow
def test_an_unexpected_error_has_its_log_without_a_home(variables: dict[str, str], folder: Path) -> None:
    broken = folder / "sitecustomize.py"
    broken.write_text("import sys; sys.modules['ray'] = sys.modules['sweeps.store.sweep'] = None\n")  # they do not load
    done = foreign(folder, "list", PYTHONPATH=str(folder), TMPDIR=str(folder), **variables)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "unexpected ModuleNotFoundError" in done.stderr
    (log,) = folder.glob(f"edp-sweeps-{USER}/**/errors.log")
    assert str(log) in done.stderr.replace("\n", "")


def test_without_a_folder_for_temporary_files_either_it_is_one_line(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setattr("tempfile.gettempdir", none)
    code, _, err = command("list", "--storage", str(tmp_path))
    assert code == 2
    assert err == "edp-sweep: HOME = '/nonexistent': neither it nor TMPDIR can be written; allowed: one that can be\n"
