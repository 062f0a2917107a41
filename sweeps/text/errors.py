"""User errors in one line: field, value, what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import Any

from pydantic import ValidationError

from sweeps.text.paths import short

_TAGS = frozenset({"clc", "bert"})
_WORDS = {
    "missing": "missing",
    "tuple_type": "allowed: a list",
    "dict_type": "allowed: a mapping of settings",
    "model_type": "allowed: a mapping of settings",
    "model_attributes_type": "allowed: a mapping of settings",
}
"""Messages by Pydantic's error type; Pydantic's own would name Python types."""
_DIMENSION = "allowed: {choice: […]}, or {uniform: [low, high]}, log_uniform or int likewise"
_PARTS = {
    "corpus": "a corpus, such as {name: snips} or {path: mine.jsonl}",
    "corpus.name": "the name of a built-in corpus, such as snips, or corpus.path",
    "model": "{kind: clc, …} or {kind: bert, …}",
    "model.embeddings": "{corpus: {name: snips}}, a public corpus to learn word vectors from",
    "model.vocabulary": "a public corpus, such as {name: snips}",
    "shadow": "{corpus: {name: snips}}, a public corpus that the attacker learns from",
    "shadow.corpus": "a public corpus that the attacker learns from, such as {name: snips}",
}
"""Required parts of a recipe, with an example each."""
_REMOVED = {
    "search.plan": {
        "cheapest": "proxy, or null",
        "random_stopping": "proxy",
        "all_trials": "null, whose ε is of all trials, and pick",
    },
    "search.sampler": {"random_stopping": "random, or search.plan: proxy, whose choice costs no ε"},
    "model.features.sentence": {"own": "mean, first or last, as the model's card says"},
    "model.trainable": {"bitfit": "lora, or heads", "top_k": "lora, or heads"},
    "training.optimizer": {"adam_bc": "adam, or momentum for heads"},
}
"""What to take in place of a setting's value that was removed."""
_REMOVED_SETTINGS: dict[str, tuple[Any, str]] = {
    "resources.price_per_gpu_hour": (None, "gpu_seconds of `status --json`, times the price"),
    "search.until": (None, "search.trials, or budget.worker_hours"),
    "model.embeddings.path": (None, "model.embeddings.corpus, a public corpus to train fastText on"),
    "model.top_layers": (None, "model.trainable: lora, or heads"),
    "training.noise_floor": (None, "training.optimizer: adam"),
    "training.sub_chunks": (1, "training.memory_batch"),
}
"""Map a removed setting to its default and to what replaces it. The recipe of an earlier sweep names every default."""


def one_line(error: ValidationError, searched: Collection[str] = ()) -> str:
    """Return the first problem of a Pydantic error as `path = value: what is wrong`.

    Args:
        searched: settings whose value is from a recipe's space; the message then names the space.
    """
    problem = error.errors()[0]
    if problem["type"] == "unknown_setting":  # Below space, the member of the union that was meant has deeper problems.
        problem = max(error.errors(), key=lambda one: (one["type"] != "model_type", len(one["loc"])))
    context = problem.get("ctx", {})
    loc = problem["loc"]
    # The key of a dimension of the space is the dotted path of its setting, which may look like a validator's name.
    place = [
        part
        for above, part in zip(("", *loc), loc, strict=False)
        if str(part) not in _TAGS and (_is_field(part) or above == "space")
    ]
    value, kind = problem["input"], problem["type"]
    if len(place) > 1 and place[-1] == "bool":  # a choice's value; Pydantic names the first of its possible types
        place, kind, message = place[:-1], "", "allowed: a number, a text, true or false"
    elif kind in ("truth_value", "unknown_setting"):
        place, value, message = [*place, context["field"]], context["value"], problem["msg"]
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        # Of a model, which is the only union with tags.
        place, value, message = [*place, "kind"], context.get("tag"), "allowed: clc, bert"
        kind = "missing" if value is None else kind
    elif kind == "too_short":
        message = f"allowed: at least {context['min_length']}"
    else:
        message = _WORDS.get(kind) or problem["msg"].removeprefix("Value error, ")
    if place[:1] == ["space"] and place[1:] and kind in ("dict_type", "model_type", "model_attributes_type"):
        message = _DIMENSION
    path = ".".join(map(str, place))
    path = next((f"space.{name}" for name in (path, path.removeprefix("edp.")) if name in searched), path)
    if kind == "unknown_setting":
        if path in _REMOVED_SETTINGS:
            return f"{path}: removed; use {_REMOVED_SETTINGS[path][1]}"
        of = f" of kind = {loc[-1]}" if loc and loc[-1] in _TAGS else ""
        known = suggestion(context["field"], context["known"].split(", "))
        return f"{path[:200]} = {shown(value)}: unknown setting{of}; {known}"
    if kind == "missing":
        return f"{path}: {message}; allowed: {_PARTS[path]}" if path in _PARTS else f"{path}: {message}"
    if kind == "literal_error" and (instead := _REMOVED.get(path, {}).get(value)):
        return f"{path} = {value}: removed; use {instead}"
    if kind == "value_error":
        return f"{path}: {message}" if path and path not in message else message
    message = message[0].lower() + message[1:]
    return f"{path} = {shown(value)}: {message}" if path else message


def _is_field(part: Any) -> bool:
    """Return True for a field's name. Pydantic puts names of union members and validators among them."""
    return not (isinstance(part, str) and ((part[:1].isupper() and part != "C") or "[" in part or "-" in part))


def drop_removed(data: dict[str, Any]) -> dict[str, Any]:
    """Remove the settings that have left from those of a file if they have their default; return `data`."""
    for path, (default, _) in _REMOVED_SETTINGS.items():
        *sections, name = path.split(".")
        within: Any = data
        for section in sections:
            within = within.get(section) if isinstance(within, dict) else None
        if isinstance(within, dict) and name in within and within[name] == default:
            del within[name]
    return data


_POSTGRES = ("psycopg", "psycopg2", "asyncpg", "pg8000")
"""Drivers of PostgreSQL. The extra `postgres` installs the first one, which serves postgresql:// addresses."""


def missing_driver(error: ImportError) -> str:
    """Return a message that says which database driver to install."""
    seen: BaseException | None = error
    while seen is not None and getattr(seen, "name", None) is None:
        seen = seen.__cause__ or seen.__context__
    module = str(getattr(seen, "name", None) or "the database's driver").partition(".")[0]
    how = (
        "pip install 'edp-sweeps[postgres]', and postgresql://…"
        if module in _POSTGRES
        else "a database whose driver is installed, or SQLite (sqlite:///FILE)"
    )
    return f"its driver {module} is not installed; allowed: {how}"


def shown(value: Any) -> str:
    """Return a value shortened for a message, without secrets."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return short(value)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return `did you mean x?` if a known name is close, else the list of known names."""
    known = sorted(known)
    close = difflib.get_close_matches(name[:100], known, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"allowed: {', '.join(known)}"
