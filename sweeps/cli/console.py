"""Standard output for results, standard error for everything else."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO

from rich.console import Console

from sweeps.formatting.lines import print_line


def _own_stderr() -> TextIO:
    """Standard error under a number of its own: Ray's C++ writes to number 2, which leads to a log while Ray runs."""
    try:
        return open(os.dup(2), "w", buffering=1, encoding="utf-8", closefd=False)
    except OSError:  # closed
        return sys.stderr


# Bound to the streams as they are now: while Ray runs, what it prints is redirected to a log.
out = Console(file=sys.stdout)
err = Console(file=_own_stderr())


def print_json(document: Any) -> None:
    """One document on standard output. Infinity is written as Python's json writes and reads it."""
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def complain(line: str) -> None:
    """A mistake or a failure, as one line."""
    print_line(err, f"edp-sweep: {line}", style="bold red")
