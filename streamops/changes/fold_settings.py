"""How a change stream is folded: settings, and the expressions they come down to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructType

from streamops.changelog.change_types import (
    CHANGE_TYPE,
    CHANGE_TYPES,
    DELETE,
    INSERT,
    POSTIMAGE,
    PREIMAGE,
    RETRACTIONS,
    REVISION,
)
from streamops.changelog.parameters import refuse_change_type
from streamops.changelog.table import CHANGE_COLUMNS, COMMIT_COLUMNS, REJECTED
from streamops.changes.bounded import is_nowhere, refuse_others, refuse_stream, require_columns
from streamops.changes.fold_faults import checked
from streamops.kernel.errors import SchemaError, SpecError
from streamops.kernel.ordering import is_comparable
from streamops.spark.columns import arrow_schema, column
from streamops.spark.comparing import comparable, refuse_incomparable
from streamops.spark.parameters import parse_distinct_names, refuse_type, require_frame
from streamops.spark.transform import require_choice, show_fields

__all__ = ["FoldTransform", "Rows"]

Rows = Literal["keyed", "bag"]

_ASIDE = (REJECTED, "late")
_BASE, _CONTENT, _WORD, _BEFORE, _AFTER = (
    f"__streamops_{name}" for name in ("base", "content", "word", "before", "after")
)
_OF_BAGS = (
    "changes.fold(rows='bag'), of joins, changes.aggregate and timelines: whole rows come and go "
    "there; sequence='_sequence', of what was captured"
)
_OF_ROWS = "sequence='version', or whatever column says which of the rows of a key is newer"


@dataclass(frozen=True, slots=True, repr=False)
class FoldTransform:
    """A frame-to-frame function, for use with ``DataFrame.transform``, on batch frames.

    Its ``repr`` shows the whole specification.
    """

    where: str = field(repr=False)
    key: tuple[str, ...]
    rows: Rows
    sequence: tuple[str, ...]
    onto: DataFrame | None

    @staticmethod
    def of(
        where: str,
        key: str | Sequence[str] | None,
        *,
        rows: Rows,
        sequence: str | Sequence[str],
        onto: DataFrame | None,
    ) -> FoldTransform:
        """Settings as the user wrote them, normalised, or an error."""
        require_choice(rows, Rows, parameter="rows", where=where)
        places = parse_distinct_names(sequence, parameter="sequence", where=where)
        if rows == "bag" and places != (REVISION,):
            raise SpecError(
                "SEQUENCE_OF_A_BAG",
                "in a bag nothing depends on the order of changes",
                where=where,
                got=f"sequence={sequence!r}, rows='bag'",
                expected="a sequence beside a key, or none",
                fix="leave it out; drop the column before, if it is no part of the row",
            )
        if (key is None) != (rows == "bag"):
            raise SpecError(
                "KEY_OF_A_BAG" if key is not None else "KEY_REQUIRED",
                "a bag has no key" if key is not None else "nothing tells what identifies a row",
                where=where,
                got=f"key={key!r}, rows={rows!r}",
                expected="columns that identify a row, or rows='bag'",
                fix='fold("id"); or where rows have no identity, fold(rows="bag")',
            )
        keys = () if key is None else parse_distinct_names(key, parameter="key", where=where)
        refuse_change_type({"key": keys, "sequence": places}, where=where)
        if onto is not None:
            require_frame(onto, "`onto`", where=where)
        return FoldTransform(where, keys, rows, places, onto)

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The table."""
        refuse_stream(frame, where=self.where)
        if CHANGE_TYPE not in frame.columns and self.rows == "bag":
            raise SchemaError(
                "NO_CHANGES",
                "the frame is no change stream",
                where=self.where,
                got=f"columns {', '.join(frame.columns)}",
                expected=f"a column {CHANGE_TYPE!r}",
                fix="fold what an operator of changes published",
            )
        if self.rows == "keyed":
            require_columns(frame, self.key, role="key", where=self.where)
            self._refuse_unordered(frame)
            require_columns(frame, self.sequence, role="sequence", where=self.where)
        for each in frame.schema.fields:
            kind = each.dataType
            if each.name in _ASIDE and _tells_reason(kind):
                frame = frame.where(column(each.name).isNull()).drop(each.name)
        if CHANGE_TYPE not in frame.columns:
            frame = frame.withColumn(CHANGE_TYPE, F.lit(None).cast("string"))
            return self._newest(self._with_base(frame))
        frame = self._with_base(frame)
        return self._bag(frame) if self.rows == "bag" else self._keyed(frame)

    def __repr__(self) -> str:
        return f"{self.where}({', '.join(show_fields(self))})"

    def _with_base(self, frame: DataFrame) -> DataFrame:
        """The changes, and below them the rows that stand already, as inserts."""
        self._require_kinds(frame)
        changes = frame.withColumn(_BASE, F.lit(False))
        if self.onto is None:
            return changes
        refuse_stream(self.onto, where=self.where)
        sides = ("the changes", "`onto`")
        told = frame.drop(CHANGE_TYPE).schema
        refuse_others(told, self.onto.schema, code="ONTO_DIFFERS", sides=sides, where=self.where)
        stands = self.onto.withColumn(CHANGE_TYPE, F.lit(INSERT)).withColumn(_BASE, F.lit(True))
        return stands.unionByName(changes)

    def _refuse_unordered(self, frame: DataFrame) -> None:
        if self.sequence == (REVISION,) and REVISION not in frame.columns:
            raise SchemaError(
                "NO_REVISION",
                "nothing says in which order the changes of a key were published",
                where=self.where,
                got=f"columns {', '.join(frame.columns)}",
                expected=f"a column {REVISION!r}, as changes.normalize and windows tell it, or `sequence`",
                fix=_OF_BAGS if CHANGE_TYPE in frame.columns else _OF_ROWS,
            )

    def _require_kinds(self, frame: DataFrame) -> None:
        refuse_incomparable(frame, frame.columns, where=self.where)
        schema = arrow_schema(frame, where=self.where, only={CHANGE_TYPE, *self._places})
        fix = "cast the column, or name another"
        for name in self._places:
            if not is_comparable(schema.field(name).type):
                expected = "a type whose values have an order"
                refuse_type(schema, name, "`sequence`", expected, fix, where=self.where)
        if not pa.types.is_string(schema.field(CHANGE_TYPE).type):
            refuse_type(schema, CHANGE_TYPE, CHANGE_TYPE, "string", fix, where=self.where)

    @property
    def _places(self) -> tuple[str, ...]:
        """Columns that order the changes: in a bag nothing does."""
        return self.sequence if self.rows == "keyed" else ()

    def _content(self, frame: DataFrame) -> Column:
        """What a row is: not the words about it, nor its place unless that is its revision.

        What has a revision was published by an operator, which says nothing of its own of a change.
        """
        apart = {_BASE, CHANGE_TYPE}
        if self._places != (REVISION,):
            apart |= {*CHANGE_COLUMNS, *COMMIT_COLUMNS, *self.sequence} - {REJECTED, REVISION}
        return F.struct(
            *(
                comparable(column(each.name), each.dataType).alias(f"c{i}")
                for i, each in enumerate(frame.schema.fields)
                if each.name not in apart
            )
        )

    def _keyed(self, frame: DataFrame) -> DataFrame:
        kinds = {each.name: each.dataType for each in frame.schema.fields}
        names = [name for name in frame.columns if name not in {CHANGE_TYPE, _BASE}]
        word, back = column(CHANGE_TYPE), column(CHANGE_TYPE).isin(*RETRACTIONS)
        # What has a revision is taken back by it; at another place, something takes its place.
        rank = back if self.sequence == (REVISION,) else ~back
        key = [comparable(column(name), kinds[name]) for name in self.key]
        order = [~column(_BASE), *map(column, self.sequence), rank]
        window = Window.partitionBy(*key).orderBy(*order)
        told = frame.withColumn(_CONTENT, self._content(frame)).select(
            "*",
            F.lag(CHANGE_TYPE).over(window).alias(_WORD),
            F.lag(_CONTENT).over(window).alias(_BEFORE),
            F.lead(F.coalesce(word, F.lit(""))).over(window).alias(_AFTER),
        )
        stood = F.coalesce(F.col(_WORD).isin(INSERT, POSTIMAGE), F.lit(False))
        same = F.col(_BEFORE).eqNullSafe(F.col(_CONTENT))
        fault = (
            F.when(~F.coalesce(word.isin(*CHANGE_TYPES), F.lit(False)), "UNKNOWN_CHANGE")
            .when(self._is_unplaced(frame), "NO_SEQUENCE")
            .when((word == INSERT) & (stood | (F.col(_WORD) == PREIMAGE)), "INSERTED_TWICE")
            .when((word == PREIMAGE) & ~(stood & same), "PREIMAGE_NOT_PUBLISHED")
            .when((word == POSTIMAGE) & ~F.col(_WORD).eqNullSafe(PREIMAGE), "POSTIMAGE_ALONE")
            .when((word == DELETE) & ~stood, "DELETED_UNPUBLISHED")
            .when((word == PREIMAGE) & F.col(_AFTER).isNull(), "PREIMAGE_ALONE")
        )
        stands = F.col(_AFTER).isNull() & word.isin(INSERT, POSTIMAGE)
        return checked(told, fault, stands, names, where=self.where)

    def _newest(self, frame: DataFrame) -> DataFrame:
        """Rows with a revision and no words: each replaces the one before."""
        kinds = {each.name: each.dataType for each in frame.schema.fields}
        names = [name for name in frame.columns if name not in {CHANGE_TYPE, _BASE}]
        key = [comparable(column(name), kinds[name]) for name in self.key]
        place = F.struct(*map(column, self.sequence))
        window = Window.partitionBy(*key).orderBy(place)
        told = frame.select(
            "*", F.lead(place).over(window).alias(_AFTER), F.lag(place).over(window).alias(_BEFORE)
        )
        fault = F.when(self._is_unplaced(frame), "NO_SEQUENCE").when(
            place.eqNullSafe(F.col(_BEFORE)), "REVISION_OUT_OF_STEP"
        )
        return checked(told, fault, F.col(_AFTER).isNull(), names, where=self.where)

    def _is_unplaced(self, frame: DataFrame) -> Column:
        return ~column(_BASE) & is_nowhere(frame, self.sequence)

    def _bag(self, frame: DataFrame) -> DataFrame:
        names = [name for name in frame.columns if name not in {CHANGE_TYPE, _BASE}]
        word = column(CHANGE_TYPE)
        weight = F.when(word.isin(*RETRACTIONS), -1).when(word.isin(*CHANGE_TYPES), 1)
        row = F.struct(*map(column, names))
        counted = (
            frame.withColumn(_CONTENT, self._content(frame))
            .groupBy(_CONTENT)
            .agg(
                F.first(row).alias("row"),
                F.sum(weight).alias("copies"),
                F.count_if(weight.isNull()).alias(_WORD),
            )
        )
        fault = F.when(F.col(_WORD) > 0, "UNKNOWN_CHANGE").when(
            F.col("copies") < 0, "PREIMAGE_NOT_PUBLISHED"
        )
        left = checked(counted, fault, F.col("copies") > 0, ["row", "copies"], where=self.where)
        copies = F.explode(F.array_repeat(F.col("row"), F.col("copies").cast("int"))).alias("row")
        return left.select(copies).select(*(F.col("row")[name].alias(name) for name in names))


def _tells_reason(kind: DataType) -> bool:
    """Whether values say why a row was put aside: any other column of that name is the user's."""
    if not isinstance(kind, StructType) or "reason" not in kind.names:
        return False
    return isinstance(kind["reason"].dataType, StringType)
