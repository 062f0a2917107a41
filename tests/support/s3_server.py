"""As much of S3 as pyarrow asks for, in memory: objects whole and in parts, listed, and deleted."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, BinaryIO, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "sweeps"


@dataclass
class S3:
    """A server with one bucket.

    Attributes:
        objects: what it holds, by key.
    """

    port: int
    objects: dict[str, bytes] = field(default_factory=dict)
    environment: ClassVar = {
        "AWS_ACCESS_KEY_ID": "user",
        "AWS_SECRET_ACCESS_KEY": "SeCrEt",
        "AWS_EC2_METADATA_DISABLED": "true",
    }

    def address(self, folder: str) -> str:
        return f"s3://{BUCKET}/{folder}?endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"


def _dechunked(file: BinaryIO | io.BufferedIOBase) -> bytes:
    whole = b""
    while size := int(file.readline().partition(b";")[0], 16):
        whole += file.read(size)
        file.readline()
    return whole


@contextmanager
def s3_server() -> Iterator[S3]:
    server = _Server(("127.0.0.1", 0), _Handler)
    found = server.s3 = S3(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    s3: S3


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is one packet
    _parts: ClassVar[dict[str, dict[int, bytes]]] = {}

    @property
    def _objects(self) -> dict[str, bytes]:
        assert isinstance(self.server, _Server)
        return self.server.s3.objects

    def _asked(self) -> tuple[str, dict[str, list[str]]]:
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        return (key if bucket == BUCKET else "\0"), parse_qs(parts.query, keep_blank_values=True)

    def parse_request(self) -> bool:
        """Whoever has no key, or another one, is refused."""
        if not super().parse_request():
            return False
        allowed = f"Credential={S3.environment['AWS_ACCESS_KEY_ID']}/" in self.headers.get("Authorization", "")
        if not allowed:
            self._body()
            self._answer(403, b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
        return allowed

    def handle_expect_100(self) -> bool:
        """Sends it at once: whoever asked waits for it."""
        asked = super().handle_expect_100()
        self.wfile.flush()
        return asked

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = _dechunked(self.rfile)
            while self.rfile.readline().strip():
                """What follows the last chunk, to an empty line."""
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return _dechunked(io.BytesIO(body)) if "aws-chunked" in self.headers.get("Content-Encoding", "") else body

    def _answer(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        self.send_header("Content-Length", headers.pop("length", str(len(body))))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def _missing(self) -> None:
        self._answer(404, b"<Error><Code>NoSuchKey</Code><Message>not there</Message></Error>")

    def do_HEAD(self) -> None:
        key, _ = self._asked()
        if key == "":
            self._answer(200)
        elif key in self._objects:
            self._answer(200, length=str(len(self._objects[key])), ETag='"x"', Last_Modified=_DATE)
        else:
            self._answer(404)

    def do_GET(self) -> None:
        key, query = self._asked()
        if key == "" and "list-type" in query:
            self._answer(200, self._listed(query).encode(), Content_Type="application/xml")
        elif key in self._objects:
            whole = self._objects[key]
            span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if span:
                part = whole[int(span[1]) : int(span[2]) + 1]
                place = f"bytes {span[1]}-{int(span[1]) + len(part) - 1}/{len(whole)}"
                self._answer(206, part, Content_Range=place, ETag='"x"', Last_Modified=_DATE)
            else:
                self._answer(200, whole, ETag='"x"', Last_Modified=_DATE)
        else:
            self._missing()

    def _listed(self, query: dict[str, list[str]]) -> str:
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        found, folders = "", set()
        for key in sorted(self._objects):
            if key.startswith(prefix):
                rest = key[len(prefix) :]
                if delimiter and delimiter in rest:
                    folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
                else:
                    size = len(self._objects[key])
                    found += f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                    found += f'<ETag>"x"</ETag><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>'
        found += "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in sorted(folders))
        count = found.count("<Key>") + len(folders)
        head = (
            f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{count}</KeyCount><MaxKeys>1000</MaxKeys>"
        )
        return f"<ListBucketResult>{head}<IsTruncated>false</IsTruncated>{found}</ListBucketResult>"

    def do_PUT(self) -> None:
        key, query = self._asked()
        body = self._body()
        if "uploadId" in query:
            self._parts[query["uploadId"][0]][int(query["partNumber"][0])] = body
        else:
            self._objects[key] = body
        self._answer(200, ETag='"x"')

    def do_POST(self) -> None:
        key, query = self._asked()
        body = self._body()
        if "uploads" in query:
            upload = f"u{len(self._parts)}"
            self._parts[upload] = {}
            text = f"<InitiateMultipartUploadResult><Bucket>{BUCKET}</Bucket><Key>{escape(key)}</Key><UploadId>{upload}"
            self._answer(200, f"{text}</UploadId></InitiateMultipartUploadResult>".encode())
        elif "uploadId" in query:
            parts = self._parts[query["uploadId"][0]]
            self._objects[key] = b"".join(parts[number] for number in sorted(parts))
            text = (
                f"<CompleteMultipartUploadResult><Key>{escape(key)}</Key><ETag>x</ETag></CompleteMultipartUploadResult>"
            )
            self._answer(200, text.encode())
        elif "delete" in query:
            for one in re.findall(rb"<Key>(.*?)</Key>", body):
                self._objects.pop(one.decode(), None)
            self._answer(200, b"<DeleteResult></DeleteResult>")

    def do_DELETE(self) -> None:
        key, _ = self._asked()
        self._objects.pop(key, None)
        self._answer(204)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


_DATE = "Thu, 01 Jan 2026 00:00:00 GMT"
