"""A terminal without a size is one of 80 columns."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PRINT = """
from sweeps.commands.console import err, out
from sweeps.text.terminal import figures_table
table = figures_table("title", "caption", ["one", "other"])
table.add_row("1.5", "2.5")
out.print(table)
print(out.width, err.width)
"""


@pytest.mark.parametrize("columns", ["0", "00", "", "80"])
def test_no_columns_are_eighty(columns: str) -> None:
    environment = {**os.environ, "COLUMNS": columns, "LINES": "0"}
    ended = subprocess.run([sys.executable, "-c", PRINT], env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "80 80"
    assert "1.5" in ended.stdout
