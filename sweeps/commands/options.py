"""Arguments and options that several commands share, and the sweep that they name."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from edp.spec import UserError
from sweeps.commands.console import busy, err
from sweeps.store.lock import is_held
from sweeps.text.paths import as_path, short
from sweeps.text.terminal import command_line, print_line
from trainables.records.files import own_files

if TYPE_CHECKING:
    from sweeps.store.sweep import Sweep

RUNS = Path("runs")
Alias = Literal["candidate", "champion"]
"""Alias of a version in the registry: `candidate` is to be tried, `champion` is served."""

PATH: dict[str, Any] = {"parser": as_path, "metavar": "PATH"}
"""Keywords of every option and argument that is a path: `typer.Option(help=…, **PATH)`."""


def _file(text: str | Path) -> Path:
    """Return a file's path; refuse a name that ends with a slash, which `Path` would drop."""
    if str(text).endswith("/"):
        raise typer.BadParameter(f"{text} is a folder; allowed: a file")
    return as_path(text)


FILE: dict[str, Any] = {"parser": _file, "metavar": "FILE"}
"""Keywords of every option that is a file to be written."""


def storage_folder(text: str | Path) -> Path:
    """Return the folder that `--storage` names.

    Raises:
        UserError: for an address such as `s3://…`, or a file.
    """
    if isinstance(text, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        raise UserError(
            f"storage = {short(text)}: an address is not supported; allowed: a folder "
            '(for buckets see docs/cluster.md, "A cluster without a shared disk")'
        )
    folder = as_path(text)
    if folder.is_file():
        raise UserError(f"storage = {str(folder)!r}: it is a file; allowed: a folder")
    return folder


def _sweeps(ctx: typer.Context) -> list[str]:
    """Return the names of the sweeps for a shell to complete, without a look into them."""
    return sorted(file.parent.name for file in (ctx.params.get("storage") or RUNS).glob("*/sweep.json"))


Name = Annotated[
    str | None, typer.Argument(help="name of a sweep; by default the newest sweep", autocompletion=_sweeps)
]
Point = Annotated[
    str | None, typer.Argument(metavar="[POINT]", help="a trial, such as 7, or its model after an epoch, such as 7@3")
]
Trials = Annotated[int | None, typer.Option(help="number of trials; short for --set search.trials=N")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="change one setting, such as training.epochs=2; may be repeated"),
]
Storage = Annotated[Path, typer.Option(help="folder that holds the sweeps", parser=storage_folder, metavar="PATH")]
Shared = Annotated[
    bool,
    typer.Option(
        "--shared-with-group",
        help="let the group of the storage folder read and write what is made there; by default only its owner can",
    ),
]
TrackingUri = Annotated[
    str | None,
    typer.Option(
        help="MLflow's tracking store; by default the one that the sweep was started with, for new runs "
        "MLFLOW_TRACKING_URI or a SQLite file in the storage folder"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document instead of text")]
Register = Annotated[
    str | None,
    typer.Option("--register", metavar="MODEL", help="add the model to MLflow's registry under this name"),
]
AliasOption = Annotated[
    Alias | None,
    typer.Option(
        "--alias", help="alias of the version that --register adds, as in models:/MODEL@ALIAS; by default candidate"
    ),
]
WithEncoder = Annotated[
    bool,
    typer.Option(
        "--with-encoder",
        help="include a frozen public encoder in the registered model; without it, every server must have the encoder",
    ),
]


def named(storage: Path, name: str | None, *, with_end: bool = True) -> Sweep:
    """Return the sweep of this name. Without a name, return the newest sweep and print its name.

    Args:
        with_end: whether to write the sweep's end if its driver has died before it had written it.

    Raises:
        UserError: if there is no such sweep.
    """
    from sweeps.store.sweep import Sweep, newest  # with Optuna, which many commands that import this file need not

    if storage.is_dir():
        own_files(storage)
    found = Sweep.existing(storage, name) if name is not None else newest(storage)
    if found is None:
        start = command_line("run", "quickstart", storage=storage)
        raise UserError(
            f"name: none is given, and {storage} holds no sweep; allowed: a sweep (start one with: {start})"
        )
    if name is None:
        print_line(err, f"no name given: {found.name}, the newest sweep in {storage}")
    if with_end and _lacks_its_end(found):
        with busy(f"the process of {found.name} has died: writing the sweep's end"):
            # Rarely needed, and with PyTorch and MLflow.
            from sweeps.engine.finish import write_missing_end
            from sweeps.engine.progress import Progress

            write_missing_end(found, Progress(err))
    return found


def _lacks_its_end(sweep: Sweep) -> bool:
    """Return True if the sweep's driver has died before it had written the end, and this process may write it."""
    try:
        return sweep.record.end_due and not is_held(sweep.folder) and os.access(sweep.folder, os.W_OK)
    except UserError:  # the command itself reports a broken record
        return False


def with_trials(settings: list[str] | None, trials: int | None) -> list[str]:
    """Return the settings, with `--trials` as the last of them."""
    return [*(settings or []), *([f"search.trials={trials}"] if trials is not None else [])]


def registered_alias(model_name: str | None, alias: Alias | None, with_encoder: bool) -> Alias:
    """Return the alias of the version that `--register` adds.

    Raises:
        UserError: for an option that needs `--register`, without it.
    """
    for option, given in (("--alias", alias is not None), ("--with-encoder", with_encoder)):
        if given and model_name is None:
            raise UserError(f"{option}: it describes a registered version; allowed: together with --register MODEL")
    return alias or "candidate"
