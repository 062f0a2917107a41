"""Warnings of our own packages are lines for a person."""

from __future__ import annotations

import subprocess
import sys

import pytest

WARNS = """
import logging
from sweeps.commands.console import warnings_as_notes
logging.basicConfig()  # as a library does at import
with warnings_as_notes():
    logging.getLogger("trainables.corpora.overlap").warning("%d of %s", 2, "sqlite://u:secret@h/x")
    logging.getLogger("trainables.corpora.overlap").info("nothing to a person")
    logging.getLogger("somebody.else").warning("theirs")
"""


@pytest.mark.slow
def test_a_warning_is_one_line_without_the_name_of_a_module_even_where_a_library_logs_too() -> None:
    ended = subprocess.run([sys.executable, "-c", WARNS], capture_output=True, text=True, check=True)
    assert ended.stderr.splitlines() == ["note: 2 of sqlite://***@h/x", "WARNING:somebody.else:theirs"]
