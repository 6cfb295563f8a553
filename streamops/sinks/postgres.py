"""Write micro-batches to a table of PostgreSQL, each exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.changelog.faults import fault_error
from streamops.kernel.columns import combine_chunks
from streamops.kernel.conninfo import names_server, require_conninfo, show_conninfo, with_socket
from streamops.kernel.conninfo import secrets_of_conninfo as _secrets
from streamops.kernel.errors import SchemaError, SinkError
from streamops.kernel.ordering import is_orderable
from streamops.kernel.packages import require_package
from streamops.kernel.sql import quote
from streamops.sinks.core import sql
from streamops.sinks.core.ledger import Delivery, Entry, Location, NewCheckpoint, Repeated
from streamops.sinks.core.net import Net, content_columns, form_of
from streamops.sinks.failures import (
    columns_differ,
    hide,
    refused,
    target_missing,
    type_differs,
    unavailable,
)
from streamops.sinks.sink import JSON, Columns, Missing, TableSink, parse_key, to_arrow_with_json

__all__ = ["PostgresSink", "postgres"]

_WHERE = "sinks.postgres"
# A driver that is stopped in the middle of a transaction must not hold the lock for ever.
_IDLE_LIMIT = "60s"
# Classes of SQLSTATE: connection, resources, operator intervention, system.
_CONNECTION_STATES = {"08", "53", "57", "58"}
_NO_PRIVILEGE = "42501"
_NO_HOST = (
    "the URL names no host, so a server on this machine is looked for by its socket, in /tmp and "
    "/var/run/postgresql: name its folder, as in postgresql:///shop?host=/folder, or its host; "
)
_NULLS_NOT_DISTINCT = 15
"""The first version in which null can be a value of a unique key."""


def postgres(
    url: str,
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
        ``DRIVER_MISSING``: the extra ``postgres`` is not installed.

    Examples
    --------
    >>> from streamops import sinks
    >>> daily = sinks.postgres("postgresql://host/db", "daily", key=["page", "window_start"])
    >>> views.writeStream.foreachBatch(daily).option("checkpointLocation", path)  # doctest: +SKIP

    Notes
    -----
    Errors while the query runs. ``SinkError``: another run, query or checkpoint writes to this table, see
    docs/sinks.md; ``TARGET_COLUMNS``, ``TARGET_TYPE``, ``TARGET_KEY`` and ``TARGET_MISSING``, if the table
    does not fit, before a row is written; ``TARGET_UNAVAILABLE``. ``ChangeStreamError``: the change stream
    contradicts itself or the table. In all cases the table remains as it was.

    A micro-batch passes through the memory of the driver. Deletes are applied before inserts; with another
    unique constraint than the key, two rows of a micro-batch that swap a value violate it.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Fault Tolerance".
    """
    _require_driver()
    return PostgresSink(
        url=url,
        table=table,
        schema=schema,
        key=parse_key(key, parameter="key", where=_WHERE),
        sequence=parse_key(sequence, parameter="sequence", where=_WHERE),
        name=table if name is None else name,
        columns=columns,
        missing=missing,
        new_checkpoint=new_checkpoint,
        repeated=repeated,
        checkpoint=checkpoint,
    )


