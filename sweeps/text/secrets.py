"""Redaction of passwords and tokens in the addresses of stores and servers."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import unquote, unquote_plus

HIDDEN = "***"

# In a text an address ends at white space. It may have one slash: `pathlib.Path` makes one of two.
_ADDRESS = re.compile(r"([A-Za-z][\w+.-]{0,40})(:/{1,2})(\S*)")  # bounded: a text may be one long word
_WHOLE = re.compile(r"([A-Za-z][\w+.-]*)(:/{1,2})(.*)", re.DOTALL)
# Schemes whose user is a name. In other schemes it may be a token, as in https://TOKEN@HOST.
_DATABASES = ("postgresql", "mysql", "mariadb", "mssql", "oracle")
# Options that are no secrets if their values are plain words.
_PLAIN = re.compile(
    r"(?i)(user|host|hostaddr|port|dbname|database|sslmode|sslrootcert|ssl_ca|charset|driver|target_session_attrs|"
    r"application_name|connect_timeout|client_encoding|timeout|mode|cache|nolock|immutable|uri|check_same_thread)="
    r"[\w./:,-]*'?"  # a text may quote the address
)
_KEY = re.compile(r"[A-Za-z_]+")
_VARIABLE = re.compile(r"(\$\w+|\$\{\w+\})+", re.ASCII)
_NAMED = re.compile(r"(?i)([;/#,]\w*(?:pass|pwd|token|secret|api_?key|credential)\w*=)(.+)", re.DOTALL)
_BEGINS_OPTIONS = frozenset("?;=")
_ENDS_PASSWORD = frozenset("?#;")
_ENDS = re.compile(r"[@&#;/?]")
_FRAGMENT = re.compile(r"(#)(.+)", re.DOTALL)
_MIN_LENGTH = 4
"""Length of the shortest secret that is searched for in a text: shorter ones are part of too many words."""

Hide = Callable[[str], str]


def redacted(text: str, *addresses: str) -> str:
    """Return `text` without the passwords and tokens of the addresses in it.

    Everything that may be a secret is hidden: the user of `https://`, an option of an unknown driver, an address that
    can be read in two ways. A variable of the environment (`$PASSWORD`) is kept.

    Args:
        text: an address, or a text with addresses that end at white space.
        addresses: more addresses, whose secrets are hidden wherever they occur in `text`, as written and decoded: a
            driver's error message may quote parts of an address.
    """
    secrets: set[str] = set()

    def hide(secret: str) -> str:
        if not secret or _VARIABLE.fullmatch(secret):
            return secret
        # Drivers do not agree on where a password or an option ends, nor on whether a user precedes it.
        parts = {secret, secret.partition(":")[2], *_ENDS.split(secret)}
        secrets.update(decode(part) for part in parts for decode in (str, unquote, unquote_plus))
        return HIDDEN

    def without(whole: str) -> str:
        found = _WHOLE.fullmatch(whole)
        return _without_secrets(found, hide) if found else _ADDRESS.sub(lambda one: _without_secrets(one, hide), whole)

    for address in addresses:
        without(address)
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _MIN_LENGTH:
            text = text.replace(secret, HIDDEN)
    return without(text)


def _without_secrets(found: re.Match[str], hide: Hide) -> str:
    scheme, slashes, rest = found.groups()
    address, page, route = rest.partition("#/")
    if scheme in ("http", "https") and _BEGINS_OPTIONS.isdisjoint(address) and "@" not in route:
        rest = address  # the route names a place in a page, such as a run in MLflow's, and holds no secret
    else:
        page, route = "", ""
    before, at, after = ("", "", rest) if rest.startswith("/") else rest.rpartition("@")  # a file's name may hold an @
    if not _ENDS_PASSWORD.isdisjoint(before):
        return f"{scheme}{slashes}{hide(rest)}"  # the @ is part of a password, or of an option
    named = scheme.lower().startswith(_DATABASES)
    user, colon, password = before.partition(":") if named else ("", "", before)
    host, mark, query = after.partition("?")
    for part in (_NAMED, _FRAGMENT):
        host = part.sub(lambda m: m[1] + hide(m[2]), host)
    return f"{scheme}{slashes}{user}{colon}{hide(password)}{at}{host}{mark}{_options(query, hide)}{page}{route}"


def _options(query: str, hide: Hide) -> str:
    shown = ""
    while query:
        option, more, others = query.partition("&")
        key, _, value = option.partition("=")
        if option and not _PLAIN.fullmatch(unquote(option)) and not _VARIABLE.fullmatch(value):
            # A secret may hold a &, so everything after it is hidden too.
            known = value and _KEY.fullmatch(key)
            return shown + (f"{key}={hide(query.partition('=')[2])}" if known else hide(query))
        shown, query = f"{shown}{option}{more}", others
    return shown
