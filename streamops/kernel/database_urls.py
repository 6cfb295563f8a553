"""URLs of SQLAlchemy, parsed by SQLAlchemy."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, unquote_plus

from streamops.kernel import conditions
from streamops.kernel.conninfo import socket_folder
from streamops.kernel.packages import require_package

_PASSWORD = re.compile("://[^:/]*:([^@]*)@")
_SECRET = re.compile("passw|pwd|secret|token|key|connect", re.IGNORECASE)
_SHORT = 8
"""Values of options with fewer characters are words such as "require", unless the name says otherwise."""


def parse_database_url(text: str, *, extra: str) -> Any:
    """Return the parsed URL, with the folder of a local server's socket where psql would find it.

    Raises
    ------
    SpecError
        ``NOT_A_URL``. The error does not show the URL.
    """
    sa = require_package("sqlalchemy", package="sqlalchemy", extra=extra)
    try:
        url = sa.make_url(text)
        url.get_dialect()
    except sa.exc.NoSuchModuleError as error:
        raise conditions.DIALECT_UNKNOWN.error(got=url.drivername) from error
    except (sa.exc.ArgumentError, ValueError):  # the latter is about the port
        url = None
    if url is None or not _is_whole(text, url):
        raise conditions.NOT_A_DATABASE_URL.error(
            got="text that SQLAlchemy does not parse, or an '@' that does not end the user"
        )
    if _uses_libpq(url) and not (url.host or {"host", "service"} & url.query.keys()):
        folder = socket_folder(str(url.port or url.query.get("port") or ""))
        return url if folder is None else url.update_query_dict({"host": folder})
    return url


def show_database_url(text: str) -> str:
    """Return the URL in quotes, without its password and its options."""
    sa = require_package("sqlalchemy", package="sqlalchemy", extra="sqlalchemy")
    return repr(sa.make_url(text).set(query={}).render_as_string(hide_password=True))


def secrets_of_database_url(text: str) -> list[str]:
    """Return the password and the options of a URL, as they are written and as they are sent."""
    password, rest = _split(text)
    options = rest.partition("?")[2]
    written = [password or "", options]
    for piece in options.split("&"):
        name, _, value = piece.partition("=")
        if len(value) >= _SHORT or _SECRET.search(name):
            written.append(value)
    return [form for value in written for form in (value, unquote(value), unquote_plus(value))]


def _split(text: str) -> tuple[str | None, str]:
    """The password, as it is written, and what follows it."""
    found = _PASSWORD.search(text)
    return (None, text) if found is None else (found[1], text[found.end() :])


def _is_whole(text: str, url: Any) -> bool:
    """Whether no part of a password was taken for a host, a database or an option."""
    if not (url.host or url.username or url.password):
        return True  # a file
    password, rest = _split(text)
    is_parsed = all("=" in piece for piece in rest.partition("?")[2].split("&") if piece)
    after_user = f"{url.host or ''}{url.database or ''}" if password is None else rest
    return is_parsed and "@" not in after_user


def _uses_libpq(url: Any) -> bool:
    driver = url.drivername.partition("+")[2]
    return url.get_backend_name() == "postgresql" and driver in {"", "psycopg", "psycopg2"}
