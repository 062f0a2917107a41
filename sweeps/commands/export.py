"""`edp-sweep export`: a registered model as a folder, of our own or of another library's format."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Literal

import typer

from edp.spec import UserError
from sweeps.commands.console import busy, out
from sweeps.commands.options import PATH, RUNS, Storage, TrackingUri
from sweeps.text.terminal import print_line
from trainables.records.files import disk_full, one_line


def export_command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="a registered model, such as voice or voice@champion, or a model's folder"
        ),
    ],
    folder: Annotated[Path, typer.Argument(help="new folder to write", **PATH)],
    format: Annotated[
        Literal["folder", "transformers", "peft"],
        typer.Option(
            help="folder: all of it, for trainables.load_model; transformers, peft: what these libraries hold"
        ),
    ] = "folder",
    storage: Storage = RUNS,
    tracking_uri: TrackingUri = None,
) -> None:
    """Write a registered model as a folder that other programs read."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"folder = {str(folder)!r}: it is there already; allowed: a new folder")
    with busy("loading the model"), tempfile.TemporaryDirectory() as temporary:
        from trainables.models.released import load_model

        released = load_model(model if Path(model).is_dir() else _downloaded(storage, model, tracking_uri, temporary))
        try:
            if format == "folder":
                shutil.copytree(released.folder, folder, dirs_exist_ok=True)
                lines = [f"wrote {folder}; open it with trainables.load_model"]
            else:
                from sweeps.registry.export import export_model

                lines = export_model(released, folder, format)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)  # it was new, and half a model would block another try
            if disk_full(error):
                raise
            why = error.strerror or "a file cannot be copied"
            raise UserError(f"folder = {str(folder)!r}: {why}; allowed: a folder that can be written") from None
    for line in lines:
        print_line(out, line)


def _downloaded(storage: Path, name: str, tracking_uri: str | None, to: str) -> str:
    """Return the folder of a registered version, copied from the store's artifacts."""
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    from sweeps.commands.check import registered_version
    from sweeps.registry.bundle import quiet

    client, version = registered_version(storage, name, tracking_uri)
    place = client.get_model_version_download_uri(version.name, version.version)
    try:
        with quiet():
            return str(download_artifacts(artifact_uri=place, dst_path=to, tracking_uri=client.tracking_uri))
    except (MlflowException, OSError) as error:
        raise UserError(
            f"model = {name!r}: its files cannot be read at {place} ({one_line(error)}); allowed: a model whose files "
            "are there"
        ) from None
