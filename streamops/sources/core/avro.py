"""Read records of an Avro schema, and resolve them to the columns of a reader."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

import fastavro
import numpy as np
import pyarrow as pa

from streamops.sources.core import registered
from streamops.sources.core.registered import Convert, Unfit, Unparsable, Written, refuse

_MAX_DEPTH = 64
_MAX_EMPTY = 64  # items without bytes: a few bytes could be billions of them
_COMPLEX = ("array", "map", "record", "error", "enum", "fixed")

# By type and logical type of Avro: what to test of the reader's type, and how to convert the number.
_TIMES: dict[tuple[str, str], tuple[Callable[[pa.DataType], bool], Convert]] = {
    ("int", "date"): (pa.types.is_date32, None),
    ("int", "time-millis"): (pa.types.is_time64, registered.time_of_day(1_000_000)),
    ("long", "time-micros"): (pa.types.is_time64, registered.time_of_day(1_000)),
    **{
        ("long", f"{prefix}timestamp-{unit}"): (test, convert)
        for prefix, test in (("", registered.is_instant), ("local-", registered.is_local))
        for unit, convert in (
            ("millis", registered.times(1_000)),
            ("micros", None),
            ("nanos", registered.divided(1_000)),
        )
    },
}
_UNITS = {"date": "D", "millis": "ms", "micros": "us", "nanos": "ns"}
_PER_SECOND = {"D": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def _parts(schema: Any, names: dict[str, Any]) -> tuple[str, Any]:
    """The base of a schema, and the schema as an object or a union. An error is a record, too."""
    if isinstance(schema, list):
        return "union", schema
    if isinstance(schema, str):
        schema = names.get(schema, {"type": schema})
    if not isinstance(schema["type"], str):
        return _parts(schema["type"], names)
    return "record" if schema["type"] == "error" else schema["type"], schema


def _branches(union: list[Any]) -> list[Any]:
    return [branch for branch in union if branch not in ("null", {"type": "null"})]


def _complete(schema: Any) -> Any:
    """The schema without what its bytes do not depend on, and what is to be ignored.

    That is: defaults and aliases, invalid logical types, and an object around a type.
    """
    if isinstance(schema, list):
        return [_complete(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    base = schema["type"]
    if not isinstance(base, str) or base not in (*_PRIMITIVES, *_COMPLEX):
        return _complete(base)
    whole = {key: of for key, of in schema.items() if key not in ("default", "aliases")}
    whole |= {key: _complete(schema[key]) for key in ("items", "values") if key in schema}
    if "fields" in schema:
        whole["fields"] = [
            {"name": part["name"], "type": _complete(part["type"])} for part in schema["fields"]
        ]
    if whole.get("logicalType") == "decimal" and not _is_decimal(whole):
        del whole["logicalType"]
    return whole


def _is_decimal(schema: dict[str, Any]) -> bool:
    """Whether there are decimals of the precision and the scale."""
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision > 0:
        return False
    bits = 8 * schema["size"] - 1 if schema["type"] == "fixed" else math.inf
    return precision * math.log2(10) <= bits


Read = Callable[[bytes, int], tuple[Any, int]]
"""Reads a value at a position, and returns it with the position behind it; any exception if there is none."""


def _number(bits: int) -> Read:
    """An integer of at most so many bits, zigzag, with seven bits per byte."""

    def read(data: bytes, at: int) -> tuple[int, int]:
        byte = data[at]
        at += 1
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), at
        value, shift = byte & 0x7F, 7
        while byte > 0x7F:
            if shift >= bits:
                raise Unparsable("more bytes than the integer has")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
        if value >> bits:
            raise Unparsable("more bits than the integer has")
        return (value >> 1) ^ -(value & 1), at

    return read


_int, _long = _number(32), _number(64)


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    return (False, True)[data[at]], at + 1


def _float(form: struct.Struct) -> Read:
    return lambda data, at: (form.unpack_from(data, at)[0], at + form.size)


def _sized(size: int, data: bytes, at: int) -> tuple[bytes, int]:
    if not 0 <= size <= len(data) - at:
        raise Unparsable("a negative length, or one beyond the end")
    return data[at : at + size], at + size


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    return _sized(size, data, at)


def _text(data: bytes, at: int) -> tuple[str, int]:
    raw, at = _bytes(data, at)
    return raw.decode(), at


def _index(data: bytes, at: int, count: int) -> tuple[int, int]:
    """The position of a symbol or a branch."""
    number, at = _int(data, at)
    if not 0 <= number < count:
        raise Unparsable("a position beyond the schema")
    return number, at


def _enum(symbols: Sequence[str]) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        number, at = _index(data, at, len(symbols))
        return symbols[number], at

    return read


def _union(branches: Sequence[Read], is_tagged: bool) -> Read:
    """The value; with its position if there are several types besides null."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        number, at = _index(data, at, len(branches))
        value, at = branches[number](data, at)
        return (number, value) if is_tagged and value is not None else value, at

    return read


