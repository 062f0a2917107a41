"""What other packages add by entry points: attacks, readers of corpora, samplers of the search.

    [project.entry-points."edp_sweeps.readers"]     # or edp_sweeps.attacks, edp_sweeps.samplers
    mine = "my_package.files:read"

A package that cannot be loaded is an error of one line wherever what it adds would be used.
"""

from __future__ import annotations

import functools
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from edp.spec import UserError

Kind = Literal["attacks", "readers", "samplers"]


@functools.cache
def plugins(kind: Kind) -> dict[str, EntryPoint]:
    """Return the entry points of a kind by name."""
    return {one.name: one for one in entry_points(group=f"edp_sweeps.{kind}")}


def load_plugin(kind: Kind, name: str) -> Any:
    """Return the object that a package adds under this name."""
    try:
        return plugins(kind)[name].load()
    except Exception as error:  # a package from elsewhere can fail in any way
        raise refused(kind, name, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}") from None


def version_of(kind: Kind, name: str) -> str:
    """Return the import path of the object that a package adds under this name, and the package's version."""
    found = plugins(kind)[name]
    return f"{found.value} {found.dist.version if found.dist is not None else ''}"


def refused(kind: Kind, name: str, reason: str) -> UserError:
    """Return the error for a plugin that cannot be used."""
    found = plugins(kind)[name]
    package = found.dist.name if found.dist is not None else "of an unknown name"
    return UserError(
        f"package {package}: its entry point edp_sweeps.{kind}, {name} = {found.value}, cannot be used ({reason}); "
        "allowed: a version that works, or pip uninstall"
    )


def _reader(name: str) -> str:
    if name not in plugins("readers"):
        raise ValueError("no package adds a reader of this name")
    return name


Reader = Annotated[str, AfterValidator(_reader)]
"""The name of a format that a package adds."""
