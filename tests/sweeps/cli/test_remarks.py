"""Warnings of our own packages are lines for a person."""

from __future__ import annotations

import logging

import pytest

from sweeps.cli.remarks import remarks


def test_a_warning_is_one_line_without_the_name_of_a_module_even_where_a_library_logs_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    theirs = logging.StreamHandler()
    logging.getLogger().addHandler(theirs)
    try:
        with remarks():
            logging.getLogger("trainables.pretraining.overlap").warning(
                "%d utterances of %s", 2, "sqlite://u:secret@h/x"
            )
            logging.getLogger("trainables.pretraining.overlap").info("nothing to a person")
    finally:
        logging.getLogger().removeHandler(theirs)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("note: 2 utterances of sqlite://")
    assert "secret" not in lines[0]


def test_afterwards_logging_is_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    with remarks():
        pass
    logging.getLogger("sweeps").warning("heard")
    assert "heard" in caplog.text
