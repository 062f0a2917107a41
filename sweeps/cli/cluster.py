"""`edp-sweep cluster`: what a cluster is started from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from sweeps.commands.console import PATH, out
from sweeps.formatting.lines import print_line

cluster = typer.Typer(no_args_is_help=True, help="Clusters: the files that start one.")

_NEXT = {
    "aws": "read its first lines, edit what is marked EDIT, and: ray up ray_cluster.yaml",
    "kuberay": "read its first lines, edit what is marked EDIT, and: kubectl apply -f kuberay.yaml",
}


@cluster.callback()
def group() -> None:
    """Clusters: the files that start one."""


@cluster.command()
def init(
    kind: Annotated[Literal["aws", "kuberay"], typer.Argument(help="aws: Ray's launcher; kuberay: Kubernetes")],
    output: Annotated[Path, typer.Option(help="a new folder", **PATH)] = Path("edp-cluster"),
) -> None:
    """Writes a folder with the cluster's file, the Dockerfile, Grafana's dashboard and the project, to start from."""
    from sweeps.commands.cluster import write_cluster

    file = write_cluster(kind, output)
    print_line(out, f"wrote {file}; in {output}, {_NEXT[kind]}")
