"""The statements of the SQLAlchemy sink, in SQLAlchemy Core: no text of SQL, and every name is quoted."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles

from streamops.kernel.columns import combine_chunks
from streamops.sinks.core.ledger import Entry, Location
from streamops.sinks.core.sqlalchemy_target import (
    Target,
    column_type,
    equal_keys,
    other_values,
    trigger_changes,
)

_AT_A_TIME = 500
"""Values in a condition: databases limit the number of parameters."""

LEDGER = "streamops_entries"

WITH_TRANSACTIONS: dict[str, Any] = {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}
"""How tables are created: the default of a server may be an engine without transactions."""


@functools.cache  # else every reading would have statements of its own, which SQLAlchemy retains
def ledger_table(schema: str | None) -> sa.Table:
    """The ledger: one row per sink."""
    numbers = ("generation", "batch", "rows", "digest")
    # Names are different if one of their characters is.
    unique, text = (column_type(pa.string(), is_key=is_key) for is_key in (True, False))
    return sa.Table(
        LEDGER,
        sa.MetaData(),
        sa.Column("sink", unique, primary_key=True),
        sa.Column("query", text, nullable=False),
        sa.Column("run", text, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in numbers),
        *(
            sa.Column(name, text, nullable=False)
            for name in ("target", "target_id", "former", "offsets")
        ),
        schema=schema,
        **WITH_TRANSACTIONS,
    )


def lock(connection: sa.Connection, ledger: sa.Table, sink: str) -> None:
    """Lock the entry of a sink until the end of the transaction.

    By an update, which locks in every database: SQLite does not have ``FOR UPDATE``.
    """
    mine = ledger.c.sink == sink
    connection.execute(sa.update(ledger).where(mine).values(batch=ledger.c.batch))


def read_entries(
    connection: sa.Connection, ledger: sa.Table, sink: str, location: Location
) -> dict[str, Entry]:
    """Return the entries of a sink, and of others that write to the same table."""
    is_same = sa.and_(ledger.c.target_id == location.id, ledger.c.target_id != "")
    wanted = sa.select(ledger).where(sa.or_(ledger.c.sink == sink, is_same))
    found = {}
    for row in connection.execute(wanted).mappings():
        *values, former, offsets = (row[field.name] for field in fields(Entry))
        entry = Entry.of(*values, json.loads(former), json.loads(offsets))
        found[str(row["sink"])] = entry
    return found


def locate(connection: sa.Connection, name: str, schema: str | None) -> Location:
    """Return the table of this name, which may not exist. What was created again is not noticed."""
    inspector = sa.inspect(connection)
    whole = f"{schema or inspector.default_schema_name}.{name}"
    return Location(whole, whole if inspector.has_table(name, schema=schema) else "")


def is_empty(connection: sa.Connection, name: str, schema: str | None) -> bool:
    """Return whether a table has no rows."""
    table = sa.table(name, schema=schema)
    return connection.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).first() is None


def write_entry(
    connection: sa.Connection, ledger: sa.Table, sink: str, entry: Entry, *, is_new: bool
) -> None:
    """Store the entry of a sink. A new one fails if another writer has stored one meanwhile."""
    values = {name: getattr(entry, name) for name in Entry.__slots__}
    values |= {name: json.dumps(values[name]) for name in ("former", "offsets")}
    if is_new:
        connection.execute(sa.insert(ledger).values(sink=sink, **values))
    else:
        connection.execute(sa.update(ledger).where(ledger.c.sink == sink).values(**values))


class AddColumn(sa.schema.ExecutableDDLElement):
    """Add a column to a table, which SQLAlchemy leaves to other packages."""

    inherit_cache = False

    def __init__(self, table: sa.Table, column: sa.Column[Any]) -> None:
        self.table = table
        self.column = column


@compiles(AddColumn)
def _add_column(element: AddColumn, compiler: Any, **_: Any) -> str:
    table = compiler.preparer.format_table(element.table)
    column = compiler.get_column_specification(element.column)
    word = "ADD" if compiler.dialect.name in {"mssql", "oracle"} else "ADD COLUMN"
    return f"ALTER TABLE {table} {word} {column}"


class Rows:
    """The rows of a table, in one transaction.

    Each statement must change as many rows as it has: a database can take different keys for equal ones,
    and a trigger can skip rows.

    Parameters
    ----------
    connection : Connection
    target : Target
        The table.
    table : Table
        The columns that are read and written.
    schema : Schema
        The Arrow types of the rows of the micro-batch.
    """

    def __init__(
        self, connection: sa.Connection, target: Target, table: Any, schema: pa.Schema
    ) -> None:
        self.connection = connection
        self.target = target
        self.table = table
        self.schema = schema

    def insert(self, rows: pa.Table) -> None:
        """Insert rows."""
        self._insert(rows.to_pylist())

    def insert_again(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows that were read."""
        self._insert([dict(row) for row in rows])

    def _insert(self, rows: list[dict[str, Any]]) -> None:
        if rows:
            # By default, SQLAlchemy does not count inserted rows.
            statement = sa.insert(self.table).execution_options(preserve_rowcount=True)
            changed = self.connection.execute(statement, rows).rowcount
            if changed not in {-1, len(rows)}:
                raise trigger_changes(f"{changed} of {len(rows)} rows inserted")

    def clear(self) -> None:
        """Delete all rows."""
        self.connection.execute(sa.delete(self.table))

    def delete(self, rows: pa.Table, names: Sequence[str], expected: int) -> None:
        """Delete the rows that are equal to one of these in some columns."""
        changed = [
            self.connection.execute(sa.delete(self.table).where(condition)).rowcount
            for condition in self._like(rows, names)
        ]
        self._require(changed, expected, names)

    def delete_again(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Delete rows that were read, by the primary key of the table."""
        key = self.target.key
        if rows:
            where = [self.table.c[n] == sa.bindparam(f"key_{i}") for i, n in enumerate(key)]
            values = [{f"key_{i}": row[n] for i, n in enumerate(key)} for row in rows]
            changed = self.connection.execute(sa.delete(self.table).where(*where), values).rowcount
            self._require([changed], len(rows), key)

    def update(self, rows: pa.Table, key: Sequence[str], expected: int) -> None:
        """Set all other columns of rows with these keys."""
        others = [name for name in rows.column_names if name not in key]
        if not others:
            return
        changed = []
        for part, nulls in _by_nulls(rows, key):
            where = [
                self.table.c[name].is_(None)
                if name in nulls
                else self.table.c[name] == sa.bindparam(f"key_{number}")
                for number, name in enumerate(key)
            ]
            # Parameters have names of our own: those of columns can be anything.
            set_to: dict[Any, Any] = {
                self.table.c[n]: sa.bindparam(f"value_{i}") for i, n in enumerate(others)
            }
            columns = {f"key_{i}": n for i, n in enumerate(key) if n not in nulls}
            columns |= {f"value_{i}": n for i, n in enumerate(others)}
            values = part.select(list(columns.values())).rename_columns(list(columns))
            statement = sa.update(self.table).where(*where).values(set_to)
            changed.append(self.connection.execute(statement, values.to_pylist()).rowcount)
        self._require(changed, expected, key)

    def _require(self, changed: list[int], expected: int, names: Sequence[str]) -> None:
        if -1 in changed or sum(changed) == expected:
            return
        if sum(changed) > expected:
            raise equal_keys(names)
        raise trigger_changes(f"{sum(changed)} of {expected} rows changed")

    def like(self, rows: pa.Table, names: Sequence[str]) -> list[Mapping[str, Any]]:
        """The rows of the table that are equal to one of these in some columns, all columns."""
        found: list[Mapping[str, Any]] = []
        for condition in self._like(rows, names):
            result = self.connection.execute(sa.select(self.table).where(condition))
            found += [dict(row) for row in result.mappings()]
        return found

    def to_arrow(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Rows that were read, in the types of the micro-batch."""
        arrays = []
        for part in self.schema:
            try:
                arrays.append(pa.array([row[part.name] for row in rows], part.type))
            except (pa.ArrowException, ArithmeticError) as error:
                found = self.target.columns[part.name]["type"]
                raise other_values(part.name, part.type, found) from error
        return pa.table(arrays, schema=self.schema)

    def _like(self, rows: pa.Table, names: Sequence[str]) -> Iterator[Any]:
        """Conditions that together select each row that is equal to one of these once."""
        if not names and len(rows):
            yield sa.true()
            return
        for part, nulls in _by_nulls(rows, names):
            present = [name for name in names if name not in nulls]
            none = [self.table.c[name].is_(None) for name in names if name in nulls]
            if not present:
                yield sa.and_(*none)
                continue
            distinct = part.group_by(present).aggregate([])
            for start in range(0, len(distinct), _AT_A_TIME // len(present)):
                values = distinct.slice(start, _AT_A_TIME // len(present))
                yield sa.and_(*none, self._one_of(values, present))

    def _one_of(self, values: pa.Table, names: Sequence[str]) -> Any:
        columns = [self.table.c[name] for name in names]
        if len(names) == 1:
            return columns[0].in_(values.column(names[0]).to_pylist())
        tuples = zip(*(values.column(name).to_pylist() for name in names), strict=True)
        return sa.or_(
            *(sa.and_(*(c == v for c, v in zip(columns, row, strict=True))) for row in tuples)
        )


def _by_nulls(rows: pa.Table, names: Iterable[str]) -> Iterator[tuple[pa.Table, set[str]]]:
    """Rows with null in the same columns, and these columns."""
    names = list(names)
    if not len(rows):
        return
    nulls = np.stack([np.asarray(combine_chunks(pc.is_null(rows.column(n)))) for n in names], 1)
    for pattern in np.unique(nulls, axis=0):
        is_like = (nulls == pattern).all(1)
        yield (
            rows.filter(pa.array(is_like)),
            {n for n, null in zip(names, pattern, strict=True) if null},
        )
