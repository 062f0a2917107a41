"""An extension of Griffe: show a field `Annotated[T, Field(…, description=…)]` of a spec as T and its description."""

from __future__ import annotations

import ast
from typing import Any

import griffe

SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


class Annotations(griffe.Extension):
    """Replaces the annotation of a field by its type, and its docstring by its description and range."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Change one attribute. Griffe calls this for each."""
        annotation = attr.annotation
        if not (isinstance(annotation, griffe.ExprSubscript) and annotation.canonical_name == "Annotated"):
            return
        assert isinstance(annotation.slice, griffe.ExprTuple)
        attr.annotation, *rest = annotation.slice.elements
        calls = [word.arguments for word in rest if isinstance(word, griffe.ExprCall)]
        given = {one.name: str(one.value) for words in calls for one in words if isinstance(one, griffe.ExprKeyword)}
        parts = [ast.literal_eval(given["description"])] if "description" in given else []
        if attr.docstring is not None:
            parts = [attr.docstring.value]
        if bounds := ", ".join(f"{sign} {given[name]}" for name, sign in SIGNS.items() if name in given):
            parts.append(f"Allowed: {bounds.replace(' ** ', '**')}")
        if parts:
            attr.docstring = griffe.Docstring(" ".join(part.rstrip(".") + "." for part in parts), parent=attr)
