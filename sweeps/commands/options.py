"""Arguments and options that several commands have, and which sweep a command is about."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edp.spec import UserError
from sweeps.commands.console import err
from sweeps.formatting.lines import print_line
from sweeps.formatting.names import as_path
from sweeps.formatting.shell import called, command_line

if TYPE_CHECKING:
    from sweeps.state.sweep import Sweep

RUNS = Path("runs")

Name = Annotated[str | None, typer.Argument(help="of a sweep; by default the newest")]


def storage_folder(text: str | Path) -> Path:
    """A folder, or the working folder of an object store, which is brought up to it when a command looks there.

    Raises:
        UserError: for what is neither.
    """
    from sweeps.state.bucket import is_address

    if not isinstance(text, str) or not is_address(text):
        folder = as_path(text)
        if folder.is_file():
            raise UserError(f"storage = {str(folder)!r}: it is a file; allowed: a folder")
        return folder
    from sweeps.state.storage import working_folder

    return working_folder(text, lambda line: print_line(err, line))


Storage = Annotated[
    Path,
    typer.Option(
        help="folder that sweeps live in, or s3://…, gs://…, file:///…", parser=storage_folder, metavar="PATH|ADDRESS"
    ),
]
TrackingUri = Annotated[
    str | None, typer.Option(help="MLflow tracking store; by default a SQLite file in the storage folder")
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="change a setting, such as training.epochs=2; may be repeated"),
]
Register = Annotated[
    str | None,
    typer.Option("--register", metavar="MODEL", help="add the model to MLflow's registry under this name"),
]
WithEncoder = Annotated[
    bool,
    typer.Option("--with-encoder", help="--register takes a frozen public encoder along; else a server must have it"),
]


def named(storage: Path, name: str | None) -> Sweep:
    """The sweep of this name; without one the newest, and says which.

    Raises:
        UserError: where there is none.
    """
    from sweeps.state.sweep import Sweep, newest

    if name is not None:
        return Sweep.existing(storage, name)
    found = newest(storage)
    if found is None:
        start = command_line("run", "quickstart", storage=storage)
        raise UserError(
            f"name: none is given, and {called(storage)} holds no sweep; allowed: a sweep (start one with: {start})"
        )
    print_line(err, f"no name given: {found.name}, the newest sweep in {called(storage)}")
    return found


def with_trials(settings: list[str] | None, trials: int | None) -> list[str]:
    """The settings, and `--trials` as one of them.

    Raises:
        UserError: where both say how many.
    """
    said = [setting for setting in settings or [] if setting.partition("=")[0].strip() == "search.trials"]
    if trials is not None and said:
        raise UserError(f"--trials = {trials}: --set {said[-1]} is given too; allowed: one of them")
    return [*(settings or []), *([f"search.trials={trials}"] if trials is not None else [])]
