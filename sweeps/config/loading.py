"""Read and check recipes and configurations: YAML, `--set key=value`, and errors of one line."""

from __future__ import annotations

import builtins
import re
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from edp.spec import UserError
from sweeps.config.recipe import Recipe
from sweeps.text.errors import one_line, renamed, shown, suggestion
from sweeps.text.paths import as_path, folder_name, is_name, short
from sweeps.text.secrets import redacted
from trainables.config import TrialSpec
from trainables.corpora import PUBLIC, corpus_in
from trainables.pretraining.spec import PretrainSpec
from trainables.records.files import atomic_write

RECIPES = Path(__file__).parents[1] / "recipes"
PRETRAINING = RECIPES / "pretraining"

Spec = TypeVar("Spec", bound=BaseModel)


class _Twice(yaml.MarkedYAMLError):
    """A key occurs twice in one mapping, which YAML forbids and its Python reader accepts."""


class _EachKeyOnce(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise _Twice(problem=f"{key.value} stands there twice; allowed: once", problem_mark=key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return super().construct_mapping(node, deep)


class _Writer(yaml.SafeDumper):
    """Quotes what `_EachKeyOnce` would read as a number."""


# YAML 1.1 reads 1e-5, which lacks the point and the sign that it wants, as a word; YAML 1.2 and Python do not.
for _each in (_EachKeyOnce, _Writer):
    _each.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+\Z"), list("-+0123456789")
    )


def recipe_names(folder: Path = RECIPES) -> list[str]:
    """Return the names of the project's recipes: of sweeps, or those in `PRETRAINING`."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load_recipe(name: str, overrides: list[str]) -> tuple[str, Recipe]:
    """Load a recipe by its stem or by a path, with `--set` applied.

    Returns:
        The recipe's stem as a name, which its MLflow experiment has too, and the recipe.

    Raises:
        UserError: one line that names the field, the value and what is allowed.
    """
    path = _recipe_file(name, RECIPES)
    return folder_name(path.stem), _validated(Recipe, read_yaml(path), overrides)


def load_pretraining(name: str, overrides: list[str]) -> tuple[str, PretrainSpec]:
    """Load a pretraining recipe, as `load_recipe`."""
    path = _recipe_file(name, PRETRAINING)
    return folder_name(path.stem), _validated(PretrainSpec, read_yaml(path), overrides)


def _recipe_file(name: str, folder: Path) -> Path:
    if is_name(name) and (ours := folder / f"{name}.yaml").is_file():
        return ours
    try:
        path = as_path(name)
    except UserError as error:
        raise UserError(f"recipe = {error}") from None
    if not path.is_file():
        raise UserError(
            f"recipe = {name!r}: no such recipe and no such file; "
            f"{suggestion(name, recipe_names(folder))} (or a path to a YAML file)"
        )
    return path


def load_config(path: Path, overrides: list[str]) -> TrialSpec:
    """Load a configuration that `pick` wrote, with `--set` applied.

    Raises:
        UserError: as `load_recipe`.
    """
    if not path.is_file():
        raise UserError(f"config = {str(path)!r}: no such file; allowed: a YAML file that `edp-sweep pick` wrote")
    data = read_yaml(path)
    if own := sorted({"search", "space"} & data.keys()):
        raise UserError(
            f"config = {str(path)!r}: it is a recipe, as it has {own[0]}; "
            "allowed: what `edp-sweep pick` wrote; a recipe runs with edp-sweep run"
        )
    return _validated(TrialSpec, data, overrides)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file that holds a mapping.

    Raises:
        UserError: naming the file, and the line where it is known.
    """
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), _EachKeyOnce)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; allowed: a YAML file that can be read") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8 text; allowed: a YAML file") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(f"{path}{line}: not YAML: {getattr(error, 'problem', error)}") from None
    except RecursionError:
        raise UserError(f"{path}: nested too deeply; allowed: the settings' own depth") from None
    except ValueError as error:  # an integer of thousands of digits, a date that is none
        raise UserError(f"{path}: {str(error).partition(';')[0]}; allowed: a YAML file") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: holds no settings; allowed: a YAML mapping")
    return data


def write_yaml(spec: BaseModel, path: Path, heading: str = "") -> None:
    """Write `as_yaml` to a file."""
    with atomic_write(path) as partial:
        partial.write_text(as_yaml(spec, heading), encoding="utf-8")


def as_yaml(spec: BaseModel, heading: str = "") -> str:
    """Return `spec` as YAML that reads back to the same spec, below a comment."""
    comment = "".join(f"# {line}\n" for line in heading.splitlines())
    return comment + yaml.dump(spec.model_dump(mode="json"), Dumper=_Writer, sort_keys=False)


