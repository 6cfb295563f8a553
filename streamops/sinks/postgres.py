"""Write micro-batches to a table of PostgreSQL, each exactly once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from streamops.changelog.change_types import CHANGE_TYPE, FAULTS
from streamops.kernel.databases import require_conninfo, show_conninfo, with_socket
from streamops.kernel.errors import SinkError
from streamops.kernel.parameters import Text
from streamops.sinks import conditions, postgres_table
from streamops.sinks.core import sql
from streamops.sinks.core.ledger import (
    Action,
    Decision,
    Delivery,
    Entry,
    Location,
    NewCheckpoint,
    Repeated,
)
from streamops.sinks.core.net import content_columns, form_of
from streamops.sinks.postgres_connection import (
    DEADLOCK,
    denied,
    exists,
    fetch,
    reported,
    require_driver,
    state_of,
)
from streamops.sinks.postgres_staging import Staged, Staging, create
from streamops.sinks.postgres_table import Target, Writer
from streamops.sinks.protocol import Attempt, Conflict, Content, Found
from streamops.sinks.sink import JSON, Columns, Missing, columns_differ, parse_key, project_json
from streamops.sinks.staging import MayNotStage, StagingSink, Summary, prefix
from streamops.sinks.tasks import Projection, Receipts

_WHERE = "sinks.postgres"
# A driver that is stopped in the middle of a transaction must not hold the lock for ever.
_IDLE_LIMIT = "60s"
_NULLS_NOT_DISTINCT = 15
"""The first version in which null can be a value of a unique key."""


def postgres(
    url: Text,
    table: str,
    *,
    key: str | Sequence[str] | None = None,
    sequence: str | Sequence[str] | None = None,
    schema: str | None = None,
    name: str | None = None,
    columns: Columns = "exact",
    missing: Missing = "create",
    new_checkpoint: NewCheckpoint = "refuse",
    repeated: Repeated = "fail",
    checkpoint: str | None = None,
) -> PostgresSink:
    """Write micro-batches to a table of PostgreSQL, each exactly once.

    After the commit of micro-batch N, the table is the result of micro-batches 0 to N. The rows and an
    entry in the table ``streamops_ledger`` are written in one transaction.

    Input        the output of any operator: appended rows; revisions, which replace the row of a key if
                 they are newer; change streams with a key; change streams without a key, whose rows are
                 a multiset. Nested columns become ``jsonb``, except arrays of plain values
    Output       the rows in `table`, and one row per sink in ``streamops_ledger``
    Output mode  append or update
    Watermark    none
    State        none in Spark
    Order        any, within a micro-batch
    Batch        ``sink.write(frame, query=...)``

    Parameters
    ----------
    url : str
        Connection URI, such as ``postgresql://user@host/database``. Leave the password to a password file
        or ``PGPASSWORD``. Parameters such as ``sslmode`` are passed on.
    table : str
        Name of the table. It is quoted, and case-sensitive.
    key : str or sequence of str, optional
        Columns that identify a row. Omit it for appended rows and for multisets.
    sequence : str or sequence of str, optional
        Columns that order the rows of a key, as in ``changes.fold``. Default: "revision", if the frame has
        that column. Revisions without a sequence must have at most one row per key and micro-batch.
    schema : str, optional
        Schema of the table and of the ledger. Default: the first one of the user's search path.
    name : str, optional
        Name of the sink in the ledger. Default: `table`.
    columns : "exact" or "add"
        Whether columns that the table does not have are an error, or are added to it.
    missing : "create" or "refuse"
        What happens if the table does not exist.
    new_checkpoint : "refuse", "continue" or "replace"
        What a query with another checkpoint may do. "replace" empties the table with its first
        micro-batch; "continue" adds to it: use it if the new query starts where the old one ended.
    repeated : "fail" or "skip"
        What happens if a micro-batch that the table already has arrives again with other rows. With the
        same rows it is always skipped.
    checkpoint : str, optional
        The checkpoint location of the query. Only Spark Connect needs it.

    Returns
    -------
    PostgresSink
        For use with ``DataStreamWriter.foreachBatch``.

    Raises
    ------
    SpecError
        A parameter has the wrong type or value.
    RequirementError
        ``PACKAGE_MISSING``: the extra ``postgres`` is not installed.

    Examples
    --------
    >>> from streamops import sinks
    >>> daily = sinks.postgres("postgresql://host/db", "daily", key=["page", "window_start"])
    >>> views.writeStream.foreachBatch(daily).option("checkpointLocation", path)

    Notes
    -----
    Errors while the query runs. ``SinkError``: another run, query or checkpoint writes to this table, see
    docs/sinks.md; ``TARGET_COLUMNS``, ``TARGET_TYPE``, ``TARGET_KEY``, ``TARGET_KIND``, ``TARGET_TRIGGER``
    and ``TARGET_MISSING``, if the table does not fit, see docs/guarantees.md; ``TARGET_UNAVAILABLE``. ``ChangeStreamError``: the change stream
    contradicts itself or the table. In all cases the table remains as it was.

    Tasks copy a large micro-batch to a staging table, over connections of their own: see docs/sinks.md. A
    small one passes through the memory of the driver, and each one if the user may not create tables in the
    schema. Deletes are applied before inserts; with another
    unique constraint than the key, two rows of a micro-batch that swap a value violate it.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Fault Tolerance".
    """
    require_driver()
    return PostgresSink(
        url=url,
        table=table,
        schema=schema,
        key=parse_key(key, parameter="key"),
        sequence=parse_key(sequence, parameter="sequence"),
        name=table if name is None else name,
        columns=columns,
        missing=missing,
        new_checkpoint=new_checkpoint,
        repeated=repeated,
        checkpoint=checkpoint,
    )


# The driver sends UTF-8, also to databases with another encoding.
_SETTINGS = (
    f"SELECT set_config('client_encoding', 'UTF8', true), {sql.SETTINGS.format(is_local='true')}"
)
_MAY_CREATE = "SELECT has_schema_privilege($1::text, 'CREATE')"


class _Attempt(Attempt):
    """An open transaction that has locked the ledger."""

    def __init__(
        self, sink: PostgresSink, cursor: Any, content: Staged, ledger: sql.Table, found: Found
    ) -> None:
        self.found = found
        self.sink, self.cursor, self.content, self.ledger = sink, cursor, content, ledger

    def write(self, decision: Decision) -> None:
        sink, location = self.sink, self.found.location
        if decision.action != "skip":
            is_replaced = decision.action == "replace"
            sink._write(self.cursor, self.content, is_replaced=is_replaced)
        if location is None or not location.id:
            location = sink._locate(self.cursor)[1]
        entry = astuple(decision.entry.at(location))
        values = [list(value) if isinstance(value, tuple) else value for value in entry]
        self.cursor.execute(sql.upsert_entry(self.ledger), (sink.name, *values))


@dataclass(frozen=True, kw_only=True, repr=False)
class PostgresSink(StagingSink):
    """A function that writes micro-batches, for use with ``DataStreamWriter.foreachBatch``."""

    where = _WHERE

    url: str = field(metadata={"shown": show_conninfo})
    table: str
    schema: str | None

    def __post_init__(self) -> None:
        """Validate the parameters."""
        super().__post_init__()
        for parameter in ("table", "schema"):
            name = getattr(self, parameter)
            if name is not None and len(name.encode()) > postgres_table.MAX_BYTES:
                raise conditions.NAME_TOO_LONG.error(
                    parameter=parameter,
                    max_bytes=postgres_table.MAX_BYTES,
                    got=f"{name!r}, {len(name.encode())} bytes",
                )
        require_conninfo(self.url)

    def _read_ledger(self) -> Entry | None:
        with self._transaction() as cursor:
            return self._read_entries(cursor, *self._locate(cursor)).get(self.name)

    def _inspect(self) -> tuple[str, Sequence[str], Entry | None]:
        with self._transaction() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")
            ledger, location = self._locate(cursor)
            tables = [location.name, str(ledger)]
            creates = [name for name in tables if not exists(cursor, name)]
            if location.name in creates and self.missing == "refuse":
                raise conditions.TABLE_MISSING.error(statement="", got=location.name)
            needed = {
                location.name: ("SELECT", "INSERT", *(("UPDATE",) if self.key else ())),
                str(ledger): ("SELECT", "INSERT", "UPDATE"),
            }
            self._require_privileges(cursor, ledger.schema, needed, creates)
            entry = self._read_entries(cursor, ledger, location).get(self.name)
            self._require_location(entry, location)
            self._require_key_index(partial(fetch, cursor))
        return f"table {location.name}", [f"table {name}" for name in creates], entry

    def _require_key_index(self, fetch: postgres_table.Fetch) -> None:
        found = postgres_table.inspect(fetch, self._target)
        if found is not None and self.key is not None:
            columns = {name: sql.Column(dtype="") for name in self.key}
            postgres_table.require_key(fetch, found, self.key, columns)

    def _require_privileges(
        self,
        cursor: Any,
        schema: str | None,
        needed: Mapping[str, Sequence[str]],
        missing: Sequence[str],
    ) -> None:
        may_use = "SELECT has_table_privilege($1::text, $2::text)"
        lacking = [
            f"{privilege} on {name}"
            for name, privileges in needed.items()
            for privilege in privileges
            if name not in missing and not fetch(cursor, may_use, name, privilege)[0][0]
        ]
        if missing and not (schema and fetch(cursor, _MAY_CREATE, schema)[0][0]):
            lacking.append(f"CREATE on schema {schema}")
        if lacking:
            raise denied(f"no privilege {', '.join(lacking)}")

    @property
    def _target(self) -> sql.Table:
        return sql.Table(self.table, self.schema)

    def _project(self, batch: DataFrame) -> Projection:
        return project_json(batch, keep_lists=True)

    def _reduce(self, content: Content) -> Staged:
        sequence = self._sequence_of(content.schema.names)
        if isinstance(content, Receipts):
            return Staged.of_receipts(content, self.key, sequence)
        return Staged.of_rows(content, self.key, sequence)

    @contextmanager
    def _attempt(self, content: Staged, delivery: Delivery) -> Iterator[_Attempt]:
        try:
            with self._transaction() as cursor:
                yield self._begin(cursor, content)
        except SinkError as error:
            # Another writer of the table waited for this one, and PostgreSQL ended this one.
            if not state_of(error.__cause__).startswith(DEADLOCK):
                raise
            raise Conflict(error) from None

    def _prepare(self, schema: pa.Schema, batch_id: int, action: Action) -> Staging:
        empty = self._reduce(schema.empty_table())
        with self._transaction() as cursor:
            cursor.execute("SAVEPOINT fitting")
            self._fit(cursor, empty)
            cursor.execute("ROLLBACK TO SAVEPOINT fitting")  # the commit creates what is missing
            ledger, location = self._locate(cursor)
            if not fetch(cursor, _MAY_CREATE, ledger.schema)[0][0]:
                raise MayNotStage
            entry = self._read_entries(cursor, ledger, location).get(self.name)
            name, comment = self._new_staging(entry, batch_id)
            table = sql.Table(name, ledger.schema)
            create(cursor, table, empty, comment)
        return Staging(
            url=with_socket(self.url),
            environment={n: v for n, v in os.environ.items() if n.startswith("PG")},
            table=table,
            key=self.key,
            sequence=self._sequence_of(schema.names),
        )

    def _clean_up(self, delivery: Delivery) -> None:
        with self._transaction() as cursor:
            ledger, location = self._locate(cursor)
            entry = self._read_entries(cursor, ledger, location).get(self.name)
            if entry is None:
                return
            # A task of a run that is gone may still copy to a table. The next micro-batch drops it.
            for (name,) in fetch(cursor, sql.SELECT_STAGING, ledger.schema, prefix(self.name)):
                if self._is_left(name, entry):
                    cursor.execute(sql.drop_unused(sql.Table(name, ledger.schema)))

    def _begin(self, cursor: Any, content: Staged) -> _Attempt:
        """Lock the ledger, and read it."""
        cursor.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{_IDLE_LIMIT}'")
        fetch(cursor, sql.LOCK, f"streamops sink {self.name}")
        ledger, location = self._locate(cursor)
        entries = self._read_entries(cursor, ledger, location)
        if self.name not in entries or not location.id:
            # Other sinks may create the same ledger or table, or write to the table under another name.
            fetch(cursor, sql.LOCK, "streamops ledger")
            ledger, location = self._locate(cursor)
            entries = self._read_entries(cursor, ledger, location)
            if not exists(cursor, str(ledger)):  # or a user needs CREATE also if it exists
                cursor.execute(sql.create_ledger(ledger))
        elif CHANGE_TYPE not in content.names:
            is_empty = fetch(cursor, f"SELECT NOT EXISTS (SELECT FROM {location.name})")[0][0]
            location = replace(location, is_empty=is_empty)
        entry = entries.pop(self.name, None)
        return _Attempt(self, cursor, content, ledger, Found(entry, location, entries))

    def _locate(self, cursor: Any) -> tuple[sql.Table, Location]:
        """The ledger, and the table: in the given schema, or where the search path finds it or creates it."""
        fetching = partial(fetch, cursor)
        found = postgres_table.resolve(fetching, self._target)
        if found is None:
            schema = postgres_table.creation_schema(fetching, self._target)
            return sql.Table(sql.LEDGER, schema), Location(str(sql.Table(self.table, schema)), "")
        return sql.Table(sql.LEDGER, found.table.schema), Location(str(found.table), str(found.oid))

    def _read_entries(self, cursor: Any, ledger: sql.Table, location: Location) -> dict[str, Entry]:
        """The entries of this sink, and of others that write to the same table."""
        if postgres_table.resolve(partial(fetch, cursor), ledger) is None:
            return {}
        names = self.name, location.name
        rows = fetch(cursor, sql.select_entries(ledger), *names, location.id)
        return {name: Entry.of(*row) for name, *row in rows}

    def _write(self, cursor: Any, content: Staged, *, is_replaced: bool) -> None:
        """Apply the net effect of a micro-batch to the table."""
        target, columns = self._fit(cursor, content)
        fetching, key = partial(fetch, cursor), self.key or ()
        writer = Writer(cursor.execute, fetching, target, columns)
        if is_replaced:
            writer.clear()
        if form_of(content.names, self.key) == "append" and writer.takes(content.rows):
            content.copy(cursor, target.table)
        elif content.summary.rows:
            with content.open(cursor, key):
                postgres_table.refuse_changed(fetching, columns, content.schema)
                self._apply(writer, content.summary, content.names)
        writer.finish()

    def _apply(self, writer: Writer, staged: Summary, names: Sequence[str]) -> None:
        """Apply the staged rows."""
        form, key, sequence = form_of(names, self.key), self.key or (), self._sequence_of(names)
        table, columns = writer.table, writer.columns
        if form == "append":
            writer.insert(sql.insert(table, columns, sql.STAGED), sql.STAGED)
        elif form == "upsert":
            writer.unstage_older(staged.added, key, sequence)
            writer.insert(sql.upsert(table, columns, key, sequence, sql.STAGED), sql.STAGED)
        elif form == "multiset":
            for match in writer.matches(staged.removed, content_columns(list(columns), ())):
                self._refuse(writer, sql.select_too_few(table, match), "PREIMAGE_NOT_PUBLISHED")
                writer.delete(sql.delete_copies(table, match))
            writer.require_deleted(staged.deleted)
            writer.insert(sql.insert(table, columns, sql.ADDED_COPIES), sql.ADDED_COPIES)
        else:
            self._remove_keys(writer, staged, content_columns(list(columns), sequence))
            for match in writer.matches(staged.added, key):
                self._refuse(writer, sql.select_existing(table, match), "INSERTED_TWICE")
            writer.insert(sql.upsert(table, columns, key, (), sql.ADDED), sql.ADDED)

    def _remove_keys(self, writer: Writer, staged: Summary, content: Sequence[str]) -> None:
        """Delete the rows of removed keys, after a comparison with what is retracted."""
        compared = {name: writer.columns[name] for name in content}
        for match in writer.matches(staged.removed, self.key or ()):
            rows = writer.fetch(sql.select_missing(writer.table, match, compared))
            if rows:
                row, must_match = rows[0]
                code = "PREIMAGE_NOT_PUBLISHED" if must_match else "DELETED_UNPUBLISHED"
                raise FAULTS[code].error(got=row)
            writer.delete(sql.delete_removed(writer.table, match))
        writer.require_deleted(staged.deleted)

    def _refuse(self, writer: Writer, statement: str, code: str) -> None:
        rows = writer.fetch(statement)
        if rows:
            raise FAULTS[code].error(got=rows[0][0])

    def _fit(self, cursor: Any, content: Staged) -> tuple[Target, sql.Columns]:
        """The table and the columns of the rows, which it can take."""
        target, columns = self._fit_target(cursor, content.schema)
        if self.key is not None:
            summary, fetching = content.summary, partial(fetch, cursor)
            has_nulls = postgres_table.require_key(fetching, target, self.key, columns)
            if not has_nulls:
                postgres_table.refuse_nulls([*summary.removed, *summary.added], self.key)
        return target, columns

    def _fit_target(self, cursor: Any, schema: pa.Schema) -> tuple[Target, sql.Columns]:
        """Create or extend the table where that is allowed, and return it with the columns of the rows."""
        postgres_table.refuse_names(schema)
        wanted = {part.name: self._default_column(part) for part in schema}
        target = postgres_table.inspect(partial(fetch, cursor), self._target)
        if target is None:
            target = self._create(cursor, wanted)
        known = target.columns
        new = {name: column for name, column in wanted.items() if name not in known}
        required = [  # which a trigger may set
            n
            for n, found in known.items()
            if found.is_required and n not in wanted and not target.fires
        ]
        if required or (new and self.columns == "exact"):
            raise columns_differ(list(new), required, list(known))
        fitting = {
            part.name: known[part.name].fit(part, is_json=part.metadata == JSON)
            for part in schema
            if part.name in known
        }
        if new:
            cursor.execute(sql.add_columns(target.table, new))
        return target, {name: fitting.get(name, column) for name, column in wanted.items()}

    def _default_column(self, arrived: pa.Field) -> sql.Column:
        accepted = sql.accepted_types(arrived.type)
        if arrived.metadata == JSON:
            return sql.Column(dtype="jsonb", compare="json")
        if not accepted:
            raise conditions.NOT_A_POSTGRES_TYPE.error(column=arrived.name, got=arrived.type)
        return sql.Column(dtype=accepted[0])

    def _create(self, cursor: Any, columns: sql.Columns) -> Target:
        fetching = partial(fetch, cursor)
        schema = postgres_table.creation_schema(fetching, self._target)
        table = sql.Table(self.table, schema)
        version = int(fetching("SELECT current_setting('server_version_num')")[0][0]) // 10_000
        nulls = version >= _NULLS_NOT_DISTINCT
        statement = sql.create_table(table, columns, self.key, nulls=nulls)
        if self.missing == "refuse":
            raise conditions.TABLE_MISSING.error(statement=f": {statement}", got=str(table))
        cursor.execute(statement)
        target = postgres_table.inspect(fetching, table)
        assert target is not None
        return target

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """A cursor in a transaction that is committed at the end."""
        with self._errors():
            connection = self.session.connection
            if connection is None:
                connection = require_driver().connect(with_socket(self.url))
                self.session.connection = connection
            with connection.cursor() as cursor:
                # At another level, a statement would not see what was committed after the first one.
                cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
                fetch(cursor, _SETTINGS)
                yield cursor
            connection.commit()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Replace errors of the driver by those of streamops, without secrets."""
        with reported(self.url):
            try:
                yield
            except BaseException:
                self.session.close()
                raise
