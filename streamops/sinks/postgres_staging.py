"""The net effect of a micro-batch in a staging table, from which one transaction merges it into the target.

The driver stages a small micro-batch in a temporary table. Tasks stage a large one in a table that all of
them reach. Each attempt of a task marks its rows with a number of its own, and the merge reads the rows of
those attempts whose receipts the driver has.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.kernel.columns import combine_chunks
from streamops.kernel.errors import SinkError
from streamops.kernel.ordering import is_orderable
from streamops.sinks import conditions, postgres_table
from streamops.sinks.core import sql
from streamops.sinks.core.net import Net, compute_net, content_columns, form_of
from streamops.sinks.postgres_connection import (
    exists,
    fetch,
    reported,
    require_driver,
)
from streamops.sinks.sink import unavailable
from streamops.sinks.tasks import Part, Receipts, in_groups, in_pieces

_ROWS_PER_PIECE, _BYTES_PER_PIECE = 1 << 18, 32 << 20
_BYTES_PER_GROUP = 128 << 20
_PREFIX = "streamops_staging"
_TAKEN_OVER = "the run that has removed the staging table of this one"

Nulls = list[list[str]]
"""Combinations of columns that are null together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What the driver must know about staged rows. It has values of JSON.

    Parameters
    ----------
    rows : int
        How many are staged.
    deleted : int
        How many rows the target loses that no other replaces.
    removed, added : list of list of str
        Which columns are null together, in the removed and in the added rows: those of the key, or all that
        are compared.
    """

    rows: int = 0
    deleted: int = 0
    removed: Nulls = field(default_factory=list)
    added: Nulls = field(default_factory=list)

    @classmethod
    def of(cls, net: Net, key: Sequence[str] | None) -> Summary:
        """The summary of a net effect."""
        names = content_columns(net.added.column_names, ()) if key is None else key
        return cls(
            rows=len(net.removed) + len(net.added),
            deleted=int(net.removed_copies[~net.is_replaced].sum()),
            removed=_nulls(net.removed, names),
            added=_nulls(net.added, key or ()),
        )

    def __add__(self, other: Summary) -> Summary:
        return Summary(
            rows=self.rows + other.rows,
            deleted=self.deleted + other.deleted,
            removed=_union(self.removed, other.removed),
            added=_union(self.added, other.added),
        )


def _union(some: Nulls, others: Nulls) -> Nulls:
    return some + [names for names in others if names not in some]


def _nulls(rows: pa.Table, names: Sequence[str]) -> Nulls:
    """Which of these columns are null together in at least one row."""
    if not len(rows) or not names:
        return []
    if not any(rows.column(name).null_count for name in names):
        return [[]]
    nulls = np.stack([np.asarray(combine_chunks(pc.is_null(rows.column(n)))) for n in names], 1)
    named = np.array(names, object)
    return [named[pattern].tolist() for pattern in np.unique(nulls, axis=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A micro-batch that is staged, or will be.

    Parameters
    ----------
    names : tuple of str
        The columns of the micro-batch.
    schema : Schema
        The columns that the target gets.
    summary : Summary
        What is staged.
    rows : Table, optional
        What the driver stages.
    table : str
        The quoted name of the table where tasks have staged it.
    attempts : tuple of int
        The attempts of tasks whose rows count.
    """

    names: tuple[str, ...]
    schema: pa.Schema
    summary: Summary
    rows: pa.Table | None = None
    table: str = ""
    attempts: tuple[int, ...] = ()

    @classmethod
    def of_rows(cls, rows: pa.Table, key: Sequence[str] | None, sequence: Sequence[str]) -> Staged:
        """Rows that the driver has."""
        rows = postgres_table.exact_times(rows)
        net = compute_net(rows, key=key, sequence=sequence)
        names, summary = tuple(rows.column_names), Summary.of(net, key)
        staged = _marked(net, names, key)
        return cls(names=names, schema=net.added.schema, summary=summary, rows=staged)

    @classmethod
    def of_receipts(
        cls, receipts: Receipts, key: Sequence[str] | None, sequence: Sequence[str]
    ) -> Staged:
        """Rows that tasks have staged."""
        empty = cls.of_rows(receipts.schema.empty_table(), key, sequence)
        summary, table, attempts = empty.summary, "", []
        for part in receipts.parts:
            summary += Summary(**part["summary"])
            table = part["table"]
            attempts.append(part["attempt"])
        return cls(
            names=empty.names,
            schema=empty.schema,
            summary=summary,
            table=table,
            attempts=tuple(attempts),
        )

    @contextmanager
    def open(self, cursor: Any, key: Sequence[str]) -> Iterator[None]:
        """Let statements read the rows as ``sql.STAGING``."""
        if self.rows is not None:
            # Not temporary=True: the driver then writes to the table of this name that the search path finds first.
            rows = _in_order(self.rows, key)
            cursor.adbc_ingest(sql.STAGING_NAME, rows, mode="create", db_schema_name=sql.TEMPORARY)
            yield
            cursor.execute(f"DROP TABLE {sql.STAGING}")
            return
        # A server that crashes empties the table.
        count = sql.count_attempts(self.table, self.attempts)
        found = fetch(cursor, count)[0][0] if exists(cursor, self.table) else 0
        if found != self.summary.rows:
            lost = f"{found} of {self.summary.rows} rows are staged; the server was restarted"
            raise unavailable("PostgreSQL", RuntimeError(lost))
        columns = [*self.schema.names, *(sql.MARKS if self._is_marked else ())]
        cursor.execute(sql.create_view(self.table, columns, self.attempts))
        if self._is_marked:  # it is joined
            cursor.execute(f"ANALYZE {self.table}")
        yield
        cursor.execute(f"DROP VIEW {sql.STAGING}")

    @property
    def _is_marked(self) -> bool:
        return CHANGE_TYPE in self.names


