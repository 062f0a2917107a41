"""The keys by which caches, shadow attacks, reference models and checkpoints are found again.

A key is made of the settings that differ from their defaults, so a new setting changes no key of an existing sweep.
The price is one rule: a change of a *default*, or of what a setting does, must raise `KEY_VERSION`. A test compares the
defaults with `tests/trainables/config/key_defaults.json`, which holds those of each version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

KEY_VERSION = 4
"""A part of every key. Raise it when a default or a reader changes: what the old keys name is then made again."""

NO_EFFECT = frozenset({"workers", "device", "memory_batch", "gradient_checkpointing", "validate_every"})
"""Settings of `training` that change no weights, except by the order of a summation."""


def identity(spec: BaseModel, leave_out: Collection[str] = ()) -> dict[str, Any]:
    """Return the settings of `spec` that differ from their defaults, as JSON values.

    Nested specs, also those in tuples, are reduced in the same way. A tag (a field with one possible value, such as
    `kind`) is kept, since it says which spec of a union this is.

    Args:
        leave_out: paths of settings that do not affect what the key names, such as `training.workers`.

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
    """Replace the specs in a field's value by their `identity`."""
    if isinstance(value, BaseModel):
        return identity(value, leave_out)
    return [_reduced(one, leave_out) for one in value] if isinstance(value, tuple) else value


def cache_key(*parts: object) -> str:
    """Return 12 hexadecimal digits that change if a part does; a spec counts as its `identity`."""
    text = json.dumps([KEY_VERSION, *parts], sort_keys=True, default=identity)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