def apply_overrides(data: dict[str, Any], overrides: list[str]) -> dict[str, Any]:
    """Return `data` with each `dotted.path=value` set; values are YAML. A dotted name in `space` is one key.

    Raises:
        UserError: for an override that is no `key=value`, or has no value: an unset shell variable would pass for null.
    """
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip() or "://" in key:
            raise UserError(f"--set {short(override)}: allowed: key=value, such as training.epochs=2")
        if not text.strip():
            raise UserError(f"--set {short(override)}: no value; allowed: one, or null for the setting's own default")
        *folders, last = _split(key.strip())
        place = data
        for folder in folders:
            inner = place.get(folder)
            if inner is None:
                inner = place[folder] = {}
            if not isinstance(inner, dict):
                below = (
                    f"a list; allowed: all of it at once, as {folder[:80]}=[…]"
                    if isinstance(inner, list)
                    else f"{short(inner)}, which has no settings below it"
                )
                raise UserError(f"--set {short(override)}: {folder[:80]} is {below}")
            place = inner
        place[last] = _value(text)
    return data


def _split(key: str) -> list[str]:
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
    try:
        return yaml.load(text, _EachKeyOnce)
    except _Twice as error:
        raise UserError(f"--set {text!r}: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError):  # also a day that there is not, and digits without end
        return text


def _validated(kind: type[Spec], data: dict[str, Any], overrides: list[str]) -> Spec:
    named = {field for field in _CORPORA if _at(data, field).get("path") is None}
    data = apply_overrides(data, overrides)
    _name_again(data, {override.partition("=")[0].strip() for override in overrides}, named)
    refuse_unknown(kind, data, "")
    refuse_secrets(data, "")
    _settle_paths(data)
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise UserError(one_line(error)) from None


_CORPORA = ("corpus", "shadow.corpus", "search.proxy")


def _name_again(data: dict[str, Any], given: set[str], named: set[str]) -> None:
    """Drop the recipe's name, size and description of a corpus that the user replaced by a path. A field in `named` had
    no path in the recipe: its name and number of utterances belong to the recipe's corpus."""
    if given & {"corpus", "corpus.name", "corpus.path"}:
        data.pop("description", None)
    for field in named:
        corpus = _at(data, field)
        if corpus.get("path") is not None and f"{field}.path" in given and field not in given:
            for own in ("name", "utterances"):
                if f"{field}.{own}" not in given:
                    corpus.pop(own, None)


def _at(data: dict[str, Any], field: str) -> dict[str, Any]:
    for name in field.split("."):
        data = _section(data, name)
    return data


def _settle_paths(data: dict[str, Any]) -> None:
    """Make corpus paths absolute, and look for the public corpora beside the private one.

    A user who keeps the corpora in one folder and names one of them by path wants the others from there too.
    """
    private = data.get("corpus")
    folder: Path | None = None
    if isinstance(private, dict) and isinstance(private.get("path"), str):
        private["path"] = _absolute("corpus.path", private["path"])
        folder = Path(private["path"]).parent
    model = _section(data, "model")
    embeddings = _section(model, "embeddings")
    if isinstance(embeddings.get("path"), str):
        embeddings["path"] = _absolute("model.embeddings.path", embeddings["path"])
    pretrained = model.get("pretrained")
    # A name of Hugging Face's looks like a path; it is one where there is such a folder. `minilm` is never one.
    if isinstance(pretrained, str) and pretrained != "minilm":
        folder_of_encoder = _absolute("model.pretrained", pretrained)
        if pretrained.startswith((".", "~")) or Path(folder_of_encoder).is_dir():
            model["pretrained"] = folder_of_encoder
    public = {
        "shadow.corpus": _section(data, "shadow").get("corpus"),
        "search.proxy": _section(data, "search").get("proxy"),
        "model.embeddings.corpus": embeddings.get("corpus"),
        "model.vocabulary": model.get("vocabulary"),
        **_listed("model.features.public", _section(model, "features").get("public")),
        **_listed("corpora", data.get("corpora")),
    }
    for field, corpus in public.items():
        if not isinstance(corpus, dict):
            continue
        if isinstance(corpus.get("path"), str):
            corpus["path"] = _absolute(f"{field}.path", corpus["path"])
        elif folder is not None and corpus.get("name") in PUBLIC and (found := corpus_in(folder, corpus["name"])):
            corpus["path"] = str(found)


def _absolute(field: str, path: str) -> str:
    """Return `path` as an absolute path: workers have other working directories."""
    try:
        return str(as_path(path).expanduser().resolve())
    except UserError as error:
        raise UserError(f"{field} = {error}") from None
    except (ValueError, RuntimeError, OSError) as error:
        raise UserError(f"{field} = {short(path)}: {error}; allowed: a path") from None


def _listed(field: str, corpora: Any) -> dict[str, Any]:
    return {f"{field}.{i}": corpus for i, corpus in enumerate(corpora)} if isinstance(corpora, list) else {}


def _section(data: dict[str, Any], name: str) -> dict[str, Any]:
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def refuse_unknown(annotation: Any, data: Any, path: str) -> None:
    """Raise for an unknown setting and name the known ones, also in lists, which Pydantic's own error does not do.

    Args:
        annotation: the type that `data` is validated as.
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
                if message := renamed(here):
                    raise UserError(message)
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
    """Raise for passwords and tokens: settings are written into files and MLflow, and shown.

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
