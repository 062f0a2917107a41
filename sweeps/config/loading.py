"""Recipes and configurations: their YAML files, `--set key=value`, and errors of one line."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from edp.spec import UserError
from sweeps.config.recipe import Recipe
from sweeps.text.errors import drop_removed, one_line, shown, suggestion
from sweeps.text.paths import as_path, folder_name, is_name, short
from sweeps.text.secrets import redacted
from trainables.config import TrialSpec
from trainables.corpora import PUBLIC, SCHEMAS, corpus_in
from trainables.records import yaml_files
from trainables.records.files import atomic_write
from trainables.records.yaml_files import CheckedMappings, DuplicateKey

RECIPES = Path(__file__).parents[1] / "recipes"

Spec = TypeVar("Spec", bound=BaseModel)


class _Reader(CheckedMappings, yaml.SafeLoader):
    """A safe loader that refuses duplicate keys and aliases of aliases."""


class _Writer(yaml.SafeDumper):
    """A safe dumper that quotes words which `_Reader` would read as numbers."""


# PyYAML follows YAML 1.1, where 1e-5 is a word: it lacks a point. In YAML 1.2 and Python it is a number.
for _each in (_Reader, _Writer):
    _each.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+\Z"), list("-+0123456789")
    )


def recipe_names() -> list[str]:
    """Return the names of the project's recipes."""
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def load_recipe(name: str, overrides: list[str]) -> tuple[str, Recipe]:
    """Load a recipe by its stem or by a path, with `--set` applied.

    Returns:
        The recipe's stem as a name, which is also that of its MLflow experiment, and the recipe.

    Raises:
        UserError: in one line, with the field, the value and what is allowed.
    """
    path = _recipe_file(name)
    return folder_name(path.stem), _validated(Recipe, _over_base(path), overrides)


