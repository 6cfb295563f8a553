"""A connection to PostgreSQL, and what its URL must not have."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamops.kernel.conninfo import require_conninfo, secrets_of_conninfo, with_socket
from streamops.kernel.packages import require_package
from streamops.sources import conditions

__all__ = ["Client", "DriverError", "require_driver", "require_url"]

# Classes of SQLSTATE after which the connection cannot be used.
_BROKEN = {"08", "57", "58"}


class DriverError(Exception):
    """An error of the driver or of the server, with its SQLSTATE."""

    def __init__(self, message: str, state: str | None) -> None:
        super().__init__(message)
        self.state = state


@dataclass(slots=True)
class Client:
    """A connection to a server. It is opened when it is needed, also after an error."""

    url: str
    configure: Callable[[Any], None]
    """Called with a cursor of each new connection."""
    _connection: Any = field(default=None, init=False, repr=False)

    def fetch(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Execute a statement and return its rows.

        Raises
        ------
        DriverError
        """
        with self._cursor(statement, parameters) as cursor:
            rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows

    def execute(self, statement: str) -> None:
        """Execute a statement that has no rows.

        Raises
        ------
        DriverError
        """
        with self._cursor(statement, ()):
            pass

    def stream(self, statement: str) -> Generator[pa.RecordBatch]:
        """Execute a statement and return its rows in pieces, as they arrive.

        Raises
        ------
        DriverError
        """
        is_read = False
        try:
            with self._cursor(statement, ()) as cursor:
                yield from cursor.fetch_record_batch()
            is_read = True
        except (pa.ArrowException, OSError) as error:  # the stream has no SQLSTATE
            raise DriverError(str(error), None) from None
        finally:
            if not is_read:  # the server may still send rows
                self._abandon()

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def _cursor(self, statement: str, parameters: Sequence[Any]) -> Iterator[Any]:
        driver = require_driver()
        try:
            if self._connection is None:
                self._connection = driver.connect(with_socket(self.url), autocommit=True)
                with self._connection.cursor() as cursor:
                    self.configure(cursor)
            with self._connection.cursor() as cursor:
                cursor.execute(statement, tuple(parameters) or None)
                yield cursor
        except driver.Error as error:
            if (error.sqlstate or "08")[:2] in _BROKEN:
                self._abandon()
            raise DriverError(str(error), error.sqlstate) from None

    def _abandon(self) -> None:
        """Forget a connection that is broken, and may not even be closed."""
        try:
            self.close()
        except require_driver().Error:
            self._connection = None


def require_driver() -> Any:
    """Import the driver.

    Raises
    ------
    RequirementError
        ``PACKAGE_MISSING``.
    """
    module, package = "adbc_driver_postgresql.dbapi", "adbc-driver-postgresql"
    return require_package(module, package=package, extra="postgres")


def require_url(url: object) -> None:
    """Refuse what is not a connection URL, and one with a secret. The error does not show it.

    The URL is part of the plan, so Spark writes it to its logs.

    Raises
    ------
    SpecError
        ``NOT_A_URL``, ``PASSWORD_IN_URL``.
    """
    require_conninfo(url)
    if secrets_of_conninfo(str(url)):
        raise conditions.PASSWORD_IN_URL.error(got="a URL with a password")
