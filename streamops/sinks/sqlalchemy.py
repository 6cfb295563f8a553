"""Write micro-batches to a table of a database that SQLAlchemy supports, each exactly once."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.kernel.databases import (
    parse_database_url,
    secrets_of_database_url,
    show_database_url,
)
from streamops.kernel.errors import StreamopsError
from streamops.kernel.parameters import Text, require_package
from streamops.sinks import conditions
from streamops.sinks.core.ledger import Decision, Delivery, Entry, Location, NewCheckpoint, Repeated
from streamops.sinks.core.net import (
    Net,
    check_changes,
    content_columns,
    form_of,
    is_among,
    is_applied,
    newer_rows,
    remaining_rows,
    repeat,
)
from streamops.sinks.protocol import Attempt, Conflict, Content, Found, Reduced
from streamops.sinks.sink import (
    Columns,
    Missing,
    TableSink,
    columns_differ,
    hide,
    parse_key,
    project_json,
    refused,
    type_differs,
    unavailable,
)
from streamops.sinks.tasks import Projection

_WHERE = "sinks.sqlalchemy"


def sqlalchemy(
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
        ``PACKAGE_MISSING``: the extra ``sqlalchemy`` is not installed.

    Examples
    --------
    >>> from streamops import sinks
    >>> daily = sinks.sqlalchemy("sqlite:////data/daily.db", "daily", key=["page", "window_start"])
    >>> views.writeStream.foreachBatch(daily).option("checkpointLocation", path)

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
        key=parse_key(key, parameter="key"),
        sequence=parse_key(sequence, parameter="sequence"),
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


class _Attempt(Attempt):
    """An open transaction that has locked the ledger."""

    def __init__(
        self, sink: SqlalchemySink, connection: Any, content: Reduced, found: Found
    ) -> None:
        self.sink, self.connection, self.content, self.found = sink, connection, content, found

    def write(self, decision: Decision) -> None:
        sink, net, connection, tables = self.sink, self.content.net, self.connection, _tables()
        location, is_new = self.found.location, self.found.entry is None
        assert location is not None
        written = decision.entry.at(location)
        tables.write_entry(connection, sink._ledger, sink.name, written, is_new=is_new)
        if decision.action == "skip":
            return
        schema, target = net.added.schema, sink._find(connection)
        rows = tables.Rows(connection, target, sink._columns_of(target, schema), schema)
        _targets().refuse_changed(net.added, target.columns, connection.dialect.name)
        if decision.action == "replace":
            rows.clear()
        sink._apply(rows, net, self.content.names)


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
                self._find(connection)  # refuses a table that cannot be a target
        entry = entries.get(self.name)
        self._require_location(entry, location)
        creates = self._to_create([], bool(location.id), has_ledger)
        return f"table {location.name}", creates, entry

    def _to_create(self, first: list[str], has_table: bool, has_ledger: bool) -> list[str]:
        if not has_table and self.missing == "refuse":
            raise conditions.TABLE_MISSING.error(statement="", got=self.table)
        tables = {self.table: has_table, self._ledger.name: has_ledger}
        return first + [f"table {name}" for name, exists in tables.items() if not exists]

    @property
    def _ledger(self) -> Any:
        return _tables().ledger_table(self.schema)

    def _parsed_url(self) -> Any:
        return parse_database_url(self.url, extra="sqlalchemy")

    def _engine(self) -> Any:
        if self.session.connection is None:
            self.session.connection = _Handle(_start(self._parsed_url()))
        return self.session.connection.engine

    def _project(self, batch: DataFrame) -> Projection:
        return project_json(batch, keep_lists=False)

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

    def _reduce(self, content: Content) -> Reduced:
        return self._reduced(_in_utc(content))

    @contextmanager
    def _attempt(self, content: Reduced, delivery: Delivery) -> Iterator[_Attempt]:
        sa, tables, ledger = _require_driver(), _tables(), self._ledger
        with self._errors():
            # The errors of the ledger come before the target is changed.
            entries, location = self._peek(forever=CHANGE_TYPE not in content.names)
            entry = entries.pop(self.name, None)
            if self._decide(Found(entry, location, entries), delivery).action != "skip":
                self._prepare_tables(content.net.added.schema)
            try:
                with self._engine().begin() as connection:
                    tables.lock(connection, ledger, self.name)
                    location = tables.locate(connection, self.table, self.schema)
                    entries = tables.read_entries(connection, ledger, self.name, location)
                    found = Found(entries.pop(self.name, None), location, entries)
                    yield _Attempt(self, connection, content, found)
            except sa.exc.IntegrityError as error:
                # Two writers stored the first entry, or the table refuses the rows.
                if entry is not None or self.name not in self._peek()[0]:
                    raise
                raise Conflict(refused("the database", error)) from None
            except sa.exc.OperationalError as error:
                # Two writers of new entries lock each other out; the database ends one of them.
                if not _is_deadlock(error):
                    raise
                raise Conflict(unavailable("the database", error)) from None

    def _apply(self, rows: Any, net: Net, names: Sequence[str]) -> None:
        form, key, schema = form_of(names, self.key), self.key or (), net.added.schema
        sequence = self._sequence_of(names)
        content = content_columns(schema.names, sequence)
        # Rows are compared as the database compares them, without floats: these can be too many.
        by = key or [n for n in content if not pa.types.is_floating(schema.field(n).type)]
        removed, added = net.removed, repeat(net.added, net.added_copies)
        both = pa.concat_tables([removed, added])
        if not (key or rows.target.fires):
            both = both.slice(0, 0)  # only a multiset is looked up, below
        found = rows.like(both, by)
        before = rows.to_arrow(found)
        if not key:
            removed = repeat(removed, net.removed_copies)
            self._change_multiset(rows, net, content, by)
            rows.insert(added)
        else:
            if not is_among(before, both, key).all():
                raise _targets().equal_keys(key)
            if form == "changes":
                check_changes(net, before, key=key, content=content)
                removed = removed.filter(pa.array(~net.is_replaced))
                rows.delete(removed, key, int(is_among(before, removed, key).sum()))
            elif sequence:
                newer = newer_rows(added, before, key=key, sequence=sequence)
                added = added.filter(pa.array(newer))
            exists = is_among(added, before, key)
            replaced = added.filter(pa.array(exists))
            rows.update(replaced, key, int(is_among(before, replaced, key).sum()))
            rows.insert(added.filter(pa.array(~exists)))
        if rows.target.fires:
            after = rows.to_arrow(rows.like(both, by))
            effect = {"removed": removed, "added": added, "key": key}
            if not is_applied(
                before, after, **effect, content=content if not key else schema.names
            ):
                raise _targets().trigger_changes("rows that differ from those sent")

    def _change_multiset(
        self, rows: Any, net: Net, content: Sequence[str], by: Sequence[str]
    ) -> None:
        """Delete the removed rows; in a table without a primary key all that are like them, and insert the rest."""
        if len(net.removed):
            found = rows.like(net.removed, by)
            stays = remaining_rows(net, rows.to_arrow(found), content=content)
            if rows.target.key:
                rows.delete_again([found[number] for number in np.flatnonzero(~stays)])
            else:
                rows.delete(net.removed, by, len(found))
                rows.insert_again([found[number] for number in np.flatnonzero(stays)])

    def _prepare_tables(self, schema: pa.Schema) -> None:
        """Create the ledger, and create or extend the table where that is allowed."""
        sa, wanted = _require_driver(), {part.name: self._type_of(part) for part in schema}
        found: tuple[bool, list[str], bool] | None = None
        failure: Exception | None = None
        while True:
            before, found = found, self._look(schema)
            has_table, new, has_ledger = found
            if has_table and has_ledger and not new:
                return
            if found == before:
                raise failure or columns_differ(new, [], [])
            try:
                with self._engine().begin() as connection:
                    if not has_table:
                        self._create(connection, wanted)
                    elif new:
                        self._add_columns(connection, {name: wanted[name] for name in new})
                if not has_ledger:
                    with self._engine().begin() as connection:
                        self._ledger.create(connection, checkfirst=True)
            except sa.exc.DBAPIError as error:
                failure = error  # look again: another writer may have created it, or a part of it

    def _look(self, schema: pa.Schema) -> tuple[bool, list[str], bool]:
        """Whether there is a table, which columns it lacks, and whether there is a ledger."""
        with self._engine().begin() as connection:
            target = self._find(connection)
            new = [] if target is None else self._new_columns(target, schema, connection)
            ledger = _targets().inspect(connection, self._ledger.name, self.schema)
        return target is not None, new, ledger is not None

    def _type_of(self, part: pa.Field) -> Any:
        dtype = _types().column_type(part.type, is_key=part.name in (self.key or ()))
        if dtype is None:
            raise conditions.NOT_A_SQL_TYPE.error(column=part.name, got=part.type)
        return dtype

    def _find(self, connection: Any) -> Any:
        """The table and its columns; None if it does not exist."""
        return _targets().inspect(connection, self.table, self.schema)

    def _new_columns(self, target: Any, schema: pa.Schema, connection: Any) -> list[str]:
        """Check the columns of an existing table, and return those that it lacks."""
        known, dialect = target.columns, connection.dialect.name
        new = [name for name in schema.names if name not in known]
        required = [
            name
            for name, column in known.items()
            if name not in schema.names and _targets().is_required(column)
        ]
        if required or (new and self.columns == "exact"):
            raise columns_differ(new, required, list(known))
        for part in schema:
            column = known.get(part.name)
            if column is None:
                continue
            found_type, wanted = repr(column["type"]), repr(self._type_of(part))
            if _targets().is_generated(column):
                found_type = f"{found_type}, which the database generates"
            elif _types().accepts(column["type"], part.type, dialect):
                continue
            raise type_differs(part.name, part.type, found_type, wanted)
        return new

    def _create(self, connection: Any, types: dict[str, Any]) -> None:
        sa = _require_driver()
        if self.missing == "refuse":
            fix = f" with the columns {', '.join(types)}"
            raise conditions.TABLE_MISSING.error(statement=fix, got=self.table)
        columns = [sa.Column(name, dtype) for name, dtype in types.items()]
        options = {"schema": self.schema, **_tables().WITH_TRANSACTIONS}
        table = sa.Table(self.table, sa.MetaData(), *columns, **options)
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

    def _columns_of(self, target: Any, schema: pa.Schema) -> Any:
        """The table, with the types of the rows for their columns."""
        sa = _require_driver()
        types = {part.name: self._type_of(part) for part in schema}
        columns = [
            sa.Column(name, types.get(name, column["type"]))
            for name, column in target.columns.items()
            if name in types
            or (self.key is None and (name in target.key or not _targets().is_generated(column)))
        ]
        return sa.Table(self.table, sa.MetaData(), *columns, schema=self.schema)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Replace errors of the database by those of streamops, without secrets."""
        sa = _require_driver()
        with hide(*secrets_of_database_url(self.url)):
            try:
                yield
            except Conflict:
                raise
            except BaseException as error:
                self.session.close()
                if isinstance(error, StreamopsError):
                    raise
                if isinstance(error, sa.exc.SQLAlchemyError):
                    made = unavailable if _is_unavailable(error) else refused
                    raise made("the database", error) from error
                if isinstance(error, ValueError | ArithmeticError | TypeError):
                    # Of a driver, which cannot convert a value. Its text has the value.
                    reported = ValueError(f"{type(error).__name__}, while values were converted")
                    raise refused("the database", reported) from None
                raise


# Locks, changes by others, and servers that do not write at the moment: for SQLite the names of errors, for
# MySQL the numbers; those of the client begin with 2.
_NOT_NOW = (
    "SQLITE_BUSY",
    "SQLITE_LOCKED",
    "SQLITE_IOERR",
    "SQLITE_FULL",
    "SQLITE_CANTOPEN",
    "SQLITE_READONLY",
)
_NOT_NOW_OF_MYSQL = {1020, 1021, 1040, 1041, 1053, 1114, 1205, 1213, 1290, 1412, 1684, 1792, 1836}


def _is_deadlock(error: Any) -> bool:
    """Whether the database ended a transaction so that others could go on."""
    state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    return state in {"40001", "40P01"} or error.orig.args[:1] == (1213,)


def _is_unavailable(error: Any) -> bool:
    """Whether the database did not take the statement for a reason that is not in the rows."""
    sa = _require_driver()
    if not isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError):
        return False
    if error.connection_invalidated or error.statement is None:
        return True
    name = getattr(error.orig, "sqlite_errorname", None)
    if name is not None:
        return str(name).startswith(_NOT_NOW)
    number = error.orig.args[0] if error.orig.args else None
    return (
        not isinstance(number, int) or number in _NOT_NOW_OF_MYSQL or number // 1000 == _OF_CLIENT
    )


