"""An object store as pyarrow knows it (`s3://`, `gs://`, `file://`): whole objects, put, read, listed and deleted."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import SplitResult, parse_qs, parse_qsl, quote, urlsplit

from edp.spec import UserError
from sweeps.formatting.names import short

_SCHEMES = ("s3", "gs", "file")
_OPTIONS = ("region", "scheme", "endpoint_override", "retry_limit_seconds")
_ALLOWED = "allowed: s3://BUCKET/FOLDER, gs://BUCKET/FOLDER, file:///FOLDER, or a folder"
_CHUNK = 1 << 20
_GIVES_UP_S = 60
"""Google's client would try for a quarter of an hour."""


class StoreError(UserError):
    """An object store that does not do what it should; its text is one line."""


def is_address(text: str) -> bool:
    """Whether `text` is an address, rather than a folder's path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) is not None


def check_address(address: str) -> SplitResult:
    """The parts of an object store's address. Nobody is asked.

    Raises:
        StoreError: for an address that none of them has, or that holds a password.
    """
    try:
        parts = urlsplit(address.rstrip("/"))
    except ValueError:
        raise StoreError(f"storage = {short(address)}: no object store's address; {_ALLOWED}") from None
    options = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    if parts.scheme not in _SCHEMES or not (parts.path.strip("/") if parts.scheme == "file" else parts.netloc):
        raise StoreError(f"storage = {short(address)}: no object store's address; {_ALLOWED}")
    if "@" in parts.netloc or not set(options) <= set(_OPTIONS):
        raise StoreError(
            f"storage = {short(address)}: only a bucket, a folder and {', '.join(_OPTIONS)} may stand there; "
            "allowed: keys in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; "
            "GOOGLE_APPLICATION_CREDENTIALS)"
        )
    return parts


class Bucket:
    """The objects below an address.

    Args:
        address: of a bucket and a folder in it. Its keys come from the environment, where the stores' own programs look
            for them too.

    Raises:
        StoreError: for an address that none of them has, or that holds a password.
    """

    def __init__(self, address: str) -> None:
        parts = check_address(address)
        self.address = address.rstrip("/")
        options = parse_qs(parts.query)
        more = f"{'&' if parts.query else '?'}retry_limit_seconds={_GIVES_UP_S}"
        patient = parts.scheme == "gs" and "retry_limit_seconds" not in options
        from pyarrow import fs  # takes a moment, and most commands have a folder

        self._root = ""
        with self._asking("be opened"):
            # Of a folder of this machine blanks and letters of any script may stand in its path.
            address = quote(self.address, safe="/:%") if parts.scheme == "file" else self.address + more * patient
            self._fs, root = fs.FileSystem.from_uri(address)
        self._root = root.rstrip("/")
        self._local = isinstance(self._fs, fs.LocalFileSystem)

    def sizes(self, folder: str) -> dict[str, int]:
        """The objects in `folder`, by name there, and their bytes; {} where there is none."""
        from pyarrow import fs

        with self._asking("be read"):
            found = self._fs.get_file_info(fs.FileSelector(f"{self._root}/{folder}", allow_not_found=True))
        return {one.base_name: one.size for one in found if one.type == fs.FileType.File}

    def size(self, name: str) -> int | None:
        """Bytes of an object; None where it is not there."""
        from pyarrow import fs

        with self._asking("be read"):
            (found,) = self._fs.get_file_info([f"{self._root}/{name}"])
        return int(found.size) if found.type == fs.FileType.File else None

    def get(self, name: str) -> bytes:
        """A small object, whole."""
        with self._asking("be read"), self._fs.open_input_stream(f"{self._root}/{name}") as stream:
            return bytes(stream.read())

    def get_file(self, name: str, path: Path) -> str:
        """Writes an object to `path`; returns its SHA-256."""
        with self._asking("be read"):
            stream: Any = self._fs.open_input_stream(f"{self._root}/{name}")
        with stream, path.open("wb") as file:
            return self._copied(stream, file, "be read")

    def put(self, name: str, content: bytes) -> None:
        """Writes a small object, whole: readers find the one before it, or this one."""
        with self._writing(name) as stream:
            stream.write(content)

    def put_file(self, name: str, file: BinaryIO) -> str:
        """Writes what `file` holds from here on; returns its SHA-256."""
        with self._writing(name) as stream:
            return self._copied(file, stream, "be written")

    def delete(self, name: str) -> None:
        """Deletes an object; one that is not there is none the less."""
        if self.size(name) is not None:
            with self._asking("be written"):
                self._fs.delete_file(f"{self._root}/{name}")

    @contextmanager
    def _writing(self, name: str) -> Iterator[Any]:
        path = f"{self._root}/{name}"
        with self._asking("be written"):
            if not self._local:  # there an object appears when it is whole
                with self._fs.open_output_stream(path) as stream:
                    yield stream
                return
            self._fs.create_dir(path.rpartition("/")[0], recursive=True)
            partial = f"{path}.{uuid.uuid4().hex[:8]}.partial"
            with self._fs.open_output_stream(partial) as stream:
                yield stream
            self._fs.move(partial, path)

    def _copied(self, source: Any, target: Any, verb: str) -> str:
        found = hashlib.sha256()
        while True:
            with self._asking(verb):
                chunk = source.read(_CHUNK)
            if not chunk:
                return found.hexdigest()
            found.update(chunk)
            target.write(chunk)

    @contextmanager
    def _asking(self, verb: str) -> Iterator[None]:
        """pyarrow's errors as one line: its own are several, with what it was at."""
        try:
            yield
        except StoreError:
            raise
        except (OSError, ValueError) as error:  # Arrow's own are one of the two
            text = " ".join(str(error).split())
            raise StoreError(
                f"storage = {self.address!r} cannot {verb} ({text[:300]}); allowed: a bucket that answers, "
                "with keys that may read and write it in the environment"
            ) from None
