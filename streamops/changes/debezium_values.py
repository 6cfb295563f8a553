"""Parse the parts of Debezium's records: keys, placeholders of unavailable values, and positions."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.kernel.versions import try_cast
from streamops.spark.columns import make_nullable, map_type
from streamops.spark.json_columns import member, parse_members, plain_text, read_value

_HEX = "hex:"


def parse_envelope(members: Column) -> Column:
    """The parts of a record as text; null if the record or one of them is not an object."""
    parts = {
        "source": _text_fields(member(members, "source"), _SOURCE_FIELDS),
        "transaction": _text_fields(member(members, "transaction"), ("total_order",)),
    }
    is_valid = (member(members, n).isNull() | part.isNotNull() for n, part in parts.items())
    envelope = F.struct(
        plain_text(member(members, "op")).alias("op"),
        *(member(members, name).alias(name) for name in ("before", "after")),
        *(part.alias(name) for name, part in parts.items()),
    )
    return F.when(reduce(Column.__and__, is_valid, members.isNotNull()), envelope)


def _text_fields(text: Column, names: Sequence[str]) -> Column:
    members = F.transform_values(parse_members(text), lambda _, value: plain_text(value))
    fields = (member(members, name).alias(name) for name in names)
    return F.when(members.isNotNull(), F.struct(*fields))


def read_key(members: Column, row: StructType, key: Sequence[str]) -> Column:
    """A row with the values of a message key, with or without a wrapper, and nulls."""
    inner = parse_members(member(members, "payload"))

    def value(name: str) -> Column:
        if name not in key:
            return F.lit(None)
        sources = (inner, members)
        return F.coalesce(
            *(read_value(member(m, name), row[name].dataType, is_coded=True) for m in sources)
        )

    return F.struct(
        *(value(f.name).cast(map_type(f.dataType, relax=True)).alias(f.name) for f in row.fields)
    )


def placeholder_bytes(placeholder: str) -> bytes:
    """The bytes of the connector's ``unavailable.value.placeholder``: of a text, or after ``hex:``."""
    if placeholder.startswith(_HEX):
        return bytes.fromhex(placeholder[len(_HEX) :])
    return placeholder.encode()


def is_placeholder(value: Column, placeholder: str) -> Column:
    """Whether a value, as marked text, is the placeholder in the form of its column's type."""
    forms = _placeholder_forms(placeholder)
    text = plain_text(value)
    plain = F.when(text.rlike(r"^[\[{]"), F.regexp_replace(text, r"\s", "")).otherwise(text)
    # Numbers of an array of doubles or decimals have decimal places.
    whole = F.regexp_replace(plain, r"(?<=[0-9])\.0+(?=[\",\]])", "")
    # Most values are shorter.
    is_long = F.length(value) >= min(map(len, forms))
    return F.coalesce(is_long & (plain.isin(*forms) | whole.isin(*forms)), F.lit(False))


def _placeholder_forms(placeholder: str) -> list[str]:
    """All forms of the placeholder: of text, bytes and maps, and of arrays of each type.

    An array of numbers has one for each byte. That of ``uuid[]`` has a UUID of its hash.
    """
    raw = placeholder_bytes(placeholder)
    text = raw.decode(errors="replace")
    coded = [base64.b64encode(raw), base64.urlsafe_b64encode(raw), raw.hex().encode()]
    scalars = [text, *(code.decode() for code in coded)]
    digest = hashlib.md5(raw, usedforsecurity=False).digest()
    named = str(uuid.UUID(bytes=digest, version=3))
    pair = {text: text}
    single: list[object] = [*scalars, named, pair, _to_json(pair)]
    arrays: list[list[object]] = [[item] for item in single]
    for numbers in (list(raw), [byte - 256 if byte > 127 else byte for byte in raw]):
        arrays += [[*numbers], [*map(str, numbers)]]
        arrays += [[_decimal_bytes(number, scale) for number in numbers] for scale in range(39)]
        arrays.append([{"scale": 0, "value": _decimal_bytes(number, 0)} for number in numbers])
    return list(dict.fromkeys([*scalars, _to_json(pair), *map(_to_json, arrays)]))


def _to_json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return re.sub(r"\s", "", text)


def _decimal_bytes(number: int, scale: int) -> str:
    """A whole decimal of a scale, as Kafka Connect encodes it."""
    unscaled = number * 10**scale
    length = ((unscaled if unscaled >= 0 else ~unscaled).bit_length() + 8) // 8
    return base64.b64encode(unscaled.to_bytes(length, "big", signed=True)).decode()


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
    return try_cast(text, "bigint")


def _to_sequence(log: Column, offset: Column, position: Column) -> Column:
    parts = [
        make_nullable(part.cast("bigint")).alias(name)
        for name, part in (("log", log), ("offset", offset), ("position", position))
    ]
    return F.when(log.isNotNull() & offset.isNotNull(), F.struct(*parts))
