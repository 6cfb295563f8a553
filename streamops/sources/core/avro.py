"""Read records of an Avro schema, and resolve them to the columns of a reader."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import fastavro
import pyarrow as pa

from streamops.sources.core import registered
from streamops.sources.core.registered import Convert, Unparsable, Written, refuse

_MAX_DEPTH = 64
# A type of which no record has the bytes.
_TOO_DEEP = {"type": "fixed", "size": (1 << 31) - 1}

# By type and logical type of Avro: what to test of the reader's type, and how to convert the number.
_TIMES: dict[tuple[str, str], tuple[Callable[[pa.DataType], bool], Convert]] = {
    ("int", "date"): (pa.types.is_date32, None),
    ("int", "time-millis"): (pa.types.is_time64, registered.times(1_000_000)),
    ("long", "time-micros"): (pa.types.is_time64, registered.times(1_000)),
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
_ARROW_TYPES = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    **{
        f"{prefix}timestamp-{name}": pa.timestamp(unit, zone)
        for prefix, zone in (("", "UTC"), ("local-", None))
        for name, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
    },
}


def _parts(schema: Any, names: dict[str, Any]) -> tuple[str, Any]:
    """The base of a schema, and the schema as an object or a union."""
    if isinstance(schema, list):
        return "union", schema
    if isinstance(schema, str):
        schema = names.get(schema, {"type": schema})
    if not isinstance(schema["type"], str):
        return _parts(schema["type"], names)
    return schema["type"], schema


def _branches(union: list[Any]) -> list[Any]:
    return [branch for branch in union if branch not in ("null", {"type": "null"})]


@dataclass
class _Plain:
    """The schema without logical types and aliases, in which each branch of a union has a name."""

    names: dict[str, Any]
    made: dict[tuple[str, int], str] = field(default_factory=dict)

    def build(self, schema: Any, depth: int = 0) -> Any:
        if depth > _MAX_DEPTH:
            return self._named(f"too_deep_{len(self.made)}", 0, lambda: dict(_TOO_DEEP))
        base, schema = _parts(schema, self.names)
        match base:
            case "union":
                return self._union(schema, depth)
            case "array":
                items = self.build(schema["items"], depth + 1)
                if self._is_empty(schema["items"]):
                    # A few bytes would be billions of items.
                    raise Unparsable("items without bytes")
                return {"type": "array", "items": items}
            case "map":
                return {"type": "map", "values": self.build(schema["values"], depth + 1)}
            case "record" | "error":
                return self._named(schema["name"], depth, partial(self._record, schema, depth))
            case "enum":
                symbols = schema["symbols"]
                return self._named(schema["name"], 0, lambda: {"type": "enum", "symbols": symbols})
            case "fixed":
                size = schema["size"]
                return self._named(schema["name"], 0, lambda: {"type": "fixed", "size": size})
        return base

    def _record(self, schema: Any, depth: int) -> Any:
        fields = [
            {"name": part["name"], "type": self.build(part["type"], depth + 1)}
            for part in schema["fields"]
        ]
        return {"type": "record", "fields": fields}

    def _union(self, union: list[Any], depth: int) -> Any:
        branches = _branches(union)
        if len(branches) == 1:
            return ["null" if b not in branches else self.build(b, depth + 1) for b in union]
        # A record with one field has the bytes of the field.
        wrapped: list[Any] = []
        position = 0
        for branch in union:
            if branch not in branches:
                wrapped.append("null")
                continue
            fields = [{"name": f"_{position}", "type": self.build(branch, depth + 1)}]
            name = f"branch_{len(self.made)}_{position}"
            self.made[name, depth] = name
            wrapped.append({"type": "record", "name": name, "fields": fields})
            position += 1
        return wrapped

    def _named(self, name: str, depth: int, make: Callable[[], Any]) -> Any:
        """The type, or its name if it was made before."""
        if (name, depth) in self.made:
            return self.made[name, depth]
        own = self.made[name, depth] = f"type_{len(self.made)}"
        return {**make(), "name": own}

    def _is_empty(self, schema: Any, seen: tuple[str, ...] = ()) -> bool:
        """Whether a value has no bytes."""
        base, schema = _parts(schema, self.names)
        if base == "record" and schema["name"] not in seen:
            inner = (*seen, schema["name"])
            return all(self._is_empty(part["type"], inner) for part in schema["fields"])
        return base == "null" or (base == "fixed" and schema["size"] == 0)


class AvroReader:
    """Decodes the records of an Avro schema.

    Raises
    ------
    Exception
        The schema is not one of a record, or cannot be parsed.
    """

    unparsable = "unparsable_avro"

    def __init__(self, written: Written, row: pa.Schema) -> None:
        """Parse the schema and resolve its fields."""
        names: dict[str, Any] = {}
        for text in (*written.references.values(), written.text):
            parsed = fastavro.parse_schema(json.loads(text), names, _ignore_default_error=True)
        base, schema = _parts(parsed, names)
        if base != "record":
            raise Unparsable(base)
        self._names = names
        self._schema = fastavro.parse_schema(_Plain(names).build(schema))
        fields = {part["name"]: part["type"] for part in schema["fields"]}
        self._convert = {
            part.name: _resolve(fields[part.name], part.type, names)
            for part in row
            if part.name in fields
        }
        self._unknown = {name: of for name, of in fields.items() if name not in row.names}

    def parse(self, payload: bytes) -> dict[str, Any]:
        """The record."""
        file = io.BytesIO(payload)
        record: Any = fastavro.schemaless_reader(file, self._schema, None)
        if file.tell() < len(payload):
            raise Unparsable("bytes behind the record")
        return record  # type: ignore[no-any-return]

    def column(self, records: Sequence[Any], name: str, default: Any) -> tuple[list[Any], Convert]:
        """The values of a field."""
        if name not in self._convert:
            return [default] * len(records), None
        return [record[name] for record in records], self._convert[name]

    def unknown(self, record: Any) -> str | None:
        """The fields that the reader lacks."""
        if not self._unknown:
            return None
        values = {
            name: _to_json(record[name], schema, self._names)
            for name, schema in self._unknown.items()
        }
        return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


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
            return registered.in_map(_resolve(schema["values"], dtype.item_type, names), dtype)
        case "record" if types.is_struct(dtype):
            return _resolve_record(schema, dtype, names)
    return refuse


def _resolve_union(union: list[Any], dtype: pa.DataType, names: dict[str, Any]) -> Convert:
    branches = [_resolve(branch, dtype, names) for branch in _branches(union)]
    if len(branches) == 1:
        return branches[0]
    by_name = {f"_{n}": convert for n, convert in enumerate(branches)}

    def convert(value: dict[str, Any]) -> Any:
        [(name, inner)] = value.items()
        convert = by_name[name]
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
            [(name, inner)] = value.items()
            return _to_json(inner, branches[int(name[1:])], names)
        case "int" | "long" if (base, logical) in _TIMES:
            return _time_text(value, logical)
        case "float" | "double":
            return value if math.isfinite(value) else json.dumps(value)
        case "bytes" | "fixed" if logical == "decimal":
            return f"{registered.to_decimal(value, schema.get('scale', 0)):f}"
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
    """A time in ISO 8601; the number, if no text has its year."""
    text = pa.scalar(value, _ARROW_TYPES[logical]).cast(pa.string()).as_py()
    return value if "out of range" in text else text.replace(" ", "T")
