"""Read what an assistant's developers have as a schema: Rasa, Alexa and Dialogflow ES, told apart by content.

All else is a schema of ours. These files are other people's: what they hold is checked and bounded, a member of a zip
is read by its name and never written, and what is left out is counted.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path, PurePosixPath

from trainables.corpora.assistants import (
    MEMBER,
    Content,
    RasaEntry,
    from_alexa,
    from_dialogflow,
    from_rasa,
    rasa_entries,
)
from trainables.corpora.files import opening, problem, refuse_known

MAX_BYTES, MAX_FILES, MAX_TEXTS = 32_000_000, 20_000, 100_000
"""Most bytes of all files together, unpacked; most files in a folder or zip; most samples and values together."""
TOO_LARGE = f"holds more than {MAX_BYTES:,} bytes; allowed: at most that many"


def content_of(path: Path) -> tuple[Content, tuple[str, ...]]:
    """Return the content of a schema, as our own YAML file would have it, and what was not read, with counts."""
    left_out: Counter[str] = Counter()
    with opening(path):
        packed = path.is_dir() or zipfile.is_zipfile(path)
    if packed:
        members = dict(_members(path))
        is_agent = any(MEMBER.fullmatch(name) for name in members)
        found = from_dialogflow(path, members, left_out) if is_agent else _rasa_folder(path, members, left_out)
    else:
        one = _document(path)
        if "languageModel" in one or "interactionModel" in one:
            found = from_alexa(path, one, left_out)
        elif "nlu" in one:
            found = from_rasa(rasa_entries(path, one, left_out), left_out)
        else:
            return one, ()
    texts = sum(len(one["samples"]) for one in found["intents"].values()) + sum(map(len, found["catalogues"].values()))
    if texts > MAX_TEXTS:
        raise problem(path, None, f"holds {texts:,} samples and values; allowed: at most {MAX_TEXTS:,}")
    return found, tuple(f"{what} ({count:,})" for what, count in left_out.items() if count)


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of those files in a folder or zip that may be a schema's; no hidden ones."""
    size = path.stat().st_size if path.is_file() else 0  # a zip's list of names is read whole
    try:
        with nullcontext() if path.is_dir() or size > MAX_BYTES else zipfile.ZipFile(path) as archive:
            names = archive.namelist() if archive else (one.relative_to(path).as_posix() for one in path.rglob("*"))
            shown = (one for one in names if not any(part.startswith((".", "__")) for part in PurePosixPath(one).parts))
            for number, name in enumerate(shown):
                if number >= MAX_FILES:
                    raise problem(path, None, f"holds more than {MAX_FILES:,} files; allowed: at most that many")
                if not (name.endswith((".yml", ".yaml")) or MEMBER.fullmatch(name)):
                    continue
                if archive is None and not (path / name).is_file():
                    continue
                with archive.open(name) if archive else (path / name).open("rb") as member:
                    raw = member.read(MAX_BYTES - size + 1)
                size += len(raw)
                if size > MAX_BYTES:
                    break
                yield name, raw
    except OSError as error:
        raise problem(path, None, f"cannot be read: {error.strerror or error}") from None
    # A zip may be damaged, encrypted, or packed by a method that Python lacks.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        raise problem(path, None, f"cannot be unpacked: {' '.join(str(error).split())}") from None
    if size > MAX_BYTES:
        raise problem(path, None, TOO_LARGE)


def _document(path: Path) -> Content:
    """Read a JSON or YAML file that holds a mapping."""
    with opening(path), path.open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    refuse_known(path, raw)
    if len(raw) > MAX_BYTES:
        raise problem(path, None, TOO_LARGE)
    if raw.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        # Our own file may be JSON too, which YAML's reader reads as text throughout.
        with suppress(ValueError, RecursionError):
            found = json.loads(raw)
            if "languageModel" in found or "interactionModel" in found:
                return dict(found)
    return _yaml(path, raw)


def _yaml(path: Path, raw: bytes) -> Content:
    """Read YAML, all of whose scalars are text: `yes` and `2` are names like others."""
    import yaml  # slow to import, and most commands read no schema

    from trainables.records.yaml_files import CheckedMappings, read_yaml

    class Reader(CheckedMappings, yaml.BaseLoader):
        """A loader of text that refuses duplicate keys and aliases of aliases."""

    return read_yaml(path, Reader, "schema", raw)


def _rasa_folder(path: Path, members: dict[str, bytes], left_out: Counter[str]) -> Content:
    """Return the content of all files of a folder or zip that have the section `nlu`."""
    entries: list[RasaEntry] = []
    some = False
    for name, raw in sorted(members.items()):
        # Other files of a project, such as templates of settings, need not be YAML.
        if not re.search(rb"^[\"']?nlu[\"']?\s*:", raw, re.MULTILINE):
            left_out["YAML files without nlu"] += 1
            continue
        some = True
        entries += rasa_entries(path / name, _yaml(path / name, raw), left_out)
    if not some:
        what = "a schema file, nlu.yml of Rasa, an interaction model of Alexa, an agent of Dialogflow ES"
        raise problem(path, None, f"holds no schema; allowed: {what}; of Rasa and Dialogflow also a folder or zip")
    return from_rasa(entries, left_out)
