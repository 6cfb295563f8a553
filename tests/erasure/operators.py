"""Operators over readable and over shredded values, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streamops.testing import Replay
from tests.erasure.samples import columns_of, entries_of, key_of, reasons, shred
from tests.oracles import erasure as oracle

SUBJECTS = ("ann", "bob", "cid")
ENTRIES = entries_of(*SUBJECTS)

Batches = Sequence[tuple[pa.Table, ...]]


def shredded(
    batches: Batches, columns: Sequence[str], subject: Sequence[str]
) -> list[tuple[pa.Table, ...]]:
    """The micro-batches with shredded values; `subject` has the column of each input.

    All columns are bound to the name "v".
    """
    return [
        tuple(_shred(table, columns, by) for table, by in zip(tables, subject, strict=True))
        for tables in batches
    ]


def _shred(table: pa.Table, columns: Sequence[str], subject: str) -> pa.Table:
    for name in {*columns} & {*table.column_names}:
        spec = columns_of(v=table.schema.field(name).type)
        (cells,), rejected = shred(
            spec, table.column(subject).to_pylist(), ENTRIES, v=table.column(name).combine_chunks()
        )
        assert reasons(rejected) == [None] * len(table)
        table = table.set_column(table.column_names.index(name), name, cells)
    return table


def run(operator: Any, batches: Batches) -> list[dict[str, Any]]:
    """All rows of the output, with late rows; with a restart before each micro-batch."""
    schemas = tuple(table.schema for table in batches[0])
    query = Replay(operator, schemas if len(schemas) > 1 else schemas[0], shards=2, restart=True)
    tables: Any = batches if len(schemas) > 1 else [one for (one,) in batches]
    return [row for result in query.run(tables) for row in (*result.rows, *result.late_rows)]


def unshredded(rows: Sequence[dict[str, Any]], subject: str) -> list[dict[str, Any]]:
    """The rows with readable text, at every depth."""
    return [
        {name: _read(value, str(row.get(subject))) for name, value in row.items()} for row in rows
    ]


def _read(value: Any, subject: str) -> Any:
    match value:
        case bytes() if value.startswith(b"SE") and subject in SUBJECTS:
            found = oracle.unshred(value, key_of(subject), "v", subject)
            assert found is not None
            return found.decode()
        case dict():
            return {name: _read(part, str(value.get("k", subject))) for name, part in value.items()}
        case list():
            return [_read(part, subject) for part in value]
    return value


def as_multiset(rows: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))
