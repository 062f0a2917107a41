"""What must not be shown or stored: passwords and tokens in the addresses of stores and servers."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import unquote, unquote_plus

HIDDEN = "***"

# An address is a whole text, or stands in one and ends at white space.
_ADDRESS = re.compile(r"\A([A-Za-z][\w+.-]*)://(.*)\Z|([A-Za-z][\w+.-]*)://(\S*)", re.DOTALL)
# Their users are names. Elsewhere a user without a password may be a token, as in https://TOKEN@HOST.
_DATABASES = ("postgresql", "mysql", "mariadb", "mssql", "oracle")
# Options that are no secrets, where their values are plain words.
_PLAIN = re.compile(
    r"(?i)(user|host|hostaddr|port|dbname|database|sslmode|sslrootcert|ssl_ca|charset|driver|target_session_attrs|"
    r"application_name|connect_timeout|client_encoding|timeout|mode|cache|nolock|immutable|uri|check_same_thread)="
    r"[\w./:,-]*"
)
_VARIABLE = re.compile(r"(\$\w+|\$\{\w+\})+")
_NAMED = re.compile(r"(?i)([;/#,]\w*(?:pass|pwd|token|secret|api_?key|credential)\w*=)([^;/#,]+)")
_FRAGMENT = re.compile(r"(#)(?!/)(.+)", re.DOTALL)
_SHORT = 4
"""A secret of fewer characters is part of too many words to be looked for in a text."""

Hide = Callable[[str], str]


def redacted(text: str, *addresses: str) -> str:
    """`text` without the passwords and tokens of the addresses in it, whatever part of them they stand in.

    What cannot be told from a secret is taken for one: the user of `https://`, an option of a driver that is not known,
    an address that can be read in two ways. A variable of the environment (`$PASSWORD`) is none.

    Args:
        text: an address, or a text that may hold some; there, one ends at white space.
        addresses: their secrets are looked for besides, as written and decoded, wherever in `text` they stand: what a
            driver says of an address takes it apart.
    """
    secrets: set[str] = set()

    def hide(secret: str) -> str:
        if not secret or _VARIABLE.fullmatch(secret):
            return secret
        secrets.update({secret, unquote(secret), unquote_plus(secret)})
        return HIDDEN

    def without(whole: str) -> str:
        return _ADDRESS.sub(lambda m: _without_secrets(m[1] or m[3], m[2] or m[4] or "", hide), whole)

    for address in addresses:
        without(address)
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORT:
            text = text.replace(secret, HIDDEN)
    return without(text)


def _without_secrets(scheme: str, rest: str, hide: Hide) -> str:
    place, mark, query = rest.partition("?")
    if "@" in query and not rest.startswith("/"):
        return f"{scheme}://{hide(rest)}"  # a ? in a password, or an @ in an option
    before, at, host = place.rpartition("@")
    if at and not before.startswith("/"):  # else it is part of a file's name
        user, colon, password = before.partition(":")
        if not colon and not scheme.lower().startswith(_DATABASES):
            user = hide(user)
        place = f"{user}{colon}{hide(password)}@"
    else:
        place, host = "", place
    for part in (_NAMED, _FRAGMENT):
        host = part.sub(lambda m: m[1] + hide(m[2]), host)
    options = "&".join(_option(option, hide) for option in query.split("&"))
    return f"{scheme}://{place}{host}{mark}{options}"


def _option(option: str, hide: Hide) -> str:
    key, equals, value = option.partition("=")
    if not equals:
        return hide(option)
    return option if _PLAIN.fullmatch(unquote(option)) else f"{key}={hide(value)}"
