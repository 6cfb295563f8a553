"""Debezium's records as expressions of Spark's: what is in them, and what they stand for.

JSON is read twice. Once with the rows as text, which says what a column is before it is a value:
absent, null, or the placeholder; and once with the rows as what they are. Values are those that were
sent, to the last digit, or the record does not fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.changelog.table import (
    CHANGED_AT,
    REJECTED,
    SEQUENCE,
    SNAPSHOT,
    TOMBSTONE,
    UNAVAILABLE,
)
from streamops.changes.debezium_meaning import (
    DELETED,
    MESSAGE,
    TRUNCATED,
    Meaning,
    held,
    hold,
    is_lacking,
)
from streamops.changes.debezium_positions import POSITIONS, READ, SOURCE, changed_at, position
from streamops.changes.debezium_unavailable import may_stand_in, stands_in, without
from streamops.changes.debezium_values import as_sent, made, misfits
from streamops.spark.columns import column, make_nullable, map_type

__all__ = ["POSITIONS", "REASONS", "Records"]

REASONS = (
    "unparsable_json",
    "no_operation",
    "unknown_operation",
    "no_row",
    "row_does_not_fit",
    "null_key",
    "no_row_before",
    "no_sequence",
)
"""Why a record is rejected; the first that applies."""

_BAD = "_streamops_unparsable"
_TEXT = StringType()
_OUTER = {"columnNameOfCorruptRecord": _BAD}
_IMAGES, _RECORD = ("before", "after"), ("op", "before", "after", "source", "transaction")
_SAVED = ["c", "u", READ]
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
        # What is no UTF-8 would be read with marks in its place.
        text = F.try_validate_utf8(column(self.value).cast("string"))
        message_key = F.lit(None).cast("string")
        if self.message_key is not None:
            message_key = column(self.message_key)
        others = self.sequence if isinstance(self.sequence, tuple) else ()
        records = frame.select(
            *(column(name) for name in self.keep),
            *hold(
                given=F.struct(column(self.value).alias("value"), message_key.alias("key")),
                others=F.struct(*(column(name) for name in others), F.lit(0).alias(_END)),
                text=text,
                is_one=_is_one_value(text),
                said=F.from_json(text, self._as_text(), _OUTER),
                rows=F.from_json(without(text, self.placeholder), self._as_rows(), _OUTER),
                key=self._key_image(F.try_validate_utf8(message_key.cast("string"))),
            ),
        )
        outer, inner, rows = held("said"), held("said")["payload"], held("rows")
        plain = F.struct(*(outer[name].alias(name) for name in _RECORD))
        sent = {
            f"{name}_sent": F.when(inner.isNotNull(), rows["payload"][name]).otherwise(rows[name])
            for name in _IMAGES
        }
        records = records.select(
            "*", *hold(env=F.when(inner.isNotNull(), inner).otherwise(plain), **sent)
        )
        records = records.select(
            "*",
            *hold(
                op=held("env")["op"],
                is_tombstone=self._is_tombstone(),
                at=self._position(others),
                **{name: made(held(f"{name}_sent"), self.row) for name in _IMAGES},
                **{f"{name}_texts": self._texts(name) for name in _IMAGES},
            ),
        )
        records = records.select(
            "*", *hold(**{f"{name}_lacks": self._lacking(name) for name in _IMAGES})
        )
        records = records.select("*", *hold(reason=self._reason()))
        records = records.select("*", *hold(change=F.explode(self._meaning.changes())))
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
        row = as_sent(self.row)
        record = StructType([StructField(n, row) for n in _IMAGES])
        return StructType(
            [*record.fields, StructField("payload", record), StructField(_BAD, _TEXT)]
        )

    def _key_image(self, text: Column) -> Column:
        """A row of which no more than the key is known: from the message's key."""
        kinds = {each.name: each.dataType for each in self.row.fields}
        fields = [StructField(name, as_sent(kinds[name])) for name in self.key]
        wrapped = StructType([*fields, StructField("payload", StructType(fields))])
        read = F.when(_is_one_value(text), F.from_json(text, wrapped))

        def value(name: str, kind: DataType) -> Column:
            if name not in self.key:
                return F.lit(None)
            return F.coalesce(*(made(each[name], kind) for each in (read["payload"], read)))

        row = [(each.name, each.dataType) for each in self.row.fields]
        return F.struct(
            *(value(name, kind).cast(map_type(kind, relax=True)).alias(name) for name, kind in row)
        )

    def _texts(self, image: str) -> Column:
        """The columns of a row as text, where what they hold needs a look; else null."""
        text = held("env")[image]
        read = F.from_json(text, StructType([StructField(n, _TEXT) for n in self.row.names]))
        return F.when(may_stand_in(text, self.placeholder), read)

    def _lacking(self, image: str) -> Column:
        """Names of the columns of a row whose values were not sent."""
        found = []
        for name in self.row.names:
            lacks = stands_in(held(f"{image}_texts")[name], self.placeholder)
            if self.absent == "unavailable":
                lacks |= self._is_absent(image, name)
            found.append(F.when(lacks, F.lit(name)))
        return F.array_compact(F.array(*found))

    def _is_absent(self, image: str, name: str) -> Column:
        names = F.json_object_keys(held("env")[image])
        return F.coalesce(~F.array_contains(names, name), F.lit(False))

    def _is_tombstone(self) -> Column:
        """A value that is null: itself, in JSON, or in the wrapper with the schema."""
        text, said = held("text"), held("said")
        names = F.array_remove(F.json_object_keys(text), "schema")
        empty = ~self._is_malformed() & said["op"].isNull() & said["payload"].isNull()
        wrapped = F.when(empty, names == F.array(F.lit("payload")))
        is_null = text.rlike(r"^\s*null\s*$") | F.coalesce(wrapped, F.lit(False))
        return held("given")["value"].isNull() | F.coalesce(is_null, F.lit(False))

    def _is_malformed(self) -> Column:
        """Whether the record is no object of JSON, or not that alone."""
        said = held("said")
        return said.isNull() | said[_BAD].isNotNull() | ~held("is_one")

    def _position(self, others: tuple[str, ...]) -> Column:
        """Where in the log the change stands; null where nothing tells."""
        if not others:
            return position(held("env"), str(self.sequence))
        parts = [make_nullable(held("others")[name]).alias(name) for name in others]
        known = reduce(Column.__and__, (part.isNotNull() for part in parts))
        return F.when(known, F.struct(*parts))

    def _reason(self) -> Column:
        """Why a record is rejected; null where it is not."""
        op = held("op")
        after, before = (held("env")[image] for image in ("after", "before"))
        known = op.isin(*_SAVED, DELETED)
        image = F.when(op == DELETED, self._meaning.deleted()).otherwise(self._meaning.saved())
        no_key = reduce(Column.__or__, (image[name].isNull() for name in self.key))
        keyless = held("given")["key"].isNull()
        return (
            F.when(held("is_tombstone"), None)
            .when(self._is_malformed(), "unparsable_json")
            .when(op == MESSAGE, None)
            .when(op.isNull(), "no_operation")
            .when((op == TRUNCATED) & held("at").isNull(), "no_sequence")
            .when(op == TRUNCATED, None)  # has no row, and no key
            .when(~known, "unknown_operation")
            .when((op != DELETED) & after.isNull(), "no_row")
            .when((op == DELETED) & before.isNull() & keyless, "no_row")
            .when(held("rows")[_BAD].isNotNull() | self._misfits(), "row_does_not_fit")
            .when(no_key, "null_key")
            .when(self._meaning.misses_before(), "no_row_before")
            .when(held("at").isNull(), "no_sequence")
        )

    def _misfits(self) -> Column:
        """What JSON's types do not tell: nulls that may not be, absences, values of other kinds."""
        saved = held("op").isin(*_SAVED)
        found = F.lit(False)
        for each in self.row.fields:
            if not each.nullable:
                missing = held("after")[each.name].isNull()
                found |= saved & missing & ~is_lacking("after", each.name)
            if self.absent == "reject":
                found |= saved & self._is_absent("after", each.name)
            for image in _IMAGES:
                misfit = misfits(held(f"{image}_sent")[each.name], each.dataType)
                if misfit is not None:
                    found |= misfit & ~is_lacking(image, each.name)
        return found

    def _result(self) -> list[Column]:
        change, is_rejected = held("change"), held("reason").isNotNull()
        is_change = change["word"].isNotNull()
        comments = {each.name: each.metadata or {} for each in self.row.fields}
        given = held("given")
        told = F.struct(
            held("reason").alias("reason"),
            make_nullable(given["value"]).alias("value"),
            make_nullable(given["key"]).alias("key"),
        )
        columns = [
            *(change["row"][name].alias(name, metadata=comments[name]) for name in self.row.names),
            change["word"].alias(CHANGE_TYPE),
            F.when(is_change, held("at")).alias(SEQUENCE),
            F.when(is_change, held("op") == READ).alias(SNAPSHOT),
            F.when(is_change, change["unavailable"]).alias(UNAVAILABLE),
            F.when(is_change, changed_at(held("env"))).alias(CHANGED_AT),
        ]
        if self.tombstones == "keep":
            columns.append(held("is_tombstone").alias(TOMBSTONE))
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
