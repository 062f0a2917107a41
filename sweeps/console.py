"""Standard output for results, standard error for everything else."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console

# Bound to the streams as they are now: while Ray runs, what it prints is redirected to a log.
out = Console(file=sys.stdout)
err = Console(file=sys.stderr)


def print_json(document: Any) -> None:
    """One document on standard output. Infinity is written as Python's json writes and reads it."""
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def complain(line: str) -> None:
    """A mistake or a failure, as one line."""
    err.print(f"edp-sweep: {line}", style="bold red", highlight=False, markup=False, soft_wrap=True)
