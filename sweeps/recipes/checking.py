"""What is refused of a recipe before it is built: settings that nobody knows, and those that hold a secret."""

from __future__ import annotations

import builtins
import types
import typing
from typing import Any

from pydantic import BaseModel

from edp.spec import UserError
from sweeps.formatting.errors import shown, suggestion
from sweeps.formatting.secrets import redacted


def refuse_unknown(annotation: Any, data: Any, path: str) -> None:
    """Pydantic finds unknown keys too, but does not say what would have been known, nor the one that is in a list.

    Args:
        annotation: what `data` is to become.
        path: of `data`, empty or with a dot at its end.

    Raises:
        UserError: naming the setting, and what is known.
    """
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = annotation.model_fields
        tag = fields.get("kind")
        if not isinstance(data, dict) or (tag is not None and data.get("kind") != tag.default):
            return
        for key, value in data.items():
            if key not in fields:
                here = f"{path}{key}"[:200]
                what = "unknown setting" if tag is None else f"unknown setting of kind = {tag.default}"
                raise UserError(f"{here} = {shown(value)}: {what}; {suggestion(str(key), fields)}")
            refuse_unknown(fields[key].annotation, value, f"{path}{key}.")
        return
    parts = typing.get_args(annotation)
    match typing.get_origin(annotation), data:
        case builtins.tuple, list():
            for i, value in enumerate(data):
                refuse_unknown(parts[0], value, f"{path}{i}.")
        case builtins.dict, dict():
            for key, value in data.items():
                refuse_unknown(parts[1], value, f"{path}{key}.")
        case ((typing.Union | types.UnionType | typing.Annotated), _):
            # One dimension for each decay, rather than a dimension.
            mappings = [part for part in parts if typing.get_origin(part) is dict]
            by_key = isinstance(data, dict) and data and all(isinstance(value, dict) for value in data.values())
            for part in mappings if by_key and mappings else [part for part in parts if part not in mappings]:
                refuse_unknown(part, data, path)


def refuse_secrets(data: Any, path: str) -> None:
    """Refuses passwords and tokens: settings are written into files and MLflow, and shown.

    Raises:
        UserError: naming the setting.
    """
    if isinstance(data, str) and redacted(data) != data:
        raise UserError(
            f"{path.rstrip('.')} = {shown(data)}: holds a password, or an option that may be one, which would be "
            "written into recipe.yaml and MLflow; "
            "allowed: a variable of the environment in its place, such as postgresql://user:$PASSWORD@host/database"
        )
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        refuse_secrets(value, f"{path}{key}.")
