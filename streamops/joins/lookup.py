"""Lookups: what a small table says now."""

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
from streamops.joins.core.inputs import keys_of, refuse_missing, shown_keys
from streamops.joins.core.naming import named, refuse_reserved
from streamops.kernel.columns import key_codes
from streamops.kernel.errors import SchemaError, SpecError
from streamops.kernel.groups import Groups
from streamops.kernel.parameters import refuse_type, require_choice, require_keys, show_duration
from streamops.kernel.time import Duration, parse_duration
from streamops.spark.columns import (
    arrow_schema,
    column,
    contains_type,
    refuse_collated,
    relax_nulls,
    require_frame,
    require_name,
    type_name,
)
from streamops.spark.results import comments

__all__ = ["LookupTransform", "Refresh", "lookup"]

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
    """Put beside each row what a small table has for its key now, without waiting for anything.

    The table is read whole, checked for keys that are there twice, and sent to every task. A row gets
    what it says when the row is processed: **a replay of the stream gives another answer** where the
    table has changed meanwhile, and so does a micro-batch that Spark repeats after a failure. Where
    that matters, and a history of the table exists, take :func:`temporal`.

    Input        key columns that can be hashed: no maps, variants or intervals of months, nor what has a
                 collation · other columns of any type · a table with at most one row per key, of types
                 that Spark hands to Python, small enough for the memory of the driver and of every task
    Output       all columns of the row · all of the table but its keys, null where it has no such key; one
                 whose name is taken ends with _right · `into`: string, "matched" or "missing"
    Output mode  any
    Watermark    not needed; one that the frame has stays
    State        none; the table, in memory, since it was read last
    Order        rows may come in any order; an answer depends on when it is asked for. Of a change
                 stream only beside a table that never changes, also from one start of the query to the
                 next: else rows would be taken back that were never published
    Batch        same rows out

    Parameters
    ----------
    table : DataFrame, or function of a SparkSession that returns one
        The table. A function is called whenever the table is to be read.
    by : str, sequence of str, or mapping of str to str
        Key columns; where they are called otherwise in the table, ``{"name": "table's name"}``. A null
        matches nothing.
    how : "left" or "inner"
        "left": a row without an entry comes out with nulls. "inner": not at all.
    refresh : "never", "every batch" or a duration
        When the table is read again. "never": whenever the transform is applied to a stream, so
        make that frame anew for each start of its query; for batches, the first time that it is
        applied to anything. The others are for use inside ``foreachBatch``, as Spark plans a stream
        once: the table is read when the transform is applied to a micro-batch, each time, or if the
        last time was so long ago by the driver's clock. They ask for a function.
    into : str
        Name of the column that says whether the row has an entry.

    Returns
    -------
    LookupTransform
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type or contradicts another; the table is a stream, or no frame
        (``NOT_A_FRAME``); ``REFRESH_OF_A_STREAM``.
    SchemaError, ColumnNotFound
        A column does not exist, has the wrong type or finds no name; ``KEY_NOT_UNIQUE``,
        ``ROWS_REVISED``.

    Examples
    --------
    >>> from streamops import joins
    >>> named = joins.lookup(
    ...     lambda spark: spark.table("airports"), by="code", refresh="10 minutes"
    ... )
    >>> def write(batch, batch_id):  # doctest: +SKIP
    ...     batch.transform(named).write.mode("append").parquet("flights")

    See Also
    --------
    temporal : the same answer whenever it is asked for.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Stream-table joins".
    """
    keys = keys_of(by, where=_WHERE)
    require_choice(how, How, parameter="how", where=_WHERE)
    require_name(into, parameter="into", where=_WHERE)
    every: str | int = "never"
    if refresh in get_args(Refresh):
        every = str(refresh)
    else:
        every = parse_duration(refresh, parameter="refresh", where=_WHERE, minimum=1)
    if not callable(table) and every != "never":
        raise SpecError(
            "REFRESH_WITHOUT_FUNCTION",
            "a frame says once and for all which files it reads",
            where=_WHERE,
            got=f"refresh={refresh!r} with a DataFrame",
            expected="a function that makes the frame anew",
            fix="joins.lookup(lambda spark: spark.read.parquet(path), ...)",
        )
    if not callable(table):
        require_frame(table, "the table", where=_WHERE)
    return LookupTransform(keys, how, every, into, table)


