"""The Typer application that holds all commands, and `main`, which runs one of them.

Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 a run failed, 2 the command line
or the input is wrong, 130 stopped by Ctrl-C, 143 stopped by SIGTERM.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from edp import __version__
from edp.spec import UserError
from sweeps.commands.account import account_command
from sweeps.commands.attack import attack_command
from sweeps.commands.check import check_command
from sweeps.commands.cluster import cluster
from sweeps.commands.confirm import confirm_command
from sweeps.commands.console import complain, warnings_as_notes
from sweeps.commands.data import data
from sweeps.commands.epsilon import epsilon_command
from sweeps.commands.export import export_command
from sweeps.commands.front import front_command
from sweeps.commands.pick import pick_command
from sweeps.commands.run import resume_command, run_command
from sweeps.commands.settings import settings_command
from sweeps.commands.status import list_command, status_command
from sweeps.commands.stop import stop_command
from sweeps.commands.train import train_command
from sweeps.commands.verify import verify_command
from sweeps.text.signals import SweepStopped, exit_code, stopped_by, terminating
from sweeps.text.unexpected import logged_threads, unexpected
from trainables.records.files import disk_full
from trainables.records.job import TrialError, still_waits


class _Commands(TyperGroup):
    """The group of all commands. It reports an interrupt, where Typer alone would exit silently."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command, and raise `SweepStopped` in place of a KeyboardInterrupt."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise SweepStopped(stopped_by(stop)) from None


