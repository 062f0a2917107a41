"""The Typer application, whose commands are imported when they run, and `main`, which runs one of them.

Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 a run failed, 2 the command line
or the input is wrong, 130 stopped by Ctrl-C, 143 stopped by SIGTERM.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from typer.core import TyperCommand, TyperGroup

from edp import __version__
from edp.spec import UserError
from sweeps.commands.console import complain, warnings_as_notes
from sweeps.text.signals import SweepStopped, exit_code, stopped_by, terminating
from sweeps.text.unexpected import logged_threads, unexpected
from trainables.records.files import disk_full

COMMANDS = {
    "Run a sweep": {
        "run": ("sweeps.commands.run", "Run a sweep to its front, or make a private model of a file of utterances."),
        "resume": ("sweeps.commands.run", "Go on with a sweep that was stopped, and with the release that follows."),
        "stop": ("sweeps.commands.run", "End a sweep after its running epochs, as Ctrl-C does; twice: at once."),
        "list": ("sweeps.commands.status", "List the sweeps of a storage folder, each with its best point."),
        "status": ("sweeps.commands.status", "Show a sweep's state, trials, costs and front; also while it runs."),
        "settings": ("sweeps.commands.settings", "Print a recipe's settings: default, what is allowed, and meaning."),
    },
    "Choose and release": {
        "front": ("sweeps.commands.status", "Show the Pareto-optimal configurations of a sweep."),
        "confirm": ("sweeps.commands.confirm", "Train the front again with new seeds, and show means and intervals."),
        "pick": ("sweeps.commands.pick", "Write one configuration of a sweep as a file for `train`."),
        "train": ("sweeps.commands.train", "Train one configuration as a trial does, and measure it."),
        "export": ("sweeps.commands.export", "Write a registered model as a folder that other programs read."),
        "ui": ("dashboards.cli", "Serve the Pareto page, Optuna's and MLflow's; also while the sweep runs."),
        "report": ("dashboards.cli", "Write a report for a privacy review: data, front, choice, guarantees, attacks."),
    },
    "Check a guarantee": {
        "epsilon": ("sweeps.commands.epsilon", "Compute the ε of a configuration or of a recipe."),
        "account": ("sweeps.commands.account", "Show the ε of everything that was ever trained on a corpus."),
        "attack": ("sweeps.commands.attack", "Run all attacks on one trained model."),
        "verify": ("sweeps.commands.verify", "Measure clip and noise of a few steps, and compare with the ledger."),
        "check": ("sweeps.commands.check", "Compare a model with limits; exit code 1 if it is over one."),
    },
    "Corpora": {"data": ("sweeps.commands.data", "Download, generate and check corpora.")},
    "Machines": {"cluster": ("sweeps.commands.cluster", "Write the files that start a cluster.")},
}
"""The groups of `--help`, with the module and the line of each command. Its function is `NAME_command` there."""
REMOVED = {
    "bench": "python -m tests.benchmarks.step, and python -m tests.benchmarks.tables for Table 2, in a clone",
    "forecast": "a sweep at the other ε",
    "plan": "epsilon RECIPE, which shows the ε of a trial, of the whole search, and of proxy and release",
    "--plan": "--set search.plan=proxy, or no plan for a search on the corpus itself",
    "pretrain": "python examples/pretrain_encoder.py",
    "repair": "resume, which writes a lost study again from its copy",
    **dict.fromkeys(("--clip", "--noise-correlation", "--band"), "--set edp.KEY=VALUE, such as edp.clip=quantile"),
    "--plot": "--json, which has the curve",
    "--standard-split": "--set corpus.split=published",
    "schema-only": "front, whose row `schema` has its figures",
}
"""What to take in place of a command or an option that was removed."""


class _Commands(TyperGroup):
    """The group of `COMMANDS`. The module of a command is imported when the command is run or completed.

    It reports an interrupt, where Typer alone would exit silently.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for group, commands in COMMANDS.items():
            for name, (_, line) in commands.items():
                self.add_command(TyperCommand(name, help=line, rich_help_panel=group))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name, the imported command and the other words."""
        name, shown, rest = super().resolve_command(ctx, args)
        return name, shown and command(name), rest

    def invoke(self, ctx: Any) -> Any:
        """Run a command, and raise `SweepStopped` in place of a KeyboardInterrupt."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise SweepStopped(stopped_by(stop)) from None


@functools.cache
def command(name: str) -> Any:
    """Import a command, or a group such as `data`."""
    module = next(commands[name][0] for commands in COMMANDS.values() if name in commands)
    found = getattr(importlib.import_module(module), f"{name}_command")
    if not isinstance(found, typer.Typer):
        one = typer.Typer(add_completion=False)
        one.command(name)(found)
        found = one
    return typer.main.get_command(found)


app = typer.Typer(
    cls=_Commands,
    name="edp-sweep",
    help="Sweeps that choose a private fine-tuning configuration: usefulness (SER), leakage (MIA) and guarantee (ε).",
    no_args_is_help=True,
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
    job = sys.modules.get("trainables.records.job")
    if job and job.still_waits():  # Ray would end this process with exit code 1 for the thread that waits
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
    # What has not been imported has not failed, and an import of Ray may be what has.
    job, client = (sys.modules.get(f"trainables.{name}") for name in ("records.job", "workers.client"))
    if job and isinstance(error, job.TrialError):
        complain(f"failed: {error}")
    else:
        complain(disk_full(error) or (client.death_in(error) if client else None) or unexpected(error))
    return 1


def _discard_stdout() -> None:
    """Discard all further output, including what the interpreter flushes when it ends."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
