"""How the laws compare: rows as bags of Python values, steps and states by their rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from streamops.kernel.core import State, Step
from streamops.testing.values import comparable

__all__ = ["Row", "rows_of", "same_rows", "same_steps", "same_tables"]

Row = dict[str, Any]


def rows_of(table: pa.Table) -> list[Row]:
    """The rows as Python values, instants and durations as microseconds, at any depth."""
    schema = pa.schema([(field.name, _plain(field.type)) for field in table.schema])
    rows: list[Row] = table.cast(schema).to_pylist()
    return rows


def same_steps(left: Sequence[Step], right: Sequence[Step], what: str) -> None:
    """Equal rows, late rows, counts and states, step by step."""
    for number, (one, other) in enumerate(zip(left, right, strict=True)):
        where = f"step {number}: as it was, and {what}"
        same_rows(rows_of(one.output), rows_of(other.output), where)
        same_rows(rows_of(one.late), rows_of(other.late), where)
        assert one.metrics == other.metrics, where
        same_tables(one.state, other.state, where)


def same_tables(left: State, right: State, what: str) -> None:
    """Equal entries of state."""
    for name, table in left.tables.items():
        same_rows(rows_of(table), rows_of(right.tables[name]), f"{what}: state {name!r}")


def same_rows(left: Iterable[Row], right: Iterable[Row], what: str) -> None:
    """Equal bags of rows; a column that only one side has must be null there."""
    ours, theirs = (Counter(map(_said, rows)) for rows in (left, right))
    assert ours == theirs, f"{what}:\n  only first: {ours - theirs}\n  only second: {theirs - ours}"


def _said(row: Row) -> Any:
    return comparable({name: value for name, value in row.items() if value is not None})


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time64(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _plain(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    return kind
