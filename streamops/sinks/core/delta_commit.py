"""One commit to a Delta table, with the rows of a micro-batch and the entry of the ledger."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, normalize_floats, null_table
from streamops.kernel.ddl import quote
from streamops.sinks.core import delta_log
from streamops.sinks.core.net import having

TARGET, SOURCE = "t", "s"


def equal(rows: pa.Table, names: Iterable[str]) -> str:
    """Whether the target has the values of these source rows in these columns. Null equals null.

    A plain ``=`` also excludes files by their statistics. Two ``IS NOT DISTINCT FROM`` in one condition
    are an error in deltalake, the same condition in other words is not.

    Examples
    --------
    >>> equal(pa.table({"a": [1], "b": ["x"]}), ["a", "b"])
    't."a" = s."a" AND t."b" = s."b"'
    >>> equal(pa.table({"a": [None]}), ["a"]), equal(pa.table({}), [])
    ('NOT (t."a" IS DISTINCT FROM s."a")', 'true')
    """
    return " AND ".join(_equal(rows.column(name), quote(name)) for name in names) or "true"


def _equal(values: pa.ChunkedArray, name: str) -> str:
    if values.null_count or pa.types.is_nested(values.type):
        return f"NOT ({TARGET}.{name} IS DISTINCT FROM {SOURCE}.{name})"
    return f"{TARGET}.{name} = {SOURCE}.{name}"


def assign(names: Iterable[str]) -> dict[str, str]:
    """Assignments of columns of the source to those of the target."""
    return {quote(name): f"{SOURCE}.{quote(name)}" for name in names}


def is_newer(sequence: Sequence[str]) -> str | None:
    """Whether the sequence of the source is above that of the target; None without a sequence.

    Null is the lowest. The source has none.

    Examples
    --------
    >>> is_newer(["a"])
    't."a" IS NULL OR t."a" < s."a"'
    """
    if not sequence:
        return None
    name, rest = quote(sequence[0]), is_newer(sequence[1:])
    first = f"{TARGET}.{name} IS NULL OR {TARGET}.{name} < {SOURCE}.{name}"
    return f"{first} OR ({TARGET}.{name} = {SOURCE}.{name} AND ({rest}))" if rest else first


_RANGES: dict[pa.DataType, tuple[pa.DataType, str]] = {
    **{dtype: (pa.int64(), "{}") for dtype in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    pa.date32(): (pa.int32(), "arrow_cast({}, 'Date32')"),
    pa.timestamp("us"): (pa.int64(), "arrow_cast({}, 'Timestamp(Microsecond, None)')"),
    pa.timestamp("us", "UTC"): (
        pa.int64(),
        "arrow_cast({}, 'Timestamp(Microsecond, Some(\"UTC\"))')",
    ),
}


def select_range(name: str, values: pa.ChunkedArray) -> str | None:
    """Select rows between the lowest and the highest of these values, by which files are skipped.

    None if the values are not numbers, dates or timestamps, or if one is null.

    Examples
    --------
    >>> select_range("k", pa.chunked_array([[3, -1]]))
    '"k" >= -1 AND "k" <= 3'
    >>> select_range("k", pa.chunked_array([["a"]]))
    """
    if not len(values) or values.null_count or values.type not in _RANGES:
        return None
    whole, text = _RANGES[values.type]
    numbers = values.cast(whole).to_numpy()
    low, high = (text.format(int(number)) for number in (numbers.min(), numbers.max()))
    return f"{quote(name)} >= {low} AND {quote(name)} <= {high}"


PUT, DELETE = 0, 1
"""Actions of rows that are merged."""

_ACTION = "streamops_action"
"""Column of merged rows with the action."""

_ROWS_AT_A_TIME = 1 << 19

_ROWS_PER_CHANGE = 32
"""Up to how many rows of the table per wanted row are read and written again, which is faster than a merge."""

_MOST_BYTES = 256 << 20
"""The memory of these rows."""


@dataclass(frozen=True)
class Range:
    """Rows of a table, and the predicate that selects them; None: all rows."""

    predicate: str | None
    rows: pa.Table


class Commit:
    """One commit to a version of a table: the rows, and the entry of the ledger.

    Parameters
    ----------
    table : DeltaTable
        The version that the commit is based on.
    properties : CommitProperties
        The entry.
    """

    def __init__(self, table: Any, properties: Any) -> None:
        self.table = table
        self.properties = properties
        self.has_new_columns = False
        self.stored = pa.schema(table.schema().to_arrow())
        self.schema = self.stored
        """With the columns that this commit adds."""

    @property
    def required(self) -> list[str]:
        """The columns that all rows must have."""
        return delta_log.must_be_given(self.table.schema().fields)

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        """Add columns to the table, together with the rows."""
        self.schema = pa.schema([*self.stored, *columns])
        self.has_new_columns = bool(columns)
        if any(_has_local_time(column.type) for column in columns):
            feature = importlib.import_module("deltalake").TableFeatures.TimestampWithoutTimezone
            self.table.alter.add_feature(feature, allow_protocol_versions_increase=True)

    def append_nothing(self) -> None:
        """Commit the entry alone."""
        self._write(self.schema.empty_table(), "append")

    def append(self, rows: pa.Table) -> None:
        """Add rows to the table."""
        self._write(self.filled(rows), "append")

    def overwrite(self, rows: pa.Table) -> None:
        """Replace all rows of the table."""
        self._write(self.filled(rows), "overwrite")

    def merge(self, rows: pa.Table, key: Sequence[str], condition: str | None = None) -> None:
        """Put and delete rows by key. A row replaces another one only if the condition holds."""
        values = assign(name for name in rows.column_names if name != _ACTION)
        is_put = f"{SOURCE}.{_ACTION} = {PUT}"
        merge = self._merge(rows, equal(rows, key))
        if (rows.column(_ACTION).to_numpy() == DELETE).any():
            merge = merge.when_matched_delete(f"{SOURCE}.{_ACTION} = {DELETE}")
        merge = merge.when_matched_update(values, condition)
        self._execute(merge.when_not_matched_insert(values, is_put))

    def replace(self, parts: Sequence[pa.Table], by: Sequence[str]) -> None:
        """Delete all rows that are like the marked ones, and insert the others."""
        rows = pa.concat_tables(parts)
        names = [name for name in rows.column_names if name != _ACTION]
        is_deleted = f"{SOURCE}.{_ACTION} = {DELETE}"
        is_put = f"{SOURCE}.{_ACTION} = {PUT}"
        merge = self._merge(rows, f"{is_deleted} AND {equal(rows, by)}")
        merge = merge.when_matched_delete()
        self._execute(merge.when_not_matched_insert(assign(names), is_put))

    def rows_like(
        self, wanted: pa.Table, by: Sequence[str], names: Sequence[str] | None
    ) -> pa.Table:
        """The rows of the table with the same values as a wanted row: these columns, or all."""
        columns = [n for n in self.stored.names if names is None or n in {*by, *names}]
        by = [name for name in by if name in columns]
        ranges = (select_range(name, wanted.column(name)) for name in by)
        selected = " AND ".join(filter(None, ranges)) or None
        schema = pa.schema([self.schema.field(name).with_nullable(True) for name in columns])
        found, batches, waiting = [schema.empty_table()], [], 0
        for batch in self.table.scan(columns=columns, predicate=selected):
            batches.append(pa.record_batch(batch))
            waiting += batches[-1].num_rows
            if waiting >= _ROWS_AT_A_TIME:
                found.append(having(pa.Table.from_batches(batches).cast(schema), wanted, by))
                batches, waiting = [], 0
        if batches:
            found.append(having(pa.Table.from_batches(batches).cast(schema), wanted, by))
        return _fill(pa.concat_tables(found), wanted.schema, {*by, *(names or ())})

    def read_range(self, wanted: pa.Table, by: Sequence[str]) -> Range | None:
        """All rows whose values are between the lowest and the highest wanted ones.

        None if there are too many, or if the table has a feature that a merge takes care of.
        """
        if not self._is_plain or set(self.schema.names) != set(wanted.column_names):
            return None
        ranges = (select_range(name, wanted.column(name)) for name in by)
        predicate = " AND ".join(filter(None, ranges)) or None
        parts: list[pa.Table] = []
        rows = size = 0
        for batch in self.table.scan(predicate=predicate):
            part = pa.Table.from_batches([pa.record_batch(batch)]).select(wanted.column_names)
            parts.append(part.cast(wanted.schema))
            rows += parts[-1].num_rows
            size += parts[-1].nbytes
            if rows > _ROWS_PER_CHANGE * len(wanted) or size > _MOST_BYTES:
                return None
        return Range(predicate, pa.concat_tables([wanted.slice(0, 0), *parts]))

    def replace_range(self, found: Range, rows: pa.Table) -> None:
        """Replace all rows of a range, as a merge does that deletes some of them and puts others."""
        self._write(self.filled(rows), "overwrite", found.predicate)

    @property
    def _is_plain(self) -> bool:
        """Whether a rewrite of rows has no other effect: no constraints, change feed or partitions."""
        protocol, metadata = self.table.protocol(), self.table.metadata()
        features = set(protocol.writer_features or ()) - {"timestampNtz"}
        return (
            not self.has_new_columns
            and not features
            and (protocol.min_writer_version <= 2 or protocol.writer_features is not None)
            and not metadata.partition_columns
            and not metadata.configuration
        )

    def filled(self, rows: pa.Table) -> pa.Table:
        """The rows with all columns of the table, null where they have none."""
        return _fill(rows, self.schema, set(self.schema.names)).select(self.schema.names)

    def _merge(self, rows: pa.Table, predicate: str) -> Any:
        return self.table.merge(
            self._declared(rows),
            predicate=predicate,
            source_alias=SOURCE,
            target_alias=TARGET,
            merge_schema=self.has_new_columns,
            commit_properties=self.properties,
        )

    def _declared(self, rows: pa.Table) -> pa.Table:
        """The rows with the NOT NULL of the table, from which deltalake takes it if columns are added."""
        names = self.stored.names if self.has_new_columns else ()
        declared = {name: self.stored.field(name) for name in names}
        return rows.cast(pa.schema([declared.get(part.name, part) for part in rows.schema]))

    def _execute(self, merge: Any) -> None:
        version = self.table.version()
        merge.execute()
        if self.table.version() == version:
            self.append_nothing()  # a merge without effect commits nothing

    def _write(self, rows: pa.Table, mode: Any, predicate: str | None = None) -> None:
        importlib.import_module("deltalake").write_deltalake(
            self.table,
            self._declared(rows),
            mode=mode,
            predicate=predicate,
            schema_mode="merge" if self.has_new_columns else None,
            commit_properties=self.properties,
        )


def _fill(rows: pa.Table, schema: pa.Schema, names: set[str]) -> pa.Table:
    """Add columns of nulls, of those of a schema that are named."""
    missing = [part for part in schema if part.name in names and part.name not in rows.column_names]
    for part, column in zip(
        missing, null_table(pa.schema(missing), len(rows)).columns, strict=True
    ):
        rows = rows.append_column(part.with_nullable(True), column)
    return rows


def mark(rows: pa.Table, action: int) -> pa.Table:
    """Add the action to rows that are merged."""
    return rows.append_column(_ACTION, pa.array(np.full(len(rows), action, np.int32)))


def normalize(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Keys with one zero and one NaN, as in Spark: DataFusion compares their bits."""
    for name in key:
        values = normalize_floats(combine_chunks(rows.column(name)))
        rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), values)
    return rows


def _has_local_time(dtype: pa.DataType) -> bool:
    """Whether there is a timestamp without time zone, which is a feature of a table."""
    inside = (dtype.field(position).type for position in range(dtype.num_fields))
    return dtype == pa.timestamp("us") or any(map(_has_local_time, inside))


def has_local_time_in_map(dtype: pa.DataType) -> bool:
    """Whether there is one inside of a map, where deltalake does not see it when it creates a table."""
    inside = (dtype.field(position).type for position in range(dtype.num_fields))
    return (
        _has_local_time(dtype)
        if pa.types.is_map(dtype)
        else any(map(has_local_time_in_map, inside))
    )