app = typer.Typer(
    cls=_Commands,
    name="edp-sweep",
    help="Sweeps that choose a private fine-tuning configuration: usefulness (SER), leakage (MIA) and guarantee (ε).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"edp-sweep {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    pass


RUNNING, CHOOSING, GUARANTEE, DATA, OTHER = (
    "Run a sweep",
    "Choose and release",
    "Check a guarantee",
    "Corpora",
    "Machines",
)
"""The groups of commands in `--help`."""
REMOVED = {
    "bench": "python -m tests.benchmarks.step, and python -m tests.benchmarks.tables for Table 2, in a clone",
    "forecast": "a sweep at the other ε",
    "plan": "epsilon RECIPE, which shows the ε of a trial, of the whole search, and of proxy and release",
    "--plan": "--set search.plan=proxy, or no plan for a search on the corpus itself",
    "pretrain": "python examples/pretrain_encoder.py",
    "repair": "resume, which writes a lost study again from its copy",
    "schema-only": "front, whose row `schema` has its figures",
}
"""What to take in place of a command or an option that was removed."""

for _group, _name, _command in (  # in the order of `--help`
    (RUNNING, "run", run_command),
    (RUNNING, "resume", resume_command),
    (RUNNING, "stop", stop_command),
    (RUNNING, "list", list_command),
    (RUNNING, "status", status_command),
    (RUNNING, "settings", settings_command),
    (CHOOSING, "front", front_command),
    (CHOOSING, "confirm", confirm_command),
    (CHOOSING, "pick", pick_command),
    (CHOOSING, "train", train_command),
    (CHOOSING, "export", export_command),
    (GUARANTEE, "epsilon", epsilon_command),
    (GUARANTEE, "account", account_command),
    (GUARANTEE, "attack", attack_command),
    (GUARANTEE, "verify", verify_command),
    (GUARANTEE, "check", check_command),
):
    app.command(_name, rich_help_panel=_group)(_command)
for _group, _name, _commands in ((DATA, "data", data), (OTHER, "cluster", cluster)):
    app.add_typer(_commands, name=_name, rich_help_panel=_group)


def main(commands: typer.Typer | None = None) -> None:
    """Run `edp-sweep`, or other `commands`, with this process' arguments, and exit with the exit code."""
    _reach_loopback_directly()
    with logged_threads(), terminating(), warnings_as_notes():
        code = _run(commands or app)
    try:
        sys.stdout.flush()
    except OSError:  # its reader has ended, or its disk is full
        _discard_stdout()
        code = code or 1
    if still_waits():  # Ray would end this process with exit code 1 for the thread that waits
        os._exit(code)
    raise SystemExit(code)


_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _reach_loopback_directly() -> None:
    """Exempt this machine from the proxies of the environment, for all libraries and the processes that start here.

    A proxy that is asked for 127.0.0.1 looks on its own machine: MLflow, the page and Ray would not be found.
    """
    for name in ("no_proxy", "NO_PROXY"):
        given = os.environ.get(name) or os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
        if given.strip() != "*":
            kept = [one for one in given.split(",") if one.strip()]
            os.environ[name] = ",".join([*kept, *(one for one in _LOOPBACK if one not in kept)])


def _have_a_home() -> None:
    """Name a folder for temporary files as the home of a user who has none that can be written, as in a container.

    Libraries keep caches there, and Python cannot even name the home of a user without a name.

    Raises:
        UserError: if there is no folder for temporary files either.
    """
    home = os.path.expanduser("~")
    if os.access(home, os.W_OK):
        return
    try:
        spare = Path(tempfile.gettempdir(), f"edp-sweeps-{os.getuid()}")
        spare.mkdir(mode=0o700, exist_ok=True)
        if spare.lstat().st_uid != os.getuid():  # another user has made it, to put something there
            spare = Path(tempfile.mkdtemp(prefix="edp-sweeps-"))
    except OSError:
        raise UserError(f"HOME = {home!r}: neither it nor TMPDIR can be written; allowed: one that can be") from None
    if not os.path.isdir(home):  # one that can be read may hold passwords and tokens
        os.environ["HOME"] = str(spare)
    for kind in ("CACHE", "CONFIG", "DATA", "STATE"):
        os.environ.setdefault(f"XDG_{kind}_HOME", str(spare / kind.lower()))


def _run(commands: typer.Typer) -> int:
    """Run the command and return the exit code."""
    try:
        _have_a_home()
        return int(commands(standalone_mode=False) or 0)
    except UserError as error:
        complain(str(error))
        return 2
    except typer.TyperException as error:
        if message := mistyped(error):
            complain(message)
        return 2
    except SweepStopped as stop:
        complain(str(stop))
        return stop.code
    except (KeyboardInterrupt, typer.Abort) as stop:  # interrupted before a command has begun
        complain(stopped_by(stop))
        return exit_code(stopped_by(stop))
    except BrokenPipeError:  # `edp-sweep list | head`
        _discard_stdout()
        return 1
    except Exception as error:
        return _failed(error)


def mistyped(error: typer.TyperException) -> str:
    """Return one line for an unknown command or option, or a wrong value; "" if Typer has printed the help."""
    message = " ".join(error.format_message().split()).replace("Value error, ", "")
    problem, parameter = error.__cause__, getattr(error, "param", None)
    if isinstance(problem, ValidationError) and parameter is not None:
        first = problem.errors()[0]
        says = first["msg"].removeprefix("Value error, ")
        value = "" if repr(first["input"]) in says else f" = {first['input']!r}"
        return f"{max(parameter.opts, key=len)}{value}: {says[0].lower()}{says[1:]}"
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    allowed: list[str] = []
    if message.startswith("No such command"):
        name = message.split("'")[1]
        if name in REMOVED:
            return f"{name}: removed; use {REMOVED[name]}"
        allowed = context.command.list_commands(context)
    elif (option := getattr(error, "option_name", None)) is not None:
        if option in REMOVED:
            return f"{option}: removed; use {REMOVED[option]}"
        allowed = [name for one in context.command.get_params(context) for name in one.opts if name.startswith("--")]
    return f"{message.rstrip('.')}; allowed: {', '.join(allowed)}" if allowed else message


def _failed(error: Exception) -> int:
    """Report a failed run, a full disk or a bug in one line, and return the exit code."""
    client = sys.modules.get("trainables.workers.client")  # an import of Ray may be what has failed
    if isinstance(error, TrialError):
        complain(f"failed: {error}")
    else:
        complain(disk_full(error) or (client.death_in(error) if client else None) or unexpected(error))
    return 1


def _discard_stdout() -> None:
    """Discard all further output, including what the interpreter flushes when it ends."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
