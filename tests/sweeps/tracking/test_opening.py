"""A server of MLflow is asked by MLflow's own means, and an older one is named."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from edp.spec import UserError
from sweeps.tracking.store import check_store
from sweeps.tracking.tracker import Tracker


class _Server(BaseHTTPRequestHandler):
    version = b"OK"

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.version if self.path == "/version" else b"OK")

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _serving(context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serve on a port of loopback while the block runs."""
    server = HTTPServer(("127.0.0.1", 0), _Server)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(("version", "old"), [("2.22.0", True), ("1.30.1.dev0", True), ("3.0.0", False), ("", False)])
@pytest.mark.slow
def test_a_server_of_an_older_mlflow_is_named_before_anything_is_sent(
    version: str, old: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Server, "version", version.encode())
    with _serving() as port:
        uri = f"http://127.0.0.1:{port}"
        if not old:
            assert check_store(uri) == uri
            return
        for ask in (check_store, lambda uri: Tracker(uri, "tiny", tmp_path)):
            with pytest.raises(UserError, match=f"^tracking-uri = '{uri}': MLflow {version} answers there, which has"):
                ask(uri)


@pytest.fixture
def behind_tls(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Serve HTTPS with a certificate that no system trusts; yield the address and the certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(1), now + timedelta(1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
    signed, private, public = made.sign(key, hashes.SHA256()), tmp_path / "key.pem", tmp_path / "ca.pem"
    public.write_bytes(signed.public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, private)
    with _serving(context) as port:
        yield f"https://127.0.0.1:{port}", public


def test_a_server_behind_tls_is_asked_with_mlflows_own_variables(
    behind_tls: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, certificate = behind_tls
    with pytest.raises(UserError, match=r"cannot be opened; allowed: .*CERTIFICATE_VERIFY_FAILED|certificate verify"):
        check_store(uri)
    monkeypatch.setenv("MLFLOW_TRACKING_SERVER_CERT_PATH", str(certificate))
    assert check_store(uri) == uri
