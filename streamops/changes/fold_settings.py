"""How a change stream is folded: settings, and the expressions they come down to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructType

from streamops.changes.bounded import is_nowhere, refuse_others, refuse_stream, require_columns
from streamops.changes.names import REJECTED, SAID
from streamops.kernel.changes import (
    CHANGE_TYPE,
    CHANGES,
    DELETE,
    INSERT,
    POSTIMAGE,
    PREIMAGE,
    REVISION,
    TAKEN_BACK,
)
from streamops.kernel.errors import ChangeStreamError, SchemaError, SpecError
from streamops.kernel.ordering import is_comparable
from streamops.spark.columns import arrow_schema, column
from streamops.spark.comparing import comparable
from streamops.spark.parameters import distinct_names, refuse_type, require_frame
from streamops.spark.transform import choice, shown

__all__ = ["FoldTransform", "Rows"]

Rows = Literal["keyed", "bag"]

_ASIDE = (REJECTED, "late")
_MARK = "\0"  # where a message has the row
_BASE, _CONTENT, _WORD, _BEFORE, _AFTER, _FAULT = (
    f"__streamops_{name}" for name in ("base", "content", "word", "before", "after", "fault")
)
_EACH_ONCE = (
    "fold the changes of all micro-batches, each once; upserts without preimages go through "
    "changes.normalize first"
)
_ALONE = (
    f"{_EACH_ONCE}; an update that changes the key must be a delete and an insert, as "
    "changes.from_delta tells those of Delta's feed"
)
_FAULTS = {
    "UNKNOWN_CHANGE": (
        "a change has a word that is none",
        f"one of {', '.join(CHANGES)}",
        _EACH_ONCE,
    ),
    "INSERTED_TWICE": ("a row was inserted that is already there", "an update", _EACH_ONCE),
    "PREIMAGE_NOT_PUBLISHED": (
        "a row was taken back that was not published so",
        "the row as it was published before",
        _EACH_ONCE,
    ),
    "POSTIMAGE_ALONE": ("a postimage without its preimage", "a preimage before it", _ALONE),
    "DELETED_UNPUBLISHED": ("a delete of a row that is not there", "a row", _EACH_ONCE),
    "PREIMAGE_ALONE": ("a row was taken back and never replaced", "its postimage", _ALONE),
    "REVISION_OUT_OF_STEP": (
        "a revision came twice",
        "a revision above the one before",
        _EACH_ONCE,
    ),
    "NO_SEQUENCE": (
        "a change does not say where in the order it stands",
        "no null in `sequence`",
        _EACH_ONCE,
    ),
}


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
        choice(rows, Rows, parameter="rows", where=where)
        if (key is None) != (rows == "bag"):
            raise SpecError(
                "KEY_OF_A_BAG" if key is not None else "KEY_REQUIRED",
                "a bag has no key" if key is not None else "nothing tells what identifies a row",
                where=where,
                got=f"key={key!r}, rows={rows!r}",
                expected="columns that identify a row, or rows='bag'",
                fix='fold("id"); or where rows have no identity, fold(rows="bag")',
            )
        keys = () if key is None else distinct_names(key, parameter="key", where=where)
        places = distinct_names(sequence, parameter="sequence", where=where)
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
        return f"{self.where}({', '.join(shown(self))})"

    def _with_base(self, frame: DataFrame) -> DataFrame:
        """The changes, and below them the rows that stand already, as inserts."""
        if self.rows == "keyed":
            require_columns(frame, self.key, role="key", where=self.where)
            self._refuse_unordered(frame)
            require_columns(frame, self.sequence, role="sequence", where=self.where)
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
                fix="changes.fold(rows='bag'), of joins, changes.aggregate and timelines: whole rows come "
                "and go there; sequence='_sequence', of what was captured",
            )

    def _require_kinds(self, frame: DataFrame) -> None:
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
            apart |= {*SAID, *self.sequence} - {REJECTED, REVISION}
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
        word, back = column(CHANGE_TYPE), column(CHANGE_TYPE).isin(*TAKEN_BACK)
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
            F.when(~F.coalesce(word.isin(*CHANGES), F.lit(False)), "UNKNOWN_CHANGE")
            .when(self._is_unplaced(frame), "NO_SEQUENCE")
            .when((word == INSERT) & (stood | (F.col(_WORD) == PREIMAGE)), "INSERTED_TWICE")
            .when((word == PREIMAGE) & ~(stood & same), "PREIMAGE_NOT_PUBLISHED")
            .when((word == POSTIMAGE) & ~F.col(_WORD).eqNullSafe(PREIMAGE), "POSTIMAGE_ALONE")
            .when((word == DELETE) & ~stood, "DELETED_UNPUBLISHED")
            .when((word == PREIMAGE) & F.col(_AFTER).isNull(), "PREIMAGE_ALONE")
        )
        checked = self._checked(told.withColumn(_FAULT, fault), names)
        stands = F.col(_AFTER).isNull() & word.isin(INSERT, POSTIMAGE)
        return checked.where(stands).select(*map(column, names))

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
        checked = self._checked(told.withColumn(_FAULT, fault), names)
        return checked.where(F.col(_AFTER).isNull()).select(*map(column, names))

    def _is_unplaced(self, frame: DataFrame) -> Column:
        return ~column(_BASE) & is_nowhere(frame, self.sequence)

    def _bag(self, frame: DataFrame) -> DataFrame:
        names = [name for name in frame.columns if name not in {CHANGE_TYPE, _BASE}]
        word = column(CHANGE_TYPE)
        weight = F.when(word.isin(*TAKEN_BACK), -1).when(word.isin(*CHANGES), 1)
        row = F.struct(*map(column, names))
        counted = (
            frame.withColumn(_CONTENT, self._content(frame))
            .groupBy(_CONTENT)
            .agg(
                F.first(row).alias("row"),
                F.sum(weight).alias(_AFTER),
                F.count_if(weight.isNull()).alias(_WORD),
            )
        )
        fault = F.when(F.col(_WORD) > 0, "UNKNOWN_CHANGE").when(
            F.col(_AFTER) < 0, "PREIMAGE_NOT_PUBLISHED"
        )
        checked = self._checked(counted.withColumn(_FAULT, fault), ["row"])
        copies = F.explode(F.array_repeat(F.col("row"), F.col(_AFTER).cast("int"))).alias("row")
        return checked.select(copies).select(*(F.col("row")[name].alias(name) for name in names))

    def _checked(self, frame: DataFrame, names: Sequence[str]) -> DataFrame:
        """The frame, or an error: as a filter, because a column nobody reads is not computed."""
        passes = F.when(F.col(_FAULT).isNull(), F.lit(True))
        shown_row = F.to_json(F.struct(*map(column, names)))
        for code, (what, expected, fix) in _FAULTS.items():
            error = ChangeStreamError(
                code,
                what,
                where=self.where,
                got=_MARK,
                expected=expected,
                fix=fix,
            )
            begin, end = map(F.lit, str(error).split(_MARK))
            raised = F.raise_error(F.concat(begin, shown_row, end)).cast("boolean")
            passes = passes.when(F.col(_FAULT) == code, raised)
        return frame.where(passes)


def _tells_reason(kind: DataType) -> bool:
    """Whether values say why a row was put aside: any other column of that name is the user's."""
    if not isinstance(kind, StructType) or "reason" not in kind.names:
        return False
    return isinstance(kind["reason"].dataType, StringType)
