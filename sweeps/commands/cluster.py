"""A folder from which a cluster is started: its file, the image's Dockerfile, Grafana's dashboard, and the project."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

from edp.spec import UserError
from sweeps.formatting.outputs import make_folder

Kind = Literal["aws", "kuberay"]
_ROOT = Path(__file__).parents[2]
_FILES = _ROOT / "sweeps" / "cluster"
_PACKAGES = ("edp", "trainables", "sweeps", "dashboards")
_PROJECT = ("pyproject.toml", "requirements.lock", "README.md", "LICENSE")


def write_cluster(kind: Kind, folder: Path) -> Path:
    """Fills a new folder with what starting the cluster needs.

    Returns:
        The cluster's file in it.

    Raises:
        UserError: where the folder holds anything already, or cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"--output = {str(folder)!r}: it is there already; allowed: a new folder")
    make_folder(folder)
    file = _FILES / "project" / "ray_cluster.yaml" if kind == "aws" else _FILES / "kuberay.yaml"
    try:
        for source in (file, _FILES / "Dockerfile", _ROOT / "dashboards" / "grafana" / "edp-sweeps.json"):
            shutil.copyfile(source, folder / source.name)
        for name in _PROJECT:
            shutil.copyfile(_FILES / "project" / name, folder / name)
        for package in _PACKAGES:
            shutil.copytree(_ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    except OSError as error:  # shutil.Error, of a whole folder, has no number
        shutil.rmtree(folder, ignore_errors=True)
        raise UserError(
            f"--output = {str(folder)!r}: {error.strerror or 'it takes no more'}; allowed: a folder that can be written"
        ) from None
    return folder / file.name
