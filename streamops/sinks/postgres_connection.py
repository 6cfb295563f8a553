"""Connections to PostgreSQL, and the errors of its driver as those of streamops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streamops.kernel.databases import names_server, secrets_of_conninfo
from streamops.kernel.errors import SinkError
from streamops.kernel.parameters import require_package
from streamops.sinks import conditions
from streamops.sinks.sink import hide, refused, unavailable

DEADLOCK = "40"
# States, or their classes: connection, resources, operator intervention, system; locks that others hold, a
# server that is read only for now, and a transaction that was longer than it may be.
_NOT_NOW = ("08", "53", "57", "58", DEADLOCK, "55P03", "25006", "25P")
_NO_PRIVILEGE = "42501"
_NO_HOST = (
    "the URL names no host, so a server on this machine is looked for by its socket, in /tmp and "
    "/var/run/postgresql: name its folder, as in postgresql:///shop?host=/folder, or its host; "
)


def require_driver() -> Any:
    """The package that talks to PostgreSQL."""
    package = "adbc-driver-postgresql"
    module = "adbc_driver_postgresql.dbapi"
    return require_package(module, package=package, extra="postgres")


def fetch(cursor: Any, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Run a statement, and return its rows."""
    cursor.execute(statement, parameters or None)
    rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def exists(cursor: Any, table: str) -> bool:
    """Whether there is a table of this quoted name."""
    return bool(fetch(cursor, "SELECT to_regclass($1) IS NOT NULL", table)[0][0])


def state_of(error: BaseException | None) -> str:
    """What PostgreSQL calls an error; empty for others."""
    return getattr(error, "sqlstate", None) or ""


@contextmanager
def reported(url: str) -> Iterator[None]:
    """Replace errors of the driver by those of streamops, without secrets."""
    with hide(*secrets_of_conninfo(url)):
        try:
            yield
        except require_driver().Error as error:
            raise _failure(error, url) from error


def denied(got: str) -> SinkError:
    """The error about a user without a privilege."""
    return conditions.NO_PRIVILEGE.error(got=got)


def _failure(error: Any, url: str) -> SinkError:
    """The error about a transaction that PostgreSQL did not commit."""
    if (error.sqlstate or "08").startswith(_NOT_NOW):
        hint = "" if names_server(url) else _NO_HOST
        return unavailable("PostgreSQL", error, hint=hint)
    if error.sqlstate == _NO_PRIVILEGE:
        return denied(f"{type(error).__name__}: {error}")
    return refused("PostgreSQL", error)
