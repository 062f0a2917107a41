"""`edp-sweep cluster init`: a folder to start a cluster from.

It holds the cluster's file, the image's Dockerfile, Grafana's dashboard and the project.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Literal

import typer

from edp.spec import UserError
from sweeps.commands.console import out
from sweeps.commands.options import PATH
from sweeps.text.terminal import print_line

cluster_command = typer.Typer(no_args_is_help=True, add_completion=False, help="Write the files that start a cluster.")

Kind = Literal["aws", "kuberay"]

_ROOT = Path(__file__).parents[2]
_FILES = _ROOT / "sweeps" / "cluster"
_PACKAGES = ("edp", "trainables", "sweeps", "dashboards")
_PROJECT = ("pyproject.toml", "requirements.lock", "README.md", "LICENSE")
_START = {"aws": "ray up ray_cluster.yaml", "kuberay": "kubectl apply -f kuberay.yaml"}


@cluster_command.callback()
def group() -> None:
    """Keep `init` a subcommand: Typer would turn an application with one command into that command."""


@cluster_command.command()
def init(
    kind: Annotated[Kind, typer.Argument(help="aws: Ray's cluster launcher; kuberay: Kubernetes")],
    output: Annotated[Path, typer.Option(help="folder to make", **PATH)] = Path("edp-cluster"),
) -> None:
    """Write a folder to start a cluster from: cluster file, Dockerfile, Grafana's dashboard and the project."""
    file = write_cluster(kind, output)
    print_line(
        out, f"wrote {file}; read its first lines, edit what is marked EDIT, and type in {output}: {_START[kind]}"
    )


def write_cluster(kind: Kind, folder: Path) -> Path:
    """Copy the files that a cluster is started from to a new folder, and return the cluster's file in it.

    Raises:
        UserError: if the folder is not empty, or cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"--output = {str(folder)!r}: it is there already; allowed: a new folder")
    file = _FILES / "project" / "ray_cluster.yaml" if kind == "aws" else _FILES / "kuberay.yaml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source in (file, _FILES / "Dockerfile", _ROOT / "dashboards" / "grafana" / "edp-sweeps.json"):
            shutil.copyfile(source, folder / source.name)
        for name in _PROJECT:
            shutil.copyfile(_FILES / "project" / name, folder / name)
        for package in _PACKAGES:
            shutil.copytree(_ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    except OSError as error:  # shutil.Error, which copytree raises, has no strerror
        shutil.rmtree(folder, ignore_errors=True)
        raise UserError(
            f"--output = {str(folder)!r}: {error.strerror or 'a file was not copied'}; allowed: a folder that can be "
            "written"
        ) from None
    return folder / file.name
