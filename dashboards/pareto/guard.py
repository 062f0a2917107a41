"""Access control of the pages: host names, origins, and security headers.

Every web site that a user visits can send requests to a page on this machine. The pages therefore answer to the names
of this machine only (a site may point its own name here: DNS rebinding), accept changes from themselves only
(`Origin`), and forbid other pages to frame them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dash import Dash
from dash.exceptions import DependencyException
from flask import Flask, Response
from werkzeug.exceptions import Forbidden, HTTPException, NotFound
from werkzeug.wrappers import Request

from sweeps.text.unexpected import unexpected

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

HOST = "127.0.0.1"
"""The address that the pages listen on."""
_NAMES = (HOST, "localhost")


_MOST_BYTES = 1_000_000
"""The largest size of a request, in bytes."""

_HEADERS = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def shielded(app: WSGIApplication, *, read_only: bool = False) -> WSGIApplication:
    """Return the app behind the check of host and origin, with security headers.

    Args:
        read_only: whether to refuse every request that could write.
    """

    def checked(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        asked = Request(environ)
        writes = asked.method not in ("GET", "HEAD", "OPTIONS")
        own = not read_only and asked.headers.get("Origin") == asked.host_url.rstrip("/")
        if _name(asked.host) not in _NAMES or (writes and not own):
            return Forbidden()(environ, start_response)

        def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            return start_response(status, [*headers, *_HEADERS.items()], *more)

        return app(environ, start)

    return checked


def guard(app: Dash) -> None:
    """Add access control and a content policy to the page.

    Call it after all callbacks are registered, since the content policy allows their scripts by hash.
    """
    server: Flask = app.server
    server.config["MAX_CONTENT_LENGTH"] = _MOST_BYTES
    # Flask documents that middleware replaces this method, which its types forbid.
    server.wsgi_app = shielded(server.wsgi_app)  # type: ignore[assignment,method-assign]
    policy = _policy(app)

    @server.after_request
    def with_policy(answer: Response) -> Response:
        answer.headers["Content-Security-Policy"] = policy
        return answer

    @server.errorhandler(Exception)
    def without_traceback(error: Exception) -> Any:
        if isinstance(error, HTTPException):
            return error
        if isinstance(error, DependencyException):  # a request for a script that the page does not use
            return NotFound()
        return Response(unexpected(error), 500, {"Content-Type": "text/plain; charset=utf-8"})


def _policy(app: Dash) -> str:
    # Plotly compiles its WebGL at run time. All text of the page is set as text, so no script can come in by data.
    scripts = " ".join(["'self'", "'unsafe-eval'", *app.csp_hashes()])
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {scripts}",
            "style-src 'self' 'unsafe-inline'",  # Plotly writes inline styles
            "img-src 'self' data: blob:",
            "font-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def _name(host: str) -> str | None:
    """Return the host name of a `Host` header in lower case, without its port; None if it is malformed."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:  # such as an unclosed bracket
        return None
