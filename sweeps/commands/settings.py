"""`edp-sweep settings`: the settings of a recipe, with default, what is allowed, and meaning."""

from __future__ import annotations

from typing import Annotated

import typer

from edp.spec import UserError
from sweeps.commands.console import out, print_json
from sweeps.commands.options import Json
from sweeps.config.all_settings import settings
from sweeps.text.errors import suggestion
from sweeps.text.paths import short
from sweeps.text.terminal import print_line


def settings_command(
    word: Annotated[
        str | None,
        typer.Argument(help="a part of a setting's path or meaning, such as batch; by default all settings"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print a recipe's settings: default, what is allowed, and meaning.

    --set and YAML files change them.
    """
    every = settings()
    wanted = (word or "").lower()
    found = [one for one in every if wanted in one.path.lower() or wanted in one.meaning.lower()]
    if not found:
        known = {name for one in every for name in one.path.split(".")}
        raise UserError(f"word = {short(word)}: it is in no setting; {suggestion(wanted, known)}")
    if as_json:
        print_json([one._asdict() for one in found])
        return
    for one in found:
        kind = f" (of {one.kind})" if one.kind else ""
        default = f"default {one.default or 'none'}".replace("`", "")
        print_line(out, f"{one.path}{kind}: {default}; allowed: {one.allowed.replace('`', '')}")
        if one.meaning:
            print_line(out, f"    {one.meaning}")
