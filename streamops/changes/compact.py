"""Compact a log of changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, StructField, TimestampType

from streamops.changelog.change_types import CHANGE_TYPE, CHANGE_TYPES, DELETE, PREIMAGE
from streamops.changelog.table import (
    CHANGE_COLUMNS,
    REJECTED,
    SNAPSHOT,
    TOMBSTONE,
    UNAVAILABLE,
    Snapshots,
    parse_horizon,
    refuse_change_type,
    require_change_columns,
)
from streamops.changes import conditions
from streamops.changes.delta import mark_upserts
from streamops.changes.fold import has_null_part, refuse_stream
from streamops.kernel import conditions as common
from streamops.kernel.errors import located
from streamops.kernel.parameters import (
    parse_distinct_names,
    refuse_type,
    require_columns,
)
from streamops.kernel.time import Duration
from streamops.spark.columns import arrow_schema, column, comparable, refuse_incomparable
from streamops.spark.operator import show_call

_KEY, _SEQUENCE, _CLOCK, _DELETED, _LATEST, _RETAINED = (
    f"__streamops_{name}" for name in ("key", "sequence", "clock", "deleted", "latest", "retained")
)


def compact(
    key: str | Sequence[str],
    *,
    sequence: str | Sequence[str],
    retention: Duration | int,
    time: str | None = None,
    head: Duration | int | None = None,
    value: str | None = None,
    snapshots: Snapshots = "below_log",
    ignore_nulls: bool = False,
) -> CompactTransform:
    """Retain the changes that a reader needs who starts at the beginning of a log.

    These are the last change of each key, and the changes that supply its unavailable values. A delete
    that is the last change of its key is retained for `retention`. The operator is a filter: it does not
    modify rows, and its output has no order. Sort the rows by `sequence` before you write them as a log.

    Input        `key`, `sequence`: columns that can be compared, and no text in `sequence` · `time`:
                 timestamp · _change_type: string, or `value`, null in a delete · _unavailable, _snapshot, _tombstone, rejected,
                 as ``from_debezium`` publishes them · other columns of any type
    Output       the same columns
    Output mode  batch frames only
    Watermark    none
    State        none
    Order        rows may be in any order: the changes of a key are ordered by `sequence`
    Batch        see above

    Parameters
    ----------
    key : str or sequence of str
        Columns that identify a row.
    sequence : str or sequence of str
        Columns that order the changes of a key.
    retention : duration or int
        How long a delete is retained after the newest change of the log: a duration on `time`, or
        without `time` a number of units of `sequence`. A delete of exactly that age is retained.
    time : str, optional
        Column on which retention and head are measured.
    head : duration or int, optional
        All changes within this distance of the newest change are retained.
    value : str, optional
        If there is no _change_type: the column whose null is a delete, as in a Kafka topic.
    snapshots : "below_log" or "by_sequence"
        Whether a row of a snapshot is below every change of the log, as in ``normalize``.
    ignore_nulls : bool
        Whether the log is read with ``ignore_nulls=True``: a change that supplies the value of a later
        null is then retained.

    Returns
    -------
    CompactTransform
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type or is out of range.
    SchemaError, ColumnNotFound
        The frame is a stream, or a column does not exist or has the wrong type.

    Examples
    --------
    >>> from streamops import changes
    >>> changes.compact("id", sequence="_sequence", retention="7 days", time="_changed_at")
    changes.compact(key=('id',), sequence=('_sequence',), retention='7 days', time='_changed_at')

    Notes
    -----
    A compacted log is a log of upserts, without preimages. So an update that changes a key must be a
    delete and an insert, as from ``from_debezium`` and ``from_delta``. Read the log with ``normalize`` or
    ``apply(history="overwrite")``. Truncates are retained, and so are rows without a position in the log
    (rejected, or without key or sequence), all copies of a retained change, and all changes in conflict
    with it.

    The age of a delete is that of the youngest row of its key in the log: a delete is retained longer
    than the rows that it deleted, even if their clock was ahead.

    See Also
    --------
    normalize : the changes of the table that the log describes.

    References
    ----------
    Apache Kafka's documentation, "Log Compaction".
    """
    return CompactTransform(
        parse_distinct_names(key, parameter="key"),
        parse_distinct_names(sequence, parameter="sequence"),
        parse_horizon(retention, time, parameter="retention"),
        time,
        None if head is None else parse_horizon(head, time, parameter="head"),
        value,
        snapshots,
        ignore_nulls,
    )


@dataclass(frozen=True, slots=True, repr=False)
class CompactTransform:
    """A function from batch frame to batch frame, for use with ``DataFrame.transform``."""

    key: tuple[str, ...]
    sequence: tuple[str, ...]
    retention: int
    time: str | None
    head: int | None
    value: str | None
    snapshots: Snapshots
    ignore_nulls: bool

    def __post_init__(self) -> None:
        """Validate the parameters."""
        refuse_change_type({"key": self.key, "sequence": self.sequence})

    def __repr__(self) -> str:
        return show_call("changes.compact", self)

    @located("changes.compact")
    def __call__(self, frame: DataFrame) -> DataFrame:
        """Compact the log."""
        columns = self._checked(frame)
        change, has_types = column(CHANGE_TYPE), CHANGE_TYPE in columns
        is_delete = change.eqNullSafe(DELETE) if has_types else column(str(self.value)).isNull()
        key = F.struct(
            *(
                comparable(column(name), columns[name].dataType).alias(f"c{i}")
                for i, name in enumerate(self.key)
            )
        )
        conditions = [column(name).isNotNull() for name in self.key]
        conditions.append(~has_null_part(frame, self.sequence))
        conditions.append(self._clock().isNotNull())
        if has_types:
            conditions.append(change.isin(*CHANGE_TYPES))
        if REJECTED in columns:
            conditions.append(column(REJECTED).isNull())
        is_change = F.coalesce(reduce(Column.__and__, conditions), F.lit(False))
        log = frame.select(
            "*",
            key.alias(_KEY),
            F.when(is_change, self._position(columns)).alias(_SEQUENCE),
            F.when(is_change, self._clock()).alias(_CLOCK),
            is_delete.alias(_DELETED),
        )
        log = log.crossJoin(F.broadcast(log.agg(F.max(_CLOCK).alias(_LATEST))))
        log = log.withColumn(_RETAINED, self._is_retained(columns))
        result = log.where(_RETAINED).select(*map(column, frame.columns))
        return mark_upserts(result) if has_types else result

    def _is_retained(self, columns: dict[str, StructField]) -> Column:
        window = Window.partitionBy(_KEY)
        sequence, is_change = F.col(_SEQUENCE), F.col(_SEQUENCE).isNotNull()
        # A preimage is not a change by itself: the row that it retracts may be removed.
        has_types = CHANGE_TYPE in columns
        is_preimage = column(CHANGE_TYPE).eqNullSafe(PREIMAGE) if has_types else F.lit(False)
        counted = F.when(~is_preimage, sequence)
        last = F.max(counted).over(window)
        is_last = sequence == last
        # By the youngest row of the key: a delete is removed after all rows that it deleted.
        age = _difference(F.col(_LATEST), F.max(_CLOCK).over(window))
        # A plain int: Py4J sends the repr of a number, and that of a horizon is a duration.
        is_expired = age > int(max(self.retention, self.head or 0))
        is_needed = is_last
        for name in self._values(columns) if UNAVAILABLE in columns or self.ignore_nulls else ():
            is_sent = column(name).isNotNull() if self.ignore_nulls else F.lit(True)
            if UNAVAILABLE in columns:
                is_sent &= ~F.coalesce(F.array_contains(column(UNAVAILABLE), name), F.lit(False))
            supplier = F.max(F.when(F.col(_DELETED) | is_sent, counted)).over(window)
            is_needed |= sequence == supplier
        retained = ~is_preimage & is_needed & ~(is_last & F.col(_DELETED) & is_expired)
        if self.head is not None:
            retained |= _difference(F.col(_LATEST), F.col(_CLOCK)) <= int(self.head)
        is_obsolete = F.lit(False)
        if TOMBSTONE in columns:  # retained together with the delete before it
            deleted = F.max(F.when(is_change & F.col(_DELETED), sequence)).over(window)
            is_tombstone = F.coalesce(column(TOMBSTONE), F.lit(False))
            is_replaced = last.isNull() | ~deleted.eqNullSafe(last)
            is_obsolete = F.coalesce(is_tombstone & (is_replaced | is_expired), F.lit(False))
        return (~is_change & ~is_obsolete) | F.coalesce(retained, F.lit(False))

    def _values(self, columns: dict[str, StructField]) -> list[str]:
        others = {*self.key, *self.sequence, *CHANGE_COLUMNS}
        return [name for name in columns if name not in others]

    def _position(self, columns: dict[str, StructField]) -> Column:
        parts = [column(name) for name in self.sequence]
        if SNAPSHOT in columns:
            is_log = ~F.coalesce(column(SNAPSHOT), F.lit(False))
            parts = [is_log, *parts] if self.snapshots == "below_log" else [*parts, is_log]
        return F.struct(*(part.alias(f"c{i}") for i, part in enumerate(parts)))

    def _clock(self) -> Column:
        if self.time is not None:
            return F.unix_micros(column(self.time))
        return column(self.sequence[0]).cast("bigint")

    def _checked(self, frame: DataFrame) -> dict[str, StructField]:
        """The columns of the frame, or an error."""
        refuse_stream(frame)
        require_columns(frame.columns, {"key": self.key})
        refuse_incomparable(frame, self.key)
        require_columns(frame.columns, {"sequence": self.sequence})
        columns = {part.name: part for part in frame.schema.fields}
        if self.value is not None:
            require_columns(frame.columns, {"value": [self.value]})
        if (CHANGE_TYPE in columns) == (self.value is not None):
            raise conditions.DELETES_UNKNOWN.error(
                column=CHANGE_TYPE, got=f"columns {', '.join(columns)}; value={self.value!r}"
            )
        read = {*self.sequence, *CHANGE_COLUMNS}
        if self.time is not None:
            require_columns(frame.columns, {"time": [self.time]})
            read.add(self.time)
        schema = arrow_schema(frame, only=read)
        require_change_columns(schema, self.sequence, self.time)
        if self.time is not None and not isinstance(columns[self.time].dataType, TimestampType):
            facts = {"role": "time", "expected": "timestamp"}
            refuse_type(common.CHANGE_COLUMN_TYPE, schema, self.time, **facts)
        return columns


def _difference(latest: Column, clock: Column) -> Column:
    """The distance of two clocks, which may exceed 64 bits."""
    wide = DecimalType(20, 0)
    return latest.cast(wide) - clock.cast(wide)
