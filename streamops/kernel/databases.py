"""Addresses of databases and what of them may be shown, and positions in the log of PostgreSQL."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, unquote, unquote_plus

from streamops.kernel import conditions
from streamops.kernel.parameters import require_package

_LSN = re.compile(r"([0-9A-F]{1,8})/([0-9A-F]{1,8})", re.IGNORECASE)

_KEYWORDS = frozenset(
    [
        "application_name",
        "channel_binding",
        "client_encoding",
        "connect_timeout",
        "dbname",
        "fallback_application_name",
        "gssdelegation",
        "gssencmode",
        "gsslib",
        "host",
        "hostaddr",
        "keepalives",
        "keepalives_count",
        "keepalives_idle",
        "keepalives_interval",
        "krbsrvname",
        "load_balance_hosts",
        "max_protocol_version",
        "min_protocol_version",
        "oauth_client_id",
        "oauth_client_secret",
        "oauth_issuer",
        "oauth_scope",
        "options",
        "passfile",
        "password",
        "port",
        "replication",
        "require_auth",
        "requirepeer",
        "scram_client_key",
        "scram_server_key",
        "service",
        "sslcert",
        "sslcertmode",
        "sslcompression",
        "sslcrl",
        "sslcrldir",
        "sslkey",
        "sslkeylogfile",
        "sslmode",
        "sslnegotiation",
        "sslpassword",
        "sslrootcert",
        "sslsni",
        "ssl_max_protocol_version",
        "ssl_min_protocol_version",
        "target_session_attrs",
        "tcp_user_timeout",
        "user",
    ]
)
SECRET_KEYWORDS = frozenset(
    ("password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret")
)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.*?(?=\]*\Z)", re.DOTALL)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)(.*)", re.DOTALL)
_USER_OF_PATH = re.compile("[^@/:]*(?::([^@]*))?@")
_PREFIX = re.compile("postgres(?:ql)?://")
_USER = re.compile("([^@/:]*)(?::([^@/]*))?@")
_ADDRESS = re.compile(
    r"(?:\[(?P<ipv6>[^\]]+)\](?=[:/?,]|\Z)|(?!\[)(?P<host>[^:/?,]*))(?::(?P<port>[^/?,]*))?"
)
_ENCODED = re.compile(" *((?:[^% ]|%[0-9A-Fa-f]{2})*) *")
_PAIR = re.compile(
    r"\s*([^=\s]*)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|(?!')((?:[^\s\\]|\\.|\\\Z)*))", re.ASCII | re.DOTALL
)
_AFTER_USER = {"host", "port", "dbname"}
_TMP, _SOCKETS = Path("/tmp"), Path("/var/run/postgresql")
"""Where the driver looks for the socket of a local server, and where Debian's servers have it."""
_ADDRESSES = {"host": "PGHOST", "hostaddr": "PGHOSTADDR", "service": "PGSERVICE"}

Stored = Iterator[tuple[str, str, str]]
"""Parameters: keyword, value as it is written, value."""


def parse_conninfo(text: str) -> dict[str, str]:
    r"""Return the parameters of a connection string, as libpq understands it.

    Raises
    ------
    ValueError
        libpq refuses it. The message does not repeat it.

    Examples
    --------
    >>> parse_conninfo("postgresql://app:a#b%20c@/shop?host=/run")
    {'user': 'app', 'password': 'a#b c', 'dbname': 'shop', 'host': '/run'}
    >>> parse_conninfo(r"user=app password='it\'s'")
    {'user': 'app', 'password': "it's"}
    """
    return {keyword: value for keyword, _, value in _stored(text)}


def secrets_of_conninfo(text: str) -> list[str]:
    """Return the secrets of a connection string, as they are written and as they are sent."""
    return [form for name, *forms in _stored(text) if name in SECRET_KEYWORDS for form in forms]


