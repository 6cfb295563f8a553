"""Write micro-batches to a table of a database that SQLAlchemy supports, each exactly once."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.kernel.database_urls import (
    parse_database_url,
    secrets_of_database_url,
    show_database_url,
)
from streamops.kernel.errors import SchemaError, SinkError
from streamops.kernel.packages import require_package
from streamops.sinks.core.effect import check_changes, is_among, newer_rows, remaining_rows, repeat
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
from streamops.sinks.sink import Columns, Missing, TableSink, parse_key, to_arrow_with_json

__all__ = ["SqlalchemySink", "sqlalchemy"]

_WHERE = "sinks.sqlalchemy"
_ATTEMPTS = 20


def sqlalchemy(
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
) -> SqlalchemySink:
    """Write micro-batches to a table of any database of SQLAlchemy, each exactly once.

    For databases without a sink of their own: ``sinks.postgres`` is many times faster. The rows and an
    entry in the table ``streamops_entries`` are written in one transaction, row by row.

    Input        the output of any operator: appended rows; revisions, which replace the row of a key if
                 they are newer; change streams with a key; change streams without a key, whose rows are
                 a multiset. Nested columns become text in JSON
    Output       the rows in `table`, and one row per sink in ``streamops_entries``
    Output mode  append or update
    Watermark    none
    State        none in Spark
    Order        any, within a micro-batch
    Batch        ``sink.write(frame, query=...)``

    Parameters
    ----------
    url : str
        URL of the database, such as ``mysql+pymysql://user@host/database``. Its driver must be installed.
    table : str
        Name of the table. It is quoted.
    key : str or sequence of str, optional
        Columns that identify a row, not of type float or double. Omit it for appended rows and multisets.
    sequence : str or sequence of str, optional
        Columns that order the rows of a key, as in ``changes.fold``. Default: "revision", if the frame has
        that column. Revisions without a sequence must have at most one row per key and micro-batch.
    schema : str, optional
        Schema of the table and of the ledger. Default: that of the connection.
    name : str, optional
        Name of the sink in the ledger. Default: `table`.
    columns : "exact" or "add"
        Whether columns that the table does not have are an error, or are added to it.
    missing : "create" or "refuse"
        What happens if the table does not exist. It is created without a unique key, and with an index
        on `key`.
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
    SqlalchemySink
        For use with ``DataStreamWriter.foreachBatch``.

    Raises
    ------
    SpecError
        A parameter has the wrong type or value.
    RequirementError
        ``DRIVER_MISSING``: the extra ``sqlalchemy`` is not installed.

    Examples
    --------
    >>> from streamops import sinks
    >>> daily = sinks.sqlalchemy("sqlite:////data/daily.db", "daily", key=["page", "window_start"])
    >>> views.writeStream.foreachBatch(daily).option("checkpointLocation", path)  # doctest: +SKIP

    Notes
    -----
    Errors while the query runs. ``SinkError``: another run, query or checkpoint writes to this table, see
    docs/sinks.md; ``TARGET_COLUMNS``, ``TARGET_TYPE`` and ``TARGET_MISSING``, if the table does not fit,
    before a row is written; ``TARGET_KEY``, if the database takes different keys for equal ones;
    ``TARGET_REFUSED``; ``TARGET_UNAVAILABLE``. ``ChangeStreamError``: the change stream contradicts itself
    or the table. In all cases the rows of the table remain as they were.

    A micro-batch passes through the memory of the driver. Tables and columns are created in a transaction
    of their own, before the rows are written, as some databases commit after such a statement.
    """
    _require_driver()
    return SqlalchemySink(
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


class _Handle:
    """The connections to a database, as the connection of a session."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


