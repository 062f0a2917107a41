"""All settings of a recipe, read off the specs: for `edp-sweep settings` and for docs/settings.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from sweeps.config.recipe import Recipe

Schema = dict[str, Any]


class Setting(NamedTuple):
    """One setting. `kind` names the kind of model that has it, if only one kind has it."""

    path: str
    kind: str
    allowed: str
    default: str
    meaning: str


def settings() -> list[Setting]:
    """Return every setting, in the order of the specs."""
    schema = Recipe.model_json_schema()
    return list(_settings(schema, schema["$defs"], "", ""))


def _settings(schema: Schema, defs: dict[str, Schema], path: str, kind: str) -> Iterator[Setting]:
    for name, field in schema["properties"].items():
        here = f"{path}.{name}" if path else name
        listed = field.get("items", {})
        ways = [listed] if _name(listed) else _ways(field)
        opened = [
            way for way in ways if (called := _name(way)) and (called != "CorpusSpec" or (not path and not listed))
        ]
        for way in opened:
            spec = defs[_name(way)]
            one_of = spec["properties"].get("kind", {}).get("const", kind)  # of a union; canaries have a kind, too
            yield from _settings(spec, defs, f"{here}[]" if listed else here, one_of)
        if not opened:
            meaning = next((way["description"] for way in (field, *_ways(field)) if "description" in way), "")
            allowed = " or ".join(dict.fromkeys(map(_allowed, _ways(field))))
            yield Setting(here, kind, allowed, _default(field), " ".join(meaning.split()))


def _ways(field: Schema) -> list[Schema]:
    """Return the schemas that a field may have."""
    return field.get("anyOf") or field.get("oneOf") or [field]


def _name(way: Schema) -> str:
    return str(way.get("$ref", "")).rpartition("/")[2]


def _allowed(way: Schema) -> str:
    if "enum" in way or "const" in way:
        return ", ".join(f"`{value}`" for value in way.get("enum", [way.get("const")]))
    if _name(way) or way["type"] in ("array", "object"):
        return {"CorpusSpec": "a corpus", "object": "a mapping", "array": "a list"}[_name(way) or way["type"]]
    words = {
        "boolean": "true, false",
        "integer": "a whole number",
        "number": "a number",
        "string": "text",
        "null": "null",
    }
    bounds = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = ", ".join(f"{sign} {way[key]:,}" for key, sign in bounds.items() if key in way)
    multiple = f", a multiple of {way['multipleOf']:g}" if "multipleOf" in way else ""
    return f"{words[way['type']]} {limits}{multiple}".strip()


def _default(field: Schema) -> str:
    value = field.get("default", "")
    if value is None:
        return "null"
    if value == "":
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
