"""A command that was stopped, before Typer makes an exit without a word of it."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from sweeps.formatting.signals import stopped_by


class Stopped(Exception):
    """A person or a machine has stopped the command; its text says who."""


class Commands(TyperGroup):
    """Typer would make an exit without a word of what stops a command."""

    def invoke(self, ctx: Any) -> Any:
        """As usual.

        Raises:
            Stopped: where it was interrupted.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise Stopped(stopped_by(stop)) from None
