"""Parse the parts of Debezium's records: values, placeholders of unavailable values, and positions.

Spark's JSON reader interprets numbers as seconds, completes a time of day with today's date, rounds
decimals, and makes large floats infinite. So such values are read in a wider type, and then converted
or refused.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import DataType, StringType, StructField, StructType

from streamops.kernel.errors import SpecError
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.spark.columns import contains_type, make_nullable, map_type

__all__ = [
    "CONNECTORS",
    "POSITIONS",
    "READ",
    "SOURCE",
    "convert",
    "is_invalid",
    "is_placeholder",
    "is_single_value",
    "may_contain_placeholder",
    "parse_key",
    "parse_row_type",
    "parse_sequence",
    "raw_type",
    "replace_placeholder",
    "source_time",
]

_MARK = "_streamops_end"

# A decimal is read as a variant, which has all its digits; a string has those of a double.
_RAW = {T.TimestampType: StringType(), T.DecimalType: T.VariantType(), T.FloatType: T.DoubleType()}
_DATED = r"^[+-]?[0-9]{4,6}-[0-9]{1,2}-[0-9]{1,2}"
# "12E4" and "1E+5" may be bytes in base64, and are not a notation of decimals with a fixed scale.
_SCIENTIFIC = r"^-?[0-9]+(\.[0-9]+[eE][+-]?|[eE]-)[0-9]+$"


def parse_row_type(schema: str | StructType, *, where: str) -> StructType:
    """The type of a row, with strings of any length, and of types that JSON has.

    Raises
    ------
    SpecError
        ``NOT_A_SCHEMA`` or ``KEYS_NOT_TEXT``.
    """
    row: Any = schema
    reason = ""
    if isinstance(schema, str) and schema.strip():
        try:
            row = DataType.fromDDL(schema)
        except Exception as error:  # PySpark's own error type moved between releases
            reason = ": " + str(error).strip().partition("\n")[0]
    if not isinstance(row, StructType) or not row.fields:
        raise SpecError(
            "NOT_A_SCHEMA",
            "`schema` does not define the columns of a row",
            where=where,
            got=f"schema={schema!r}{reason}",
            expected="a StructType, or columns and types as in SQL",
            fix='schema="id bigint, name string"',
        )
    result = map_type(
        row, lambda leaf: StringType() if isinstance(leaf, T.CharType | T.VarcharType) else leaf
    )
    assert isinstance(result, StructType)
    for part in result.fields:
        if not _has_text_keys(part.dataType):
            raise SpecError(
                "KEYS_NOT_TEXT",
                f"column {part.name!r} has a map whose keys are not strings, as those of JSON are",
                where=where,
                got=f"{part.name!r} of type {part.dataType.simpleString()}",
                expected="map<string, ...>",
                fix="declare the keys as string, and cast them after this operator",
            )
    return result


def _has_text_keys(dtype: DataType) -> bool:
    """Whether all maps in the type have strings as keys, as in JSON."""
    return not contains_type(
        dtype, lambda part: isinstance(part, T.MapType) and not isinstance(part.keyType, StringType)
    )


def raw_type(dtype: DataType) -> DataType:
    """The type in which values of a type are read, nullable at every depth."""
    return map_type(dtype, lambda leaf: _RAW.get(type(leaf), leaf), relax=True)


def parse_key(text: Column, row: StructType, key: Sequence[str]) -> Column:
    """A row with the values of a message key, and nulls."""
    types = {part.name: part.dataType for part in row.fields}
    fields = [StructField(name, raw_type(types[name])) for name in key]
    wrapped = StructType([*fields, StructField("payload", StructType(fields))])
    parsed = F.when(is_single_value(text), F.from_json(text, wrapped))

    def value(name: str) -> Column:
        if name not in key:
            return F.lit(None)
        return F.coalesce(*(convert(p[name], types[name]) for p in (parsed["payload"], parsed)))

    return F.struct(
        *(value(name).cast(map_type(types[name], relax=True)).alias(name) for name in types)
    )


def convert(value: Column, dtype: DataType) -> Column:
    """The value in its type; null if it is not a value of the type."""
    if not _is_converted(dtype):
        return value
    match dtype:
        case T.TimestampType():
            return F.when(value.rlike(_DATED), value.try_cast(dtype))
        case T.DecimalType():
            return _to_decimal(_text(value), dtype)
        case T.FloatType():
            narrow = value.cast(dtype)
            return F.when(~_is_infinite(narrow) | _is_infinite(value), narrow)
        case T.ArrayType():
            return F.transform(value, lambda item: convert(item, dtype.elementType))
        case T.MapType():
            return F.transform_values(value, lambda _, item: convert(item, dtype.valueType))
        case StructType():
            parts = (convert(value[f.name], f.dataType).alias(f.name) for f in dtype.fields)
            return F.when(value.isNotNull(), F.struct(*parts))
    return value


def is_invalid(value: Column, dtype: DataType) -> Column | None:
    """Whether a value, or one inside it, is not of the type; None if Spark's reader refuses those.

    A null inside the value that may not be null is invalid.
    """
    match dtype:
        case T.ArrayType():
            return _any_invalid(value, dtype.elementType, dtype.containsNull)
        case T.MapType():
            return _any_invalid(F.map_values(value), dtype.valueType, dtype.valueContainsNull)
        case StructType():
            parts = (_is_invalid_part(value[f.name], f.dataType, f.nullable) for f in dtype.fields)
            found = [part for part in parts if part is not None]
            return value.isNotNull() & reduce(Column.__or__, found) if found else None
        case T.DecimalType():
            return _text(value).isNotNull() & convert(value, dtype).isNull()
    return value.isNotNull() & convert(value, dtype).isNull() if _is_converted(dtype) else None


def _any_invalid(values: Column, dtype: DataType, is_nullable: bool) -> Column | None:
    if _is_invalid_part(values, dtype, is_nullable) is None:
        return None

    def check(item: Column) -> Column:
        invalid = _is_invalid_part(item, dtype, is_nullable)
        assert invalid is not None
        return invalid

    return F.coalesce(F.exists(values, check), F.lit(False))


def _is_invalid_part(value: Column, dtype: DataType, is_nullable: bool) -> Column | None:
    invalid = is_invalid(value, dtype)
    if is_nullable:
        return invalid
    # JSON's null is a variant that is not null.
    missing = (_text(value) if isinstance(dtype, T.DecimalType) else value).isNull()
    return missing if invalid is None else invalid | missing


def _is_converted(dtype: DataType) -> bool:
    return contains_type(dtype, lambda part: type(part) in _RAW)


def _text(value: Column) -> Column:
    return F.try_variant_get(value, "$", "string")


def _to_decimal(text: Column, dtype: T.DecimalType) -> Column:
    """The decimal, if no digit is lost."""
    value = text.try_cast(dtype)
    is_plain = text.rlike(rf"^-?[0-9]+(\.[0-9]{{0,{dtype.scale}}}0*)?$")
    # The notation of doubles, and of decimals near zero.
    is_same = value.cast("double") == text.try_cast("double")
    return F.when(is_plain | (text.rlike(_SCIENTIFIC) & is_same), value)


def _is_infinite(value: Column) -> Column:
    return F.abs(value) == F.lit(float("inf"))


def is_placeholder(value: Column, placeholder: str) -> Column:
    """Whether a value, as JSON text, is the placeholder in the form of its column's type.

    The forms are text; bytes in base64 and hex; arrays of text; maps; arrays of numbers.
    """
    raw = placeholder.encode()
    text = re.sub(r"\s", "", json.dumps(placeholder, ensure_ascii=False))
    forms = [
        placeholder,
        base64.b64encode(raw).decode(),
        raw.hex(),
        f"[{text}]",
        f"{{{text}:{text}}}",
        f"[{','.join(map(str, raw))}]",
    ]
    plain = F.when(value.rlike(r"^[\[{]"), F.regexp_replace(value, r"\s", "")).otherwise(value)
    return F.coalesce(plain.isin(*forms), F.lit(False))


def may_contain_placeholder(row: Column, placeholder: str) -> Column:
    """Whether a form of the placeholder may be in a row, as JSON text."""
    raw = placeholder.encode()
    quoted = json.dumps(placeholder, ensure_ascii=False)[1:-1]
    forms = (quoted, base64.b64encode(raw).decode(), raw.hex(), ",".join(map(str, raw)))
    return reduce(Column.__or__, (F.contains(row, F.lit(form)) for form in forms))


def replace_placeholder(record: Column, placeholder: str) -> Column:
    """The record with null for the placeholder, which may not be of the column's type."""
    quoted = json.dumps(placeholder, ensure_ascii=False)
    # A whole JSON string that is not a name: no backslash before it, no colon after it.
    pattern = rf"(?<!\\)\Q{quoted}\E(?!\s*:)"
    replaced = F.regexp_replace(record, pattern, "null")
    return F.when(F.contains(record, F.lit(quoted)), replaced).otherwise(record)