@dataclass(frozen=True, kw_only=True, repr=False)
class PostgresSink(TableSink):
    """A function that writes micro-batches, for use with ``DataStreamWriter.foreachBatch``."""

    where = _WHERE

    url: str = field(metadata={"shown": show_conninfo})
    table: str
    schema: str | None

    def __post_init__(self) -> None:
        """Validate the parameters."""
        super().__post_init__()
        self._require_names("url", "table", "name", "schema")
        require_conninfo(self.url, where=self.where)

    def _read_ledger(self) -> Entry | None:
        with self._transaction() as cursor:
            return self._read_entries(cursor, *self._locate(cursor)).get(self.name)

    def _inspect(self) -> tuple[str, Sequence[str], Entry | None]:
        with self._transaction() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")
            ledger, location = self._locate(cursor)
            tables = [location.name, str(ledger)]
            creates = [name for name in tables if not _exists(cursor, name)]
            if location.name in creates and self.missing == "refuse":
                raise target_missing(location.name, "create it", where=self.label)
            self._require_privileges(cursor, ledger.schema, tables, creates)
            entry = self._read_entries(cursor, ledger, location).get(self.name)
            self._require_location(entry, location)
        return f"table {location.name}", [f"table {name}" for name in creates], entry

    def _require_privileges(
        self, cursor: Any, schema: str | None, tables: Sequence[str], missing: Sequence[str]
    ) -> None:
        may_use = "SELECT has_table_privilege($1::text, $2::text)"
        denied = [
            f"{word} on {name}"
            for name in tables
            for word in ("SELECT", "INSERT")
            if name not in missing and not _fetch(cursor, may_use, name, word)[0][0]
        ]
        may_create = "SELECT has_schema_privilege($1::text, 'CREATE')"
        if missing and not (schema and _fetch(cursor, may_create, schema)[0][0]):
            denied.append(f"CREATE on schema {schema}")
        if denied:
            raise _denied(f"no privilege {', '.join(denied)}", where=self.label)

    @property
    def _target(self) -> sql.Table:
        return sql.Table(self.table, self.schema)

    def _to_arrow(self, batch: DataFrame) -> pa.Table:
        return to_arrow_with_json(batch, keep_lists=True)

    def _commit(self, rows: pa.Table, delivery: Delivery) -> None:
        net = self._net(rows)
        with self._transaction() as cursor:
            cursor.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{_IDLE_LIMIT}'")
            _fetch(cursor, sql.LOCK, f"streamops sink {self.name}")
            ledger, location = self._locate(cursor)
            entries = self._read_entries(cursor, ledger, location)
            if self.name not in entries or not location.id:
                # Other sinks may create the same ledger or table, or write to the table under another name.
                _fetch(cursor, sql.LOCK, "streamops ledger")
                ledger, location = self._locate(cursor)
                entries = self._read_entries(cursor, ledger, location)
                cursor.execute(sql.create_ledger(ledger))
            elif CHANGE_TYPE not in rows.column_names:
                is_empty = _fetch(cursor, f"SELECT NOT EXISTS (SELECT FROM {location.name})")[0][0]
                location = replace(location, is_empty=is_empty)
            entry = entries.pop(self.name, None)
            decision = self._decide(entry, delivery, location, entries)
            if decision.action != "skip":
                types = self._fit_target(cursor, net.added.schema)
                if decision.action == "replace":
                    cursor.execute(f"DELETE FROM {self._target}")
                if rows.num_rows:
                    self._apply(cursor, net, types, rows.column_names)
            if not location.id:
                location = self._locate(cursor)[1]
            *values, former = astuple(decision.entry.at(location))
            cursor.execute(sql.upsert_entry(ledger), (self.name, *values, list(former)))

    def _locate(self, cursor: Any) -> tuple[sql.Table, Location]:
        """The ledger, and the table: in the given schema, or where the search path finds it or creates it."""
        schema, oid = _fetch(cursor, sql.SELECT_LOCATION, str(self._target))[0]
        schema = self.schema or schema
        name = str(sql.Table(self.table, schema))
        return sql.Table(sql.LEDGER, schema), Location(name, "" if oid is None else str(oid))

    def _read_entries(self, cursor: Any, ledger: sql.Table, location: Location) -> dict[str, Entry]:
        """The entries of this sink, and of others that write to the same table."""
        if not _exists(cursor, str(ledger)):
            return {}
        names = self.name, location.name
        rows = _fetch(cursor, sql.select_entries(ledger), *names, location.id)
        return {name: replace(Entry(*row), former=tuple(row[-1])) for name, *row in rows}

    def _apply(
        self, cursor: Any, net: Net, types: Mapping[str, str], columns: Sequence[str]
    ) -> None:
        """Apply the net effect of a micro-batch to the table."""
        form = form_of(columns, self.key)
        sequence = self._sequence_of(columns)
        key = self.key or ()
        if form == "append":
            _stage(cursor, net.added, key)
            cursor.execute(sql.insert(self._target, types))
        elif form == "upsert":
            _stage(cursor, net.added, key)
            cursor.execute(sql.upsert(self._target, types, key, sequence, is_marked=False))
        elif form == "multiset":
            _stage(cursor, _with_all_marks(net), key)
            content = content_columns(list(types), ())
            for match in _matches(net.removed, {name: types[name] for name in content}):
                self._refuse(
                    cursor, sql.select_too_few(self._target, match), "PREIMAGE_NOT_PUBLISHED"
                )
                cursor.execute(sql.delete_copies(self._target, match))
            cursor.execute(sql.insert_copies(self._target, types))
        else:
            _stage(cursor, _with_all_marks(net), key)
            self._apply_changes(cursor, net, types, sequence)
        cursor.execute(f"DROP TABLE {sql.STAGING}")

    def _apply_changes(
        self, cursor: Any, net: Net, types: Mapping[str, str], sequence: Sequence[str]
    ) -> None:
        key = self.key or ()
        keys = {name: types[name] for name in key}
        content = {n: t for n, t in types.items() if n in content_columns(list(types), sequence)}
        for match in _matches(net.removed, keys):
            rows = _fetch(cursor, sql.select_missing(self._target, match, content))
            if rows:
                row, must_match = rows[0]
                code = "PREIMAGE_NOT_PUBLISHED" if must_match else "DELETED_UNPUBLISHED"
                raise fault_error(code, row, where=self.label)
            cursor.execute(sql.delete_removed(self._target, match))
        for match in _matches(net.added, keys):
            self._refuse(cursor, sql.select_existing(self._target, match), "INSERTED_TWICE")
        cursor.execute(sql.upsert(self._target, types, key, is_marked=True))

    def _refuse(self, cursor: Any, statement: str, code: str) -> None:
        rows = _fetch(cursor, statement)
        if rows:
            raise fault_error(code, rows[0][0], where=self.label)

    def _fit_target(self, cursor: Any, schema: pa.Schema) -> dict[str, str]:
        """Create or extend the table where that is allowed, and return the types of its columns."""
        wanted = {f.name: self._default_type(f) for f in schema}
        found = _fetch(cursor, sql.SELECT_COLUMNS, str(self._target))
        if not found:
            return self._create(cursor, wanted)
        types = {column[0]: column[1] for column in found}
        new = {name: dtype for name, dtype in wanted.items() if name not in types}
        required = [column[0] for column in found if column[3] and column[0] not in wanted]
        if required or (new and self.columns == "exact"):
            raise columns_differ(list(new), required, list(types), where=self.label)
        if new:
            cursor.execute(sql.add_columns(self._target, new))
            types |= new
        special = {column[0] for column in found if column[2] != "b"}  # enumerations and domains
        for arrived in schema:
            dtype = types[arrived.name]
            if not (
                sql.accepts(dtype, arrived.type)
                or (pa.types.is_string(arrived.type) and arrived.name in special)
            ):
                accepted = " or ".join(sql.accepted_types(arrived.type))
                raise type_differs(arrived.name, arrived.type, dtype, accepted, where=self.label)
        self._require_unique_key(cursor)
        return {f.name: types[f.name] for f in schema}

    def _default_type(self, arrived: pa.Field) -> str:
        accepted = sql.accepted_types(arrived.type)
        if arrived.metadata == JSON:
            return "jsonb"
        if not accepted:
            raise SchemaError(
                "TYPE_UNSUPPORTED",
                f"column {arrived.name!r} has a type that PostgreSQL does not have",
                where=self.label,
                got=arrived.type,
                expected="a plain type, or an array, struct or map",
                fix="cast the column",
            )
        return accepted[0]

    def _create(self, cursor: Any, types: dict[str, str]) -> dict[str, str]:
        version = (
            int(_fetch(cursor, "SELECT current_setting('server_version_num')")[0][0]) // 10_000
        )
        nulls = version >= _NULLS_NOT_DISTINCT
        statement = sql.create_table(self._target, types, self.key, nulls=nulls)
        if self.missing == "refuse":
            raise target_missing(str(self._target), f"create it: {statement}", where=self.label)
        cursor.execute(statement)
        return types

    def _require_unique_key(self, cursor: Any) -> None:
        if self.key is None:
            return
        rows = _fetch(cursor, sql.SELECT_UNIQUE, str(self._target))
        if "\n".join(sorted(self.key)) not in {row[0] for row in rows}:
            raise SinkError(
                "TARGET_KEY",
                "the table has no unique index on the key",
                where=self.label,
                got=f"unique indexes on {[row[0].split(chr(10)) for row in rows]}",
                expected=f"one on exactly {', '.join(self.key)}",
                fix=f"CREATE UNIQUE INDEX ON {self._target} ({', '.join(map(quote, self.key))})",
            )

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """A cursor in a transaction that is committed at the end."""
        with self._errors():
            connection = self.session.connection
            if connection is None:
                connection = _require_driver().connect(with_socket(self.url))
                self.session.connection = connection
            with connection.cursor() as cursor:
                yield cursor
            connection.commit()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Replace errors of the driver by those of streamops, without secrets."""
        with hide(*_secrets(self.url)):
            try:
                yield
            except BaseException as error:
                self.session.close()
                if isinstance(error, _require_driver().Error):
                    raise _failure(error, self.url, where=self.label) from error
                raise


def _failure(error: Any, url: str, *, where: str) -> SinkError:
    """The error about a transaction that PostgreSQL did not commit."""
    if (error.sqlstate or "08")[:2] in _CONNECTION_STATES:
        hint = "" if names_server(url) else _NO_HOST
        return unavailable("PostgreSQL", error, where=where, hint=hint)
    if error.sqlstate == _NO_PRIVILEGE:
        return _denied(f"{type(error).__name__}: {error}", where=where)
    return refused("PostgreSQL", error, where=where)


def _denied(got: str, *, where: str) -> SinkError:
    return SinkError(
        "TARGET_REFUSED",
        "the user may not write to the target",
        where=where,
        got=got,
        expected="a user that may read and write the table and the ledger, and create what is missing",
        fix="GRANT the privileges, or name a `schema` of the user",
    )


def _require_driver() -> Any:
    package = "adbc-driver-postgresql"
    module = "adbc_driver_postgresql.dbapi"
    return require_package(module, package=package, extra="postgres", where=_WHERE)


def _fetch(cursor: Any, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    cursor.execute(statement, parameters or None)
    rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def _exists(cursor: Any, table: str) -> bool:
    return bool(_fetch(cursor, "SELECT to_regclass($1) IS NOT NULL", table)[0][0])


def _stage(cursor: Any, rows: pa.Table, key: Sequence[str]) -> None:
    """Copy the rows to a temporary table, in the order of the key.

    PostgreSQL then finds the rows of the table in the order of its index, which takes a third less time.
    """
    ordered = [(name, "ascending") for name in key if is_orderable(rows.schema.field(name).type)]
    if ordered:
        rows = rows.sort_by(ordered)
    cursor.adbc_ingest(sql.STAGING, rows, mode="create", temporary=True)


def _with_all_marks(net: Net) -> pa.Table:
    """The removed and the added rows, and what is to be done with them."""
    removed = _with_marks(net.removed, True, net.must_match, net.is_replaced, net.removed_copies)
    matches = np.zeros(len(net.added), np.bool_)
    added = _with_marks(net.added, False, matches, net.replaces, net.added_copies)
    return pa.concat_tables([removed, added]).combine_chunks()


def _with_marks(
    rows: pa.Table, removed: bool, matches: Any, replaced: Any, copies: Any
) -> pa.Table:
    for name, values in (
        (sql.REMOVED, np.full(len(rows), removed)),
        (sql.MATCHES, matches),
        (sql.REPLACED, replaced),
        (sql.COPIES, copies.astype(np.int32)),
    ):
        rows = rows.append_column(name, pa.array(values))
    return rows


def _matches(rows: pa.Table, types: Mapping[str, str]) -> list[sql.Match]:
    """The ways to join rows by these columns: one per combination of columns that are null."""
    if not len(rows):
        return []
    nulls = np.stack([np.asarray(combine_chunks(pc.is_null(rows.column(n)))) for n in types], 1)
    patterns = np.unique(nulls, axis=0)
    names = np.array(list(types), object)
    return sql.Match.of(types, [set(names[pattern]) for pattern in patterns])
