"""`edp-sweep`: the command line. Results go to standard output, everything else to standard error.

Exit codes: 0 done, 1 a run failed, 2 a mistake of the user's, 130 stopped by Ctrl-C, 143 by SIGTERM.
"""

from __future__ import annotations

import os
import sys

import typer

from edp.spec import UserError
from sweeps.commands.app import app
from sweeps.commands.console import complain
from sweeps.commands.mistyped import mistyped
from sweeps.commands.remarks import remarks
from sweeps.commands.stopped import Stopped
from sweeps.commands.unexpected import logged_threads, unexpected
from sweeps.formatting.signals import exit_code, stopped_by, terminating
from trainables.records.waiting import still_waits


def main() -> None:
    """Entry point of `edp-sweep`."""
    with logged_threads(), terminating(), remarks():
        code = _run()
        if (opened := sys.modules.get("sweeps.state.storage")) is not None:  # else no command has looked for a sweep
            try:
                opened.close_storages()
            except UserError as error:
                complain(str(error))
                code = code or 2
    try:
        sys.stdout.flush()
    except OSError:  # whoever read it has gone, or its disk is full
        _discard_stdout()
        code = code or 1
    if still_waits():
        os._exit(code)
    raise SystemExit(code)


def _run() -> int:
    """Runs what was typed; returns the exit code."""
    try:
        return int(app(standalone_mode=False) or 0)
    except UserError as error:
        complain(str(error))
        return 2
    except typer.TyperException as error:
        if message := mistyped(error):
            complain(message)
        return 2
    except Stopped as stop:
        complain(str(stop))
        return exit_code(str(stop))
    except (KeyboardInterrupt, typer.Abort) as stop:  # before a command has begun
        complain(stopped_by(stop))
        return exit_code(stopped_by(stop))
    except BrokenPipeError:  # `edp-sweep list | head`
        _discard_stdout()
        return 1
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> int:
    from sweeps.commands.run import SweepFailed, SweepStopped
    from trainables.records.files import disk_full
    from trainables.records.job import TrialError

    if isinstance(error, SweepStopped):
        complain(str(error))
        return error.code
    if isinstance(error, TrialError | SweepFailed):
        complain(f"failed: {error}")
    else:
        complain(disk_full(error) or unexpected(error))
    return 1


def _discard_stdout() -> None:
    """What is still to be written goes nowhere, also when the interpreter ends."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