def mask(text: str, secrets: Iterable[str | None]) -> str:
    """Replace secrets in a text, the longest first, since one may be a part of another."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def public_path(path: str) -> str:
    """A path without what can be a secret: user, password and query of a URL.

    Examples
    --------
    >>> public_path("s3://user:sec/r#t@bucket/folder?token=x"), public_path("/a?b")
    ('s3://bucket/folder', '/a?b')
    """
    scheme, rest, _ = _split(path)
    return scheme + rest


def secrets_of(path: str) -> list[str]:
    """What can be a secret in a path: password and query of a URL, as they are written and as they are sent."""
    return [form for text in _split(path)[2] for form in (text, unquote(text))]


def _split(path: str) -> tuple[str, str, list[str]]:
    """The scheme of a path, the part of the rest that is public, and what can be a secret."""
    url = _SCHEME.fullmatch(path)
    if url is None:
        return "", path, []
    scheme, rest = url.groups()
    user = _USER_OF_PATH.match(rest)
    public, _, query = re.split(r"([?#])", rest[user.end() if user else 0 :] + "?", maxsplit=1)
    if (
        user and user[1] is not None and "@" in public + query
    ):  # where the password ends is not certain
        return scheme, "***", [rest]
    values = [piece.partition("=")[2] for piece in query[:-1].split("&")]
    secrets = [user[1] if user else None, query[:-1], *(v for v in values if len(v) >= 8)]
    return scheme, public, [text for text in secrets if text]


def without_secrets(text: str) -> str:
    """A text that may have a URL at its end, or one in brackets, with the URL as :func:`public_path` shows it.

    Examples
    --------
    >>> without_secrets("FileStreamSource[ftp://user:se]cret@host/folder]")
    'FileStreamSource[ftp://host/folder]'
    """
    return _URL.sub(lambda url: public_path(url[0]), text)


def show_conninfo(text: str) -> str:
    """Return the server, the user and the database of a connection string, as a URI in quotes.

    Examples
    --------
    >>> show_conninfo("postgresql://app:a#b@db:5433/shop?sslmode=require")
    "'postgresql://app:***@db:5433/shop'"
    >>> show_conninfo("host=/run dbname=shop")
    "'postgresql://%2Frun/shop'"
    """
    found = parse_conninfo(text)
    user, host, port, database = (
        quote(found.get(name, ""), safe=",", errors="replace")
        for name in ("user", "host", "port", "dbname")
    )
    user += ":***" if "password" in found else ""
    return repr(
        "postgresql://"
        + (f"{user}@" if user else "")
        + (f"{host}:{port}" if port and "," not in host else host)
        + f"/{database}"
    )


def require_conninfo(text: object) -> None:
    """Refuse what libpq does not take for a connection string. The error does not show it.

    Raises
    ------
    SpecError
        ``NOT_A_URL``.
    """
    got = f"type {type(text).__name__}"
    if isinstance(text, str):
        try:
            found = parse_conninfo(text)
        except ValueError as error:
            got = str(error)
        else:
            # Or a password with "@" or "/" that is not encoded would be taken for a host or a database.
            got = "an '@' that does not end the user, or a port that is not a number"
            is_read = not _PREFIX.match(text) or not any(
                name in _AFTER_USER and "@" in written for name, written, _ in _stored(text)
            )
            if not text.strip():
                got = "no parameter"
            elif is_read and _are_ports(found.get("port", "")):
                return
    raise conditions.NOT_A_URL.error(got=got)


def names_server(text: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the string or the environment says which server to connect to."""
    is_named = _ADDRESSES.keys() & parse_conninfo(text).keys()
    return bool(is_named) or any(map(environment.get, _ADDRESSES.values()))


