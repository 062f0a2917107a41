"""`edp-sweep train` as a next step: it keeps no tracking store, so that of the sweep has to be told."""

from __future__ import annotations

import os
from pathlib import Path

from sweeps.formatting.names import sqlite_url
from sweeps.formatting.secrets import redacted
from sweeps.formatting.shell import command_line
from sweeps.state.places import absolute_store


def default_tracking_uri(storage: Path) -> str:
    """A SQLite store beside the sweeps."""
    return sqlite_url((storage / "mlflow.db").resolve())


def train_line(config: str | Path, *words: str, storage: Path, tracking_uri: str) -> str:
    """`edp-sweep train CONFIG WORDS…`, which tracks in the store at `tracking_uri`."""
    by_itself = absolute_store(os.environ.get("MLFLOW_TRACKING_URI") or default_tracking_uri(storage))
    told = tracking_uri if redacted(by_itself) != redacted(absolute_store(tracking_uri)) else None
    return command_line("train", config, *words, storage=storage, tracking_uri=told)