@dataclass(frozen=True, kw_only=True, repr=False)
class SqlalchemySink(TableSink):
    """A function that writes micro-batches, for use with ``DataStreamWriter.foreachBatch``."""

    where = _WHERE

    url: str = field(metadata={"shown": show_database_url})
    table: str
    schema: str | None

    def __post_init__(self) -> None:
        """Validate the parameters."""
        super().__post_init__()
        self._require_names("url", "table", "name", "schema")
        self._parsed_url()

    def _read_ledger(self) -> Entry | None:
        with self._errors():
            return self._peek()[0].get(self.name)

    def _inspect(self) -> tuple[str, Sequence[str], Entry | None]:
        file = self._parsed_url().database if self._parsed_url().drivername == "sqlite" else None
        if (
            file and not Path(file).exists() and Path(file).parent.is_dir()
        ):  # a connection creates it
            return f"table {self.table}", self._to_create([f"file {file}"], False, False), None
        with self._errors():
            entries, location = self._peek()
            with self._engine().connect() as connection:
                inspector = _require_driver().inspect(connection)
                has_ledger = inspector.has_table(self._ledger.name, schema=self.schema)
        entry = entries.get(self.name)
        self._require_location(entry, location)
        creates = self._to_create([], bool(location.id), has_ledger)
        return f"table {location.name}", creates, entry

    def _to_create(self, first: list[str], has_table: bool, has_ledger: bool) -> list[str]:
        if not has_table and self.missing == "refuse":
            raise target_missing(self.table, "create it", where=self.label)
        tables = {self.table: has_table, self._ledger.name: has_ledger}
        return first + [f"table {name}" for name, exists in tables.items() if not exists]

    @property
    def _ledger(self) -> Any:
        return _tables().ledger_table(self.schema)

    def _parsed_url(self) -> Any:
        return parse_database_url(self.url, extra="sqlalchemy", where=self.where)

    def _engine(self) -> Any:
        if self.session.connection is None:
            # Values of rows are not part of errors.
            engine = _require_driver().create_engine(self._parsed_url(), hide_parameters=True)
            self.session.connection = _Handle(engine)
        return self.session.connection.engine

    def _to_arrow(self, batch: DataFrame) -> pa.Table:
        return to_arrow_with_json(batch, keep_lists=False)

    def _peek(self, *, forever: bool = False) -> tuple[dict[str, Entry], Location]:
        """Read the entries without a lock. With `forever`, the sink never deletes rows."""
        tables, ledger = _tables(), self._ledger
        at = self.table, self.schema
        with self._engine().connect() as connection:
            entries, location = {}, tables.locate(connection, *at)
            if _require_driver().inspect(connection).has_table(ledger.name, schema=self.schema):
                entries = tables.read_entries(connection, ledger, self.name, location)
            # Read after the entries: the rows that these count were committed before.
            location = tables.locate(connection, *at)
            is_empty = forever and location.id and tables.is_empty(connection, *at)
            return entries, replace(location, is_empty=bool(is_empty))

    def _commit(self, rows: pa.Table, delivery: Delivery) -> None:
        sa, net = _require_driver(), self._net(_in_utc(rows))
        schema = net.added.schema
        with self._errors():
            for attempt in range(_ATTEMPTS):
                # The errors of the ledger come before the target is changed.
                forever = CHANGE_TYPE not in rows.column_names
                entries, location = self._peek(forever=forever)
                entry = entries.pop(self.name, None)
                if self._decide(entry, delivery, location, entries).action != "skip":
                    self._prepare(schema)
                try:
                    with self._engine().begin() as connection:
                        self._write(connection, net, rows.column_names, delivery)
                    return
                except sa.exc.IntegrityError:
                    # Two writers stored the first entry, or the table refuses the rows.
                    if self.name not in self._peek()[0] or attempt:
                        raise

    def _write(self, connection: Any, net: Net, names: Sequence[str], delivery: Delivery) -> None:
        """Apply the micro-batch, and the entry, in an open transaction."""
        tables, ledger = _tables(), self._ledger
        tables.lock(connection, ledger, self.name)
        location = tables.locate(connection, self.table, self.schema)
        entries = tables.read_entries(connection, ledger, self.name, location)
        entry = entries.pop(self.name, None)
        decision = self._decide(entry, delivery, location, entries)
        written = decision.entry.at(location)
        tables.write_entry(connection, ledger, self.name, written, is_new=entry is None)
        if decision.action == "skip":
            return
        self._refuse_nan(net.added, connection.dialect.name)
        schema = net.added.schema
        target = tables.Rows(connection, self._reflect(connection, schema), schema)
        if decision.action == "replace":
            target.clear()
        self._apply(target, net, names)

    def _apply(self, target: Any, net: Net, names: Sequence[str]) -> None:
        form, key, schema = form_of(names, self.key), self.key or (), net.added.schema
        sequence = self._sequence_of(names)
        if form == "append":
            target.insert(net.added)
        elif form == "multiset":
            self._change_multiset(target, net)
        else:
            wanted = pa.concat_tables([net.removed, net.added]).select(list(key))
            found = target.to_arrow(target.like(wanted, key))
            self._refuse_equal_keys(found, wanted, key)
            added = net.added
            if form == "changes":
                content = content_columns(schema.names, sequence)
                check_changes(net, found, key=key, content=content, where=self.label)
                target.delete(net.removed.filter(pa.array(~net.is_replaced)), key)
            elif sequence:
                newer = newer_rows(added, found, key=key, sequence=sequence)
                added = added.filter(pa.array(newer))
            exists = is_among(added, found, key)
            target.update(added.filter(pa.array(exists)), key)
            target.insert(added.filter(pa.array(~exists)))

    def _change_multiset(self, target: Any, net: Net) -> None:
        """Delete all rows like the removed ones, and insert those that stay.

        Rows are deleted as the database compares them, without floats, which can be too many.
        """
        schema = net.removed.schema
        content = content_columns(schema.names, ())
        by = [name for name in content if not pa.types.is_floating(schema.field(name).type)]
        if len(net.removed):
            found = target.like(net.removed, by)
            current = target.to_arrow(found)
            stays = remaining_rows(net, current, content=content, where=self.label)
            target.delete(net.removed, by)
            target.insert_again([found[number] for number in np.flatnonzero(stays)])
        target.insert(repeat(net.added, net.added_copies))

    def _refuse_equal_keys(self, found: pa.Table, wanted: pa.Table, key: Sequence[str]) -> None:
        if not is_among(found, wanted, key).all():
            raise SinkError(
                "TARGET_KEY",
                "the database takes different keys for equal ones",
                where=self.label,
                got=f"columns {', '.join(key)}, whose collation ignores case, accents or spaces",
                expected="values that are equal only if all their characters are",
                fix="give the columns a binary collation",
            )

    def _prepare(self, schema: pa.Schema) -> None:
        """Create the ledger, and create or extend the table where that is allowed."""
        sa = _require_driver()
        wanted = {part.name: self._type_of(part) for part in schema}
        new: list[str] = []
        with self._engine().begin() as connection:
            inspector = sa.inspect(connection)
            is_missing = not inspector.has_table(self.table, schema=self.schema)
            if not is_missing:
                found = inspector.get_columns(self.table, schema=self.schema)
                new = self._new_columns(found, schema, connection.dialect.name)
        try:
            with self._engine().begin() as connection:
                self._ledger.create(connection, checkfirst=True)
                if is_missing:
                    self._create(connection, wanted)
                elif new:
                    self._add_columns(connection, {name: wanted[name] for name in new})
        except sa.exc.DBAPIError:
            # Another writer has done the same, or it is not possible.
            with self._engine().connect() as connection:
                names = (self.table, self._ledger.name)
                if not all(sa.inspect(connection).has_table(n, schema=self.schema) for n in names):
                    raise

    def _type_of(self, part: pa.Field) -> Any:
        dtype = _types().column_type(part.type, is_key=part.name in (self.key or ()))
        if dtype is None:
            raise SchemaError(
                "TYPE_UNSUPPORTED",
                f"column {part.name!r} has a type that cannot be stored",
                where=self.label,
                got=part.type,
                expected="a boolean, number, string, binary, date or timestamp; in a key no float or double",
                fix="cast the column",
            )
        return dtype

    def _new_columns(self, found: Any, schema: pa.Schema, dialect: str) -> list[str]:
        """Check the columns of an existing table, and return those that it lacks."""
        types = {column["name"]: column["type"] for column in found}
        new = [name for name in schema.names if name not in types]
        required = [
            column["name"]
            for column in found
            if not column["nullable"]
            and column.get("default") is None
            and column.get("autoincrement") is not True
            and column["name"] not in schema.names
        ]
        if required or (new and self.columns == "exact"):
            raise columns_differ(new, required, list(types), where=self.label)
        for part in schema:
            if part.name in types and not _types().accepts(types[part.name], part.type, dialect):
                found_type, wanted = repr(types[part.name]), repr(self._type_of(part))
                raise type_differs(part.name, part.type, found_type, wanted, where=self.label)
        return new

    def _create(self, connection: Any, types: dict[str, Any]) -> None:
        sa = _require_driver()
        if self.missing == "refuse":
            fix = f"create it with the columns {', '.join(types)}"
            raise target_missing(self.table, fix, where=self.label)
        columns = [sa.Column(name, dtype) for name, dtype in types.items()]
        table = sa.Table(self.table, sa.MetaData(), *columns, schema=self.schema)
        table.create(connection)
        if self.key is not None:
            sa.Index(None, *(table.c[name] for name in self.key)).create(connection)

    def _add_columns(self, connection: Any, types: dict[str, Any]) -> None:
        """Add columns to the table."""
        sa = _require_driver()
        columns = [sa.Column(name, dtype) for name, dtype in types.items()]
        table = sa.Table(self.table, sa.MetaData(), *columns, schema=self.schema)
        for column in columns:
            connection.execute(_tables().AddColumn(table, column))

    def _reflect(self, connection: Any, schema: pa.Schema) -> Any:
        """The table, with the types of the rows for their columns."""
        sa = _require_driver()
        types = {part.name: self._type_of(part) for part in schema}
        return sa.Table(
            self.table,
            sa.MetaData(),
            *(sa.Column(name, dtype) for name, dtype in types.items()),
            schema=self.schema,
            autoload_with=connection,
            resolve_fks=False,
        )

    def _refuse_nan(self, rows: pa.Table, dialect: str) -> None:
        if not _types().loses_nan(dialect):
            return
        for part in rows.schema:
            if (
                pa.types.is_floating(part.type)
                and pc.any(pc.is_nan(rows.column(part.name))).as_py()
            ):
                raise SinkError(
                    "TARGET_REFUSED",
                    f"column {part.name!r} has a NaN, which {dialect} does not store",
                    where=self.label,
                    got="NaN",
                    expected="numbers, infinities where the database has them, or null",
                    fix="replace NaN before the sink: F.nanvl(column, F.lit(None))",
                )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Replace errors of the database by those of streamops, without secrets."""
        sa = _require_driver()
        with hide(*secrets_of_database_url(self.url)):
            try:
                yield
            except BaseException as error:
                self.session.close()
                if isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError):
                    raise unavailable("the database", error, where=self.label) from error
                if isinstance(error, sa.exc.SQLAlchemyError):
                    raise refused("the database", error, where=self.label) from error
                raise


def _in_utc(rows: pa.Table) -> pa.Table:
    """The rows with instants in UTC, whatever the time zone of the session."""
    utc = pa.timestamp("us", "UTC")
    is_zoned = [
        pa.types.is_timestamp(part.type) and part.type.tz is not None for part in rows.schema
    ]
    fields = [p.with_type(utc) if z else p for p, z in zip(rows.schema, is_zoned, strict=True)]
    return rows.cast(pa.schema(fields))


def _require_driver() -> Any:
    return require_package("sqlalchemy", package="sqlalchemy", extra="sqlalchemy", where=_WHERE)


# These import SQLAlchemy, which is an extra.


def _tables() -> Any:
    return importlib.import_module("streamops.sinks.core.sqlalchemy_table")


def _types() -> Any:
    return importlib.import_module("streamops.sinks.core.sqlalchemy_types")
