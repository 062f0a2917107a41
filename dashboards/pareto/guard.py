"""Access control of the pages: host names, origins, calls, and security headers.

Every web site that a user visits can send requests to a page on this machine. The pages therefore answer to the names
of this machine only (a site may point its own name here: DNS rebinding), accept changes from themselves only
(`Origin`), and forbid other pages to frame them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from dash import Dash
from dash.exceptions import DependencyException
from flask import Flask, Response, abort, request
from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict
from werkzeug.exceptions import Forbidden, HTTPException, NotFound
from werkzeug.wrappers import Request

from dashboards.pareto.layout import THEME
from sweeps.text.unexpected import unexpected

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

HOST = "127.0.0.1"
"""The address that the pages listen on."""
_NAMES = (HOST, "localhost")


class _Sort(TypedDict):
    """The order of the table's rows."""

    key: str | None
    descending: bool


_Clicks = Annotated[int, Field(ge=0)] | None
_Text = Annotated[str, Field(max_length=20_000)] | None
_Slider = Annotated[float, Field(allow_inf_nan=False)] | None
_KINDS: dict[str, Any] = {
    "n_clicks": _Clicks,
    "n_intervals": _Clicks,
    "theme.data": Literal["light", "dark"] | None,
    "narrow.data": bool | None,
    "limits.data": dict[str, Annotated[float, Field(allow_inf_nan=False)]],
    "link.data": dict[str, str],
    "asked.data": list[str] | None,
    "pinned.data": list[str] | None,
    "sort.data": _Sort,
    "table-page.data": Annotated[int, Field(ge=0, le=10**9)],
    "dominated.value": list[str],
    **{f"{name}.value": Annotated[str, Field(max_length=200)] for name in ("x", "y", "colour")},
    "data": _Text,
    "value": _Text,
    "limit": _Slider,
}
_VALUES = {name: TypeAdapter[Any](kind) for name, kind in _KINDS.items()}
"""The values of a call's inputs: by id and property, or by property alone. Figures are for the browser's own calls."""

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

    @server.before_request
    def let_in() -> None:
        if request.method not in ("GET", "HEAD", "OPTIONS") and not _is_call(app):
            abort(400)

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


def same(given: Any, token: str) -> bool:
    """Return True if `given` is the token. The comparison takes constant time."""
    return isinstance(given, str) and hmac.compare_digest(given.encode(), token.encode())


def _is_call(app: Dash) -> bool:
    """Return True if the request is JSON that calls one of the page's callbacks with its arguments."""
    try:
        body = request.get_json(silent=True)
    except RecursionError:
        return False
    if not isinstance(body, dict) or not isinstance(body.get("output"), str):
        return False
    callback = app.callback_map.get(body["output"])
    if callback is None or not isinstance(body.get("outputs"), dict | list):
        return False
    changed = body.get("changedPropIds", [])
    return (
        isinstance(changed, list)
        and all(isinstance(one, str) for one in changed)
        and _fits(body.get("inputs", []), callback["inputs"])
        and _fits(body.get("state", []), callback["state"])
    )


def _fits(given: Any, declared: list[dict[str, Any]]) -> bool:
    """Return True if the values match the declared inputs of a callback, in order."""
    if not isinstance(given, list) or len(given) != len(declared):
        return False
    for one, wanted in zip(given, declared, strict=True):
        several = one if isinstance(one, list) else [one]  # a pattern of ids has a list
        if not all(isinstance(part, dict) and part.get("property") == wanted["property"] for part in several):
            return False
        if not all(_holds(part.get("value"), str(wanted["id"]), wanted["property"]) for part in several):
            return False
    return True


def _holds(value: Any, id: str, property: str) -> bool:
    """Return True if a property of a component can have this value."""
    name = "limit" if id.startswith("limit-") else f"{id}.{property}"
    kind = _VALUES.get(name) or _VALUES.get(property)
    try:
        if kind is not None:
            kind.validate_python(value, strict=name != "limit")  # a browser's slider may send its number as text
    except ValidationError:
        return False
    return True


def _policy(app: Dash) -> str:
    digest = base64.b64encode(hashlib.sha256(THEME.encode()).digest()).decode()
    # Plotly compiles its WebGL at run time. All text of the page is set as text, so no script can come in by data.
    scripts = " ".join(["'self'", "'unsafe-eval'", f"'sha256-{digest}'", *app.csp_hashes()])
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
