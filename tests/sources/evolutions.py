"""Random versions of a writer's schema, their records as Confluent's serialisers write them, and what is read.

    made = Evolver(registry, random.Random(7)).evolve("AVRO", is_compatible=True)
    made.messages, made.expected

The reader has the columns of `READER`. A version has some of its fields, of the same types or of others that have
the values, in any order, with further fields. What is expected is written beside what is sent, and not
computed from it.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.common.protobuf import _init_pool
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

READER = (
    "id bigint NOT NULL, n int, big bigint, x double, f float, price decimal(12,3), at timestamp, "
    "local timestamp_ntz, day date, name string, raw binary, flag boolean, tags array<int>, "
    "attrs map<string,bigint>, home struct<city: string NOT NULL, zip: int>, country string"
)
DEFAULTS = {"country": "unknown"}
ROW = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("n", pa.int32()),
        ("big", pa.int64()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("price", pa.decimal128(12, 3)),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("name", pa.string()),
        ("raw", pa.binary()),
        ("flag", pa.bool_()),
        ("tags", pa.list_(pa.int32())),
        ("attrs", pa.map_(pa.string(), pa.int64())),
        ("home", pa.struct([pa.field("city", pa.string(), False), ("zip", pa.int32())])),
        ("country", pa.string()),
    ]
)
FORMATS = ("AVRO", "PROTOBUF", "JSON")
_CONTEXT = SerializationContext("events", MessageField.VALUE)
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001
_P = descriptor_pb2.FieldDescriptorProto

Draw = Callable[[random.Random], tuple[Any, Any]]
"""A value as it is sent, and as it is read."""


@dataclass(frozen=True)
class Evolution:
    """A version of the schema, with records.

    Parameters
    ----------
    messages : list of bytes
    expected : list
        For each record the row, or the reason for which it is rejected.
    unknown : list
        For each record the fields that the reader lacks, or None.
    """

    messages: list[bytes]
    expected: list[dict[str, Any] | str]
    unknown: list[dict[str, Any] | None]


def _same(draw: Callable[[random.Random], Any]) -> Draw:
    def both(rng: random.Random) -> tuple[Any, Any]:
        value = draw(rng)
        return value, value

    return both


def _int(bits: int, low: int | None = None) -> Callable[[random.Random], int]:
    first, last = -(1 << bits - 1) if low is None else low, (1 << bits - 1) - 1
    return lambda rng: rng.choice([first, last, 0, 1, rng.randint(first, last)])


def _single(rng: random.Random) -> float:
    value = rng.choice([0.0, -1.5, float("inf"), 0.1, rng.gauss(0, 1e6)])
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _double(rng: random.Random) -> float:
    return rng.choice([0.0, -0.1, 1e300, 5e-324, rng.gauss(0, 1e6)])


def _text(rng: random.Random) -> str:
    return rng.choice(["", "a", 'é"\\', "日本", "[1]", "x" * 100, str(rng.random())])


def _bytes(rng: random.Random) -> bytes:
    return rng.choice([b"", b"\x00", b"\xff\xfe", rng.randbytes(20)])


def _micros(rng: random.Random) -> int:
    return rng.choice([0, -1, 1, 1_767_225_600_123_456, rng.randint(-(10**16), 10**16)])


def _instant(micros: int) -> dt.datetime:
    return (_EPOCH + dt.timedelta(microseconds=micros)).replace(tzinfo=dt.UTC)


def _local(micros: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=micros)


def _day(rng: random.Random) -> dt.date:
    return dt.date(2026, 1, 1) + dt.timedelta(days=rng.randint(-200_000, 200_000))


def _of(scale: int, digits: int) -> Callable[[random.Random], Decimal]:
    most = 10**digits - 1
    return lambda rng: Decimal(
        rng.choice([0, 1, -1, most, -most, rng.randint(-most, most)])
    ).scaleb(-scale)


def _list(draw: Draw) -> Draw:
    def drawn(rng: random.Random) -> tuple[Any, Any]:
        pairs = [draw(rng) for _ in range(rng.randint(0, 4))]
        return [sent for sent, _ in pairs], [read for _, read in pairs]

    return drawn


def _map(draw: Draw, key: Callable[[str], Any] = lambda text: text) -> Draw:
    def drawn(rng: random.Random) -> tuple[Any, Any]:
        pairs = {str(n): draw(rng) for n in rng.sample(range(9), rng.randint(0, 4))}
        return {key(k): sent for k, (sent, _) in pairs.items()}, {
            k: read for k, (_, read) in pairs.items()
        }

    return drawn


def _optional(draw: Draw) -> Draw:
    return lambda rng: (None, None) if rng.random() < 0.3 else draw(rng)


def _struct(**fields: Draw) -> Draw:
    """A record of which the reader has `city` and `zip`, and no other field."""

    def drawn(rng: random.Random) -> tuple[Any, Any]:
        pairs = {name: draw(rng) for name, draw in fields.items()}
        read = {name: pairs[name][1] if name in pairs else None for name in ("city", "zip")}
        return {name: sent for name, (sent, _) in pairs.items()}, read

    return drawn


def _wrong(draw: Callable[[random.Random], Any]) -> Draw:
    return lambda rng: (draw(rng), "wrong_type")


# --- Avro


def _logical(dtype: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": dtype, "logicalType": name, **more}


def _record(fields: Mapping[str, Any]) -> dict[str, Any]:
    name = f"R{uuid.uuid4().hex}"
    parts = [{"name": of, "type": dtype} for of, dtype in fields.items()]
    return {"type": "record", "name": name, "fields": parts}


def _fixed(size: int, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": f"F{uuid.uuid4().hex}", "size": size, **more}


_SYMBOLS = ("red", "green")
_I32, _I64, _F32 = _same(_int(32)), _same(_int(64)), _same(_single)
_TEXT: Draw = _same(_text)


def _scaled(draw: Callable[[random.Random], int], factor: int, read: Callable[[int], Any]) -> Draw:
    """A number of another unit than microseconds."""

    def drawn(rng: random.Random) -> tuple[Any, Any]:
        micros = draw(rng)
        if factor < 0:
            micros -= micros % -factor
            return micros // -factor, read(micros)
        return micros * factor, read(micros)

    return drawn


def _avro_times(prefix: str, read: Callable[[int], Any]) -> list[tuple[Any, Draw]]:
    units = {"millis": -1_000, "micros": 1, "nanos": 1_000}
    small: Callable[[random.Random], int] = lambda rng: rng.randint(-(10**15), 10**15)  # noqa: E731
    return [
        (_logical("long", f"{prefix}timestamp-{unit}"), _scaled(small, factor, read))
        for unit, factor in units.items()
    ]


def _days_sent(rng: random.Random) -> tuple[Any, Any]:
    day = _day(rng)
    return (day - dt.date(1970, 1, 1)).days, day


_AVRO: dict[str, Callable[[], list[tuple[Any, Draw]]]] = {
    "id": lambda: [("long", _I64), ("int", _I32)],
    "n": lambda: [("int", _I32), ("long", _I32), (["null", "int"], _optional(_I32))],
    "big": lambda: [("long", _I64), ("int", _I32), (["null", "int", "string"], _optional(_I32))],
    "x": lambda: [("double", _same(_double)), ("float", _F32), ("int", lambda r: _floating(r))],
    "f": lambda: [("float", _F32), ("double", _F32), (["float", "null"], _optional(_F32))],
    "price": lambda: [
        (_logical("bytes", "decimal", precision=12, scale=3), _same(_of(3, 12))),
        (_logical("bytes", "decimal", precision=10, scale=2), _same(_of(2, 10))),
        (_fixed(8, logicalType="decimal", precision=12, scale=3), _same(_of(3, 12))),
        ("int", lambda rng: (v := _int(20)(rng), Decimal(v))),
    ],
    "at": lambda: _avro_times("", _instant),
    "local": lambda: _avro_times("local-", _local),
    "day": lambda: [(_logical("int", "date"), _days_sent)],
    "name": lambda: [
        ("string", _TEXT),
        (["null", "string"], _optional(_TEXT)),
        ("bytes", lambda rng: ((text := _text(rng)).encode(), text)),
        (
            {"type": "enum", "name": f"E{uuid.uuid4().hex}", "symbols": _SYMBOLS},
            _same(lambda rng: rng.choice(_SYMBOLS)),
        ),
    ],
    "raw": lambda: [
        ("bytes", _same(_bytes)),
        (_fixed(4), _same(lambda rng: rng.randbytes(4))),
        ("string", lambda rng: ((text := _text(rng)), text.encode())),
    ],
    "flag": lambda: [
        ("boolean", _same(lambda rng: rng.random() < 0.5)),
        (["boolean", "null"], _optional(_same(lambda rng: rng.random() < 0.5))),
    ],
    "tags": lambda: [
        ({"type": "array", "items": "int"}, _list(_I32)),
        ({"type": "array", "items": ["null", "long"]}, _list(_optional(_I32))),
    ],
    "attrs": lambda: [
        ({"type": "map", "values": "long"}, _map(_I64)),
        ({"type": "map", "values": ["null", "int"]}, _map(_optional(_I32))),
    ],
    "home": lambda: [
        (_record({"city": "string", "zip": "int"}), _struct(city=_TEXT, zip=_I32)),
        (
            _record({"zip": "long", "more": "string", "city": "string"}),
            _struct(zip=_I32, more=_TEXT, city=_TEXT),
        ),
        (["null", _record({"city": "string"})], _optional(_struct(city=_TEXT))),
    ],
    "country": lambda: [(["null", "string"], _optional(_TEXT))],
}


def _floating(rng: random.Random) -> tuple[int, float]:
    value = _int(32)(rng)
    return value, float(value)


_AVRO_WRONG: dict[str, Callable[[], list[tuple[Any, Draw]]]] = {
    "n": lambda: [
        ("string", _wrong(_text)),
        ("long", _wrong(lambda rng: 1 << 31)),
        ("double", _wrong(lambda rng: 1.0)),
        ("boolean", _wrong(lambda rng: True)),
        (_logical("int", "date"), _wrong(lambda rng: 1)),
    ],
    "big": lambda: [(["int", "string"], _wrong(_text))],
    "x": lambda: [
        ("long", _wrong(lambda rng: (1 << 53) + 1)),
        ("string", _wrong(lambda rng: "1.5")),
    ],
    "f": lambda: [("double", _wrong(lambda rng: 0.1)), ("double", _wrong(lambda rng: 1e300))],
    "price": lambda: [
        (
            _logical("bytes", "decimal", precision=12, scale=4),
            _wrong(lambda rng: Decimal("0.0001")),
        ),
        (_logical("bytes", "decimal", precision=12, scale=0), _wrong(lambda rng: Decimal(10**11))),
        ("double", _wrong(lambda rng: 1.0)),
    ],
    "at": lambda: [
        ("long", _wrong(lambda rng: 1)),
        (_logical("long", "timestamp-nanos"), _wrong(lambda rng: 1)),
        (_logical("long", "timestamp-millis"), _wrong(lambda rng: 1 << 62)),
        (_logical("long", "local-timestamp-micros"), _wrong(lambda rng: 1)),
    ],
    "day": lambda: [("int", _wrong(lambda rng: 1)), ("string", _wrong(lambda rng: "2026-01-01"))],
    "name": lambda: [("int", _wrong(lambda rng: 1)), ("bytes", _wrong(lambda rng: b"\xff"))],
    "raw": lambda: [("int", _wrong(lambda rng: 1))],
    "flag": lambda: [("int", _wrong(lambda rng: 1))],
    "tags": lambda: [
        ({"type": "array", "items": "string"}, _wrong(lambda rng: ["a"])),
        ({"type": "array", "items": "long"}, _wrong(lambda rng: [0, 1 << 40])),
    ],
    "attrs": lambda: [({"type": "map", "values": "string"}, _wrong(lambda rng: {"a": "b"}))],
    "home": lambda: [
        (_record({"zip": "int"}), _wrong(lambda rng: {"zip": 1})),
        (_record({"city": ["null", "string"]}), _wrong(lambda rng: {"city": None})),
    ],
}
_AVRO_NEW: list[tuple[Any, Draw]] = [
    ("string", _TEXT),
    ({"type": "array", "items": ["null", "int"]}, _list(_optional(_I32))),
    (_logical("long", "timestamp-micros"), lambda rng: (0, "1970-01-01T00:00:00.000000Z")),
    (_logical("bytes", "decimal", precision=5, scale=2), lambda rng: (Decimal("1.50"), "1.50")),
    ("bytes", lambda rng: (b"\x00\xff", "AP8=")),
    ("double", lambda rng: (float("inf"), "Infinity")),
]

# --- Protobuf: type, name of the type, label


def _proto(dtype: int, draw: Draw, *, type_name: str = "", repeated: bool = False) -> Any:
    return (dtype, type_name, repeated), draw


def _ints(draw: Draw, *dtypes: int) -> list[Any]:
    return [_proto(dtype, draw) for dtype in dtypes]


def _wrapped(name: str, draw: Draw) -> Any:
    """A wrapper, which may be absent."""

    def drawn(rng: random.Random) -> tuple[Any, Any]:
        if rng.random() < 0.3:
            return None, None
        sent, read = draw(rng)
        return {"value": sent}, read

    return _proto(_P.TYPE_MESSAGE, drawn, type_name=f".google.protobuf.{name}Value")


def _timestamp(rng: random.Random) -> tuple[Any, Any]:
    micros = rng.randint(-(10**15), 10**15)
    return {"seconds": micros // 10**6, "nanos": micros % 10**6 * 1_000}, _instant(micros)


def _proto_decimal(rng: random.Random) -> tuple[Any, Any]:
    unscaled = _int(38)(rng)
    value = {"value": unscaled.to_bytes(8, "big", signed=True), "precision": 12, "scale": 3}
    return value, Decimal(unscaled).scaleb(-3)


def _proto_day(rng: random.Random) -> tuple[Any, Any]:
    day = _day(rng)
    return {"year": day.year, "month": day.month, "day": day.day}, day


_U31 = _same(_int(32, 0))
_MESSAGE = _P.TYPE_MESSAGE
_PROTOBUF: dict[str, list[Any]] = {
    "id": [*_ints(_I64, _P.TYPE_INT64, _P.TYPE_SFIXED64), *_ints(_I32, _P.TYPE_SINT32)],
    "n": [
        *_ints(_I32, _P.TYPE_INT32, _P.TYPE_INT64, _P.TYPE_SFIXED32),
        *_ints(_U31, _P.TYPE_UINT32, _P.TYPE_FIXED64),
        _wrapped("Int32", _I32),
    ],
    "big": [*_ints(_I64, _P.TYPE_SINT64), *_ints(_U31, _P.TYPE_UINT64), _wrapped("Int64", _I64)],
    "x": [
        _proto(_P.TYPE_DOUBLE, _same(_double)),
        _proto(_P.TYPE_FLOAT, _F32),
        _proto(_P.TYPE_INT32, _floating),
        _wrapped("Double", _same(_double)),
    ],
    "f": [_proto(_P.TYPE_FLOAT, _F32), _proto(_P.TYPE_DOUBLE, _F32)],
    "price": [
        _proto(_MESSAGE, _proto_decimal, type_name=".confluent.type.Decimal"),
        _proto(_P.TYPE_INT32, lambda rng: (v := _int(20)(rng), Decimal(v))),
    ],
    "at": [_proto(_MESSAGE, _timestamp, type_name=".google.protobuf.Timestamp")],
    "day": [_proto(_MESSAGE, _proto_day, type_name=".google.type.Date")],
    "name": [
        _proto(_P.TYPE_STRING, _TEXT),
        _proto(_P.TYPE_BYTES, lambda rng: ((text := _text(rng)).encode(), text)),
        _proto(
            _P.TYPE_ENUM, lambda r: r.choice([(0, "red"), (1, "green")]), type_name=".shop.Colour"
        ),
    ],
    "raw": [
        _proto(_P.TYPE_BYTES, _same(_bytes)),
        _proto(_P.TYPE_STRING, lambda rng: ((text := _text(rng)), text.encode())),
    ],
    "flag": [
        _proto(_P.TYPE_BOOL, _same(lambda rng: rng.random() < 0.5)),
        _wrapped("Bool", _same(lambda rng: rng.random() < 0.5)),
    ],
    "tags": [
        _proto(_P.TYPE_INT32, _list(_I32), repeated=True),
        _proto(_P.TYPE_SINT64, _list(_I32), repeated=True),
    ],
    "attrs": [
        _proto(_MESSAGE, _map(_I64), type_name="map<string>", repeated=True),
        _proto(_MESSAGE, _map(_I64, int), type_name="map<int>", repeated=True),
    ],
    "home": [_proto(_MESSAGE, _struct(city=_TEXT, zip=_I32, more=_TEXT), type_name=".shop.Home")],
    "country": [_proto(_P.TYPE_STRING, _TEXT)],
}
_PROTOBUF_WRONG: dict[str, list[Any]] = {
    "n": [
        _proto(_P.TYPE_STRING, _wrong(_text)),
        _proto(_P.TYPE_INT64, _wrong(lambda rng: 1 << 31)),
        _proto(_P.TYPE_DOUBLE, _wrong(lambda rng: 1.0)),
    ],
    "big": [_proto(_P.TYPE_UINT64, _wrong(lambda rng: 1 << 63))],
    "x": [_proto(_P.TYPE_INT64, _wrong(lambda rng: (1 << 53) + 1))],
    "f": [_proto(_P.TYPE_DOUBLE, _wrong(lambda rng: 0.1))],
    "price": [
        _proto(
            _MESSAGE,
            _wrong(lambda rng: {"value": b"\x01", "scale": 4}),
            type_name=".confluent.type.Decimal",
        )
    ],
    "at": [
        _proto(_MESSAGE, _wrong(lambda rng: {"nanos": 1}), type_name=".google.protobuf.Timestamp"),
        _proto(_P.TYPE_INT64, _wrong(lambda rng: 1)),
    ],
    "day": [_proto(_MESSAGE, _wrong(lambda rng: {"year": 2026}), type_name=".google.type.Date")],
    "name": [
        _proto(_P.TYPE_BYTES, _wrong(lambda rng: b"\xff")),
        _proto(_P.TYPE_ENUM, _wrong(lambda rng: 7), type_name=".shop.Colour"),
    ],
    "flag": [_proto(_P.TYPE_INT32, _wrong(lambda rng: 1))],
    "tags": [
        _proto(_P.TYPE_STRING, _wrong(lambda rng: ["a"]), repeated=True),
        _proto(_P.TYPE_INT32, _wrong(lambda rng: 1)),
    ],
    "home": [_proto(_P.TYPE_STRING, _wrong(_text))],
}
_PROTOBUF_NEW: list[Any] = [
    _proto(_P.TYPE_STRING, _TEXT),
    _proto(_P.TYPE_INT32, _list(_I32), repeated=True),
    _proto(_P.TYPE_INT64, lambda rng: ((value := _int(64)(rng)), str(value))),
    _proto(_P.TYPE_BYTES, lambda rng: (b"\x00\xff", "AP8=")),
]

# --- JSON


def _numbered(dtype: str, draw: Draw) -> tuple[Any, Draw]:
    return {"type": dtype}, draw


def _iso(zone: str, read: Callable[[int], Any]) -> Draw:
    def drawn(rng: random.Random) -> tuple[Any, Any]:
        micros = rng.randint(-(10**15), 10**15)
        return f"{_local(micros).isoformat(timespec='microseconds')}{zone}", read(micros)

    return drawn


_OBJECT = {"type": "object"}
_JSON: dict[str, list[tuple[Any, Draw]]] = {
    "id": [_numbered("integer", _I64)],
    "n": [_numbered("integer", _I32), ({"type": ["null", "integer"]}, _optional(_I32))],
    "big": [_numbered("integer", _I64), _numbered("number", _I32)],
    "x": [_numbered("number", _same(_double)), _numbered("number", _floating)],
    "f": [_numbered("number", _same(lambda rng: rng.choice([0.5, -2.0, 0.0])))],
    "price": [
        _numbered("string", lambda rng: ((value := _of(3, 12)(rng)).__format__("f"), value)),
        _numbered("integer", lambda rng: (v := _int(20)(rng), Decimal(v))),
    ],
    "at": [_numbered("string", _iso("Z", _instant)), _numbered("string", _iso("+00:00", _instant))],
    "local": [_numbered("string", _iso("", _local))],
    "day": [_numbered("string", lambda rng: ((day := _day(rng)).isoformat(), day))],
    "name": [_numbered("string", _TEXT), ({"type": ["string", "null"]}, _optional(_TEXT))],
    "raw": [_numbered("string", lambda rng: ("AP8=", b"\x00\xff"))],
    "flag": [_numbered("boolean", _same(lambda rng: rng.random() < 0.5))],
    "tags": [({"type": "array"}, _list(_optional(_I32)))],
    "attrs": [(_OBJECT, _map(_optional(_I64)))],
    "home": [(_OBJECT, _struct(zip=_I32, city=_TEXT)), (_OBJECT, _struct(city=_TEXT, more=_TEXT))],
    "country": [_numbered("string", _TEXT), ({"type": "null"}, lambda rng: (None, None))],
}
_JSON_WRONG: dict[str, list[tuple[Any, Draw]]] = {
    "n": [
        _numbered("string", _wrong(lambda rng: "1")),
        _numbered("number", _wrong(lambda rng: 1.5)),
        _numbered("integer", _wrong(lambda rng: 1 << 31)),
    ],
    "f": [_numbered("number", _wrong(lambda rng: 1e300))],
    "price": [_numbered("string", _wrong(lambda rng: "0.0001"))],
    "at": [_numbered("integer", _wrong(lambda rng: 1))],
    "day": [_numbered("string", _wrong(lambda rng: "2026-13-01"))],
    "flag": [_numbered("integer", _wrong(lambda rng: 1))],
    "tags": [({"type": "array"}, _wrong(lambda rng: [1, "a"]))],
    "home": [(_OBJECT, _wrong(lambda rng: {"zip": 1}))],
}
_JSON_NEW: list[tuple[Any, Draw]] = [
    _numbered("string", _TEXT),
    ({"type": "array"}, _list(_optional(_I32))),
    (_OBJECT, _map(_TEXT)),
    _numbered("boolean", _same(lambda rng: True)),
    ({"type": "null"}, lambda rng: (None, None)),
]


class Evolver:
    """Draws versions of the schema, and registers them."""

    def __init__(self, client: SchemaRegistryClient, rng: random.Random) -> None:
        self.client, self.rng, self._count = client, rng, 0

    def evolve(self, dtype: str, *, is_compatible: bool, records: int = 3) -> Evolution:
        """A version in this format. No record of one that is not compatible is read."""
        rng = self.rng
        self._count += 1
        tables = {"AVRO": _AVRO, "PROTOBUF": _PROTOBUF, "JSON": _JSON}
        wrong = {"AVRO": _AVRO_WRONG, "PROTOBUF": _PROTOBUF_WRONG, "JSON": _JSON_WRONG}
        new = {"AVRO": _AVRO_NEW, "PROTOBUF": _PROTOBUF_NEW, "JSON": _JSON_NEW}[dtype]
        options = {n: of() if callable(of) else of for n, of in tables[dtype].items()}
        fields = {n: rng.choice(of) for n, of in options.items() if n == "id" or rng.random() < 0.7}
        reason = None
        if not is_compatible:
            reason = self._break(fields, wrong[dtype])
        added = {f"new_{n}": rng.choice(new) for n in range(rng.randint(0, 3))}
        parts = list({**fields, **added}.items())
        rng.shuffle(parts)
        write = {"AVRO": self._avro, "PROTOBUF": self._protobuf, "JSON": self._json}[dtype]
        writes = write({name: of for name, (of, _) in parts})
        messages, expected, unknown = [], [], []
        for _ in range(records):
            drawn = {name: draw(rng) for name, (_, draw) in parts}
            messages.append(writes({name: sent for name, (sent, _) in drawn.items()}))
            row = {n: drawn[n][1] if n in fields else DEFAULTS.get(n) for n in ROW.names}
            expected.append(row if reason is None else reason)
            others = {name: drawn[name][1] for name in added}
            unknown.append(others if others and reason is None else None)
        return Evolution(messages, expected, unknown)

    def _break(self, fields: dict[str, Any], wrong: Mapping[str, Any]) -> str:
        """Make the version one that the reader cannot read."""
        if self.rng.random() < 0.2:
            del fields["id"]
            return "missing_field"
        name = self.rng.choice(list(wrong))
        options = wrong[name]
        fields[name] = self.rng.choice(options() if callable(options) else options)
        return "wrong_type"

    def _avro(self, fields: Mapping[str, Any]) -> Callable[[Any], bytes]:
        parts = [{"name": name, "type": dtype} for name, dtype in fields.items()]
        schema = {"type": "record", "name": f"Event{self._count}", "fields": parts}
        write = AvroSerializer(self.client, json.dumps(schema))
        return lambda record: write(record, _CONTEXT)

    def _json(self, fields: Mapping[str, Any]) -> Callable[[Any], bytes]:
        schema = {"title": f"Event{self._count}", "type": "object", "properties": dict(fields)}
        write = JSONSerializer(json.dumps(schema), self.client)
        return lambda record: write(record, _CONTEXT)

    def _protobuf(self, fields: Mapping[str, Any]) -> Callable[[Any], bytes]:
        file = _file(f"shop/event{self._count}.proto")
        outer = None
        if self.rng.random() < 0.3:
            file.message_type.add(name="Unused")
            outer = file.message_type.add(name="Outer")
        message = file.message_type.add(name="Event") if outer is None else outer.nested_type.add()
        message.name = "Event"
        numbers = self.rng.sample(range(1, 1_000), len(fields))
        for number, (name, (dtype, type_name, repeated)) in zip(
            numbers, fields.items(), strict=True
        ):
            full = f".shop.{'' if outer is None else 'Outer.'}Event"
            if type_name.startswith("map"):
                type_name = _add_map(message, full, name, is_int="int" in type_name)
            label = _P.LABEL_REPEATED if repeated else _P.LABEL_OPTIONAL
            message.field.add(
                name=name, number=number, type=dtype, type_name=type_name or None, label=label
            )
        pool = DescriptorPool()
        _init_pool(pool)
        pool.Add(file)
        make = GetMessageClass(pool.FindMessageTypeByName(full[1:]))
        write = ProtobufSerializer(make, self.client, {"use.deprecated.format": False})
        return lambda record: write(make(**_present(record)), _CONTEXT)


def _present(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if value is not None}


def _file(name: str) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name=name, package="shop", syntax="proto3")
    for needed in ("google/protobuf/timestamp", "google/protobuf/wrappers", "google/type/date"):
        file.dependency.append(f"{needed}.proto")
    file.dependency.append("confluent/type/decimal.proto")
    colours = file.enum_type.add(name="Colour")
    colours.value.add(name="red", number=0)
    colours.value.add(name="green", number=1)
    home = file.message_type.add(name="Home")
    home.field.add(name="city", number=3, type=_P.TYPE_STRING, label=_P.LABEL_OPTIONAL)
    home.field.add(name="more", number=2, type=_P.TYPE_STRING, label=_P.LABEL_OPTIONAL)
    home.field.add(name="zip", number=1, type=_P.TYPE_INT64, label=_P.LABEL_OPTIONAL)
    return file


def _add_map(message: Any, full: str, name: str, *, is_int: bool) -> str:
    entry = message.nested_type.add(name=f"{name.title()}Entry")
    entry.options.map_entry = True
    key = _P.TYPE_INT32 if is_int else _P.TYPE_STRING
    for number, (of, dtype) in enumerate({"key": key, "value": _P.TYPE_INT64}.items(), 1):
        entry.field.add(name=of, number=number, type=dtype, label=_P.LABEL_OPTIONAL)
    return f"{full}.{entry.name}"
