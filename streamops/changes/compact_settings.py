"""How a log is compacted: settings, and the expressions they come down to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, StructField, TimestampType

from streamops.changelog.change_types import CHANGE_TYPE, CHANGE_TYPES, DELETE, PREIMAGE
from streamops.changelog.parameters import (
    parse_horizon,
    refuse_change_type,
    require_change_columns,
)
from streamops.changelog.table import (
    CHANGE_COLUMNS,
    REJECTED,
    SNAPSHOT,
    TOMBSTONE,
    UNAVAILABLE,
    Flag,
    Snapshots,
)
from streamops.changes.bounded import is_nowhere, refuse_stream, require_columns
from streamops.kernel.errors import SpecError
from streamops.kernel.time import Duration
from streamops.spark.columns import arrow_schema, column, require_name
from streamops.spark.comparing import comparable, refuse_incomparable
from streamops.spark.parameters import parse_distinct_names, refuse_type
from streamops.spark.results import UPSERTS
from streamops.spark.rowwise import noted
from streamops.spark.transform import require_choice, show_fields

__all__ = ["CompactTransform"]

_KEY, _PLACE, _AGE, _GONE, _NEWEST, _STAYS = (
    f"__streamops_{name}" for name in ("key", "place", "age", "gone", "newest", "stays")
)


@dataclass(frozen=True, slots=True, repr=False)
class CompactTransform:
    """A frame-to-frame function, for use with ``DataFrame.transform``, on batch frames.

    Its ``repr`` shows the whole specification.
    """

    where: str = field(repr=False)
    key: tuple[str, ...]
    sequence: tuple[str, ...]
    retention: int
    time: str | None
    head: int | None
    value: str | None
    snapshots: Snapshots
    ignore_nulls: bool

    @staticmethod
    def of(
        where: str,
        key: str | Sequence[str],
        *,
        sequence: str | Sequence[str],
        retention: Duration | int,
        time: str | None,
        head: Duration | int | None,
        value: str | None,
        snapshots: Snapshots,
        ignore_nulls: bool,
    ) -> CompactTransform:
        """Settings as the user wrote them, normalised, or an error."""
        keys = parse_distinct_names(key, parameter="key", where=where)
        places = parse_distinct_names(sequence, parameter="sequence", where=where)
        refuse_change_type({"key": keys, "sequence": places}, where=where)
        require_choice(snapshots, Snapshots, parameter="snapshots", where=where)
        require_choice(ignore_nulls, Flag, parameter="ignore_nulls", where=where)
        if value is not None:
            require_name(value, parameter="value", where=where)
        kept = parse_horizon(retention, time, parameter="retention", where=where)
        whole = None
        if head is not None:
            whole = parse_horizon(head, time, parameter="head", where=where)
        return CompactTransform(
            where, keys, places, kept, time, whole, value, snapshots, ignore_nulls
        )

    def __repr__(self) -> str:
        return f"{self.where}({', '.join(show_fields(self))})"

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The log without what no reader needs."""
        kinds = self._checked(frame)
        word, says = column(CHANGE_TYPE), CHANGE_TYPE in kinds
        gone = word.eqNullSafe(DELETE) if says else column(str(self.value)).isNull()
        key = F.struct(
            *(
                comparable(column(n), kinds[n].dataType).alias(f"c{i}")
                for i, n in enumerate(self.key)
            )
        )
        usable = [column(name).isNotNull() for name in self.key]
        usable.append(~is_nowhere(frame, self.sequence))
        usable.append(self._age(kinds).isNotNull())
        if says:
            usable.append(word.isin(*CHANGE_TYPES))
        if REJECTED in kinds:
            usable.append(column(REJECTED).isNull())
        is_placed = F.coalesce(reduce(Column.__and__, usable), F.lit(False))
        log = frame.select(
            "*",
            key.alias(_KEY),
            F.when(is_placed, self._place(kinds)).alias(_PLACE),
            F.when(is_placed, self._age(kinds)).alias(_AGE),
            gone.alias(_GONE),
        )
        newest = log.agg(F.max(_AGE).alias(_NEWEST))
        log = log.crossJoin(F.broadcast(newest))
        log = log.withColumn(_STAYS, self._stays(kinds, says))
        left = log.where(_STAYS).select(*map(column, frame.columns))
        return noted(left, CHANGE_TYPE, {UPSERTS: True}) if says else left

    def _stays(self, kinds: dict[str, StructField], says: bool) -> Column:
        window = Window.partitionBy(_KEY)
        place, is_placed = F.col(_PLACE), F.col(_PLACE).isNotNull()
        # Preimages are no change by themselves: what they take back may be gone already.
        is_preimage = column(CHANGE_TYPE).eqNullSafe(PREIMAGE) if says else F.lit(False)
        counted = F.when(~is_preimage, place)
        last = F.max(counted).over(window)
        is_last = place == last
        behind = _apart(F.col(_NEWEST), F.col(_AGE))
        # Of the newest row of the key: a delete goes after all that it deleted.
        whole = 0 if self.head is None else self.head
        since = _apart(F.col(_NEWEST), F.max(_AGE).over(window))
        expired = is_last & F.col(_GONE) & (since > max(self.retention, whole))
        needed = is_last
        for name in self._values(kinds) if UNAVAILABLE in kinds or self.ignore_nulls else ():
            sent = column(name).isNotNull() if self.ignore_nulls else F.lit(True)
            if UNAVAILABLE in kinds:
                sent &= ~F.coalesce(F.array_contains(column(UNAVAILABLE), name), F.lit(False))
            given = F.max(F.when(F.col(_GONE) | sent, counted)).over(window)
            needed |= place == given
        stays = ~is_preimage & needed & ~expired
        if self.head is not None:
            stays |= behind <= self.head
        ends = F.lit(False)
        if TOMBSTONE in kinds:  # kept beside the delete that it follows
            gone = F.max(F.when(is_placed & F.col(_GONE), place)).over(window)
            is_mark = F.coalesce(column(TOMBSTONE), F.lit(False))
            outlived = last.isNull() | ~gone.eqNullSafe(last)
            ends = is_mark & (outlived | (since > max(self.retention, whole)))
        unplaced = ~is_placed & ~F.coalesce(ends, F.lit(False))
        return unplaced | F.coalesce(stays, F.lit(False))

    def _values(self, kinds: dict[str, StructField]) -> list[str]:
        apart = {*self.key, *self.sequence, *CHANGE_COLUMNS}
        return [name for name in kinds if name not in apart]

    def _place(self, kinds: dict[str, StructField]) -> Column:
        parts = [column(name) for name in self.sequence]
        if SNAPSHOT in kinds:
            is_log = ~F.coalesce(column(SNAPSHOT), F.lit(False))
            parts = [is_log, *parts] if self.snapshots == "below_log" else [*parts, is_log]
        return F.struct(*(part.alias(f"c{i}") for i, part in enumerate(parts)))

    def _age(self, kinds: dict[str, StructField]) -> Column:
        if self.time is not None:
            return F.unix_micros(column(self.time))
        return column(self.sequence[0]).cast("bigint")

    def _checked(self, frame: DataFrame) -> dict[str, StructField]:
        refuse_stream(frame, where=self.where)
        require_columns(frame, self.key, role="key", where=self.where)
        refuse_incomparable(frame, self.key, where=self.where)
        require_columns(frame, self.sequence, role="sequence", where=self.where)
        kinds = {each.name: each for each in frame.schema.fields}
        if self.value is not None:
            require_columns(frame, [self.value], role="value", where=self.where)
        if (CHANGE_TYPE in kinds) == (self.value is not None):
            raise SpecError(
                "DELETES_UNKNOWN",
                "nothing tells which rows are deletes, or two columns do",
                where=self.where,
                got=f"columns {', '.join(kinds)}; value={self.value!r}",
                expected=f"a column {CHANGE_TYPE!r}, or value=... without one",
                fix='value="value" for a topic of Kafka\'s, whose deletes have none',
            )
        read = {*self.sequence, *CHANGE_COLUMNS}
        if self.time is not None:
            require_columns(frame, [self.time], role="time", where=self.where)
            read.add(self.time)
        schema = arrow_schema(frame, where=self.where, only=read)
        require_change_columns(schema, self.sequence, self.time, where=self.where)
        if self.time is not None and not isinstance(kinds[self.time].dataType, TimestampType):
            fix = "cast the column, or name another"
            refuse_type(schema, self.time, "`time`", "timestamp", fix, where=self.where)
        return kinds


def _apart(newest: Column, age: Column) -> Column:
    """How far behind, also where this is more than a 64-bit number holds."""
    whole = DecimalType(20, 0)
    return newest.cast(whole) - age.cast(whole)
