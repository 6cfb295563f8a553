"""Fold a change stream to its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructType

from streamops.changelog.change_types import (
    CHANGE_TYPE,
    CHANGE_TYPES,
    DELETE,
    FAULTS,
    INSERT,
    POSTIMAGE,
    PREIMAGE,
    RETRACTIONS,
    REVISION,
)
from streamops.changelog.table import (
    CHANGE_COLUMNS,
    COMMIT_COLUMNS,
    REJECTED,
    SIDE_OUTPUT,
    refuse_change_type,
)
from streamops.changes import conditions
from streamops.kernel import conditions as common
from streamops.kernel.errors import located
from streamops.kernel.ordering import require_sequence
from streamops.kernel.parameters import (
    parse_distinct_names,
    refuse_type,
    require_columns,
)
from streamops.spark.columns import (
    arrow_schema,
    column,
    comparable,
    fields_by_position,
    refuse_duplicates,
    refuse_incomparable,
    require_frame,
)
from streamops.spark.json_columns import OPTIONS
from streamops.spark.operator import show_call

Rows = Literal["keyed", "multiset"]

_BASE, _CONTENT, _PREVIOUS, _BEFORE, _NEXT, _FAULT, _IN_TABLE = (
    f"__streamops_{name}"
    for name in ("base", "content", "previous", "before", "next", "fault", "in_table")
)
_MARK = "\0"  # where the row is inserted into a message


def fold(
    key: str | Sequence[str] | None = None,
    *,
    rows: Rows = "keyed",
    sequence: str | Sequence[str] = REVISION,
    onto: DataFrame | None = None,
) -> FoldTransform:
    """Fold a change stream to its table, and fail if the stream contradicts itself.

    ``insert`` and ``update_postimage`` set the row of a key, ``delete`` removes it, and
    ``update_preimage`` retracts exactly the row that was published before. In a multiset, a retraction
    removes one of the equal rows.

    Input        `key`, `sequence` · _change_type: string · other columns of any type but calendar
                 intervals and geometries, which Spark does not compare. Rows whose `late` or
                 `rejected` is not null are ignored
    Output       the rows, in the input columns except _change_type, late and rejected. A column of
                 the last two names that is not a struct with a string `reason` is a value
    Output mode  batch frames only: inside ``foreachBatch``, or on the output of a stream
    Watermark    none
    State        none; `onto` is the table before the changes
    Order        rows may be in any order: the changes of a key are ordered by `sequence`
    Batch        see above

    Parameters
    ----------
    key : str or sequence of str, optional
        Columns that identify a row. Omit it with ``rows="multiset"``.
    rows : "keyed" or "multiset"
        Whether a key identifies a row. Rows of joins, timelines and ``changes.aggregate`` are a multiset:
        they have no revision.
    sequence : str or sequence of str
        Columns that order the changes of a key. "revision": a row is retracted with the revision that it
        was published with. Any other: the position of the change, such as ``_sequence``, at which the
        retraction is before the new row; it is not part of the row. A multiset has none.
    onto : DataFrame, optional
        The table that the changes apply to, in the columns of the result.

    Returns
    -------
    FoldTransform
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, or cannot be combined with another.
    SchemaError, ColumnNotFound
        The frame is a stream or not a change stream; a column does not exist or has a type that Spark does
        not compare; `onto` has other columns; ``FRAME_TYPE``: there is no revision, and no other
        `sequence`.

    Examples
    --------
    >>> from streamops import changes
    >>> changes.fold("id")
    changes.fold(key=('id',))
    >>> def write(batch, batch_id):
    ...     before = spark.read.parquet(f"table/{batch_id - 1}") if batch_id else None
    ...     now = batch.transform(changes.fold("id", onto=before))
    ...     now.write.mode("overwrite").parquet(f"table/{batch_id}")

    Notes
    -----
    A preimage is compared with the row before in all columns. With a `sequence` other than "revision",
    and in a multiset, columns that describe a change are ignored, such as ``_changed_at``, ``_snapshot``
    and ``_commit_version``.

    A contradiction fails the query when the result is computed; with a filter on the key after ``fold``
    only the keys that pass it are checked. Errors: ``UNKNOWN_CHANGE``, ``INSERTED_TWICE``,
    ``PREIMAGE_NOT_PUBLISHED``, ``POSTIMAGE_ALONE``, ``PREIMAGE_ALONE``, ``DELETED_UNPUBLISHED``, and
    ``NO_SEQUENCE``, a null in `sequence`. A truncate is an ``UNKNOWN_CHANGE``: use ``normalize`` or
    ``apply`` first. In a multiset only ``UNKNOWN_CHANGE`` is checked, and ``PREIMAGE_NOT_PUBLISHED``: more
    rows are retracted than were published. Without ``_change_type`` a row replaces the row of a lower
    `sequence`, and only ``REVISION_OUT_OF_STEP`` (two rows of one sequence) and ``NO_SEQUENCE`` are checked.

    ``streamops.testing.fold`` checks more, row by row: the order of publication, gaps between
    revisions, and rows that are published again without a change.

    See Also
    --------
    differences : compare two tables.
    streamops.testing.fold : for tests.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "State, Streams, and Immutability".
    """
    return FoldTransform(
        None if key is None else parse_distinct_names(key, parameter="key"),
        rows,
        parse_distinct_names(sequence, parameter="sequence"),
        onto,
    )


@dataclass(frozen=True, slots=True, repr=False)
class FoldTransform:
    """A function from batch frame to batch frame, for use with ``DataFrame.transform``."""

    key: tuple[str, ...] | None
    rows: Rows
    sequence: tuple[str, ...]
    onto: DataFrame | None

    def __post_init__(self) -> None:
        """Validate the parameters."""
        if self.rows == "multiset" and self.sequence != (REVISION,):
            raise conditions.SEQUENCE_OF_A_MULTISET.error(
                got=f"sequence={self.sequence!r}, rows='multiset'"
            )
        if (self.key is None) != (self.rows == "multiset"):
            is_missing = self.key is None
            condition = conditions.KEY_MISSING if is_missing else conditions.KEY_OF_A_MULTISET
            raise condition.error(got=f"key={self.key!r}, rows={self.rows!r}")
        refuse_change_type({"key": self.key or (), "sequence": self.sequence})
        if self.onto is not None:
            require_frame(self.onto, "`onto`")

    @located("changes.fold")
    def __call__(self, frame: DataFrame) -> DataFrame:
        """Fold the frame."""
        refuse_stream(frame)
        has_types = CHANGE_TYPE in frame.columns
        if self.key is not None:
            require_columns(frame.columns, {"key": self.key})
            self._refuse_unordered(frame)
            require_columns(frame.columns, {"sequence": self.sequence})
        elif not has_types:
            raise conditions.NO_CHANGES.error(
                column=CHANGE_TYPE, got=f"columns {', '.join(frame.columns)}"
            )
        for part in frame.schema.fields:
            if part.name in SIDE_OUTPUT and _has_reason(part.dataType):
                frame = frame.where(column(part.name).isNull()).drop(part.name)
        if not has_types:
            frame = frame.withColumn(CHANGE_TYPE, F.lit(None).cast("string"))
        frame = self._add_base(frame)
        if self.key is None:
            return self._fold_multiset(frame)
        return self._fold_changes(frame) if has_types else self._latest_rows(frame)

    def __repr__(self) -> str:
        return show_call("changes.fold", self)

    @property
    def _order(self) -> tuple[str, ...]:
        """Columns that order the changes."""
        return () if self.key is None else self.sequence

    def _add_base(self, frame: DataFrame) -> DataFrame:
        """The changes, and the rows of `onto` as inserts before them."""
        self._require_types(frame)
        changes = frame.withColumn(_BASE, F.lit(False))
        if self.onto is None:
            return changes
        refuse_stream(self.onto)
        sides = ("the changes", "`onto`")
        schema = frame.drop(CHANGE_TYPE).schema
        require_same_columns(schema, self.onto.schema, sides=sides)
        base = self.onto.withColumn(CHANGE_TYPE, F.lit(INSERT)).withColumn(_BASE, F.lit(True))
        return base.unionByName(changes)

    def _refuse_unordered(self, frame: DataFrame) -> None:
        if self.sequence == (REVISION,) and REVISION not in frame.columns:
            is_changes = CHANGE_TYPE in frame.columns
            condition = (
                conditions.CHANGES_UNORDERED if is_changes else conditions.VERSIONS_UNORDERED
            )
            got = f"columns {', '.join(frame.columns)}"
            raise condition.error(revision=REVISION, got=got)

    def _require_types(self, frame: DataFrame) -> None:
        refuse_incomparable(frame, frame.columns)
        schema = arrow_schema(frame, only={CHANGE_TYPE, *self._order})
        require_sequence(schema, self._order)
        if not pa.types.is_string(schema.field(CHANGE_TYPE).type):
            facts = {"role": CHANGE_TYPE, "expected": "string"}
            refuse_type(common.CHANGE_COLUMN_TYPE, schema, CHANGE_TYPE, **facts)

    def _content(self, frame: DataFrame) -> Column:
        """The values of a row. A revision is one of them, another sequence is not.

        Operators that publish revisions add no columns that describe a change.
        """
        ignored = {_BASE, CHANGE_TYPE}
        if self._order != (REVISION,):
            ignored |= {*CHANGE_COLUMNS, *COMMIT_COLUMNS, *self.sequence} - {REJECTED, REVISION}
        return F.struct(
            *(
                comparable(column(part.name), part.dataType).alias(f"c{i}")
                for i, part in enumerate(frame.schema.fields)
                if part.name not in ignored
            )
        )

    def _fold_changes(self, frame: DataFrame) -> DataFrame:
        change, is_retraction = column(CHANGE_TYPE), column(CHANGE_TYPE).isin(*RETRACTIONS)
        # A retraction has the revision of the row that it retracts; otherwise the sequence of the next.
        rank = is_retraction if self.sequence == (REVISION,) else ~is_retraction
        order = [~column(_BASE), *map(column, self.sequence), rank]
        window = Window.partitionBy(*self._key_columns(frame)).orderBy(*order)
        ordered = frame.withColumn(_CONTENT, self._content(frame)).select(
            "*",
            F.lag(CHANGE_TYPE).over(window).alias(_PREVIOUS),
            F.lag(_CONTENT).over(window).alias(_BEFORE),
            F.lead(F.coalesce(change, F.lit(""))).over(window).alias(_NEXT),
        )
        previous = F.col(_PREVIOUS)
        exists = F.coalesce(previous.isin(INSERT, POSTIMAGE), F.lit(False))
        same = F.col(_BEFORE).eqNullSafe(F.col(_CONTENT))
        fault = (
            F.when(~F.coalesce(change.isin(*CHANGE_TYPES), F.lit(False)), "UNKNOWN_CHANGE")
            .when(self._has_no_sequence(frame), "NO_SEQUENCE")
            .when((change == INSERT) & (exists | (previous == PREIMAGE)), "INSERTED_TWICE")
            .when((change == PREIMAGE) & ~(exists & same), "PREIMAGE_NOT_PUBLISHED")
            .when((change == POSTIMAGE) & ~previous.eqNullSafe(PREIMAGE), "POSTIMAGE_ALONE")
            .when((change == DELETE) & ~exists, "DELETED_UNPUBLISHED")
            .when((change == PREIMAGE) & F.col(_NEXT).isNull(), "PREIMAGE_ALONE")
        )
        in_table = F.col(_NEXT).isNull() & change.isin(INSERT, POSTIMAGE)
        return self._checked(ordered, fault, in_table, _value_names(frame))

    def _latest_rows(self, frame: DataFrame) -> DataFrame:
        """Rows without change types: a row replaces the row of a lower sequence."""
        sequence = F.struct(*map(column, self.sequence))
        window = Window.partitionBy(*self._key_columns(frame)).orderBy(sequence)
        ordered = frame.select(
            "*",
            F.lead(sequence).over(window).alias(_NEXT),
            F.lag(sequence).over(window).alias(_BEFORE),
        )
        repeated = F.when(F.col(_BEFORE).eqNullSafe(sequence), "REVISION_OUT_OF_STEP")
        fault = F.when(self._has_no_sequence(frame), "NO_SEQUENCE").otherwise(repeated)
        return self._checked(ordered, fault, F.col(_NEXT).isNull(), _value_names(frame))

    def _fold_multiset(self, frame: DataFrame) -> DataFrame:
        names = _value_names(frame)
        change, unknown = column(CHANGE_TYPE), F.col("unknown")
        weight = F.when(change.isin(*RETRACTIONS), -1).when(change.isin(*CHANGE_TYPES), 1)
        row = F.struct(*map(column, names))
        counted = (
            frame.withColumn(_CONTENT, self._content(frame))
            .groupBy(_CONTENT)
            .agg(
                F.first(row).alias("row"),
                F.sum(weight).alias("copies"),
                F.count_if(weight.isNull()).alias("unknown"),
            )
        )
        negative = F.when(F.col("copies") < 0, "PREIMAGE_NOT_PUBLISHED")
        fault = F.when(unknown > 0, "UNKNOWN_CHANGE").otherwise(negative)
        table = self._checked(counted, fault, F.col("copies") > 0, ["row", "copies"])
        copies = F.explode(F.array_repeat(F.col("row"), F.col("copies").cast("int"))).alias("row")
        return table.select(copies).select(*(F.col("row")[name].alias(name) for name in names))

    def _key_columns(self, frame: DataFrame) -> list[Column]:
        types = {part.name: part.dataType for part in frame.schema.fields}
        return [comparable(column(name), types[name]) for name in self.key or ()]

    def _has_no_sequence(self, frame: DataFrame) -> Column:
        return ~column(_BASE) & has_null_part(frame, self.sequence)

    def _checked(
        self, frame: DataFrame, fault: Column, in_table: Column, names: Sequence[str]
    ) -> DataFrame:
        """The rows that are in the table, or an error if one has a fault.

        In one filter: Spark does not compute a column that is not read, and drops the first of two
        filters if the second excludes all rows.
        """
        passes = F.when(F.col(_FAULT).isNull(), F.col(_IN_TABLE))
        row = F.to_json(F.struct(*map(column, names)), OPTIONS)
        for code in FAULTS:
            error = FAULTS[code].error(where="changes.fold", got=_MARK)
            begin, end = map(F.lit, str(error).split(_MARK))
            raised = F.raise_error(F.concat(begin, row, end)).cast("boolean")
            passes = passes.when(F.col(_FAULT) == code, raised)
        marked = frame.withColumn(_FAULT, fault).withColumn(_IN_TABLE, in_table)
        return marked.where(passes).select(*map(column, names))


def _value_names(frame: DataFrame) -> list[str]:
    return [name for name in frame.columns if name not in {CHANGE_TYPE, _BASE}]


def _has_reason(dtype: DataType) -> bool:
    """Whether the type is that of a side output. Otherwise the column is a value."""
    if not isinstance(dtype, StructType) or "reason" not in dtype.names:
        return False
    return isinstance(dtype["reason"].dataType, StringType)


def refuse_stream(frame: DataFrame) -> None:
    """Refuse a streaming frame (``STREAMING_FRAME``), and columns with the same name."""
    if frame.isStreaming:
        raise conditions.STREAMING_FRAME.error(got="a streaming frame")
    refuse_duplicates(frame)


def has_null_part(frame: DataFrame, sequence: Sequence[str]) -> Column:
    """Whether a sequence, or a field of it at any depth, is null."""
    types = {part.name: part.dataType for part in frame.schema.fields}
    parts = (_has_null(column(name), types[name]) for name in sequence)
    return reduce(Column.__or__, parts, F.lit(False))


def _has_null(value: Column, dtype: DataType) -> Column:
    parts = fields_by_position(value, dtype) if isinstance(dtype, StructType) else []
    return reduce(Column.__or__, (_has_null(*part) for part in parts), value.isNull())


def require_same_columns(left: StructType, right: StructType, *, sides: tuple[str, str]) -> None:
    """Refuse two frames that do not have the same columns, in any order."""
    types = [{f.name: f.dataType.simpleString() for f in side.fields} for side in (left, right)]
    if types[0] == types[1]:
        return
    differing = [
        f"{name}: {types[0].get(name, 'none')} and {types[1].get(name, 'none')}"
        for name in dict.fromkeys([*types[0], *types[1]])
        if types[0].get(name) != types[1].get(name)
    ]
    raise conditions.COLUMNS_DIFFER.error(one=sides[0], other=sides[1], got="; ".join(differing))
