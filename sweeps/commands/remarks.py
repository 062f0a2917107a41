"""What our packages log is a line for a person, whatever a library has made of Python's logging meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sweeps.commands.console import err
from sweeps.formatting.lines import print_line

_PACKAGES = ("edp", "trainables", "sweeps", "dashboards")


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print_line(err, f"note: {record.getMessage()}")


@contextmanager
def remarks() -> Iterator[None]:
    """While the block runs, warnings of our own packages go to standard error as notes."""
    handler = _Lines(logging.WARNING)
    loggers = [logging.getLogger(package) for package in _PACKAGES]
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False  # or a library's handler would say it again, with the name of the module
    try:
        yield
    finally:
        for logger, propagated in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagated
