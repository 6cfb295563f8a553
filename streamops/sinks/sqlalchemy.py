"""Write micro-batches to a table of a database that SQLAlchemy supports, each exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.kernel.databases import parse_database_url, show_database_url
from streamops.kernel.parameters import Text
from streamops.sinks import conditions
from streamops.sinks import sqlalchemy_connection as database
from streamops.sinks.core.ledger import (
    Action,
    Decision,
    Delivery,
    Entry,
    Location,
    NewCheckpoint,
    Repeated,
)
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
    columns_differ,
    parse_key,
    project_json,
    refused,
    type_differs,
    unavailable,
)
from streamops.sinks.sqlalchemy_staging import Staging, in_utc
from streamops.sinks.staging import MayNotStage, Staged, StagingSink, Summary, add_receipts
from streamops.sinks.tasks import Projection, Receipts

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
    entry in the table ``streamops_entries`` are written in one transaction.

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

    In MySQL, MariaDB and PostgreSQL, tasks insert a large micro-batch into a staging table, which one
    transaction merges. Others pass through the memory of the driver. Tables and columns are created in a transaction
    of their own, before the rows are written, as some databases commit after such a statement.
    """
    database.require_driver()
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
        self, sink: SqlalchemySink, connection: Any, content: Reduced | Staged, found: Found
    ) -> None:
        self.sink, self.connection, self.content, self.found = sink, connection, content, found

    def write(self, decision: Decision) -> None:
        sink, content, connection, tables = (
            self.sink,
            self.content,
            self.connection,
            database.tables(),
        )
        location, is_new = self.found.location, self.found.entry is None
        assert location is not None
        written = decision.entry.at(location)
        tables.write_entry(connection, sink._ledger, sink.name, written, is_new=is_new)
        if decision.action == "skip":
            return
        schema, target = _schema_of(content), sink._find(connection)
        rows = tables.Rows(connection, target, sink._columns_of(target, schema), schema)
        if isinstance(content, Reduced):
            added = content.net.added
            database.targets().refuse_changed(added, target.columns, connection.dialect.name)
        if decision.action == "replace":
            rows.clear()
        if isinstance(content, Reduced):
            sink._apply(rows, content.net, content.names)
        elif content.summary.rows:
            sink._merge(rows, content)


def _schema_of(content: Reduced | Staged) -> pa.Schema:
    """The columns that the table gets."""
    return content.net.added.schema if isinstance(content, Reduced) else content.schema


@dataclass(frozen=True, kw_only=True, repr=False)
class SqlalchemySink(StagingSink):
    """A function that writes micro-batches, for use with ``DataStreamWriter.foreachBatch``."""

    where = _WHERE
    # Drivers send the updates of rows one by one: from 3,000 rows on, tasks are faster.
    _small = 128 << 10

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
                has_ledger = database.has_table(connection, self._ledger.name, self.schema)
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
        return database.tables().ledger_table(self.schema)

    def _parsed_url(self) -> Any:
        return parse_database_url(self.url, extra="sqlalchemy")

    def _engine(self) -> Any:
        if self.session.connection is None:
            self.session.connection = _Handle(database.start(self._parsed_url()))
        return self.session.connection.engine

    def _project(self, batch: DataFrame) -> Projection:
        return project_json(batch, keep_lists=False)

    def _peek(self, *, forever: bool = False) -> tuple[dict[str, Entry], Location]:
        """Read the entries without a lock. With `forever`, the sink never deletes rows."""
        tables, ledger = database.tables(), self._ledger
        at = self.table, self.schema
        with self._engine().connect() as connection:
            entries, location = {}, tables.locate(connection, *at)
            if database.has_table(connection, ledger.name, self.schema):
                entries = tables.read_entries(connection, ledger, self.name, location)
            # Read after the entries: the rows that these count were committed before.
            location = tables.locate(connection, *at)
            is_empty = forever and location.id and tables.is_empty(connection, *at)
            return entries, replace(location, is_empty=bool(is_empty))

    def _reduce(self, content: Content) -> Reduced | Staged:
        if not isinstance(content, Receipts):
            return self._reduced(in_utc(content))
        empty = self._reduced(in_utc(content.schema.empty_table()))
        summary = Summary.of(empty.net, self.key)
        schema = empty.net.added.schema
        return add_receipts(Staged(names=empty.names, schema=schema, summary=summary), content)

    @property
    def _is_distributed(self) -> bool:
        return self._parsed_url().get_backend_name() in database.STAGES

    def _foresee(self, schema: pa.Schema, delivery: Delivery) -> Action:
        with self._errors():
            return self._foretell(self._ask(schema.names), delivery)

    def _ask(self, names: Sequence[str]) -> Found:
        """What the ledger has, without a lock."""
        entries, location = self._peek(forever=CHANGE_TYPE not in names)
        return Found(entries.pop(self.name, None), location, entries)

    def _prepare(self, schema: pa.Schema, batch_id: int, action: Action) -> Staging:
        empty = self._reduced(in_utc(schema.empty_table()))
        wanted, form, merges = (
            empty.net.added.schema,
            form_of(empty.names, self.key),
            database.merges(),
        )
        sequence = self._sequence_of(empty.names)
        content = content_columns(wanted.names, sequence)
        ordered = sequence if form == "upsert" else ()
        compared = {"append": (), "upsert": self.key or ()}.get(form, (*(self.key or ()), *content))
        with self._errors():
            self._prepare_tables(wanted)
            name, comment = self._new_staging(self._peek()[0].get(self.name), batch_id)
            try:
                with self._engine().begin() as connection:
                    target, dialect = self._find(connection), connection.dialect.name
                    if not merges.may_stage(target, wanted.names, compared, ordered, dialect):
                        raise MayNotStage
                    at = name, self.schema
                    merges.create(connection, at, target, wanted.names, form, comment)
            except database.require_driver().exc.DBAPIError as error:
                if database.is_denied(error):
                    raise MayNotStage from None
                raise
        return Staging(url=self.url, key=self.key, sequence=sequence, name=name, schema=self.schema)

    def _clean_up(self, delivery: Delivery) -> None:
        if not self._is_distributed:
            return
        sa, merges = database.require_driver(), database.merges()
        with self._errors():
            entry = self._peek()[0].get(self.name)
            with self._engine().connect() as connection:
                names = sa.inspect(connection).get_table_names(schema=self.schema)
                connection.detach()  # its settings are not for others
                merges.wait_shortly(connection)
                for name in names:
                    if entry is None or not self._is_left(name, entry):
                        continue
                    try:
                        merges.drop(connection, name, self.schema)
                        connection.commit()
                    except sa.exc.OperationalError as error:
                        # A task of a run that is gone still writes to it. The next micro-batch drops it.
                        if not database.is_locked(error):
                            raise
                        connection.rollback()

    def _begin(self, content: Reduced | Staged) -> Any:
        """Begin a transaction."""
        if isinstance(content, Reduced):
            return self._engine().begin()
        # MySQL then does not wait for attempts of tasks that still stage rows, which do not count.
        return self._engine().execution_options(isolation_level="READ COMMITTED").begin()

    def _load(self, content: Staged) -> None:
        """Copy the staged rows that count to a table from which they are merged."""
        form, merges, at = (
            form_of(content.names, self.key),
            database.merges(),
            (content.table, self.schema),
        )
        if form == "append" or not content.summary.rows:
            return
        with self._begin(content) as connection:
            if database.has_table(connection, *at):
                target, names = self._find(connection), content.schema.names
                compared = self.key or content_columns(names, ())
                merges.load(connection, at, target, names, form, content.attempts, compared)

    def _merge(self, rows: Any, content: Staged) -> None:
        """Apply the rows that tasks have staged."""
        merges, form, at = database.merges(), form_of(content.names, self.key), content.table
        key, names, summary = self.key or (), content.schema.names, content.summary
        sequence = self._sequence_of(content.names)
        compared, is_marked = content_columns(names, sequence), form in {"changes", "multiset"}
        staged, loaded = (
            merges.columns_of(name, self.schema, rows.table.c, is_marked=is_marked)
            for name in (at, merges.loaded_name(at))
        )
        merge = merges.Merge(rows.connection, rows.target, rows.table, loaded, names)
        source, count = staged if form == "append" else loaded, 0
        if database.has_table(rows.connection, source.name, self.schema):
            if form == "append":
                count = merges.copy(rows.connection, staged, rows.table, names, content.attempts)
            else:
                count = merge.count()
        if count != summary.rows:
            lost = f"{count} of {summary.rows} rows are staged"
            raise unavailable("the database", RuntimeError(lost))
        if form == "upsert":
            merge.upsert(summary.added, key, sequence)
        elif form == "changes":
            merge.change(summary.removed, summary.added, key, compared)
        elif form == "multiset":
            merge.change_copies(summary.removed, compared, summary.deleted)

    @contextmanager
    def _attempt(self, content: Reduced | Staged, delivery: Delivery) -> Iterator[_Attempt]:
        sa, tables, ledger = database.require_driver(), database.tables(), self._ledger
        with self._errors():
            # The errors of the ledger come before the target is changed.
            before = self._ask(content.names)
            if self._decide(before, delivery).action != "skip":
                self._prepare_tables(_schema_of(content))
                if isinstance(content, Staged):
                    self._load(content)
            try:
                with self._begin(content) as connection:
                    tables.lock(connection, ledger, self.name)
                    location = tables.locate(connection, self.table, self.schema)
                    entries = tables.read_entries(connection, ledger, self.name, location)
                    found = Found(entries.pop(self.name, None), location, entries)
                    yield _Attempt(self, connection, content, found)
            except sa.exc.IntegrityError as error:
                # Two writers stored the first entry, or the table refuses the rows.
                if before.entry is not None or self.name not in self._peek()[0]:
                    raise
                raise Conflict(refused("the database", error)) from None
            except sa.exc.OperationalError as error:
                # Two writers of new entries lock each other out; the database ends one of them.
                if not database.is_deadlock(error):
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
                raise database.targets().equal_keys(key)
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
                raise database.targets().trigger_changes("rows that differ from those sent")

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
        sa, wanted = database.require_driver(), {part.name: self._type_of(part) for part in schema}
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
            ledger = database.targets().inspect(connection, self._ledger.name, self.schema)
        return target is not None, new, ledger is not None

    def _type_of(self, part: pa.Field) -> Any:
        dtype = database.targets().column_type(part.type, is_key=part.name in (self.key or ()))
        if dtype is None:
            raise conditions.NOT_A_SQL_TYPE.error(column=part.name, got=part.type)
        return dtype

    def _find(self, connection: Any) -> Any:
        """The table and its columns; None if it does not exist."""
        return database.targets().inspect(connection, self.table, self.schema)

    def _new_columns(self, target: Any, schema: pa.Schema, connection: Any) -> list[str]:
        """Check the columns of an existing table, and return those that it lacks."""
        known, dialect = target.columns, connection.dialect.name
        new = [name for name in schema.names if name not in known]
        required = [
            name
            for name, column in known.items()
            if name not in schema.names and database.targets().is_required(column)
        ]
        if required or (new and self.columns == "exact"):
            raise columns_differ(new, required, list(known))
        for part in schema:
            column = known.get(part.name)
            if column is None:
                continue
            found_type, wanted = repr(column["type"]), repr(self._type_of(part))
            if database.targets().is_generated(column):
                found_type = f"{found_type}, which the database generates"
            elif database.targets().accepts(column["type"], part.type, dialect):
                continue
            raise type_differs(part.name, part.type, found_type, wanted)
        return new

    def _create(self, connection: Any, types: dict[str, Any]) -> None:
        sa = database.require_driver()
        if self.missing == "refuse":
            fix = f" with the columns {', '.join(types)}"
            raise conditions.TABLE_MISSING.error(statement=fix, got=self.table)
        columns = [sa.Column(name, dtype) for name, dtype in types.items()]
        options = {"schema": self.schema, **database.tables().WITH_TRANSACTIONS}
        table = sa.Table(self.table, sa.MetaData(), *columns, **options)
        table.create(connection)
        if self.key is not None:
            sa.Index(None, *(table.c[name] for name in self.key)).create(connection)

    def _add_columns(self, connection: Any, types: dict[str, Any]) -> None:
        """Add columns to the table."""
        sa = database.require_driver()
        columns = [sa.Column(name, dtype) for name, dtype in types.items()]
        table = sa.Table(self.table, sa.MetaData(), *columns, schema=self.schema)
        for column in columns:
            connection.execute(database.tables().AddColumn(table, column))

    def _columns_of(self, target: Any, schema: pa.Schema) -> Any:
        """The table, with the types of the rows for their columns."""
        sa = database.require_driver()
        types = {part.name: self._type_of(part) for part in schema}
        columns = [
            sa.Column(name, types.get(name, column["type"]))
            for name, column in target.columns.items()
            if name in types
            or (
                self.key is None
                and (name in target.key or not database.targets().is_generated(column))
            )
        ]
        return sa.Table(self.table, sa.MetaData(), *columns, schema=self.schema)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Replace errors of the database by those of streamops, without secrets."""
        with database.reported(self.url):
            try:
                yield
            except (Conflict, MayNotStage):
                raise
            except BaseException:
                self.session.close()
                raise
