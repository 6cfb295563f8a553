"""The statements by which a staging table is made, and merged into a table in one transaction.

Null equals null. Not every database finds ``IS NOT DISTINCT FROM`` in an index, so a statement runs once
for each combination of columns that are null together.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from streamops.changelog.change_types import FAULTS
from streamops.sinks.core import sql
from streamops.sinks.core.net import Form
from streamops.sinks.core.sqlalchemy_table import WITH_TRANSACTIONS
from streamops.sinks.core.sqlalchemy_target import (
    MYSQL,
    Target,
    column_type,
    is_generated,
    refuse_changed,
)

NUMBER = "streamops_number"
"""Column of a staging table: with that of the attempt, it identifies a row that is marked."""

_POSITION = "streamops_position"
_OLDER = -1
"""What replaces the number of the attempt of a row that the table has in a newer version."""

_RESERVED = {*sql.MARKS, sql.ATTEMPT, NUMBER, _POSITION}
_EXACT = ("_nopad_bin", "_0900_bin")
"""How the collations of MySQL and MariaDB end that take no different texts for equal."""

_BIG = sa.BigInteger()
_INDEX, _INDEXED, _PREFIX = "streamops_compared", 6, 100
"""How many columns are in an index, and how many characters of a text: MySQL limits its bytes."""


def may_stage(
    target: Target,
    names: Iterable[str],
    compared: Iterable[str],
    sequence: Iterable[str],
    dialect: str,
) -> bool:
    """Whether the database can merge rows as the driver would.

    Parameters
    ----------
    target : Target
    names : iterable of str
        The columns of the rows.
    compared, sequence : iterable of str
        The columns by which rows are found, and those that order them.
    dialect : str
    """
    types = {name: column["type"] for name, column in target.columns.items()}
    has_text = any(isinstance(types[name], sa.String) for name in sequence)
    is_exact = all(_is_exact(types[name], dialect) for name in compared)
    reserved = _RESERVED.intersection(name.casefold() for name in (*names, *types))
    return not (target.fires or has_text or reserved) and is_exact


def _is_exact(found: Any, dialect: str) -> bool:
    """Whether a column takes only equal values for equal."""
    if not isinstance(found, sa.String):
        return True
    if isinstance(found, sa.Enum | sa.CHAR | postgresql.CITEXT):
        return False
    if dialect in MYSQL:
        return (found.collation or "").endswith(_EXACT)
    return found.collation in {None, "C", "POSIX"}


def create(
    connection: sa.Connection,
    at: tuple[str, str | None],
    target: Target,
    names: Sequence[str],
    form: Form,
    comment: str = "",
) -> Any:
    """Create a staging table with these columns of the target."""
    columns = [
        sa.Column(name, found["type"], nullable=found["nullable"] or name not in names)
        for name, found in target.columns.items()
        if name in names or (form == "multiset" and not is_generated(found))
    ]
    columns += _marks() if form in {"changes", "multiset"} else []
    options = {"schema": at[1], "comment": comment, **WITH_TRANSACTIONS}
    table = sa.Table(at[0], sa.MetaData(), *columns, _attempt(), **options)
    table.create(connection)
    return table


def _index(table: Any, names: Iterable[str]) -> sa.Index:
    """An index of columns, which has the beginnings of texts and bytes."""
    columns = [table.c[name] for name in names]
    lengths = {
        column.name: min(getattr(column.type, "length", None) or _PREFIX, _PREFIX)
        for column in columns
        if isinstance(column.type, sa.String | sa.types._Binary)
    }
    return sa.Index(_INDEX, *columns, mysql_length=lengths, mariadb_length=lengths)


def _marks() -> list[sa.Column[Any]]:
    *flags, copies = sql.MARKS
    return [
        *(sa.Column(name, sa.Boolean(), nullable=True) for name in flags),
        sa.Column(copies, sa.Integer(), nullable=True),
        sa.Column(NUMBER, sa.BigInteger(), nullable=True),
    ]


def _attempt() -> sa.Column[Any]:
    return sa.Column(sql.ATTEMPT, sa.BigInteger(), nullable=False, autoincrement=False)


def columns_of(name: str, schema: str | None, columns: Iterable[Any], *, is_marked: bool) -> Any:
    """The staging table with copies of these columns."""
    own = [sa.Column(c.name, c.type) for c in columns if c.name != sql.ATTEMPT]
    marks = _marks() if is_marked else []
    return sa.Table(name, sa.MetaData(), *own, *marks, _attempt(), schema=schema)


def stage(
    connection: sa.Connection,
    at: tuple[str, str | None],
    found: Target,
    rows: pa.Table,
    key: Collection[str] | None,
    first: int,
) -> None:
    """Insert rows into a staging table; their numbers begin with the first one."""
    schema = pa.schema([part for part in rows.schema if part.name not in _RESERVED])
    refuse_changed(rows.select(schema.names), found.columns, connection.dialect.name)
    is_marked = NUMBER in found.columns
    if is_marked:
        numbers = pa.array(range(first, first + len(rows)), pa.int64())
        rows = rows.append_column(NUMBER, numbers)
    columns = [
        sa.Column(part.name, column_type(part.type, is_key=part.name in (key or ())))
        for part in schema
    ]
    table = columns_of(*at, columns, is_marked=is_marked)
    connection.execute(sa.insert(table), rows.to_pylist())


def wait_shortly(connection: sa.Connection) -> None:
    """Let the connection not wait long for tables that others use."""
    wait = "lock_wait_timeout = 1" if connection.dialect.name in MYSQL else "lock_timeout = '1s'"
    connection.execute(sa.text(f"SET SESSION {wait}"))


def drop(connection: sa.Connection, name: str, schema: str | None) -> None:
    """Drop a staging table."""
    table = sa.Table(name, sa.MetaData(), schema=schema)
    connection.execute(sa.schema.DropTable(table, if_exists=True))


def copy(
    connection: sa.Connection, staged: Any, into: Any, names: Iterable[str], attempts: Sequence[int]
) -> int:
    """Copy the rows that these attempts have staged, and return how many there are.

    MySQL does not wait for attempts that still stage rows if the isolation is "read committed". It would if a
    statement changed a table by a join with the staging table.
    """
    columns = {name: staged.c[name] for name in names}
    rows = sa.select(*columns.values()).where(staged.c[sql.ATTEMPT].in_(attempts))
    statement = sa.insert(into).from_select(list(columns), rows)
    return connection.execute(statement.execution_options(preserve_rowcount=True)).rowcount


def load(
    connection: sa.Connection,
    at: tuple[str, str | None],
    target: Target,
    names: Sequence[str],
    form: Form,
    attempts: Sequence[int],
    compared: Sequence[str],
) -> None:
    """Copy the rows that count to a table of their own, where they are found by what is compared."""
    loaded = loaded_name(at[0]), at[1]
    drop(connection, *loaded)
    table = create(connection, loaded, target, names, form)
    staged = columns_of(*at, table.c, is_marked=False)
    copy(connection, staged, table, table.c.keys(), attempts)
    if (
        connection.dialect.name in MYSQL
    ):  # which joins by loops. An index of no rows has no statistics.
        _index(table, compared[:_INDEXED]).create(connection)


def loaded_name(name: str) -> str:
    """The name of the table of those rows that count."""
    return f"{name}_used"


class Merge:
    """Changes of a table by rows that are loaded, in one transaction.

    Parameters
    ----------
    connection : Connection
    target : Target
        The table.
    table, loaded : Table
        The columns that are written, and the table of loaded rows.
    names : sequence of str
        The columns of the rows.
    """

    def __init__(
        self,
        connection: sa.Connection,
        target: Target,
        table: Any,
        loaded: Any,
        names: Sequence[str],
    ) -> None:
        self.connection, self.target = connection, target
        self.table, self.staged, self.names = table, loaded, names

    def count(self) -> int:
        """How many rows are loaded."""
        wanted = sa.select(sa.func.count()).select_from(self.staged)
        return int(self.connection.execute(wanted).scalar_one())

    def upsert(
        self, nulls: Iterable[Collection[str]], key: Sequence[str], sequence: Sequence[str]
    ) -> None:
        """Insert rows, or replace those of the same key if their sequence is lower."""
        attempt = self.staged.c[sql.ATTEMPT]
        for rows, on in self._matches(nulls, key):
            if sequence:
                older = sa.not_(self._is_lower(sequence))
                marked = sa.update(self.staged).where(*rows, *on, older).values({attempt: _OLDER})
                self.connection.execute(marked)
            self._put([*rows, attempt != _OLDER], on, key)

    def change(
        self,
        removed: Iterable[Collection[str]],
        added: Iterable[Collection[str]],
        key: Sequence[str],
        content: Sequence[str],
    ) -> None:
        """Delete the rows of removed keys that no other row replaces, and put the added ones."""
        table, staged = self.table, self.staged
        is_removed, must_match, is_replaced = (staged.c[name] for name in sql.MARKS[:3])
        same = [table.c[name].is_not_distinct_from(staged.c[name]) for name in content]
        for rows, on in self._matches(removed, key):
            mine = [*rows, is_removed]
            self._refuse("PREIMAGE_NOT_PUBLISHED", *mine, must_match, ~self._exists(*on, *same))
            self._refuse("DELETED_UNPUBLISHED", *mine, ~self._exists(*on))
            self.connection.execute(sa.delete(table).where(*mine, *on, sa.not_(is_replaced)))
        for rows, on in self._matches(added, key):
            mine = [*rows, sa.not_(is_removed)]
            self._refuse("INSERTED_TWICE", *mine, sa.not_(is_replaced), self._exists(*on))
            self._put(mine, on, key)

    def change_copies(
        self, removed: Iterable[Collection[str]], content: Sequence[str], deleted: int
    ) -> None:
        """Delete as many equal rows as a multiset loses, and insert the added ones.

        In a table without a primary key all that are equal are deleted, and the rest is inserted again.
        """
        table, staged, execute = self.table, self.staged, self.connection.execute
        attempt, is_removed, copies = (
            staged.c[name] for name in (sql.ATTEMPT, sql.REMOVED, sql.COPIES)
        )
        found, names = secrets.randbits(63), [column.name for column in table.c]
        mine = attempt != found, is_removed
        matches = [([*rows, *mine], on) for rows, on in self._matches(removed, content)]
        position = sa.func.row_number().over(partition_by=[attempt, staged.c[NUMBER]])
        for rows, on in matches:
            joined = sa.select(*table.c, copies, position.label(_POSITION)).where(*rows, *on)
            number = joined.subquery()
            goes = number.c[_POSITION] <= number.c[sql.COPIES]
            stored = sa.select(*(number.c[n] for n in names), sa.literal(found, _BIG), goes)
            into = [*names, sql.ATTEMPT, sql.REMOVED]
            execute(sa.insert(staged).from_select(into, stored))
        found_rows = sa.select(sa.func.count()).where(attempt == found, is_removed)
        if execute(found_rows).scalar_one() < deleted:
            for rows, on in matches:
                present = sa.select(sa.func.count()).select_from(table).where(*on)
                few = copies > present.correlate(staged).scalar_subquery()
                self._refuse("PREIMAGE_NOT_PUBLISHED", *rows, few)
        if self.target.key:
            same = [table.c[name] == staged.c[name] for name in self.target.key]
            execute(sa.delete(table).where(attempt == found, is_removed, *same))
        else:
            for rows, on in matches:
                execute(sa.delete(table).where(*rows, *on))
            self._insert(attempt == found, sa.not_(is_removed), names=names)
        self._insert(attempt != found, sa.not_(is_removed))

    def _put(self, rows: Sequence[Any], on: Sequence[Any], key: Sequence[str]) -> None:
        """Update the rows with the keys of staged ones, and insert the others."""
        table, staged = self.table, self.staged
        others = {table.c[n]: staged.c[n] for n in self.names if n not in key}
        if others:
            self.connection.execute(sa.update(table).where(*rows, *on).values(others))
        self._insert(*rows, ~self._exists(*on))

    def _insert(self, *where: Any, names: Sequence[str] = ()) -> None:
        names = names or self.names
        rows = sa.select(*(self.staged.c[name] for name in names)).where(*where)
        self.connection.execute(sa.insert(self.table).from_select(names, rows))

    def _exists(self, *on: Any) -> Any:
        """Whether the table has a row for a staged one."""
        found = sa.select(sa.literal(1)).select_from(self.table).where(*on)
        return found.correlate(self.staged).exists()

    def _matches(
        self, nulls: Iterable[Collection[str]], names: Sequence[str]
    ) -> Iterator[tuple[list[Any], list[Any]]]:
        """Which staged rows have null in the same columns, and what is equal in the rows of the table."""
        table, staged = self.table.c, self.staged.c
        for missing in nulls:
            rows = [staged[n].is_(None) if n in missing else staged[n].is_not(None) for n in names]
            on = [table[n].is_(None) if n in missing else table[n] == staged[n] for n in names]
            yield rows, on

    def _is_lower(self, sequence: Sequence[str]) -> Any:
        """Whether the sequence of a stored row is lower. Null, which others stored, is the lowest."""
        first, *rest = sequence
        stored, sent = self.table.c[first], self.staged.c[first]
        is_lower = sa.or_(stored.is_(None), stored < sent)
        return sa.or_(is_lower, sa.and_(stored == sent, self._is_lower(rest))) if rest else is_lower

    def _refuse(self, code: str, *where: Any) -> None:
        """Refuse a staged row that there should not be."""
        wanted = sa.select(*(self.staged.c[name] for name in self.names)).where(*where).limit(1)
        row = self.connection.execute(wanted).mappings().first()
        if row is not None:
            raise FAULTS[code].error(got=str(dict(row)))