def _items(item: Read) -> Read:
    """The items of an array or a map, in blocks: one with a negative count has its number of bytes."""

    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, at = _long(data, at)
            if not count:
                return items, at
            end = None
            if count < 0:
                size, at = _long(data, at)
                end = at + size
            for _ in range(abs(count)):
                value, behind = item(data, at)
                if behind == at and len(items) >= _MAX_EMPTY:
                    raise Unparsable("too many items without bytes")
                at = behind
                items.append(value)
            if end is not None and at != end:
                raise Unparsable("a block of another size")

    return read


def _map(value: Read) -> Read:
    def read_pair(data: bytes, at: int) -> tuple[tuple[str, Any], int]:
        key, at = _text(data, at)
        item, at = value(data, at)
        return (key, item), at

    read_pairs = _items(read_pair)

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        pairs, at = read_pairs(data, at)
        return dict(pairs), at

    return read


def _record(make_parts: Callable[[], list[tuple[str, Read]]]) -> Read:
    """The fields, which are resolved once a record is met: types may refer to each other at every depth."""
    parts: list[tuple[str, Read]] = []

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        record = {}
        if not parts:
            parts.extend(make_parts())
        for name, part in parts:
            record[name], at = part(data, at)
        return record, at

    return read


def _too_deep(data: bytes, at: int) -> NoReturn:
    raise Unparsable("too many levels")


_PRIMITIVES: dict[str, Read] = {
    "null": lambda data, at: (None, at),
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _float(struct.Struct("<f")),
    "double": _float(struct.Struct("<d")),
    "bytes": _bytes,
    "string": _text,
}


@dataclass
class _Readers:
    """How to read the bytes of each type of a schema at each depth."""

    names: dict[str, Any]
    made: dict[tuple[str, int], Read] = field(default_factory=dict)

    def make(self, schema: Any, depth: int = 0) -> Read:
        base, schema = _parts(schema, self.names)
        if depth > _MAX_DEPTH and base != "null":
            return _too_deep
        match base:
            case "union":
                branches = [self.make(branch, depth + 1) for branch in schema]
                return _union(branches, is_tagged=len(_branches(schema)) > 1)
            case "array":
                return _items(self.make(schema["items"], depth + 1))
            case "map":
                return _map(self.make(schema["values"], depth + 1))
            case "enum":
                return _enum(schema["symbols"])
            case "fixed":
                return partial(_sized, schema["size"])
            case "record":
                own = schema["name"], depth
                if own not in self.made:
                    self.made[own] = _record(partial(self._fields, schema["fields"], depth + 1))
                return self.made[own]
        return _PRIMITIVES[base]

    def _fields(self, fields: Sequence[Any], depth: int) -> list[tuple[str, Read]]:
        return [(part["name"], self.make(part["type"], depth)) for part in fields]


class _Record:
    """A record of the schema: how to read its bytes, and how to convert its fields."""

    def __init__(self, schema: Any, row: pa.Schema, readers: _Readers) -> None:
        fields = {part["name"]: part["type"] for part in schema["fields"]}
        self.name: str = schema["name"]
        self.read = readers.make(schema)
        self.converts = {
            part.name: _resolve(fields[part.name], part.type, readers.names)
            for part in row
            if part.name in fields
        }
        self.unknown = {name: of for name, of in fields.items() if name not in row.names}


class AvroReader:
    """Decodes the records of an Avro schema: of a record, or a union with records.

    Raises
    ------
    Exception
        The schema has no record at its top, or cannot be parsed.
    """

    unparsable = "unparsable_avro"

    def __init__(self, written: Written, row: pa.Schema) -> None:
        """Parse the schema and resolve its fields."""
        names: dict[str, Any] = {}
        for text in (*written.references.values(), written.text):
            parsed = fastavro.parse_schema(_complete(json.loads(text)), names)
        readers = _Readers(names)
        self._names = names
        self._is_union = isinstance(parsed, list)
        branches = [_parts(branch, names) for branch in (parsed if self._is_union else [parsed])]
        self._records = [
            _Record(schema, row, readers) if base == "record" else None for base, schema in branches
        ]
        if not any(self._records):
            raise Unparsable(branches[0][0] if branches else "an empty union")

    def parse(self, payload: bytes) -> tuple[_Record, dict[str, Any]]:
        """The record, and which one of the schema it is."""
        number, at = _index(payload, 0, len(self._records)) if self._is_union else (0, 0)
        described = self._records[number]
        if described is None:
            raise Unparsable("a value that is not a record")
        record, at = described.read(payload, at)
        if at < len(payload):
            raise Unparsable("bytes behind the record")
        return described, record

    def name(self, record: tuple[_Record, Any]) -> str:
        """The full name of the record."""
        return record[0].name

    def column(self, records: Sequence[Any], name: str, default: Any) -> tuple[list[Any], Convert]:
        """The values of a field. Those of a union are converted where they are read."""
        if self._is_union:

            def read(record: tuple[_Record, Any]) -> Any:
                described, values = record
                if name not in described.converts:
                    return default
                convert = registered.within(described.converts[name], nullable=True)
                return values[name] if convert is None else convert(values[name])

            return list(records), read
        [described] = self._records
        assert described is not None
        if name not in described.converts:
            return [default] * len(records), None
        return [values[name] for _, values in records], described.converts[name]

    def unknown(self, record: tuple[_Record, Any]) -> str | None:
        """The fields that the reader lacks."""
        described, values = record
        if not described.unknown:
            return None
        found: dict[str, Any] = {}
        without_text = []
        for name, schema in described.unknown.items():
            try:
                found[name] = _to_json(values[name], schema, self._names)
            except Unfit:
                without_text.append(name)
        return registered.unknown_json(found, without_text)


