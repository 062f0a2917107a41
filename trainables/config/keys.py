"""The keys by which caches, shadow attacks, reference models and checkpoints are found again.

A key is made of what a spec says differently from its defaults, so that a setting that is added changes no key of a
sweep that exists. The price is one rule: whoever changes a *default*, or what a setting does, raises `KEY_VERSION`.
`tests/trainables/config/key_defaults.json` holds the defaults of each version; a test compares.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

KEY_VERSION = 1
"""A part of every key. Raise it when a default changes: what was made under the old one is then made again."""

NO_EFFECT = frozenset({"workers", "device", "memory_batch", "sub_chunks", "validate_every"})
"""Settings of `training` that change no weights, up to the order of a summation."""


def identity(spec: BaseModel, leave_out: Collection[str] = ()) -> dict[str, Any]:
    """Return the settings of `spec` that differ from their defaults, as JSON values.

    Specs within it, also within tuples, are reduced in the same way. A tag, which is a field of one possible value such
    as `kind`, is kept: it says which spec of a union this is.

    Args:
        leave_out: paths of settings that have no effect on what the key is of, such as `training.workers`.

    Examples:
        >>> from trainables.config import CanariesSpec
        >>> identity(CanariesSpec()), identity(CanariesSpec(count=5))
        ({}, {'count': 5})
    """
    found = {}
    for name, field in type(spec).model_fields.items():
        if name in leave_out:
            continue
        inner = {path.removeprefix(f"{name}.") for path in leave_out if path.startswith(f"{name}.")}
        value = _reduced(getattr(spec, name), inner)
        is_tag = get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
        if is_tag or value != _reduced(field.get_default(call_default_factory=True), inner):
            found[name] = value
    return found


def _reduced(value: Any, leave_out: Collection[str]) -> Any:
    if isinstance(value, BaseModel):
        return identity(value, leave_out)
    return [_reduced(one, leave_out) for one in value] if isinstance(value, tuple) else value


def cache_key(*parts: object) -> str:
    """Return 12 hexadecimal digits that change when a part does; a spec among the parts counts as its `identity`."""
    text = json.dumps([KEY_VERSION, *parts], sort_keys=True, default=identity)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
