"""Read Debezium's records as changes, with Spark expressions.

Rows are first read as text, to distinguish absent values, nulls and placeholders, and then in their types.
A record is rejected if a value is not exactly the one sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructType

from streamops.changelog.change_types import (
    CHANGE_TYPE,
    DELETE,
    INSERT,
    POSTIMAGE,
    PREIMAGE,
    TRUNCATE,
)
from streamops.changelog.table import (
    CHANGE_COLUMNS,
    CHANGED_AT,
    REJECTED,
    SEQUENCE,
    SNAPSHOT,
    TOMBSTONE,
    UNAVAILABLE,
)
from streamops.changes import conditions
from streamops.changes import debezium_values as values
from streamops.changes.delta import count_changes, mark_upserts
from streamops.kernel.ordering import require_sequence
from streamops.kernel.parameters import (
    refuse_taken_names,
    require_choice,
    require_columns,
)
from streamops.kernel.versions import try_validate_utf8
from streamops.spark.columns import arrow_schema, column, make_nullable, map_type
from streamops.spark.json_columns import (
    member,
    parse_members,
    parse_object,
    parse_row_type,
    read_value,
)

Absent = Literal["null", "unavailable", "route"]
Preimages = Literal["drop", "publish"]
Tombstones = Literal["drop", "keep"]
Position = Literal["auto", "lsn", "binlog", "scn", "change_lsn"]

assert set(get_args(Position)) == {"auto", *values.POSITIONS}

REASONS = (
    "unparsable_json",
    "no_operation",
    "unknown_operation",
    "no_row",
    "row_does_not_fit",
    "null_key",
    "no_row_before",
    "value_not_sent",
    "no_sequence",
)
"""Reasons for which a record is rejected, by precedence."""

DELETED, MESSAGE, TRUNCATED = "d", "m", "t"
_SAVED = ["c", "u", values.READ]
_IMAGES = ("before", "after")


@dataclass(frozen=True, slots=True)
class DebeziumSpec:
    """Parameters of ``from_debezium``."""

    schema: str | StructType = field(metadata={"shown": lambda schema: repr(_to_ddl(schema))})
    key: tuple[str, ...]
    value: str
    message_key: str | None
    sequence: str | tuple[str, ...]
    absent: Absent
    placeholder: str
    preimages: Preimages
    tombstones: Tombstones
    keep: tuple[str, ...]

    def __post_init__(self) -> None:
        """Validate the parameters. A schema in DDL is parsed by Spark, once there is a frame."""
        schema = self.schema
        placeholder: Any = self.placeholder
        if self.message_key is not None and "payload" in self.key:
            raise conditions.KEY_CALLED_PAYLOAD.error(
                got=f"key={self.key!r}, message_key={self.message_key!r}"
            )
        if isinstance(self.sequence, str):
            require_choice(self.sequence, Position, parameter="sequence")
        if not _is_placeholder(placeholder):
            raise conditions.NOT_A_PLACEHOLDER.error(got=f"placeholder={placeholder!r}")
        if self.tombstones == "keep" and self.message_key is None:
            raise conditions.TOMBSTONE_WITHOUT_KEY.error(got="tombstones='keep', message_key=None")
        if not isinstance(schema, str) or not schema.strip():
            self.parse_row()

    def parse_row(self) -> StructType:
        """The type of a row, with the key and without names that are taken."""
        row = parse_row_type(self.schema)
        require_columns(row.names, {"key": self.key})
        given = {"keep": list(self.keep), "schema": ", ".join(row.names)}
        refuse_taken_names([*row.names, *self.keep], CHANGE_COLUMNS, given)
        return row

    @property
    def sequence_columns(self) -> tuple[str, ...]:
        """Columns of the frame that order changes."""
        return () if isinstance(self.sequence, str) else self.sequence

    @property
    def adds(self) -> tuple[str, ...]:
        """None: the result has no columns of the frame except those to keep."""
        return ()

    @property
    def marked(self) -> str:
        """The column whose metadata describes the stream."""
        return CHANGE_TYPE

    def check(self, frame: DataFrame) -> None:
        """Refuse a frame without the columns that are read."""
        self.parse_row()
        types = {part.name: part.dataType for part in frame.schema.fields}
        messages = [("value", self.value)]
        if self.message_key is not None:
            messages.append(("message_key", self.message_key))
        for role, name in messages:
            require_columns(types, {role: [name]})
            if not isinstance(types[name], StringType | BinaryType):
                raise conditions.COLUMN_TYPE.error(
                    column=name, role=role, got=f"{name!r} of type {types[name].simpleString()}"
                )
        require_columns(types, {"sequence": self.sequence_columns})
        schema = arrow_schema(frame, only=self.sequence_columns)
        require_sequence(schema, self.sequence_columns)
        require_columns(types, {"keep": self.keep})

    def apply(self, frame: DataFrame) -> DataFrame:
        """The changes of a frame of records."""
        changes = _Reader(self, self.parse_row()).read(frame)
        return mark_upserts(changes) if self.preimages == "drop" else changes

    def counts(self) -> Mapping[str, Column]:
        """Metrics: changes, and rejected records by reason."""
        counted = count_changes(REASONS)
        if self.tombstones == "keep":
            counted["tombstones"] = F.count_if(F.col(TOMBSTONE))
        return counted


def _is_placeholder(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(values.placeholder_bytes(value))
    except ValueError:
        return False


def _to_ddl(schema: str | StructType) -> str:
    return schema if isinstance(schema, str) else schema.simpleString()[len("struct<") : -1]


def _temp(name: str) -> Column:
    """A column that exists while the records are read."""
    return F.col(f"__streamops_{name}")


def _add(frame: DataFrame, **columns: Column) -> DataFrame:
    """The frame with further temporary columns."""
    return frame.select("*", *_named(**columns))


def _named(**columns: Column) -> list[Column]:
    return [value.alias(f"__streamops_{name}") for name, value in columns.items()]


def _is_unsent(image: str, name: str) -> Column:
    """Whether the value of a column was not sent."""
    return F.array_contains(_temp(f"{image}_unsent"), name)


@dataclass(frozen=True, slots=True)
class _Reader:
    """The expressions that read records: parameters, and the type of a row."""

    spec: DebeziumSpec
    row: StructType

    def read(self, frame: DataFrame) -> DataFrame:
        """The changes of a frame of records."""
        spec = self.spec
        value = column(spec.value)
        # Spark would replace invalid UTF-8 by marks.
        text = try_validate_utf8(value.cast("string"))
        message_key = F.lit(None).cast("string")
        if spec.message_key is not None:
            message_key = column(spec.message_key)
        sequence = (column(name) for name in spec.sequence_columns)
        records = frame.select(
            *(column(name) for name in spec.keep),
            *_named(
                input=F.struct(value.alias("value"), message_key.alias("key")),
                sequence_columns=F.struct(*sequence, F.lit(0).alias("end")),
                text=text,
                outer=parse_object(text),
                key_members=parse_object(try_validate_utf8(message_key.cast("string"))),
            ),
        )
        records = _add(records, payload=member(_temp("outer"), "payload"))
        inner = parse_members(_temp("payload"))
        records = _add(
            records,
            members=F.when(_temp("payload").isNotNull(), inner).otherwise(_temp("outer")),
            key=values.read_key(_temp("key_members"), self.row, spec.key),
        )
        records = _add(records, envelope=values.parse_envelope(_temp("members")))
        records = _add(
            records,
            op=_temp("envelope")["op"],
            is_tombstone=self._is_tombstone(),
            sequence=self._sequence(),
            **{f"{name}_texts": parse_members(_temp("envelope")[name]) for name in _IMAGES},
        )
        # By position, because names may contain any characters.
        parts = [(image, n) for image in _IMAGES for n in range(len(self.row))]
        texts = {f"{i}_{n}": member(_temp(f"{i}_texts"), self.row.names[n]) for i, n in parts}
        records = _add(records, **texts)
        records = _add(records, **{name: self._row(name) for name in _IMAGES})
        records = _add(records, **{f"{name}_unsent": self._unsent(name) for name in _IMAGES})
        records = _add(records, unavailable=self._unavailable())
        records = _add(records, reason=self._reason())
        records = _add(records, change=F.explode(self._changes()))
        return records.select(*self._result())

    def _row(self, image: str) -> Column:
        """The values of a row in their types."""
        parts = (
            read_value(_temp(f"{image}_{n}"), part.dataType, is_coded=True).alias(part.name)
            for n, part in enumerate(self.row.fields)
        )
        return F.when(_temp(f"{image}_texts").isNotNull(), F.struct(*parts))

    def _unsent(self, image: str) -> Column:
        """Names of the columns of a row whose values were not sent."""
        texts, names = _temp(f"{image}_texts"), self.row.names
        unsent = F.map_keys(
            F.map_filter(
                texts,
                lambda name, value: (
                    name.isin(*names) & values.is_placeholder(value, self.spec.placeholder)
                ),
            )
        )
        if self.spec.absent == "unavailable":
            expected = F.array(*map(F.lit, names))
            unsent = F.concat(unsent, F.array_except(expected, F.map_keys(texts)))
        return F.coalesce(unsent, F.array().cast("array<string>"))

    def _is_absent(self, image: str, name: str) -> Column:
        has_name = F.map_contains_key(_temp(f"{image}_texts"), name)
        return F.coalesce(~has_name, F.lit(False))

    def _is_tombstone(self) -> Column:
        """Whether the value is null: in Kafka, in JSON, or in the wrapper of its schema."""
        names = F.array_remove(F.map_keys(_temp("outer")), "schema")
        is_wrapped = (names == F.array(F.lit("payload"))) & _temp("payload").isNull()
        is_null = _temp("text").rlike(r"^\s*null\s*$") | F.coalesce(is_wrapped, F.lit(False))
        return _temp("input")["value"].isNull() | F.coalesce(is_null, F.lit(False))

    def _sequence(self) -> Column:
        """The position of the change in the log; null if it is not known."""
        if isinstance(self.spec.sequence, str):
            return values.parse_sequence(_temp("envelope"), self.spec.sequence)
        names = self.spec.sequence
        parts = [make_nullable(_temp("sequence_columns")[name]).alias(name) for name in names]
        is_known = reduce(Column.__and__, (part.isNotNull() for part in parts))
        return F.when(is_known, F.struct(*parts))

    def _reason(self) -> Column:
        """The reason for which a record is rejected; null if it is not."""
        op = _temp("op")
        after, before = (_temp("envelope")[image] for image in ("after", "before"))
        is_known = op.isin(*_SAVED, DELETED)
        image = F.when(op == DELETED, self._deleted_row()).otherwise(self._saved_row())
        no_key = reduce(Column.__or__, (image[name].isNull() for name in self.spec.key))
        no_message_key = _temp("input")["key"].isNull()
        return (
            F.when(_temp("is_tombstone"), None)
            .when(_temp("envelope").isNull(), "unparsable_json")
            .when(op == MESSAGE, None)
            .when(op.isNull(), "no_operation")
            .when((op == TRUNCATED) & _temp("sequence").isNull(), "no_sequence")
            .when(op == TRUNCATED, None)  # has no row, and no key
            .when(~is_known, "unknown_operation")
            .when((op != DELETED) & after.isNull(), "no_row")
            .when((op == DELETED) & before.isNull() & no_message_key, "no_row")
            .when(self._is_invalid(), "row_does_not_fit")
            .when(no_key, "null_key")
            .when(self._has_no_preimage(), "no_row_before")
            .when(self._is_partial_insert(), "value_not_sent")
            .when(_temp("sequence").isNull(), "no_sequence")
        )

    def _is_invalid(self) -> Column:
        """Whether a value is null or absent and may not be, or is not of its column's type."""
        is_saved = _temp("op").isin(*_SAVED)
        found = F.lit(False)
        for image in _IMAGES:
            found |= _temp("envelope")[image].isNotNull() & _temp(image).isNull()
        for n, part in enumerate(self.row.fields):
            if not part.nullable:
                missing = _temp("after")[part.name].isNull()
                found |= is_saved & missing & ~_is_unsent("after", part.name)
            if self.spec.absent == "route":
                found |= is_saved & self._is_absent("after", part.name)
            for image in _IMAGES:
                invalid = _temp(f"{image}_{n}").isNotNull() & _temp(image)[part.name].isNull()
                found |= invalid & ~_is_unsent(image, part.name)
        return found

    def _changes(self) -> Column:
        """The changes of a record, in their order: an array of none, one, or two."""
        op, unavailable = _temp("op"), _temp("unavailable")
        no_names = F.array().cast("array<string>")

        def change(change_type: str | None, row: Column, names: Column = no_names) -> Column:
            return F.struct(
                F.lit(change_type).cast("string").alias("type"),
                row.cast(map_type(self.row, relax=True)).alias("row"),
                names.alias("unavailable"),
            )

        delete = change(DELETE, self._deleted_row())
        insert = change(INSERT, self._saved_row(), unavailable)
        update = [change(POSTIMAGE, self._saved_row(), unavailable)]
        if self.spec.preimages == "publish":
            update.insert(0, change(PREIMAGE, self._sent_row("before")))
        no_change = change(None, F.lit(None))
        tombstone = F.array(change(None, _temp("key")))
        if self.spec.tombstones == "drop":
            tombstone = F.slice(tombstone, 1, 0)
        return (
            F.when(_temp("is_tombstone"), tombstone)
            .when(_temp("reason").isNotNull(), F.array(no_change))
            .when(op == MESSAGE, F.slice(F.array(no_change), 1, 0))
            .when(op == TRUNCATED, F.array(change(TRUNCATE, F.lit(None))))
            .when(op == DELETED, F.array(delete))
            .when((op == "u") & self._has_key_before() & self._moves(), F.array(delete, insert))
            .when(op == "u", F.array(*update))
            .otherwise(F.array(insert))
        )

    def _unavailable(self) -> Column:
        """Names of the columns whose value is neither in the row after a change nor in that before it."""
        names = (
            F.when(_is_unsent("after", n) & ~self._is_in_before(n), F.lit(n))
            for n in self.row.names
        )
        return F.array_compact(F.array(*names))

    def _is_partial_insert(self) -> Column:
        """Whether a row of a new key has a placeholder: no previous change of the key has the value.

        Postgres sends such rows if an update changes the key, but not a large value.
        """
        is_new = (_temp("op") != "u") | (self._has_key_before() & self._moves())
        after_names = F.map_keys(_temp("after_texts"))  # Spark 3.5 looks up constants in a map only
        has_placeholder = F.exists(
            _temp("unavailable"), lambda name: F.array_contains(after_names, name)
        )
        return _temp("op").isin(*_SAVED) & is_new & has_placeholder

    def _moves(self) -> Column:
        before, after = _temp("before"), _temp("after")
        return reduce(Column.__or__, (before[n] != after[n] for n in self.spec.key))

    def _has_no_preimage(self) -> Column:
        """Whether a row that must be retracted was not sent whole."""
        if self.spec.preimages == "drop":
            return F.lit(False)
        op, before, envelope = _temp("op"), _temp("before"), _temp("envelope")
        is_partial = F.cardinality(_temp("before_unsent")) > 0
        for name in self.row.names:  # a large value that is not sent again existed before
            is_partial |= (op == "u") & _is_unsent("after", name) & ~self._is_in_before(name)
        others = [before[name].isNull() for name in self.row.names if name not in self.spec.key]
        if others:
            # Unless the replica identity is full, Postgres sends the key of the row before and nulls.
            sent = F.map_filter(
                _temp("before_texts"),
                lambda name, value: ~name.isin(*self.spec.key) & value.isNotNull(),
            )
            is_postgres = envelope["source"]["connector"].eqNullSafe("postgresql")
            is_partial |= reduce(Column.__and__, others, is_postgres) & (F.cardinality(sent) == 0)
        return op.isin("u", DELETED) & (~self._has_key_before() | is_partial)

    def _has_key_before(self) -> Column:
        return reduce(Column.__and__, (_temp("before")[n].isNotNull() for n in self.spec.key))

    def _deleted_row(self) -> Column:
        """The row before a delete, or its key."""
        before, key = self._sent_row("before"), _temp("key")
        return F.struct(
            *(
                (F.coalesce(before[n], key[n]) if n in self.spec.key else before[n]).alias(n)
                for n in self.row.names
            )
        )

    def _sent_row(self, image: str) -> Column:
        """The row, with null for values that were not sent."""
        row = _temp(image)
        return F.struct(
            *(F.when(~_is_unsent(image, name), row[name]).alias(name) for name in self.row.names)
        )

    def _saved_row(self) -> Column:
        """The row after a change, with values that were not sent from the row before."""
        before, after = _temp("before"), _temp("after")
        return F.struct(
            *(
                F.when(self._is_in_before(n), before[n])
                .when(~_is_unsent("after", n), after[n])
                .alias(n)
                for n in self.row.names
            )
        )

    def _is_in_before(self, name: str) -> Column:
        # A null may be a value that was not sent, as from Postgres unless its replica identity is full.
        is_sent = (_temp("op") == "u") & _temp("before")[name].isNotNull()
        return is_sent & _is_unsent("after", name) & ~_is_unsent("before", name)

    def _result(self) -> list[Column]:
        change, is_rejected = _temp("change"), _temp("reason").isNotNull()
        is_change = change["type"].isNotNull()
        metadata = {part.name: part.metadata or {} for part in self.row.fields}
        rejected = F.struct(
            _temp("reason").alias("reason"),
            *(make_nullable(_temp("input")[name]).alias(name) for name in ("value", "key")),
        )
        columns = [
            *(change["row"][name].alias(name, metadata=metadata[name]) for name in self.row.names),
            change["type"].alias(CHANGE_TYPE),
            F.when(is_change, _temp("sequence")).alias(SEQUENCE),
            F.when(is_change, _temp("op") == values.READ).alias(SNAPSHOT),
            F.when(is_change, change["unavailable"]).alias(UNAVAILABLE),
            F.when(is_change, values.source_time(_temp("envelope"))).alias(CHANGED_AT),
        ]
        if self.spec.tombstones == "keep":
            columns.append(_temp("is_tombstone").alias(TOMBSTONE))
        columns.append(F.when(is_rejected, rejected).alias(REJECTED))
        return [*columns, *(column(name) for name in self.spec.keep)]