_OF_CLIENT = 2


def _start(url: Any) -> Any:
    """The engine, with sessions of MySQL and MariaDB in which no value is changed."""
    sa = _require_driver()
    # Values of rows are not part of errors.
    engine = sa.create_engine(url, hide_parameters=True)
    if engine.dialect.name not in _types().MYSQL:
        return engine

    def configure(connection: Any, _: Any) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute(_SESSION)

    # Before SQLAlchemy asks for the mode.
    sa.event.listen(engine, "connect", configure, insert=True)
    if engine.dialect.name == "mysql":
        with engine.connect():
            pass
        if engine.dialect.is_mariadb:  # it has other collations than MySQL
            engine.dispose()
            return _start(url.set(drivername=url.drivername.replace("mysql", "mariadb", 1)))
    return engine


_SESSION = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION', "
    "time_zone = '+00:00', autocommit = 0"
)


def _in_utc(rows: pa.Table) -> pa.Table:
    """The rows with instants in UTC, whatever the time zone of the session."""
    utc = pa.timestamp("us", "UTC")
    is_zoned = [
        pa.types.is_timestamp(part.type) and part.type.tz is not None for part in rows.schema
    ]
    fields = [p.with_type(utc) if z else p for p, z in zip(rows.schema, is_zoned, strict=True)]
    return rows.cast(pa.schema(fields))


def _require_driver() -> Any:
    return require_package("sqlalchemy", package="sqlalchemy", extra="sqlalchemy")


# These import SQLAlchemy, which is an extra.


def _tables() -> Any:
    return importlib.import_module("streamops.sinks.core.sqlalchemy_table")


def _targets() -> Any:
    return importlib.import_module("streamops.sinks.core.sqlalchemy_target")


def _types() -> Any:
    return importlib.import_module("streamops.sinks.core.sqlalchemy_target")