CONNECTORS = {
    "postgresql": "lsn",
    "mysql": "binlog",
    "mariadb": "binlog",
    "oracle": "scn",
    "sqlserver": "change_lsn",
}
"""The type of position in the log of each connector."""

POSITIONS = tuple(dict.fromkeys(CONNECTORS.values()))

_SOURCE_FIELDS = (
    *("connector", "lsn", "file", "pos", "row", "scn", "change_lsn", "commit_lsn"),
    *("event_serial_no", "ts_ms", "ts_us"),
)
SOURCE = StructType([StructField(name, StringType()) for name in _SOURCE_FIELDS])
"""The fields of a record's ``source`` that are read."""

READ = "r"
"""The operation of a row of a snapshot."""

_LSN_PARTS = r"^([0-9a-fA-F]{1,8}):([0-9a-fA-F]{1,8}):([0-9a-fA-F]{1,4})$"


def parse_sequence(record: Column, position: str) -> Column:
    """``struct<log, offset, position>`` of bigint, which orders changes; null if there is none.

    `record` has ``op``, ``source`` and ``transaction``, whose fields are text. `position` is one of
    ``POSITIONS``, or "auto": that of the record's connector. A row of an incremental snapshot may have no
    position: it is below all of the log.
    """
    is_read = record["op"] == READ
    lowest = _to_sequence(F.lit(0), F.lit(0), F.lit(0))
    sequences = {name: parse(record) for name, parse in _PARSERS.items()}
    if position != "auto":
        return F.coalesce(sequences[position], F.when(is_read, lowest))
    connector = record["source"]["connector"]
    result = F.when(F.lit(False), lowest)
    for name, used in CONNECTORS.items():
        result = result.when(connector == name, sequences[used])
    return F.coalesce(result, F.when(is_read & connector.isin(*CONNECTORS), lowest))


