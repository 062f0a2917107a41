"""The wheel alone is the product: installed where the checkout is not seen, it runs a bundled recipe to its front."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import edp

ROOT = Path(__file__).parents[1]
PACKAGES = ("edp", "trainables", "sweeps", "dashboards")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the checkout, which setuptools would fill with its own files."""
    place = tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, place / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, place / "source")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*build, "--wheel-dir", place, place / "source"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = place.glob("*.whl")
    return found


def test_the_wheel_has_the_version_and_all_files_of_the_packages(wheel: Path, long_story: None) -> None:
    assert wheel.name == f"edp_sweeps-{edp.__version__}-py3-none-any.whl"
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"{name}/py.typed" for name in PACKAGES} <= names
    files = (path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file())
    unwanted = ("__pycache__", ".ruff_cache", "screenshots", "README.md")
    missing = {str(path.relative_to(ROOT)) for path in files if not set(unwanted) & set(path.parts)} - names
    assert {name for name in missing if not name.startswith("sweeps/cluster/project/")} == set()


def test_the_installed_wheel_runs_a_bundled_recipe(wheel: Path, tmp_path: Path, own_ray: None) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    site = tmp_path / "venv" / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    shown = [path for path in sys.path if path.endswith("site-packages")]
    (site / "packages.pth").write_text("\n".join(shown))  # behind the wheel; their own .pth files are not read
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(install, check=True)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "RAY_ADDRESS")}

    def run(*words: str) -> str:
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = f"import {', '.join(PACKAGES)}; print([one.__file__ for one in ({', '.join(PACKAGES)})])"
    assert all(path.startswith(str(site)) for path in json.loads(run(str(python), "-c", where).replace("'", '"')))
    sweep = str(tmp_path / "venv" / "bin" / "edp-sweep")
    assert run(sweep, "--version") == f"edp-sweep {edp.__version__}\n"
    small = [
        "training.epochs=1",
        "training.batch_size=16",
        "training.workers=1",
        "corpus.utterances=120",
        "shadow.corpus.utterances=120",
    ]
    settings = [word for one in small for word in ("--set", one)]
    run(sweep, "run", "quickstart_paper", "--name", "first", "--trials", "1", *settings)
    assert json.loads(run(sweep, "front", "first", "--json"))["front"], "the trial, whatever its figures"
    assert (tmp_path / "runs" / "first" / "study.db").is_file()