def with_socket(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the connection string, with the folder of the server's socket where psql would find it.

    Only if neither the string nor the environment names a host, and there is no socket in /tmp.
    """
    found = parse_conninfo(text)
    named = _ADDRESSES.keys() & found.keys()
    folder = None if named else socket_folder(found.get("port"), environment)
    if folder is None:
        return text
    escaped = {name: re.sub(r"([\\'])", r"\\\1", value) for name, value in found.items()}
    return " ".join(f"{name}='{value}'" for name, value in {**escaped, "host": folder}.items())


def socket_folder(port: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the folder with the socket of a local server, if the driver would not look there."""
    name = f".s.PGSQL.{port or environment.get('PGPORT') or 5432}"
    is_elsewhere = not any(map(environment.get, _ADDRESSES.values()))
    if is_elsewhere and not (_TMP / name).exists() and (_SOCKETS / name).exists():
        return str(_SOCKETS)
    return None


def _are_ports(text: str) -> bool:
    return all(
        not port or (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16)
        for port in text.split(",")
    )


def _stored(text: str) -> Stored:
    if "\0" in text:
        raise ValueError("text with a character NUL")
    prefix = _PREFIX.match(text)
    for keyword, written, value in _of_uri(text[prefix.end() :]) if prefix else _of_pairs(text):
        yield _known(keyword, written, value)


def _known(keyword: str, written: str, value: str) -> tuple[str, str, str]:
    if keyword == "requiressl":  # its name until 2003
        return "sslmode", written, "require" if value.startswith("1") else "prefer"
    if keyword not in _KEYWORDS:
        raise ValueError("a parameter that PostgreSQL does not have")
    return keyword, written, value


def _of_uri(rest: str) -> Stored:
    user = _USER.match(rest)
    if user:
        yield from _if_given("user", user[1])
        yield from _if_given("password", user[2])
        rest = rest[user.end() :]
    hosts, ports = [], []
    while True:
        address = _ADDRESS.match(rest)
        if address is None:
            raise ValueError("an IPv6 address that does not end with ']'")
        hosts.append(address["ipv6"] or address["host"] or "")
        ports.append(address["port"] or "")
        rest = rest[address.end() :]
        if not rest.startswith(","):
            break
        rest = rest[1:]
    yield from _if_given("host", ",".join(hosts))
    yield from _if_given("port", ",".join(ports))
    path, mark, parameters = rest.partition("?")
    yield from _if_given("dbname", path[1:])
    pieces = parameters.split("&") if mark else []
    for piece in pieces if pieces and pieces[-1] else pieces[:-1]:
        keyword, _, value = piece.partition("=")
        if piece.count("=") != 1:
            _refuse_parameter()
        keyword, decoded = _decode(keyword), _decode(value)
        if (keyword, decoded) == ("ssl", "true"):  # as in JDBC
            keyword, decoded = "sslmode", "require"
        yield keyword, value, decoded


def _if_given(keyword: str, written: str | None) -> Stored:
    if written:
        yield keyword, written, _decode(written)


def _decode(written: str) -> str:
    """Decode percent-encoded bytes. Spaces around them do not count."""
    found = _ENCODED.fullmatch(written)
    if found is None or "%00" in found[1]:
        raise ValueError(
            "a '%' without two hexadecimal digits, '%00', or a space that is not '%20'"
        )
    return unquote(found[1], errors="surrogateescape")


def _of_pairs(text: str) -> Stored:
    at, end = 0, len(text.rstrip(" \t\n\r\f\v"))
    while at < end:
        pair = _PAIR.match(text, at)
        if pair is None:
            _refuse_parameter()
        written = pair[3] if pair[2] is None else pair[2]
        yield pair[1], written, re.sub(r"\\(.?)", r"\1", written, flags=re.DOTALL)
        at = pair.end()


def _refuse_parameter() -> NoReturn:
    raise ValueError("text that is not made of pairs of keyword=value")


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
    # ValueError is about the port; earlier releases of SQLAlchemy return what is not text.
    except (sa.exc.ArgumentError, ValueError, AttributeError):
        url = None
    is_path = type(text) is str and "@" not in text and "://" not in text
    is_host = url is not None and bool(url.host) and url.get_backend_name() == "sqlite"
    if url is None or is_host or not _is_whole(text, url):
        file = text if is_path else url.host if is_host else ""
        raise conditions.NOT_A_DATABASE_URL.error(
            hint=f"a file of SQLite is 'sqlite:///{file}'; " if file else "",
            got="a host, which SQLite does not have"
            if is_host
            else "text that SQLAlchemy does not parse, or an '@' that does not end the user",
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
    password, rest = _split_url(text)
    options = rest.partition("?")[2]
    written = [password or "", options]
    for piece in options.split("&"):
        name, _, value = piece.partition("=")
        if len(value) >= _SHORT or _SECRET.search(name):
            written.append(value)
    return [form for value in written for form in (value, unquote(value), unquote_plus(value))]


def _split_url(text: str) -> tuple[str | None, str]:
    """The password, as it is written, and what follows it."""
    found = _PASSWORD.search(text)
    return (None, text) if found is None else (found[1], text[found.end() :])


def _is_whole(text: str, url: Any) -> bool:
    """Whether no part of a password was taken for a host, a database or an option."""
    if not (url.host or url.username or url.password):
        return True  # a file
    password, rest = _split_url(text)
    is_parsed = all("=" in piece for piece in rest.partition("?")[2].split("&") if piece)
    after_user = f"{url.host or ''}{url.database or ''}" if password is None else rest
    return is_parsed and "@" not in after_user


def _uses_libpq(url: Any) -> bool:
    driver = url.drivername.partition("+")[2]
    return url.get_backend_name() == "postgresql" and driver in {"", "psycopg", "psycopg2"}


def format_lsn(lsn: int) -> str:
    """Format a position of the log as PostgreSQL does.

    Examples
    --------
    >>> format_lsn(0x16B3748), format_lsn(0x1_0000_0000)
    ('0/16B3748', '1/0')
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: object) -> int | None:
    """Parse a position of the log; None if it is not one.

    Examples
    --------
    >>> parse_lsn("0/16B3748"), parse_lsn("16B3748")
    (23803720, None)
    """
    found = _LSN.fullmatch(text) if isinstance(text, str) else None
    return (int(found[1], 16) << 32) + int(found[2], 16) if found else None
