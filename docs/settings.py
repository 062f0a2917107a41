"""A hook of MkDocs: writes the tables of all settings, of a recipe and of a pretraining, from the specs themselves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

from pydantic import BaseModel

from sweeps.config.recipe import Recipe
from trainables.pretraining.spec import PretrainSpec

PLACES: dict[str, type[BaseModel]] = {
    "<!-- settings of a recipe -->": Recipe,
    "<!-- settings of a pretraining -->": PretrainSpec,
}
_OWN_WORDS = {
    "description": "for people",
}
"""Of settings whose specs have none, since they say it by themselves."""

Schema = dict[str, Any]


class Setting(NamedTuple):
    """One setting. `kind` is that of the model which has it, where only one kind has."""

    path: str
    kind: str
    allowed: str
    default: str
    meaning: str


def settings(spec: type[BaseModel] = Recipe) -> list[Setting]:
    """Every setting, in the order of its specs."""
    schema = spec.model_json_schema()
    return list(_settings(schema, schema["$defs"], "", ""))


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs calls this for each page."""
    for place, spec in PLACES.items():
        if place in markdown:
            markdown = markdown.replace(place, table(spec))
    return markdown


def table(spec: type[BaseModel] = Recipe) -> str:
    """All settings, as a table of Markdown for each part."""
    lines: list[str] = []
    for part, found in groupby(sorted(settings(spec), key=lambda one: _part(one) != ""), key=_part):
        lines += [
            f"### `{part}`" if part else "### Of the whole",
            "",
            "| setting | allowed | default | meaning |",
            "|---|---|---|---|",
        ]
        for one in found:
            kind = f" (of `{one.kind}`)" if one.kind else ""
            cells = (f"`{one.path}`{kind}", one.allowed, one.default, one.meaning)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def _part(one: Setting) -> str:
    return one.path.partition(".")[0] if "." in one.path else ""


def _settings(schema: Schema, defs: dict[str, Schema], path: str, kind: str) -> Iterator[Setting]:
    for name, field in schema["properties"].items():
        here = f"{path}.{name}" if path else name
        listed = field.get("items", {})
        ways = [listed] if _name(listed) else _ways(field)
        opened = [way for way in ways if (spec := _name(way)) and (spec != "CorpusSpec" or (not path and not listed))]
        for way in opened:
            spec = defs[_name(way)]
            one_of = spec["properties"].get("kind", {}).get("const", kind)  # of a union; canaries have a kind, too
            yield from _settings(spec, defs, f"{here}[]" if listed else here, one_of)
        if not opened:
            meaning = next(
                (way["description"] for way in (field, *_ways(field)) if "description" in way), _OWN_WORDS.get(here, "")
            )
            yield Setting(here, kind, " or ".join(dict.fromkeys(map(_allowed, _ways(field)))), _default(field), meaning)


def _ways(field: Schema) -> list[Schema]:
    """What a field may be."""
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
    if "default" not in field:
        return ""
    value = field["default"]
    return (
        "null"
        if value is None
        else f"`{str(value).lower() if isinstance(value, bool) else value}`"
        if value != ""
        else ""
    )
