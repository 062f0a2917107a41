"""`edp-sweep stop`: end a sweep that runs in another shell, or on another machine of the storage folder."""

from __future__ import annotations

from edp.spec import UserError
from sweeps.commands.console import out
from sweeps.commands.options import RUNS, Name, Storage, named
from sweeps.store.lock import STOP, is_held
from sweeps.text.terminal import print_line


def stop_command(name: Name = None, storage: Storage = RUNS) -> None:
    """End a sweep after its running epochs, as Ctrl-C does; twice: at once."""
    sweep = named(storage, name, with_end=False)
    if not is_held(sweep.folder):
        raise UserError(f"name = {sweep.name!r} is not running; allowed: a sweep that runs")
    (sweep.folder / STOP).touch()
    again = sweep.command("resume")
    print_line(out, f"{sweep.name} stops when its running epochs have ended and are saved; go on with: {again}")
