"""The net effect of a micro-batch in a staging table of PostgreSQL.

The driver stages a small micro-batch in a temporary table; tasks copy a large one to a table that all of
them reach.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.kernel.ordering import is_orderable
from streamops.sinks import postgres_table, staging
from streamops.sinks.core import sql
from streamops.sinks.core.net import Net, compute_net
from streamops.sinks.postgres_connection import exists, fetch, reported, require_driver
from streamops.sinks.sink import unavailable
from streamops.sinks.staging import (
    Summary,
    Write,
    add_receipts,
    taken_over,
    with_attempt,
    with_marks,
)
from streamops.sinks.tasks import Receipts


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged(staging.Staged):
    """A micro-batch that is staged, or will be.

    Parameters
    ----------
    rows : Table, optional
        What the driver stages.
    """

    rows: pa.Table | None = None

    @classmethod
    def of_rows(cls, rows: pa.Table, key: Sequence[str] | None, sequence: Sequence[str]) -> Staged:
        """Rows that the driver has."""
        net = _net(rows, key, sequence)
        names, summary = tuple(rows.column_names), Summary.of(net, key)
        staged = with_marks(net, names, key)
        return cls(names=names, schema=net.added.schema, summary=summary, rows=staged)

    @classmethod
    def of_receipts(
        cls, receipts: Receipts, key: Sequence[str] | None, sequence: Sequence[str]
    ) -> Staged:
        """Rows that tasks have staged."""
        empty = cls.of_rows(receipts.schema.empty_table(), key, sequence)
        return replace(add_receipts(empty, receipts), rows=None)

    def copy(self, cursor: Any, table: sql.Table) -> None:
        """Copy rows that the driver has to the target."""
        cursor.adbc_ingest(table.name, self.rows, mode="append", db_schema_name=table.schema)

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


def _net(rows: pa.Table, key: Sequence[str] | None, sequence: Sequence[str]) -> Net:
    return compute_net(postgres_table.exact_times(rows), key=key, sequence=sequence)


def _in_order(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows in the order of the key.

    PostgreSQL then finds the rows of the table in the order of its index, which takes a third less time.
    """
    ordered = [(name, "ascending") for name in key if is_orderable(rows.schema.field(name).type)]
    return rows.sort_by(ordered) if ordered else rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging(staging.Staging):
    """How tasks copy their rows.

    Parameters
    ----------
    environment : mapping of str to str
        The variables of the driver that the connection depends on.
    table : Table
        Where they stage rows.
    """

    environment: Mapping[str, str]
    table: sql.Table

    @property
    def _staging_table(self) -> str:
        return str(self.table)

    def _reduce(self, rows: pa.Table) -> Net:
        return _net(rows, self.key, self.sequence)

    @contextmanager
    def _open(self) -> Iterator[Write]:
        os.environ.update(self.environment)
        with reported(self.url):
            connection = require_driver().connect(self.url, autocommit=True)

        def write(rows: pa.Table) -> None:
            with reported(self.url), connection.cursor() as cursor:
                if not exists(cursor, str(self.table)):
                    raise taken_over()
                cursor.adbc_ingest(
                    self.table.name,
                    _in_order(rows, self.key or ()),
                    mode="append",
                    db_schema_name=self.table.schema,
                )

        try:
            yield write
        finally:
            connection.close()


def create(cursor: Any, table: sql.Table, staged: Staged, comment: str) -> None:
    """Create the staging table of a micro-batch."""
    # The driver knows which types the columns have that it copies to.
    assert staged.rows is not None
    cursor.adbc_ingest(
        sql.STAGING_NAME, with_attempt(staged.rows, 0), mode="create", db_schema_name=sql.TEMPORARY
    )
    cursor.execute(sql.create_staging(table))
    cursor.execute(f"DROP TABLE {sql.STAGING}")
    cursor.execute(sql.comment(table, comment))
