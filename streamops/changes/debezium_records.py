"""Debezium's records as expressions of Spark's: what is in them, and what they stand for.

JSON is read twice. Once with the rows as text, which says what a column is before it is a value:
absent, null, or the placeholder; and once with the rows as what they are, which is exact.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from streamops.changes.debezium_meaning import (
    DELETED,
    MESSAGE,
    Meaning,
    as_nullable,
    is_lacking,
)
from streamops.changes.debezium_positions import POSITIONS, SOURCE, changed_at, position
from streamops.changes.debezium_unavailable import may_stand_in, stands_in, without
from streamops.changes.names import (
    CHANGED_AT,
    REJECTED,
    SEQUENCE,
    SNAPSHOT,
    TOMBSTONE,
    UNAVAILABLE,
)
from streamops.kernel.changes import CHANGE_TYPE
from streamops.spark.columns import column, nullable

__all__ = ["POSITIONS", "REASONS", "Records"]

REASONS = (
    "unparsable_json",
    "no_operation",
    "unknown_operation",
    "truncate",
    "no_row",
    "row_does_not_fit",
    "null_key",
    "no_sequence",
)
"""Why a record is rejected; the first that applies."""

_BAD = "_streamops_unparsable"
_TEXT = StringType()
_OUTER = {"columnNameOfCorruptRecord": _BAD}
_IMAGES, _RECORD = ("before", "after"), ("op", "before", "after", "source", "transaction")
_SAVED, _TRUNCATED = ["c", "u", "r"], "t"
_END = "_streamops_end"


@dataclass(frozen=True, slots=True)
class Records:
    """How records are read: the settings, with the row's schema."""

    row: StructType
    key: tuple[str, ...]
    value: str
    message_key: str | None
    sequence: str | tuple[str, ...]
    absent: str
    placeholder: str
    preimages: str
    tombstones: str
    keep: tuple[str, ...]

    def read(self, frame: DataFrame) -> DataFrame:
        """The changes of a frame of records."""
        text = column(self.value).cast("string")
        message_key = F.lit(None).cast("string")
        if self.message_key is not None:
            message_key = column(self.message_key)
        others = self.sequence if isinstance(self.sequence, tuple) else ()
        records = frame.select(
            *(column(name) for name in self.keep),
            F.struct(column(self.value).alias("value"), message_key.alias("key")).alias("__given"),
            F.struct(*(column(name) for name in others), F.lit(0).alias("_")).alias("__others"),
            text.alias("__text"),
            _is_one_value(text).alias("__is_one"),
            F.from_json(text, self._as_text(), _OUTER).alias("__said"),
            F.from_json(without(text, self.placeholder), self._as_rows(), _OUTER).alias("__rows"),
            self._key_image(message_key.cast("string")).alias("__key"),
        )
        outer, inner, rows = F.col("__said"), F.col("__said")["payload"], F.col("__rows")
        plain = F.struct(*(outer[name].alias(name) for name in _RECORD))
        records = records.select(
            "*",
            F.when(inner.isNotNull(), inner).otherwise(plain).alias("__env"),
            *(
                F.when(inner.isNotNull(), rows["payload"][name])
                .otherwise(rows[name])
                .alias(f"__{name}")
                for name in _IMAGES
            ),
        )
        records = records.select(
            "*",
            *(self._texts(image).alias(f"__{image}_texts") for image in _IMAGES),
            F.col("__env")["op"].alias("__op"),
            self._is_tombstone().alias("__is_tombstone"),
            self._position(others).alias("__at"),
        )
        records = records.select(
            "*", *(self._lacking(image).alias(f"__{image}_lacks") for image in _IMAGES)
        )
        records = records.select("*", self._reason().alias("__reason"))
        records = records.select("*", F.explode(self._meaning.changes()).alias("__change"))
        return records.select(*self._result())

    @property
    def _meaning(self) -> Meaning:
        return Meaning(self.row, self.key, self.preimages, self.tombstones)

    def _as_text(self) -> StructType:
        """A record whose rows are text."""
        record = StructType([StructField(n, _TEXT) for n in ("op", *_IMAGES)])
        record = record.add("source", SOURCE).add(
            "transaction", StructType([StructField("total_order", _TEXT)])
        )
        return StructType(
            [*record.fields, StructField("payload", record), StructField(_BAD, _TEXT)]
        )

    def _as_rows(self) -> StructType:
        """A record whose rows are rows."""
        row = as_nullable(self.row)
        record = StructType([StructField(n, row) for n in _IMAGES])
        return StructType(
            [*record.fields, StructField("payload", record), StructField(_BAD, _TEXT)]
        )

    def _key_image(self, text: Column) -> Column:
        """A row of which no more than the key is known: from the message's key."""
        names = {each.name: each.dataType for each in self.row.fields}
        fields = [StructField(name, names[name]) for name in self.key]
        wrapped = StructType([*fields, StructField("payload", StructType(fields))])
        read = F.when(_is_one_value(text), F.from_json(text, wrapped))
        return F.struct(
            *(
                (
                    F.coalesce(read["payload"][each.name], read[each.name])
                    if each.name in self.key
                    else F.lit(None)
                )
                .cast(each.dataType)
                .alias(each.name)
                for each in self.row.fields
            )
        )

    def _texts(self, image: str) -> Column:
        """The columns of a row as text, where what they hold needs a look; else null."""
        text = F.col("__env")[image]
        read = F.from_json(text, StructType([StructField(n, _TEXT) for n in self.row.names]))
        if self._stamps():
            return read
        return F.when(may_stand_in(text, self.placeholder), read)

    def _stamps(self) -> list[str]:
        return [each.name for each in self.row.fields if isinstance(each.dataType, TimestampType)]

    def _lacking(self, image: str) -> Column:
        """Names of the columns of a row whose values were not sent."""
        found = []
        for name in self.row.names:
            lacks = stands_in(F.col(f"__{image}_texts")[name], self.placeholder)
            if self.absent == "unavailable":
                lacks |= self._is_absent(image, name)
            found.append(F.when(lacks, F.lit(name)))
        return F.array_compact(F.array(*found))

    def _is_absent(self, image: str, name: str) -> Column:
        names = F.json_object_keys(F.col("__env")[image])
        return F.coalesce(~F.array_contains(names, name), F.lit(False))

    def _is_tombstone(self) -> Column:
        """A value that is null: itself, in JSON, or in the wrapper with the schema."""
        text, said = F.col("__text"), F.col("__said")
        names = F.array_remove(F.json_object_keys(text), "schema")
        empty = ~self._is_malformed() & said["op"].isNull() & said["payload"].isNull()
        wrapped = F.when(empty, names == F.array(F.lit("payload")))
        return text.isNull() | text.rlike(r"^\s*null\s*$") | F.coalesce(wrapped, F.lit(False))

    def _is_malformed(self) -> Column:
        """Whether the record is no object of JSON, or not that alone."""
        said = F.col("__said")
        return said.isNull() | said[_BAD].isNotNull() | ~F.col("__is_one")

    def _position(self, others: tuple[str, ...]) -> Column:
        """Where in the log the change stands; null where nothing tells."""
        if not others:
            return position(F.col("__env"), str(self.sequence))
        parts = [nullable(F.col("__others")[name]).alias(name) for name in others]
        known = reduce(Column.__and__, (part.isNotNull() for part in parts))
        return F.when(known, F.struct(*parts))

    def _reason(self) -> Column:
        """Why a record is rejected; null where it is not."""
        op = F.col("__op")
        after, before = (F.col("__env")[image] for image in ("after", "before"))
        known = op.isin(*_SAVED, DELETED)
        image = F.when(op == DELETED, self._meaning.deleted()).otherwise(self._meaning.saved())
        no_key = reduce(Column.__or__, (image[name].isNull() for name in self.key))
        keyless = F.col("__given")["key"].isNull()
        return (
            F.when(F.col("__is_tombstone"), None)
            .when(self._is_malformed(), "unparsable_json")
            .when(op == MESSAGE, None)
            .when(op.isNull(), "no_operation")
            .when(op == _TRUNCATED, "truncate")
            .when(~known, "unknown_operation")
            .when((op != DELETED) & after.isNull(), "no_row")
            .when((op == DELETED) & before.isNull() & keyless, "no_row")
            .when(F.col("__rows")[_BAD].isNotNull() | self._misfits(), "row_does_not_fit")
            .when(no_key, "null_key")
            .when(F.col("__at").isNull(), "no_sequence")
        )

    def _misfits(self) -> Column:
        """What JSON's types do not tell: nulls that may not be, numbers for timestamps, absences."""
        saved = F.col("__op").isin(*_SAVED)
        found = F.lit(False)
        for each in self.row.fields:
            if not each.nullable:
                missing = F.col("__after")[each.name].isNull()
                found |= saved & missing & ~is_lacking("after", each.name)
            if self.absent == "reject":
                found |= saved & self._is_absent("after", each.name)
        for image, name in itertools.product(_IMAGES, self._stamps()):
            # Spark would take a number for seconds, and Debezium counts finer.
            held = F.col(f"__{image}_texts")[name]
            found |= F.coalesce(held.rlike(r"^-?[0-9.]+$"), F.lit(False))
        return found

    def _result(self) -> list[Column]:
        change, is_rejected = F.col("__change"), F.col("__reason").isNotNull()
        is_change = change["word"].isNotNull()
        comments = {each.name: each.metadata or {} for each in self.row.fields}
        given = F.col("__given")
        told = F.struct(
            F.col("__reason").alias("reason"),
            nullable(given["value"]).alias("value"),
            nullable(given["key"]).alias("key"),
        )
        columns = [
            *(change["row"][name].alias(name, metadata=comments[name]) for name in self.row.names),
            change["word"].alias(CHANGE_TYPE),
            F.when(is_change, F.col("__at")).alias(SEQUENCE),
            F.when(is_change, F.col("__op") == "r").alias(SNAPSHOT),
            F.when(is_change, change["unavailable"]).alias(UNAVAILABLE),
            F.when(is_change, changed_at(F.col("__env"))).alias(CHANGED_AT),
        ]
        if self.tombstones == "keep":
            columns.append(F.col("__is_tombstone").alias(TOMBSTONE))
        columns.append(F.when(is_rejected, told).alias(REJECTED))
        return [*columns, *(column(name) for name in self.keep)]


def _is_one_value(text: Column) -> Column:
    """Whether the text is one value of JSON, an object or null, and nothing is behind it.

    Spark reads the first value and no further. In a list, before an end that is known, what is behind
    it is another element, or no JSON.
    """
    listed = F.concat(F.lit("["), text, F.lit(f',{{"{_END}":true}}]'))
    read = F.from_json(listed, f"array<struct<{_END}: boolean>>")
    return F.coalesce(F.get(read, F.lit(1))[_END], F.lit(False))