def _over_base(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the settings of a recipe's file over those of the recipe that it names as `base`.

    Args:
        above: the recipes whose base this one is.

    Raises:
        UserError: for a base that is not there, or that has this recipe as its own base.
    """
    own = read_yaml(path)
    if "base" not in own:
        return own
    base = own.pop("base")
    wrong = f"{path}: base = {shown(base)}"
    if not isinstance(base, str):
        raise UserError(f"{wrong}: allowed: the name of a recipe, or the path of one from this file's folder")
    file = _recipe_file(base, f"{path}: base", path.parent)
    chain = (*above, path.resolve())
    if file.resolve() in chain:
        raise UserError(f"{wrong}: it has this recipe as its own base; allowed: another recipe")
    settings = _over_base(file, chain)
    settings.pop("description", None)  # it is of the base
    return settings | {key: _merged(settings.get(key), value, (key,)) for key, value in own.items()}


def _merged(base: Any, own: Any, path: tuple[str, ...]) -> Any:
    """Return `own` over `base`, mappings key by key.

    A corpus that is named anew, a searched setting and a model of another kind replace the base's as a whole.
    """
    if not isinstance(base, dict) or not isinstance(own, dict):
        return own
    whole = (
        bool({"name", "path"} & own.keys())
        or (path[0] == "space" and len(path) > 1)
        or (path == ("model",) and own.get("kind", base.get("kind")) != base.get("kind"))
    )
    return own if whole else base | {key: _merged(base.get(key), value, (*path, key)) for key, value in own.items()}


def _recipe_file(name: str, field: str = "recipe", folder: str | Path = "") -> Path:
    """Return the file of a recipe that comes along, or of one by its path from `folder`."""
    if is_name(name) and (ours := RECIPES / f"{name}.yaml").is_file():
        return ours
    try:
        path = as_path(os.path.join(folder, name))
    except UserError as error:
        raise UserError(f"{field} = {error}") from None
    if not path.is_file():
        raise UserError(
            f"{field} = {name!r}: no such recipe and no such file; "
            f"{suggestion(name, recipe_names())} (or a path to a YAML file)"
        )
    return path


def load_config(path: Path, overrides: list[str]) -> TrialSpec:
    """Load a configuration that `pick` wrote, with `--set` applied.

    Raises:
        UserError: as `load_recipe`.
    """
    if not path.is_file():
        raise UserError(f"config = {str(path)!r}: no such file; allowed: a YAML file written by `edp-sweep pick`")
    data = read_yaml(path)
    if own := sorted({"base", "search", "space"} & data.keys()):
        raise UserError(
            f"config = {str(path)!r}: it is a recipe, because it has {own[0]}; "
            "allowed: a file written by `edp-sweep pick`; `edp-sweep run` runs a recipe"
        )
    return _validated(TrialSpec, data, overrides)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file of settings.

    Raises:
        UserError: with the file, and with the line if it is known.
    """
    return drop_removed(yaml_files.read_yaml(path, _Reader, "settings"))


def write_yaml(spec: BaseModel, path: Path, heading: str = "") -> None:
    """Write `as_yaml` to a file."""
    with atomic_write(path) as partial:
        partial.write_text(as_yaml(spec, heading), encoding="utf-8")


def as_yaml(spec: BaseModel, heading: str = "") -> str:
    """Return `spec` as YAML that is read as the same spec, below a comment with `heading`."""
    comment = "".join(f"# {line}\n" for line in heading.splitlines())
    return comment + yaml.dump(spec.model_dump(mode="json"), Dumper=_Writer, sort_keys=False)


def recipe_text(recipe: Recipe) -> str:
    """Return a recipe as YAML without its defaults; `load_recipe` reads it as the same recipe."""
    found = recipe.model_dump(mode="json", exclude_defaults=True)
    model = {"kind": recipe.model.kind, **found.get("model", {})}  # needed to read the other settings of the model
    return yaml.dump(found | {"model": model}, Dumper=_Writer, sort_keys=False)


def apply_overrides(data: dict[str, Any], overrides: list[str]) -> dict[str, Any]:
    """Return `data` with each `dotted.path=value` set. Values are YAML. A dotted name below `space` is one key.

    Raises:
        UserError: for an override that is not `key=value`, or has no value: an unset shell variable would mean null.
    """
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip() or "://" in key:
            raise UserError(f"--set {short(override)}: allowed: key=value, such as training.epochs=2")
        if not text.strip():
            raise UserError(f"--set {short(override)}: no value; allowed: a value, or null for the setting's default")
        *folders, last = _split(key.strip())
        place = data
        for folder in folders:
            inner = place.get(folder)
            if inner is None:
                inner = place[folder] = {}
            if not isinstance(inner, dict):
                below = (
                    f"a list; allowed: the whole list, as {folder[:80]}=[…]"
                    if isinstance(inner, list)
                    else f"{short(inner)}, which has no settings below it"
                )
                raise UserError(f"--set {short(override)}: {folder[:80]} is {below}")
            place = inner
        place[last] = _value(text)
    return data


def _split(key: str) -> list[str]:
    """Split a dotted path; below `space`, the setting's own dotted path is one part."""
    head, _, rest = key.partition(".")
    if head != "space" or not rest:
        return key.split(".")
    kinds = ("choice", "uniform", "log_uniform", "int", "linear", "exponential")
    parts = rest.split(".")
    tail: list[str] = []
    while len(parts) > 1 and parts[-1] in kinds:
        tail.insert(0, parts.pop())
    return [head, ".".join(parts), *tail]


def _value(text: str) -> Any:
    """Read an override's value as YAML, or as a string if it is no YAML."""
    try:
        return yaml.load(text, _Reader)
    except DuplicateKey as error:
        raise UserError(f"--set {text!r}: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: as in `read_yaml`
        return text


def _validated(kind: type[Spec], data: dict[str, Any], overrides: list[str]) -> Spec:
    _forget_replaced(data, overrides)
    data = apply_overrides(data, overrides)
    refuse_secrets(data, "")
    _resolve_paths(data)
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise UserError(one_line(error)) from None


_CORPORA = ("corpus", "shadow.corpus", "search.proxy")
_PUBLIC = ("shadow.corpus", "search.proxy", "model.embeddings.corpus", "model.vocabulary")


def _forget_replaced(data: dict[str, Any], overrides: list[str]) -> None:
    """Drop the recipe's name, schema, size and description of a corpus that `overrides` replace by a path."""
    given = {key.strip(): text for key, _, text in (override.partition("=") for override in overrides)}
    if given.keys() & {"corpus", "corpus.name", "corpus.path"}:
        data.pop("description", None)
    for field in _CORPORA:
        corpus = _at(data, field)
        path, name = (_value(given.get(f"{field}.{part}", "null")) for part in ("path", "name"))
        if corpus.get("path") is not None or (path is None and name is None):
            continue
        if path is not None:
            corpus.pop("name", None)
            corpus.pop("utterances", None)
        # The schema stays for a copy of its corpus, such as corpus.path=data/atis.
        if corpus.get("schema") != (name if path is None else Path(str(path)).stem):
            corpus.pop("schema", None)


def _at(data: Any, field: str) -> dict[str, Any]:
    """Return the section at a dotted path; {} if there is none."""
    for name in field.split("."):
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def _resolve_paths(data: dict[str, Any]) -> None:
    """Make paths absolute, and look for the public corpora in the folder of the private one.

    A user who keeps the corpora in one folder and names one of them by path wants the others from there too.
    """
    model = _at(data, "model")
    pretrained = model.get("pretrained")
    # A name on Hugging Face looks like a path. It is read as one if that folder exists. `minilm` is never a path.
    if isinstance(pretrained, str) and pretrained != "minilm":
        encoder = _absolute("model.pretrained", pretrained)
        if pretrained.startswith((".", "~")) or Path(encoder).is_dir():
            model["pretrained"] = encoder
    corpora = {field: _at(data, field) for field in ("corpus", *_PUBLIC)}
    if isinstance(public := _at(model, "features").get("public"), list):
        corpora |= {f"model.features.public.{i}": corpus for i, corpus in enumerate(public) if isinstance(corpus, dict)}
    folder: Path | None = None
    for field, corpus in corpora.items():
        if isinstance(corpus.get("schema"), str) and corpus["schema"] not in SCHEMAS:
            corpus["schema"] = _absolute(f"{field}.schema", corpus["schema"])
        if corpus.get("format") == "schema" and corpus.get("path") in SCHEMAS:
            continue
        if isinstance(corpus.get("path"), str):
            corpus["path"] = _absolute(f"{field}.path", corpus["path"])
            if field == "corpus":
                folder = Path(corpus["path"]).parent
        elif folder is not None and corpus.get("name") in PUBLIC and (found := corpus_in(folder, corpus["name"])):
            corpus["path"] = str(found)


def _absolute(field: str, path: str) -> str:
    """Return `path` as an absolute path, because workers have other working directories."""
    try:
        return str(as_path(path).expanduser().resolve())
    except UserError as error:
        raise UserError(f"{field} = {error}") from None
    except (ValueError, RuntimeError, OSError) as error:
        raise UserError(f"{field} = {short(path)}: {error}; allowed: a path") from None


def refuse_secrets(data: Any, path: str) -> None:
    """Raise for passwords and tokens, because settings are shown, and written into files and MLflow.

    Raises:
        UserError: with the setting.
    """
    if isinstance(data, str) and redacted(data) != data:
        raise UserError(
            f"{path.rstrip('.')} = {shown(data)}: holds a password, or an option that may be one, which would be "
            "written into recipe.yaml and MLflow; "
            "allowed: an environment variable in its place, such as postgresql://user:$PASSWORD@host/database"
        )
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        refuse_secrets(value, f"{path}{key}.")
