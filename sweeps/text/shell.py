"""What to type next, as a shell takes it: quoted, and with the options without which nothing would be found."""

from __future__ import annotations

import shlex
from pathlib import Path

from sweeps.text.secrets import redacted


def command_line(command: str, *words: str | Path, storage: Path, tracking_uri: str | None = None) -> str:
    """`edp-sweep COMMAND WORDS…`, to be pasted into a shell in the folder where this process runs.

    Args:
        storage: left out where it is what `--storage` is by default.
        tracking_uri: its secrets are not shown. None: the command finds the store by itself.
    """
    line = ["edp-sweep", command, *map(str, words)]
    if storage.resolve() != Path("runs").resolve():
        line += ["--storage", str(storage.resolve())]
    if tracking_uri is not None:
        line += ["--tracking-uri", redacted(tracking_uri)]
    return shlex.join(line)