@dataclass(slots=True, repr=False)
class LookupTransform:
    """A frame-to-frame function, for use with ``DataFrame.transform``. It keeps the table it read."""

    by: tuple[tuple[str, str], ...]
    how: How
    refresh: str | int
    into: str
    table: DataFrame | Load
    _read: tuple[float, DataFrame] | None = field(default=None, init=False)

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The result frame, its plan checked."""
        if frame.isStreaming and self.refresh != "never":
            raise SpecError(
                "REFRESH_OF_A_STREAM",
                "Spark plans a stream once: the table would not be read again",
                where=_WHERE,
                got=f"{self!r} on a streaming frame",
                expected="refresh='never', or a micro-batch inside foreachBatch",
                fix="writeStream.foreachBatch(lambda batch, _: batch.transform(...).write...)",
            )
        ours, theirs = zip(*self.by, strict=True)
        self._refuse_changes(frame)
        keys = arrow_schema(frame, where=f"{_WHERE}, frame", only=ours)
        # The other columns never leave Spark: they may be of a type that Arrow does not carry.
        types = {name: pa.null() for name in frame.columns} | {f.name: f.type for f in keys}
        rows = pa.schema(list(types.items()))
        refuse_missing(rows, {"by": ours}, where=f"{_WHERE}, frame")
        table = self._current(frame)
        known = arrow_schema(table, where=f"{_WHERE}, table")
        self._refuse_types(rows, known)
        refuse_collated(frame, ours, where=f"{_WHERE}, frame")
        refuse_collated(table, theirs, where=f"{_WHERE}, table")
        names = named(rows, known, self.by, _WHERE)
        fix = "rename the column before the lookup, or name the added one otherwise by into=..."
        refuse_reserved(names.schema.names, [self.into], fix, _WHERE)

        # Names that no column has, so that no condition is ambiguous.
        mark = "_" * (1 + max((len(name) for name in rows.names), default=0))
        aside = {own: f"{mark}{at}" for at, own in enumerate((*theirs, *dict(names.right)))}
        entries = table.select(
            *(column(own).alias(name) for own, name in aside.items()), F.lit(True).alias(mark)
        )
        equal = [column(one) == F.col(aside[other]) for one, other in self.by]
        status = F.when(F.col(mark), "matched").otherwise("missing").alias(self.into)
        joined = frame.join(F.broadcast(entries), equal, self.how)
        values = (F.col(aside[own]).alias(name) for own, name in names.right)
        return joined.select(*(column(name) for name in rows.names), *values, status)

    def __repr__(self) -> str:
        every = show_duration(self.refresh) if isinstance(self.refresh, int) else repr(self.refresh)
        arguments = (
            f"by={shown_keys(self.by)}, how={self.how!r}, refresh={every}, into={self.into!r}"
        )
        return f"{_WHERE}({arguments})"

    def _current(self, frame: DataFrame) -> DataFrame:
        """The table as it was read last, or as it is now."""
        now = time.monotonic()
        if self._read is not None and self.refresh != "every batch":
            fresh = self.refresh == "never" or (now - self._read[0]) * 1e6 < float(self.refresh)
            if fresh and not (self.refresh == "never" and frame.isStreaming):
                return self._read[1]
        table = self.table
        if callable(table):
            made = table(frame.sparkSession)
            table = require_frame(made, "what the function of the table returns", where=_WHERE)
        if table.isStreaming:
            raise SpecError(
                "TABLE_IS_A_STREAM",
                "the table of a lookup is read whole",
                where=_WHERE,
                got="a streaming frame",
                expected="a frame that can be read to its end",
                fix="spark.read instead of spark.readStream; or joins.asof, of two streams",
            )
        known = arrow_schema(table, where=f"{_WHERE}, table")
        theirs = [name for _, name in self.by]
        refuse_missing(known, {"by": theirs}, where=f"{_WHERE}, table")
        _refuse_own(table)
        loose = relax_nulls(table)
        entries = loose.toArrow()
        _refuse_twice(entries, theirs)
        # What a query noted on columns that were stored is not true of this one.
        fields = [
            StructField(new.name, new.dataType, old.nullable, comments(old))
            for new, old in zip(loose.schema, table.schema, strict=True)
        ]
        snapshot = frame.sparkSession.createDataFrame(entries, StructType(fields))
        self._read = now, snapshot
        return snapshot

    def _refuse_changes(self, frame: DataFrame) -> None:
        """Refuse rows that are taken back later, beside a table that says something else by then."""
        if CHANGE_TYPE in frame.columns and self.refresh != "never":
            raise SchemaError(
                "ROWS_REVISED",
                "what was published with one row of the table would be taken back with another",
                where=_WHERE,
                got=f"a change stream, with {CHANGE_TYPE}, and refresh={self.refresh!r}",
                expected="rows that each count once, or a table that stands still",
                fix="joins.tables, of two change streams; or refresh='never', where the table never "
                "changes",
            )

    def _refuse_types(self, rows: pa.Schema, table: pa.Schema) -> None:
        ours, theirs = zip(*self.by, strict=True)
        require_keys(rows, ours, where=f"{_WHERE}, frame")
        require_keys(table, theirs, where=f"{_WHERE}, table")
        for one, other in self.by:
            types = rows.field(one).type, table.field(other).type
            if types[0] != types[1]:
                expected = f"{type_name(types[0])}, as {one!r} of the frame"
                fix = f"cast one of them: F.col({other!r}).cast({type_name(types[0])!r})"
                refuse_type(table, other, f"the key {one!r}", expected, fix, where=_WHERE)


def _refuse_own(table: DataFrame) -> None:
    """Refuse types that users defined: Spark makes no column of them from Arrow."""
    for item in table.schema.fields:
        if contains_type(item.dataType, lambda dtype: isinstance(dtype, UserDefinedType)):
            raise SchemaError(
                "TYPE_NOT_CARRIED",
                f"column {item.name!r} of the table has a type that is defined in Python or Scala",
                where=f"{_WHERE}, table",
                got=item.dataType.simpleString(),
                expected="a type of Spark's own",
                fix="drop the column, or turn it into one: of a vector, pyspark.ml.functions.vector_to_array",
            )


def _refuse_twice(entries: pa.Table, keys: list[str]) -> None:
    """Refuse keys that are there twice: a row would come out twice."""
    whole = entries
    for name in keys:  # a null matches nothing, however often it is there
        whole = whole.filter(whole.column(name).is_valid())
    groups, firsts = Groups.of(key_codes([whole.column(name) for name in keys], len(whole)))
    if groups.count < len(whole):
        twice = firsts[groups.sizes() > 1][:3]
        examples = whole.select(keys).take(pa.array(twice)).to_pylist()
        raise SchemaError(
            "KEY_NOT_UNIQUE",
            "the table has several rows of one key",
            where=_WHERE,
            got=f"{len(whole) - groups.count} rows too many, of {examples} among others",
            expected="at most one row per key",
            fix=f"table.dropDuplicates({keys!r}), or a rule that says which row counts",
        )
