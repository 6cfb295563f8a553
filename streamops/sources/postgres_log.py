"""The log of a PostgreSQL server, read through a replication slot."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from streamops.kernel.columns import column_not_found
from streamops.kernel.databases import (
    format_lsn,
    require_conninfo,
    secrets_of_conninfo,
    with_socket,
)
from streamops.kernel.ddl import quote
from streamops.kernel.errors import StreamopsError, located_methods
from streamops.kernel.parameters import require_package
from streamops.sources import conditions
from streamops.sources.core import status as sql
from streamops.sources.core.outbox import Range, Read, read_events
from streamops.sources.core.status import Names, Status, check_publication, check_server, check_slot

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


_T = TypeVar("_T")
_IN_USE, _NOT_DEFINED = "55006", "42704"
_EXISTS = {"42710", "23505"}
_ACTIVE = "is active for PID"
_NO_PUBLICATION = re.compile(r'publication ".*" does not exist')
_PATIENCE = 30.0
"""In seconds: how long to wait for another reader of the slot, such as a query that stops."""
_LAST = (1 << 63) - 1


@located_methods("sources.outbox")
@dataclass(slots=True)
class PostgresLog:
    """One slot and one table in the log of a server."""

    url: str
    names: Names
    _client: Client = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Prepare a connection, which is opened when it is needed."""
        self._client = Client(self.url, self._configure)

    def status(self) -> Status:
        """The server, the table, the publication and the slot, without a check."""
        outbox = self.names.outbox
        rows = self._fetch(
            sql.STATUS, outbox.schema, outbox.table, self.names.publication, self.names.slot
        )
        return Status(*rows[0])

    def check(self) -> tuple[Status, int]:
        """Return the status and the position of the slot, or refuse what cannot be read."""
        status = self.status()
        check_server(status, self.names)
        check_publication(status, self.names)
        return status, check_slot(status, self.names)

    def check_columns(self) -> None:
        """Refuse a table without one of the columns.

        Raises
        ------
        ColumnNotFound
        """
        outbox = self.names.outbox
        found = [row[0] for row in self._fetch(sql.SELECT_COLUMNS, outbox.schema, outbox.table)]
        for role, column in outbox.sources.items():
            if column not in found:
                parameter = "keep" if role in outbox.keep else f"columns[{role!r}]"
                raise column_not_found(column, found, role=parameter)

    def create_missing(self) -> None:
        """Create the publication and the slot, if there is no slot yet.

        A slot decodes a row with the publications that existed when the row was written, so a publication
        is not created after its slot.

        Raises
        ------
        SpecError
            ``SOURCE_UNFIT``.
        RequirementError
            ``SOURCE_UNFIT``.
        """
        status = self.status()
        check_server(status, self.names)
        if status.has_slot:
            return
        if not status.has_publication:
            self._create_publication()
        self._refuse_rows(self._count_rows_except([]))
        if not self._create(lambda: self._client.fetch(sql.CREATE_SLOT, self.names.slot)):
            return
        earlier = None
        try:
            earlier = self._count_earlier_rows()
        finally:
            if earlier != 0:
                self._fetch(sql.DROP_SLOT, self.names.slot)
        self._refuse_rows(earlier)

    def read(
        self, wanted: Range, messages: int | None = None
    ) -> Iterator[tuple[pa.RecordBatch, Read]]:
        """Read the events of a range. The slot stays where it is.

        With a number of `messages`, the server stops after the transaction with which it is reached.

        Raises
        ------
        RequirementError
            ``SLOT_IN_USE``, ``SOURCE_UNAVAILABLE``, ``SOURCE_UNFIT``.
        ChangeStreamError
            ``MALFORMED_LOG``.
        """
        yield from read_events(self._peek(wanted.end, messages), self.names.outbox, wanted)

    def advance(self, lsn: int) -> None:
        """Release the log before a position."""
        confirmed = self.status().confirmed
        if confirmed is not None and confirmed < lsn:  # PostgreSQL refuses to go back
            arguments = (self.names.slot, format_lsn(lsn))
            self._wait_for_slot(lambda: self._client.fetch(sql.ADVANCE, *arguments))

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _configure(self, cursor: Any) -> None:
        cursor.execute(sql.CONFIGURE, (self.names.slot, quote(self.names.publication)))
        cursor.fetchall()

    def _fetch(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        try:
            return self._client.fetch(statement, *parameters)
        except DriverError as error:
            raise _refused(error) from error

    def _create(self, create: Callable[[], object]) -> bool:
        """Whether something was created; not if somebody else did at the same time."""
        try:
            create()
        except DriverError as error:
            if error.state in _EXISTS:
                return False
            raise _refused(error) from error
        return True

    def _create_publication(self) -> None:
        outbox = self.names.outbox
        if not self._fetch(sql.SELECT_IDENTITY, outbox.schema, outbox.table)[0][0]:
            key = quote(outbox.columns["id"])
            raise conditions.TABLE_WITHOUT_KEY.error(
                table=self.names.table, key=key, got=f"no primary key of {self.names.table}"
            )
        self._create(lambda: self._client.execute(self.names.create_publication))

    def _count_earlier_rows(self) -> int:
        """The number of rows of the table that the log of the new slot does not have."""
        self._client.execute(sql.BEGIN_SNAPSHOT)
        try:
            if not self._count_rows_except([]):
                return 0
            # Read after the snapshot was taken, the log has all of its rows that followed the slot.
            ids: list[str] = []
            for events, _ in read_events(
                self._peek(None, None), self.names.outbox, Range(0, _LAST)
            ):
                ids += filter(None, events.column("id").to_pylist())
            return self._count_rows_except(ids)
        finally:
            self._client.execute("COMMIT")

    def _count_rows_except(self, ids: Sequence[str]) -> int:
        outbox = self.names.outbox
        statement = sql.count_other_rows(outbox.schema, outbox.table, outbox.columns["id"])
        return int(self._fetch(statement, json.dumps(ids))[0][0])

    def _refuse_rows(self, earlier: int) -> None:
        """Refuse a table with rows from before the slot."""
        if earlier:
            raise conditions.OUTBOX_NOT_EMPTY.error(
                create_slot=self.names.create_slot, got=f"{earlier} rows in {self.names.table}"
            )

    def _peek(self, until: int | None, messages: int | None) -> Iterator[pa.Array]:
        """The messages of the log from the slot on, in pieces."""
        statement = sql.peek(until, messages)

        def begin() -> tuple[Generator[pa.RecordBatch], pa.RecordBatch | None]:
            batches = self._client.stream(statement)
            return batches, next(batches, None)

        batches, first = self._wait_for_slot(begin)
        try:
            if first is not None:
                yield first.column(0)
                yield from (batch.column(0) for batch in batches)
        except DriverError as error:
            raise _refused(error) from error
        finally:
            batches.close()

    def _wait_for_slot(self, request: Callable[[], _T]) -> _T:
        """Repeat a request as long as another connection reads from the slot."""
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                return request()
            except DriverError as error:
                if not self._is_in_use(error):
                    raise _refused(error) from error
                if time.monotonic() > end:
                    raise conditions.SLOT_IN_USE.error(got=str(error)) from error
            time.sleep(0.1)

    def _is_in_use(self, error: DriverError) -> bool:
        """Whether a request failed because another connection reads from the slot."""
        if error.state is not None or _ACTIVE in str(error):
            return error.state in (None, _IN_USE)
        # Errors of a stream have a text only, in the language of the server.
        return bool(self._fetch(sql.SELECT_READER, self.names.slot))


def _refused(error: DriverError) -> StreamopsError:
    """The error about a request that the server did not carry out."""
    if error.state in (None, _NOT_DEFINED) and _NO_PUBLICATION.search(str(error)):
        return conditions.PUBLICATION_MISSING.error(got=str(error))
    return conditions.LOG_UNAVAILABLE.error(got=str(error))