def _resolve(schema: Any, dtype: pa.DataType, names: dict[str, Any]) -> Convert:
    """How to convert values of the schema to a type of the reader."""
    base, schema = _parts(schema, names)
    logical = str(schema.get("logicalType")) if isinstance(schema, dict) else ""
    types = pa.types
    match base:
        case "union":
            return _resolve_union(schema, dtype, names)
        case "boolean":
            return None if types.is_boolean(dtype) else refuse
        case "int" | "long":
            if (base, logical) in _TIMES:
                test, convert = _TIMES[base, logical]
                return convert if test(dtype) else refuse
            return registered.from_int(dtype)
        case "float" | "double":
            return registered.from_float(dtype, is_single=base == "float")
        case "bytes" | "fixed" if logical == "decimal":
            scale = schema.get("scale", 0)
            is_decimal = types.is_decimal(dtype)
            return (lambda raw: registered.to_decimal(raw, scale)) if is_decimal else refuse
        case "bytes" | "string":
            return registered.from_text(dtype)
        case "fixed":
            return None if types.is_binary(dtype) else refuse
        case "enum":
            return None if types.is_string(dtype) else refuse
        case "array" if types.is_list(dtype):
            return registered.in_list(_resolve(schema["items"], dtype.value_type, names), dtype)
        case "map" if types.is_map(dtype):
            to_key = registered.from_text(dtype.key_type)
            values = _resolve(schema["values"], dtype.item_type, names)
            return registered.in_map(values, dtype, to_key)
        case "record" if types.is_struct(dtype):
            return _resolve_record(schema, dtype, names)
    return refuse


def _resolve_union(union: list[Any], dtype: pa.DataType, names: dict[str, Any]) -> Convert:
    branches = _branches(union)
    if len(branches) == 1:
        return _resolve(branches[0], dtype, names)
    converts = [_resolve(branch, dtype, names) for branch in union]

    def convert(value: tuple[int, Any]) -> Any:
        number, inner = value
        convert = converts[number]
        return inner if convert is None else convert(inner)

    return convert


def _resolve_record(schema: Any, dtype: pa.StructType, names: dict[str, Any]) -> Convert:
    fields = {part["name"]: part["type"] for part in schema["fields"]}
    converts = []
    for part in dtype:
        if part.name in fields:
            resolved = _resolve(fields[part.name], part.type, names)
            convert = registered.within(resolved, part.nullable)
            if convert is not None:
                converts.append((part.name, convert))
        elif not part.nullable:
            return refuse
    if not converts:
        return None

    def convert_record(record: dict[str, Any]) -> dict[str, Any]:
        return record | {name: convert(record[name]) for name, convert in converts}

    return convert_record


def _to_json(value: Any, schema: Any, names: dict[str, Any]) -> Any:
    """A value that Python writes as JSON, from which it can be read again."""
    base, schema = _parts(schema, names)
    logical = str(schema.get("logicalType")) if isinstance(schema, dict) else ""
    if value is None:
        return None
    match base:
        case "union":
            branches = _branches(schema)
            if len(branches) == 1:
                return _to_json(value, branches[0], names)
            number, inner = value
            return _to_json(inner, schema[number], names)
        case "int" | "long" if (base, logical) in _TIMES:
            return _time_text(value, logical)
        case "float" | "double":
            return value if math.isfinite(value) else json.dumps(value)
        case "bytes" | "fixed" if logical == "decimal":
            return registered.decimal_text(value, schema.get("scale", 0))
        case "bytes" | "fixed":
            return base64.b64encode(value).decode()
        case "array":
            return [_to_json(item, schema["items"], names) for item in value]
        case "map":
            return {key: _to_json(item, schema["values"], names) for key, item in value.items()}
        case "record":
            return {
                p["name"]: _to_json(value[p["name"]], p["type"], names) for p in schema["fields"]
            }
    return value


def _time_text(value: int, logical: str) -> str | int:
    """A time in ISO 8601; the number, if no text of four digits has its year, or no day has its time."""
    unit = _UNITS[logical.rpartition("-")[2]]
    seconds, _ = divmod(value * 86_400 if unit == "D" else value, _PER_SECOND[unit])
    is_time = logical.startswith("time-")
    if not (
        0 <= seconds < 86_400
        if is_time
        else registered.FIRST_SECOND <= seconds <= registered.LAST_SECOND
    ):
        return value
    text = str(np.int64(value).astype(f"datetime64[{unit}]"))
    if is_time:
        return text.partition("T")[2]
    return text + "Z" if logical.startswith("timestamp") else text
