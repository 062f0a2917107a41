"""`edp-sweep export`: a registered model as a folder, of our own or of another library's format."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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
    with busy("loading the model"), tempfile.TemporaryDirectory() as temporary, _whole_or_empty(folder):
        from trainables.models.released import load_model

        released = load_model(model if Path(model).is_dir() else _downloaded(storage, model, tracking_uri, temporary))
        if format == "folder":
            try:
                shutil.copytree(released.folder, folder, dirs_exist_ok=True)
            except shutil.Error as error:
                if disk_full(error):
                    raise
                file, _, why = error.args[0][0]
                raise UserError(f"model = {model!r}: {Path(file).name}: {why}; allowed: a whole model") from None
            lines = [f"wrote {folder}; open it with trainables.load_model"]
        else:
            from sweeps.registry.export import export_model

            lines = export_model(released, folder, format)
    for line in lines:
        print_line(out, line)


@contextmanager
def _whole_or_empty(folder: Path) -> Iterator[None]:
    """Make a folder if it is missing, and leave nothing of the block in it if that raises."""
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".edp-sweep").touch()
        (folder / ".edp-sweep").unlink()
    except OSError as error:
        raise UserError(f"folder = {str(folder)!r}: {error.strerror}; allowed: a folder that can be written") from None
    try:
        yield
    except BaseException:  # half a model would block another try
        for one in folder.iterdir():
            shutil.rmtree(one) if one.is_dir() else one.unlink()
        if is_new:
            folder.rmdir()
        raise


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
