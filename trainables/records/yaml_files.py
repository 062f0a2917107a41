"""YAML files that people write: no key twice, no aliases of aliases, and errors of one line with file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from edp.spec import UserError


class DuplicateKey(yaml.MarkedYAMLError):
    """A key that occurs twice in one mapping, which YAML forbids and PyYAML accepts."""


class CheckedMappings(yaml.parser.Parser, yaml.composer.Composer, yaml.constructor.BaseConstructor):
    """Part of a loader that refuses duplicate keys and aliases of aliases: ten anchors of ten each are 10^10 values."""

    _anchors = 0  # that hold the node that is read now

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Return the next node, or raise `yaml.MarkedYAMLError` for an alias within what has an anchor."""
        event = self.peek_event()
        is_alias = isinstance(event, yaml.AliasEvent)
        if is_alias and self._anchors:
            what = "an alias within an anchor; allowed: values written out"
            raise yaml.MarkedYAMLError(problem=what, problem_mark=event.start_mark)
        held = not is_alias and event.anchor is not None
        self._anchors += held
        node: yaml.Node | None = super().compose_node(parent, index)
        self._anchors -= held
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping, or raise `DuplicateKey`."""
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise DuplicateKey(problem=f"{key.value} is given twice; allowed: once", problem_mark=key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, loader: Any, what: str, raw: bytes | None = None) -> dict[str, Any]:
    """Read a YAML file that holds a mapping.

    Args:
        loader: PyYAML's loader.
        what: what the mapping holds, for the error of a file without one.
        raw: the content of the file, if it has been read.
    """
    try:
        data = yaml.load((path.read_bytes() if raw is None else raw).decode("utf-8"), loader)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; allowed: a YAML file that can be read") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8 text; allowed: a YAML file") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = " ".join(str(getattr(error, "problem", error)).split())
        raise UserError(f"{path}{line}: not YAML: {problem}") from None
    except RecursionError:
        raise UserError(f"{path}: nested too deeply; allowed: the settings' own depth") from None
    except ValueError as error:  # an integer of thousands of digits, or a date such as 2026-02-30
        raise UserError(f"{path}: {str(error).partition(';')[0]}; allowed: a YAML file") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: holds no {what}; allowed: a YAML mapping")
    return data
