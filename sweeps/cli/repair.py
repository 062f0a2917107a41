"""`edp-sweep repair`: a study that is gone, made anew."""

from __future__ import annotations

from sweeps.commands.console import out, print_json
from sweeps.commands.options import RUNS, Json, Name, Storage, named
from sweeps.formatting.lines import print_line


def repair(
    name: Name = None,
    storage: Storage = RUNS,
    as_json: Json = False,
) -> None:
    """Makes a sweep's study anew from its trials' folders, where study.db is gone or broken, and says what is lost."""
    from sweeps.commands.repair import repair as run

    found = run(named(storage, name))
    if as_json:
        print_json(found)
        return
    counts = ", ".join(f"{n} {state}" for state, n in found["trials"].items()) or "no trials"
    lines = [f"{'rebuilt the study' if found['rebuilt'] else 'the study is whole'}: {counts}"]
    if found["kept"] is not None:
        lines.append(f"what stood there is now {found['kept']}")
    if found["ledgers"]:
        lines.append(f"wrote back the ledgers of trials {', '.join(map(str, found['ledgers']))}")
    for line in (*lines, *(f"lost: {what}" for what in found["lost"])):
        print_line(out, line)
