"""A real package with entry points, on the path while a test runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainables.config.plugins import plugins


@contextmanager
def installed(folder: Path, source: str, **entry_points: str) -> Iterator[None]:
    """Write the package `their_plugins` and its dist-info as pip does, and find it within the block.

    Args:
        entry_points: the lines of each group, by the group's name behind `edp_sweeps.`.
    """
    (folder / "their_plugins.py").write_text(source)
    about = folder / "their_plugins-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-plugins\nVersion: 1.0\n")
    groups = [f"[edp_sweeps.{kind}]\n{lines}\n" for kind, lines in entry_points.items()]
    (about / "entry_points.txt").write_text("\n".join(groups))
    sys.path.insert(0, str(folder))
    plugins.cache_clear()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("their_plugins", None)
        plugins.cache_clear()
