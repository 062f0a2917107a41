"""`edp-sweep cluster init`: a folder from which a cluster is started.

It holds the cluster's file, the image's Dockerfile, Grafana's dashboard, and the project.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Literal

import typer

from edp.spec import UserError
from sweeps.commands.console import out
from sweeps.commands.options import PATH
from sweeps.text.paths import make_folder
from sweeps.text.terminal import print_line

cluster = typer.Typer(no_args_is_help=True, help="Clusters: the files that start one.")

Kind = Literal["aws", "kuberay"]

_ROOT = Path(__file__).parents[2]
_FILES = _ROOT / "sweeps" / "cluster"
_PACKAGES = ("edp", "trainables", "sweeps", "dashboards")
_PROJECT = ("pyproject.toml", "requirements.lock", "README.md", "LICENSE")
_START = {"aws": "ray up ray_cluster.yaml", "kuberay": "kubectl apply -f kuberay.yaml"}


@cluster.callback()
def group() -> None:
    """Clusters: the files that start one."""


@cluster.command()
def init(
    kind: Annotated[Kind, typer.Argument(help="aws: Ray's launcher; kuberay: Kubernetes")],
    output: Annotated[Path, typer.Option(help="a new folder", **PATH)] = Path("edp-cluster"),
) -> None:
    """Writes a folder with the cluster's file, the Dockerfile, Grafana's dashboard and the project, to start from."""
    file = write_cluster(kind, output)
    print_line(out, f"wrote {file}; in {output}, read its first lines, edit what is marked EDIT, and: {_START[kind]}")


def write_cluster(kind: Kind, folder: Path) -> Path:
    """Fill a new folder with what starting the cluster needs.

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
