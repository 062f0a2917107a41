"""What was typed wrongly, in one line: the option, its value and what is allowed."""

from __future__ import annotations

import typer
from pydantic import ValidationError


def mistyped(error: typer.TyperException) -> str:
    """The line for a command, an option or a value that there is not; "" where Typer has nothing to say."""
    message = " ".join(error.format_message().split()).replace("Value error, ", "")
    problem, parameter = error.__cause__, getattr(error, "param", None)
    if isinstance(problem, ValidationError) and parameter is not None:
        first = problem.errors()[0]
        says = first["msg"].removeprefix("Value error, ")
        value = "" if repr(first["input"]) in says else f" = {first['input']!r}"
        return f"{max(parameter.opts, key=len)}{value}: {says[0].lower()}{says[1:]}"
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    allowed: list[str] = []
    if message.startswith("No such command"):
        allowed = context.command.list_commands(context)
    elif hasattr(error, "option_name"):
        allowed = [name for one in context.command.get_params(context) for name in one.opts if name.startswith("--")]
    return f"{message.rstrip('.')}; allowed: {', '.join(allowed)}" if allowed else message