def _marked(net: Net, names: Sequence[str], key: Sequence[str] | None) -> pa.Table:
    """The rows to stage: added ones, or all of them with what is to be done with them."""
    if form_of(names, key) in {"append", "upsert"}:
        return net.added
    removed = _with_marks(net.removed, True, net.must_match, net.is_replaced, net.removed_copies)
    matches = np.zeros(len(net.added), np.bool_)
    added = _with_marks(net.added, False, matches, net.replaces, net.added_copies)
    return pa.concat_tables([removed, added]).combine_chunks()


def _with_marks(
    rows: pa.Table, removed: bool, matches: Any, replaced: Any, copies: Any
) -> pa.Table:
    values = np.full(len(rows), removed), matches, replaced, copies.astype(np.int32)
    for name, column in zip(sql.MARKS, values, strict=True):
        rows = rows.append_column(name, pa.array(column))
    return rows


def _in_order(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows in the order of the key.

    PostgreSQL then finds the rows of the table in the order of its index, which takes a third less time.
    """
    ordered = [(name, "ascending") for name in key if is_orderable(rows.schema.field(name).type)]
    return rows.sort_by(ordered) if ordered else rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """How tasks stage their rows. Spark pickles it, with the password if the URL has one.

    Parameters
    ----------
    url : str
        How they connect.
    environment : mapping of str to str
        The variables of the driver that the connection depends on.
    table : Table
        Where they stage rows.
    key : tuple of str, optional
        Columns that identify a row.
    sequence : tuple of str
        Columns that order the rows of a key.
    """

    url: str
    environment: Mapping[str, str]
    table: sql.Table
    key: tuple[str, ...] | None
    sequence: tuple[str, ...]

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[Part]:
        """Stage the rows of a task."""
        os.environ.update(self.environment)
        attempt, total = secrets.randbits(63), Summary()
        connection = None
        try:
            for rows in self._groups(tables):
                staged = Staged.of_rows(rows, self.key, self.sequence)
                total += staged.summary
                assert staged.rows is not None
                if not len(staged.rows):
                    continue
                ordered = _in_order(staged.rows, self.key or ())
                with _errors_of_task(self.url):
                    if connection is None:  # not before it is needed
                        connection = require_driver().connect(self.url, autocommit=True)
                    with connection.cursor() as cursor:
                        if not exists(cursor, str(self.table)):
                            raise conditions.FENCED.error(expected=_TAKEN_OVER, got="no table")
                        cursor.adbc_ingest(
                            self.table.name,
                            _with_attempt(ordered, attempt),
                            mode="append",
                            db_schema_name=self.table.schema,
                        )
        finally:
            if connection is not None:
                connection.close()
        yield {"table": str(self.table), "attempt": attempt, "summary": asdict(total)}

    def _groups(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Rows that fit into memory, with all rows of a key."""
        first = next(tables)
        names = together(first.column_names, self.key)

        def rest() -> Iterator[pa.Table]:
            yield first
            yield from tables

        if not names:
            return in_pieces(rest(), rows=_ROWS_PER_PIECE, size=_BYTES_PER_PIECE)
        return in_groups(rest(), names, size=_BYTES_PER_GROUP)


def together(names: Sequence[str], key: Sequence[str] | None) -> tuple[str, ...]:
    """The columns whose equal values one task must have."""
    if key is None and CHANGE_TYPE in names:
        return tuple(content_columns([n for n in names if n != CHANGE_TYPE], ()))
    return tuple(key or ())


def _with_attempt(rows: pa.Table, attempt: int) -> pa.Table:
    return rows.append_column(sql.ATTEMPT, pa.repeat(pa.scalar(attempt, pa.int64()), len(rows)))


@contextmanager
def _errors_of_task(url: str) -> Iterator[None]:
    """Raise errors that another attempt would meet again; let Spark repeat the attempt after others."""
    try:
        with reported(url):
            yield
    except SinkError as error:
        if error.code == conditions.TARGET_UNAVAILABLE.code:
            raise ConnectionError(str(error)) from None
        raise


def create(
    cursor: Any, schema: str | None, staged: Staged, *, sink: str, generation: int, batch: int
) -> sql.Table:
    """Create the staging table of a micro-batch."""
    name = f"{_prefix(sink)}{generation}_{batch}_{secrets.token_hex(4)}"
    table = sql.Table(name, schema)
    # The driver knows which types the columns have that it copies to.
    assert staged.rows is not None
    cursor.adbc_ingest(
        sql.STAGING_NAME,
        _with_attempt(staged.rows, 0),
        mode="create",
        db_schema_name=sql.TEMPORARY,
    )
    cursor.execute(sql.create_staging(table))
    cursor.execute(f"DROP TABLE {sql.STAGING}")
    text = f"streamops: rows of micro-batch {batch} of sink {sink!r}, until they are committed"
    cursor.execute(sql.comment(table, text))
    return table


def drop(cursor: Any, schema: str | None, *, sink: str, generation: int) -> None:
    """Drop the staging tables of a sink, up to those of this generation, that nobody uses any more.

    A task of a run that is gone may still copy to a table. It is dropped by the next micro-batch.
    """
    prefix = _prefix(sink)
    for (name,) in fetch(cursor, sql.SELECT_STAGING, schema, prefix):
        if int(name.removeprefix(prefix).partition("_")[0]) <= generation:
            cursor.execute(sql.drop_unused(sql.Table(name, schema)))


def _prefix(sink: str) -> str:
    return f"{_PREFIX}_{hashlib.sha256(sink.encode()).hexdigest()[:12]}_"