def source_time(record: Column) -> Column:
    """When the database made the change, by its clock. It does not order changes."""
    source = record["source"]
    millis = _to_int(source["ts_ms"])
    # Within the calendar before the multiplication, whose overflow would fail the query.
    is_valid = millis.between(MIN_INSTANT // 1_000, MAX_INSTANT // 1_000)
    micros = F.coalesce(_to_int(source["ts_us"]), F.when(is_valid, millis) * F.lit(1_000))
    return F.timestamp_micros(F.when(micros.between(MIN_INSTANT, MAX_INSTANT), micros))


def _parse_lsn(record: Column) -> Column:
    # Changes of a row take locks, so their positions ascend though transactions interleave.
    return _to_sequence(F.lit(0), _to_int(record["source"]["lsn"]), _total_order(record))


def _parse_binlog(record: Column) -> Column:
    source = record["source"]
    file = _to_int(F.regexp_extract(source["file"], r"\.([0-9]+)$", 1))
    row = F.coalesce(_to_int(source["row"]), F.lit(0))
    return _to_sequence(file, _to_int(source["pos"]), row)


def _parse_scn(record: Column) -> Column:
    return _to_sequence(F.lit(0), _to_int(record["source"]["scn"]), _total_order(record))


def _parse_change_lsn(record: Column) -> Column:
    source = record["source"]
    # Rows of a snapshot only have the position of the snapshot.
    lsn = F.coalesce(source["change_lsn"], source["commit_lsn"])
    file, block, slot = (
        _to_int(F.conv(F.regexp_extract(lsn, _LSN_PARTS, part), 16, 10)) for part in (1, 2, 3)
    )
    serial = F.coalesce(_to_int(source["event_serial_no"]), F.lit(0))
    return _to_sequence(file, block * F.lit(1 << 16) + slot, serial)


_PARSERS = {
    "lsn": _parse_lsn,
    "binlog": _parse_binlog,
    "scn": _parse_scn,
    "change_lsn": _parse_change_lsn,
}


def _total_order(record: Column) -> Column:
    """The position within the transaction; 0 if the connector does not send it."""
    return F.coalesce(_to_int(record["transaction"]["total_order"]), F.lit(0))


def _to_int(text: Column) -> Column:
    return text.try_cast("bigint")


def _to_sequence(log: Column, offset: Column, position: Column) -> Column:
    parts = [
        make_nullable(part.cast("bigint")).alias(name)
        for name, part in (("log", log), ("offset", offset), ("position", position))
    ]
    return F.when(log.isNotNull() & offset.isNotNull(), F.struct(*parts))


def is_single_value(text: Column) -> Column:
    """Whether the text is one JSON object or null, and nothing follows it.

    Spark parses the first value only. In a list that ends with a mark, text that follows the value is
    another element, or not JSON.
    """
    listed = F.concat(F.lit("["), text, F.lit(f',{{"{_MARK}":true}}]'))
    read = F.from_json(listed, f"array<struct<{_MARK}: boolean>>")
    return F.coalesce(F.get(read, F.lit(1))[_MARK], F.lit(False))
