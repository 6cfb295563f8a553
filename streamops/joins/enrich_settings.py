"""What a user says about latest-value joins, validated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamops.changelog.change_types import CHANGE_TYPE, INSERT, REVISION
from streamops.changelog.table import (
    DEFAULT_MAX_KEYS,
    SNAPSHOT,
    WhenFull,
    parse_horizon,
    refuse_change_type,
    require_change_columns,
    value_columns,
)
from streamops.joins.core.enrich_spec import CopiedTable, How, LatestSpec, Rejected
from streamops.joins.core.inputs import (
    keys_of,
    refuse_into,
    refuse_keys,
    refuse_missing,
    sequence_of_revisions,
    shown_keys,
)
from streamops.joins.core.naming import named, refuse_reserved
from streamops.joins.core.untimed import UntimedSettings
from streamops.kernel.errors import SpecError
from streamops.kernel.time import Duration
from streamops.spark.columns import arrow_schema, column, type_name
from streamops.spark.parameters import parse_distinct_names, refuse_type, require_most_keys
from streamops.spark.transform import require_choice

__all__ = ["LatestJoin", "marked", "snapshot_rows"]


@dataclass(frozen=True, slots=True)
class LatestJoin(UntimedSettings):
    """Settings of latest-value joins; a duration in microseconds."""

    where: str = field(repr=False)
    by: tuple[tuple[str, str], ...] = field(metadata={"shown": shown_keys})
    sequence: tuple[str, ...]
    horizon: int
    time: str | None
    how: How
    max_keys: int
    when_full: WhenFull
    rejected: Rejected
    into: str
    shards: int = field(repr=False)

    of_results: ClassVar[tuple[bool, bool]] = (False, True)
    needs_preimages: ClassVar[bool] = False

    @staticmethod
    def of(
        where: str,
        *,
        by: str | Sequence[str] | Mapping[str, str],
        sequence: str | Sequence[str],
        horizon: Duration | int,
        time: str | None,
        how: How,
        max_keys: int,
        when_full: WhenFull,
        rejected: Rejected,
        into: str,
        shards: int,
    ) -> LatestJoin:
        """Settings as the user wrote them, normalised, or an error."""
        for value, known, parameter in (
            (how, How, "how"),
            (when_full, WhenFull, "when_full"),
            (rejected, Rejected, "rejected"),
        ):
            require_choice(value, known, parameter=parameter, where=where)
        refuse_into(into, where=where)
        require_most_keys(max_keys, DEFAULT_MAX_KEYS, where=where)
        keys, places = (
            keys_of(by, where=where),
            parse_distinct_names(sequence, parameter="sequence", where=where),
        )
        theirs = tuple(name for _, name in keys)
        if {*theirs} & {*places, time}:
            raise SpecError(
                "SAME_COLUMN",
                "a column of the key is no order of the changes of a key",
                where=where,
                got=f"by={by!r}, sequence={sequence!r}, time={time!r}",
                expected="other columns",
                fix="name the position in the log as `sequence`",
            )
        refuse_change_type({"by": theirs, "sequence": places, "time": (time,)}, where=where)
        if places == (REVISION,):
            fix = (
                "sequence='place' behind .withColumn('place', 2 * F.col('revision') + "
                "F.when(F.col('_change_type') == 'delete', 1).otherwise(0))"
            )
            raise sequence_of_revisions(sequence, fix, where=where)
        units = parse_horizon(horizon, time, parameter="horizon", where=where)
        return LatestJoin(
            where, keys, places, units, time, how, max_keys, when_full, rejected, into, shards
        )

    @property
    def reads(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Columns whose values are compared."""
        left, right = zip(*self.by, strict=True)
        return left, (*right, *self.sequence)

    def bind(self, left: pa.Schema, right: pa.Schema, *, carried: Any) -> LatestSpec:
        """The spec over these columns."""
        ours, theirs = zip(*self.by, strict=True)
        asked = {"by": theirs, "sequence": self.sequence}
        asked |= {} if self.time is None else {"time": (self.time,)}
        refuse_missing(left, {"by": ours}, where=f"{self.where}, left frame")
        refuse_missing(right, asked, where=f"{self.where}, right frame")
        refuse_keys(left, right, self.by, where=self.where)
        require_change_columns(right, self.sequence, self.time, where=f"{self.where}, right frame")
        values = value_columns(right, theirs, self.sequence)
        row = pa.schema([each for each in right if each.name in {*theirs, *values}])
        names = named(left, row, self.by, self.where)
        added = [self.into, *(["late"] if self.rejected == "route" else [])]
        fix = "rename the column before the join, or name the added one otherwise by into=..."
        refuse_reserved(names.schema.names, added, fix, self.where)
        table = CopiedTable(
            where=self.where,
            key=theirs,
            sequence=self.sequence,
            time=self.time,
            horizon=self.horizon,
            values=tuple(sorted(values)),
            input=right
            if SNAPSHOT in right.names
            else right.append(pa.field(SNAPSHOT, pa.bool_())),
            snapshots="below_log",  # the log tells all that came after a snapshot was begun
            limit=-(-self.max_keys // self.shards),
            when_full=self.when_full,
            came=right,
        )
        return LatestSpec(self.by, left, table, names, self.into, self.how, self.rejected)


def marked(table: DataFrame) -> DataFrame:
    """The changes, each of which says whether it is a row of a snapshot."""
    return table if SNAPSHOT in table.columns else table.withColumn(SNAPSHOT, F.lit(False))


def snapshot_rows(settings: LatestJoin, snapshot: DataFrame, table: DataFrame) -> DataFrame:
    """The rows of a snapshot as changes, with the columns of these.

    Raises
    ------
    SpecError
        ``SNAPSHOT_IS_A_STREAM``.
    SchemaError, ColumnNotFound
        A column of the table's row is not there, or of another type.
    """
    where = f"{settings.where}, snapshot"
    if snapshot.isStreaming:
        raise SpecError(
            "SNAPSHOT_IS_A_STREAM",
            "a snapshot is read whole, before all changes",
            where=where,
            got="a streaming frame",
            expected="a batch frame",
            fix=f"spark.read instead of spark.readStream; or leave snapshot out, where its rows come "
            f"among the changes and a boolean column {SNAPSHOT!r} says which these are",
        )
    own, changes = (arrow_schema(each, where=where) for each in (snapshot, table))
    theirs = [name for _, name in settings.by]
    values = value_columns(changes, theirs, settings.sequence)
    times = () if settings.time is None else (settings.time,)
    asked = {"by": theirs, "sequence": settings.sequence, "time": times, "value": values}
    refuse_missing(own, asked, where=where)
    row = {name for names in asked.values() for name in names}
    said = {SNAPSHOT: F.lit(True), CHANGE_TYPE: F.lit(INSERT)}
    columns = []
    for each in table.schema.fields:
        if each.name in row:
            wanted = changes.field(each.name).type
            if own.field(each.name).type != wanted:
                expected = f"{type_name(wanted)}, as in the changes"
                fix = f"cast it: snapshot.withColumn({each.name!r}, ...)"
                refuse_type(own, each.name, "the table's", expected, fix, where=where)
            value = column(each.name)
        else:
            value = said.get(each.name, F.lit(None))
        columns.append(value.cast(each.dataType).alias(each.name))
    return snapshot.select(*columns)
