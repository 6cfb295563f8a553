"""Parse the parts of Debezium's records: keys, placeholders of unavailable values, and positions."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.spark.columns import make_nullable, map_type
from streamops.spark.json_values import convert, is_single_value, raw_type

__all__ = [
    "CONNECTORS",
    "POSITIONS",
    "READ",
    "SOURCE",
    "is_placeholder",
    "may_contain_placeholder",
    "parse_key",
    "parse_sequence",
    "replace_placeholder",
    "source_time",
]


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
