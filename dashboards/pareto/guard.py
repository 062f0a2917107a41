"""Access control of the page: host names, password, origins, and security headers.

Every web site that a user visits can send requests to a page on this machine. The page therefore answers to its own
host names only (a site may point its own name here: DNS rebinding), accepts changes from itself only (`Origin`), and
forbids other pages to frame it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from dash import Dash
from dash.exceptions import DependencyException
from flask import Flask, Response, abort, request
from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict
from werkzeug.exceptions import HTTPException, NotFound

from dashboards.pareto.data import CURVES
from dashboards.pareto.layout import THEME
from sweeps.commands.unexpected import unexpected


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
    "parallel-seen.data": bool | None,
    "limits.data": dict[str, Annotated[float, Field(allow_inf_nan=False)]],
    "link.data": dict[str, str],
    "asked.data": list[str] | None,
    "pinned.data": list[str] | None,
    "metric.value": Annotated[str, Field(pattern=f"^({'|'.join(CURVES)})$")] | None,
    "sort.data": _Sort,
    "table-page.data": Annotated[int, Field(ge=0, le=10**9)],
    "dominated.value": list[str],
    **{f"{name}.value": Annotated[str, Field(max_length=200)] for name in ("x", "y", "colour", "slice")},
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


def guard(app: Dash, hosts: set[str] | None, password: str | None) -> None:
    """Add access control and security headers to the app.

    Call it after all callbacks are registered, since the content policy allows their scripts by hash.

    Args:
        hosts: host names that the page answers to; None accepts any.
        password: required with every request, under any user name; None requires none.
    """
    server: Flask = app.server
    server.config["MAX_CONTENT_LENGTH"] = _MOST_BYTES
    headers = _HEADERS | {"Content-Security-Policy": _policy(app)}

    @server.before_request
    def let_in() -> Response | None:
        if hosts is not None and _name(request.host) not in hosts:
            abort(403)
        if password is not None and not _knows(password):
            return Response("a password is required", 401, {"WWW-Authenticate": 'Basic realm="edp-sweep"'})
        if request.method not in ("GET", "HEAD", "OPTIONS"):
            if request.headers.get("Origin") != request.host_url.rstrip("/"):
                abort(403)
            if not _is_call(app):
                abort(400)
        return None

    @server.after_request
    def with_headers(answer: Response) -> Response:
        answer.headers.update(headers)
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


def _knows(password: str) -> bool:
    login = request.authorization
    return login is not None and login.type == "basic" and same(login.password, password)


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
    scripts = " ".join(["'self'", f"'sha256-{digest}'", *app.csp_hashes()])
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
