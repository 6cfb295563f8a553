"""Lookups: rows with the current row of a small table."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType, UserDefinedType

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.joins import conditions
from streamops.joins.core.join_spec import (
    join_names,
    parse_keys,
    refuse_reserved,
    show_keys,
)
from streamops.kernel.columns import fix_types, key_codes
from streamops.kernel.errors import located
from streamops.kernel.formatted import format_rows
from streamops.kernel.groups import Groups
from streamops.kernel.parameters import (
    refuse_type,
    require_columns,
    require_keys,
    show_duration,
)
from streamops.kernel.time import Duration, parse_duration
from streamops.kernel.versions import create_frame, to_arrow
from streamops.spark.columns import (
    arrow_schema,
    column,
    contains_type,
    refuse_collated,
    relax_nulls,
    require_frame,
    type_name,
)
from streamops.spark.operator import show_call
from streamops.spark.results import comments

How = Literal["left", "inner"]
Refresh = Literal["never", "every batch"]
Load = Callable[[SparkSession], DataFrame]

_WHERE = "joins.lookup"


def lookup(
    table: DataFrame | Load,
    *,
    by: str | Sequence[str] | Mapping[str, str],
    how: How = "left",
    refresh: Refresh | Duration = "never",
    into: str = "status",
) -> LookupTransform:
    """Join each row with the current row of its key in a small table, without waiting.

    The table is read completely, checked for duplicate keys, and broadcast to every task. A row is
    joined with the table at the time of processing: **a replay of the stream gives another result** if
    the table has changed meanwhile, and so does a micro-batch that Spark repeats after a failure. If
    that matters, and a history of the table exists, use :func:`asof`.

    Input        key columns that can be hashed: no maps, variants or intervals of months, and without
                 a collation · other columns of any type · a table with at most one row per key, of
                 types that Spark passes to Python, small enough for the memory of the driver and of
                 every task
    Output       all columns of the row · all of the table except its keys, null where it has no such
                 key, with the suffix _right where the name is taken · `into`: string, "matched" or
                 "missing"
    Output mode  any
    Watermark    not needed; an existing one stays
    State        none; the table, in memory, as it was last read
    Order        rows may arrive in any order; a result depends on the time of processing. A change
                 stream needs a table that never changes, also between starts of the query: otherwise
                 rows would be retracted that were never emitted
    Batch        same rows

    Parameters
    ----------
    table : DataFrame, or function of a SparkSession that returns one
        The table. A function is called whenever the table is read.
    by : str, sequence of str, or mapping of str to str
        Key columns; if the names in the table differ, ``{"name": "table's name"}``. A null matches
        nothing.
    how : "left" or "inner"
        "left": a row without an entry is emitted with nulls. "inner": it is not emitted.
    refresh : "never", "every batch" or a duration
        When the table is read again. "never": whenever the transform is applied to a stream, so
        build that frame again for each start of its query; for batches, only the first time it is
        applied. The others are for use inside ``foreachBatch``, as Spark plans a stream once: the table
        is read when the transform is applied to a micro-batch, each time, or if the last time was so
        long ago by the driver's clock. They need a function.
    into : str
        Name of the column that states whether the row has an entry.

    Returns
    -------
    LookupTransform
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type or contradicts another; the table is a stream, or not a frame
        (``NOT_A_FRAME``); ``PARAMETER_WITHOUT_EFFECT``.
    SchemaError, ColumnNotFound
        A column does not exist, has the wrong type or has no free name; ``KEY_NOT_UNIQUE``,
        ``ROWS_REVISED``.

    Examples
    --------
    >>> from streamops import joins
    >>> named = joins.lookup(
    ...     lambda spark: spark.table("airports"), by="code", refresh="10 minutes"
    ... )
    >>> def write(batch, batch_id):
    ...     batch.transform(named).write.mode("append").parquet("flights")

    See Also
    --------
    asof : the row at the event time; the same result in a replay.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Stream-table joins".
    """
    keys = parse_keys(by)
    every: str | int = "never"
    if refresh in get_args(Refresh):
        every = str(refresh)
    else:
        every = parse_duration(refresh, parameter="refresh", minimum=1)
    if not callable(table) and every != "never":
        raise conditions.REFRESH_WITHOUT_FUNCTION.error(got=f"refresh={refresh!r} with a DataFrame")
    if not callable(table):
        require_frame(table, "the table")
    return LookupTransform(keys, how, every, into, table)


def _show_refresh(refresh: str | int) -> str:
    return show_duration(refresh) if isinstance(refresh, int) else repr(refresh)


@dataclass(slots=True, repr=False)
class LookupTransform:
    """A frame-to-frame function, for use with ``DataFrame.transform``. It caches the table."""

    by: tuple[tuple[str, str], ...] = field(metadata={"shown": show_keys})
    how: How
    refresh: str | int = field(metadata={"shown": _show_refresh})
    into: str
    table: DataFrame | Load = field(repr=False)
    _read: tuple[float, DataFrame] | None = field(default=None, init=False, repr=False)

    @located("joins.lookup")
    def __call__(self, frame: DataFrame) -> DataFrame:
        """Build the result frame and check its plan."""
        if frame.isStreaming and self.refresh != "never":
            raise conditions.REFRESH_OF_A_STREAM.error(got=f"{self!r} on a streaming frame")
        ours, theirs = zip(*self.by, strict=True)
        self._refuse_changes(frame)
        with located(at="frame"):
            keys = arrow_schema(frame, only=ours)
            # The other columns never leave Spark: their types need not be supported by Arrow.
            types = {name: pa.null() for name in frame.columns} | {f.name: f.type for f in keys}
            rows = pa.schema(list(types.items()))
            require_columns(rows.names, {"by": ours})
            refuse_collated(frame, ours)
        table = self._current(frame)
        with located(at="table"):
            known = arrow_schema(table)
            refuse_collated(table, theirs)
        self._refuse_types(rows, known)
        names = join_names(rows, known, self.by)
        refuse_reserved(names.schema.names, [self.into])

        # Aliases that no column has, so that no condition is ambiguous.
        mark = "_" * (1 + max((len(name) for name in rows.names), default=0))
        aliases = {own: f"{mark}{at}" for at, own in enumerate((*theirs, *dict(names.right)))}
        entries = table.select(
            *(column(own).alias(name) for own, name in aliases.items()), F.lit(True).alias(mark)
        )
        equal = [column(one) == F.col(aliases[other]) for one, other in self.by]
        status = F.when(F.col(mark), "matched").otherwise("missing").alias(self.into)
        joined = frame.join(F.broadcast(entries), equal, self.how)
        values = (F.col(aliases[own]).alias(name) for own, name in names.right)
        return joined.select(*(column(name) for name in rows.names), *values, status)

    def __repr__(self) -> str:
        return show_call(_WHERE, self)

    def _current(self, frame: DataFrame) -> DataFrame:
        """The cached table, or the table read again."""
        now = time.monotonic()
        if self._read is not None and self.refresh != "every batch":
            fresh = self.refresh == "never" or (now - self._read[0]) * 1e6 < float(self.refresh)
            if fresh and not (self.refresh == "never" and frame.isStreaming):
                return self._read[1]
        table = self.table
        if callable(table):
            loaded = table(frame.sparkSession)
            table = require_frame(loaded, "the result of the function of the table")
        if table.isStreaming:
            raise conditions.TABLE_IS_A_STREAM.error(got="a streaming frame")
        with located(at="table"):
            known = arrow_schema(table)
            theirs = [name for _, name in self.by]
            require_columns(known.names, {"by": theirs})
        _refuse_user_types(table)
        loose = relax_nulls(table)
        entries = to_arrow(loose)
        _refuse_duplicates(entries, theirs)
        # Metadata that a query wrote to stored columns does not apply to this query.
        fields = [
            StructField(new.name, new.dataType, old.nullable, comments(old))
            for new, old in zip(loose.schema, table.schema, strict=True)
        ]
        snapshot = create_frame(frame.sparkSession, entries, StructType(fields))
        self._read = now, snapshot
        return snapshot

    def _refuse_changes(self, frame: DataFrame) -> None:
        """Refuse rows that may be retracted after the table has changed."""
        if CHANGE_TYPE in frame.columns and self.refresh != "never":
            raise conditions.ROWS_REVISED.error(
                got=f"a change stream, with {CHANGE_TYPE}, and refresh={self.refresh!r}"
            )

    def _refuse_types(self, rows: pa.Schema, table: pa.Schema) -> None:
        ours, theirs = zip(*self.by, strict=True)
        with located(at="frame"):
            require_keys(rows, ours)
        with located(at="table"):
            require_keys(table, theirs)
        for one, other in self.by:
            types = rows.field(one).type, table.field(other).type
            if types[0] != types[1]:
                conversion = fix_types((one, other), types, ("frame", "table"))
                facts = {"key": one, "expected": type_name(types[0]), "conversion": conversion}
                refuse_type(conditions.LOOKUP_KEY_TYPE, table, other, **facts)


def _refuse_user_types(table: DataFrame) -> None:
    """Refuse user-defined types, which Spark does not create from Arrow."""
    for item in table.schema.fields:
        if contains_type(item.dataType, lambda dtype: isinstance(dtype, UserDefinedType)):
            raise conditions.TYPE_NOT_CARRIED.error(
                at="table", column=item.name, got=item.dataType.simpleString()
            )


def _refuse_duplicates(entries: pa.Table, keys: list[str]) -> None:
    """Refuse duplicate keys, which would duplicate rows."""
    for name in keys:  # nulls match nothing, so they may repeat
        entries = entries.filter(entries.column(name).is_valid())
    groups, firsts = Groups.of(key_codes([entries.column(name) for name in keys], len(entries)))
    if groups.count < len(entries):
        repeated = firsts[groups.sizes() > 1][:3]
        examples = format_rows(entries.select(keys).take(pa.array(repeated)))
        raise conditions.KEY_NOT_UNIQUE.error(
            keys=keys, got=f"{len(entries) - groups.count} rows too many, for example of {examples}"
        )
