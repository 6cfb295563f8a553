"""What a user says about Debezium's records, validated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CharType,
    DataType,
    MapType,
    StringType,
    StructType,
    VarcharType,
)

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.changelog.table import CHANGE_COLUMNS, REJECTED, TOMBSTONE
from streamops.changes.debezium_records import POSITIONS, REASONS, Records
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from streamops.spark.columns import map_type, require_name
from streamops.spark.parameters import parse_distinct_names
from streamops.spark.results import UPSERTS
from streamops.spark.rowwise import noted
from streamops.spark.transform import require_choice

__all__ = ["Absent", "DebeziumSettings", "Preimages", "Tombstones"]

Absent = Literal["null", "unavailable", "reject"]
Preimages = Literal["drop", "publish"]
Tombstones = Literal["drop", "keep"]
Position = Literal["auto", "lsn", "binlog", "scn", "change_lsn"]

assert set(get_args(Position)) == {"auto", *POSITIONS}


@dataclass(frozen=True, slots=True)
class DebeziumSettings:
    """Settings of the reading of Debezium's records."""

    where: str = field(repr=False)
    schema: str | StructType = field(metadata={"shown": lambda schema: repr(_said(schema))})
    key: tuple[str, ...]
    value: str
    message_key: str | None
    sequence: str | tuple[str, ...]
    absent: Absent
    placeholder: str
    preimages: Preimages
    tombstones: Tombstones
    keep: tuple[str, ...]

    @staticmethod
    def of(
        where: str,
        schema: str | StructType,
        *,
        key: str | Sequence[str],
        value: str,
        message_key: str | None,
        sequence: str | Sequence[str],
        absent: Absent,
        placeholder: str,
        preimages: Preimages,
        tombstones: Tombstones,
        keep: Sequence[str],
    ) -> DebeziumSettings:
        """Settings as the user wrote them, normalised, or an error."""
        given: Any = schema
        names = (
            given.fields
            if isinstance(given, StructType)
            else isinstance(given, str) and given.strip()
        )
        if not names:
            raise _no_schema(schema, where)
        keys = parse_distinct_names(key, parameter="key", where=where)
        require_name(value, parameter="value", where=where)
        if message_key is not None:
            require_name(message_key, parameter="message_key", where=where)
        if message_key is not None and "payload" in keys:
            raise SpecError(
                "KEY_CALLED_PAYLOAD",
                "a key column called 'payload' cannot be told from the wrapper of a message key",
                where=where,
                got=f"key={keys!r}, message_key={message_key!r}",
                expected="another name, or records whose deletes have their row",
                fix="leave message_key out",
            )
        if isinstance(sequence, str):
            require_choice(sequence, Position, parameter="sequence", where=where)
            position: str | tuple[str, ...] = sequence
        else:
            position = parse_distinct_names(sequence, parameter="sequence", where=where)
        require_choice(absent, Absent, parameter="absent", where=where)
        require_choice(preimages, Preimages, parameter="preimages", where=where)
        require_choice(tombstones, Tombstones, parameter="tombstones", where=where)
        token: Any = placeholder
        if not isinstance(token, str) or not token or "\\E" in token:
            raise SpecError(
                "NOT_A_PLACEHOLDER",
                "`placeholder` is not a text that stands for a value",
                where=where,
                got=f"placeholder={placeholder!r}",
                expected="the connector's unavailable.value.placeholder",
                fix="leave it out, if the connector has its own",
            )
        kept = parse_distinct_names(keep, parameter="keep", where=where, empty=True)
        if tombstones == "keep" and message_key is None:
            raise SpecError(
                "TOMBSTONE_WITHOUT_KEY",
                "a tombstone has nothing but its message key",
                where=where,
                got="tombstones='keep', message_key=None",
                expected="the column with the keys of the messages",
                fix='message_key="key", or tombstones="drop"',
            )
        made = DebeziumSettings(
            where,
            schema,
            keys,
            value,
            message_key,
            position,
            absent,
            placeholder,
            preimages,
            tombstones,
            kept,
        )
        if isinstance(schema, StructType):  # text is read by Spark, once there is a frame
            made.refuse_row(made._row())
        return made

    def refuse_row(self, row: StructType) -> None:
        """Refuse a schema without the key, with a name that is taken, or that JSON cannot have."""
        for name in self.key:
            if name not in row.names:
                raise ColumnNotFound(name, row.names, where=self.where, role="key")
        names = [*row.names, *CHANGE_COLUMNS, *self.keep]
        folded = [name.lower() for name in names]
        taken = sorted({name for name in names if folded.count(name.lower()) > 1})
        if taken:
            raise SpecError(
                "NAME_TAKEN",
                f"a name stands for two columns of the result: {', '.join(taken)}",
                where=self.where,
                got=f"schema of {', '.join(row.names)}; keep={list(self.keep)!r}",
                expected=f"names unlike one another and unlike {', '.join(CHANGE_COLUMNS)}",
                fix="rename the column of the frame before it is kept",
            )
        for each in row.fields:
            if _has_other_keys(each.dataType):
                raise SpecError(
                    "KEYS_NOT_TEXT",
                    f"column {each.name!r} has a map whose keys are no text, which JSON does not have",
                    where=self.where,
                    got=f"{each.name!r} of type {each.dataType.simpleString()}",
                    expected="map<string, ...>",
                    fix="declare the keys as string, and cast them behind this operator",
                )

    @property
    def adds(self) -> tuple[str, ...]:
        """None: the columns of the frame go, but for those to keep."""
        return ()

    @property
    def marked(self) -> str:
        """The column that tells the next operator about this one."""
        return CHANGE_TYPE

    def check(self, frame: DataFrame) -> None:
        """Refuse a frame without the columns it reads."""
        self.refuse_row(self._row())
        kinds = {each.name: each.dataType for each in frame.schema.fields}
        named = {"value": self.value, "message_key": self.message_key}
        for role, name in named.items():
            if name is None:
                continue
            if name not in kinds:
                raise ColumnNotFound(name, list(kinds), where=self.where, role=role)
            if not isinstance(kinds[name], StringType | BinaryType):
                raise SchemaError(
                    "COLUMN_TYPE",
                    f"column {name!r} cannot be used as `{role}`",
                    where=self.where,
                    got=f"{name!r} of type {kinds[name].simpleString()}",
                    expected="JSON as string or binary",
                    fix="read the messages as they are; Avro: "
                    'F.to_json(from_avro(...), {"ignoreNullFields": "false"})',
                )
        others = self.sequence if isinstance(self.sequence, tuple) else ()
        for role, names in (("sequence", others), ("keep", self.keep)):
            for name in names:
                if name not in kinds:
                    raise ColumnNotFound(name, list(kinds), where=self.where, role=role)

    def apply(self, frame: DataFrame) -> DataFrame:
        """The changes that the records stand for."""
        changes = Records(
            self._row(),
            self.key,
            self.value,
            self.message_key,
            self.sequence,
            self.absent,
            self.placeholder,
            self.preimages,
            self.tombstones,
            self.keep,
        ).read(frame)
        return noted(changes, CHANGE_TYPE, {UPSERTS: True}) if self.preimages == "drop" else changes

    def _row(self) -> StructType:
        """The schema, read by Spark if it is text; text of a limited length is text."""
        row: Any = self.schema
        if isinstance(row, str):
            try:
                row = DataType.fromDDL(row)
            except Exception as error:  # PySpark's own error type moved between releases
                raise _no_schema(self.schema, self.where, str(error)) from error
        if not isinstance(row, StructType):
            raise _no_schema(self.schema, self.where)
        return cast(StructType, map_type(row, _without_length))

    def counts(self) -> Mapping[str, Column]:
        """Changes, and what is none, by reason."""
        reason = F.col(REJECTED)["reason"]
        counted = {
            "changes": F.count_if(F.col(CHANGE_TYPE).isNotNull()),
            "rejected": F.count_if(F.col(REJECTED).isNotNull()),
            **{word: F.count_if(reason == word) for word in REASONS},
        }
        if self.tombstones == "keep":
            counted["tombstones"] = F.count_if(F.col(TOMBSTONE))
        return counted


def _said(schema: str | StructType) -> str:
    return schema if isinstance(schema, str) else schema.simpleString()[len("struct<") : -1]


def _has_other_keys(kind: DataType) -> bool:
    match kind:
        case StructType():
            return any(_has_other_keys(each.dataType) for each in kind.fields)
        case ArrayType():
            return _has_other_keys(kind.elementType)
        case MapType():
            return not isinstance(kind.keyType, StringType) or _has_other_keys(kind.valueType)
    return False


def _without_length(kind: DataType) -> DataType:
    return StringType() if isinstance(kind, CharType | VarcharType) else kind


def _no_schema(schema: Any, where: str, said: str = "") -> SpecError:
    told = said.strip().partition("\n")[0]
    return SpecError(
        "NOT_A_SCHEMA",
        "`schema` does not say what a row of the table looks like",
        where=where,
        got=f"schema={schema!r}" + (f": {told}" if told else ""),
        expected="a StructType, or columns and types as in SQL",
        fix='schema="id bigint, name string"',
    )
