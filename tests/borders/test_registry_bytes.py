"""Every leaf of Avro and Protobuf, at and beyond its limits, and bytes that are nearly a record."""

from __future__ import annotations

import base64
import io
import json
import math
import random
import struct
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip(
    "confluent_kafka.schema_registry.avro", reason="the extra registry is not installed"
)
import avro.io
import avro.schema
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from streamops.sources.core.registered import WITHOUT_TEXT, Decoder, Written
from streamops.sources.registry import _make_reader
from tests.borders import cases

P = descriptor_pb2.FieldDescriptorProto
HEADER = b"\0\0\0\0\7"
INT, LONG_INT = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)
UTC, LOCAL, TIME = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.time64("ns")
DAY = 86_400
BAD, WRONG = "unparsable_avro", "wrong_type"


def zigzag(number: int) -> bytes:
    bits, found = (number << 1) ^ (number >> 200), bytearray()
    while bits > 0x7F:
        found.append(bits & 0x7F | 0x80)
        bits >>= 7
    return bytes([*found, bits])


def sized(raw: bytes) -> bytes:
    return zigzag(len(raw)) + raw


def decode(
    written: Written, row: list[pa.Field], *payloads: bytes, keep: bool = False
) -> list[dict[str, Any]]:
    schema = pa.schema(row)
    reader = _make_reader(written, schema)
    values = pa.array([HEADER + payload for payload in payloads], pa.binary())
    found = Decoder(schema, {}, keep, {7: reader}.get).decode(values)
    is_time = [pa.types.is_time(part.type) for part in schema]
    columns = [
        (column.cast(pa.int64()) if at < len(schema) and is_time[at] else column).to_pylist()
        for at, column in enumerate(found.flatten())
    ]
    return [dict(zip(found.type.names, row, strict=True)) for row in zip(*columns, strict=True)]


def record(*fields: tuple[str, Any], name: str = "shop.Event") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


def read_avro(dtype: Any, column: pa.DataType, payload: bytes) -> Any:
    """The value of a field, or the reason for which the record is rejected."""
    written = Written("AVRO", json.dumps(record(("x", dtype))))
    [row] = decode(written, [pa.field("x", column)], payload)
    return row["c0"] if row["reason"] is None else row["reason"]


def logical(base: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}
DECIMAL = logical("bytes", "decimal", precision=9, scale=2)
ROW = {"type": "record", "name": "Inner", "fields": [{"name": "a", "type": "int"}]}
MAP = pa.map_(pa.string(), pa.int32())
NUMBERS = [
    *(("int", pa.int32(), zigzag(n), n) for n in INT),
    *(("int", pa.int64(), zigzag(n), BAD) for n in (INT[0] - 1, INT[1] + 1, 2**40)),
    *(("long", pa.int64(), zigzag(n), n) for n in LONG_INT),
    *(("long", pa.decimal128(38, 0), zigzag(n), BAD) for n in (LONG_INT[0] - 1, LONG_INT[1] + 1)),
    ("long", pa.int64(), b"\x80" * 9 + b"\x00", 0),  # longer than needed, but a long
    ("long", pa.int64(), b"\x80" * 10 + b"\x00", BAD),
    ("int", pa.int32(), b"\x80" * 4 + b"\x00", 0),
    ("int", pa.int32(), b"\x80" * 5 + b"\x00", BAD),
    ("int", pa.int32(), b"\x80", BAD),
    *(
        (("long", pa.int8(), zigzag(n), n if n in (-128, 127) else WRONG))
        for n in (-129, -128, 127, 128)
    ),
    *(
        ("long", pa.float64(), zigzag(n), float(n))
        for n in (2**53, 2**53 + 2, 2**54, 2**60, -(2**63))
    ),
    *(("long", pa.float64(), zigzag(n), WRONG) for n in (2**53 + 1, 2**63 - 1, 2**54 + 2)),
    *(("int", pa.float32(), zigzag(n), float(n)) for n in (2**24, 2**24 + 2, 2**30, -(2**31))),
    *(("int", pa.float32(), zigzag(n), WRONG) for n in (2**24 + 1, 2**31 - 1)),
    ("long", pa.list_(pa.int64()), zigzag(1), WRONG),
    ("long", pa.decimal128(3, 1), zigzag(99), Decimal("99.0")),
    ("long", pa.decimal128(3, 1), zigzag(100), WRONG),
    ("double", pa.float64(), struct.pack("<d", math.inf), math.inf),
    ("double", pa.float64(), struct.pack("<d", 1.0)[:7], BAD),
    ("double", pa.float32(), struct.pack("<d", 0.5), 0.5),
    *(("double", pa.float32(), struct.pack("<d", x), WRONG) for x in (0.1, 1e300)),
    ("double", pa.int64(), struct.pack("<d", 1.0), WRONG),
    ("float", pa.float64(), struct.pack("<f", 0.1), float(np.float32(0.1))),
    ("float", pa.float32(), b"\0\0\0", BAD),
    *(("boolean", pa.bool_(), bytes([n]), {0: False, 1: True}.get(n, BAD)) for n in (0, 1, 2, 255)),
    ("boolean", pa.int32(), b"\1", WRONG),
]
TEXTS = [
    ("string", pa.string(), sized("é".encode()), "é"),
    ("string", pa.binary(), sized("é".encode()), "é".encode()),
    *(
        ("string", pa.string(), sized(raw), BAD)
        for raw in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xc3")
    ),
    *(("bytes", pa.string(), sized(raw), WRONG) for raw in (b"\xff", b"\xed\xa0\x80")),
    ("bytes", pa.binary(), sized(b"\xff"), b"\xff"),
    *(("bytes", pa.binary(), zigzag(n) + b"ab", BAD) for n in (-1, 3, 2**62, -(2**63))),
    *(("string", pa.string(), zigzag(n) + b"ab", BAD) for n in (-1, 1, 3)),
    *((ENUM, pa.string(), zigzag(n), {0: "A", 2: "C"}.get(n, BAD)) for n in (0, 2, 3, -1, -3)),
    (FIXED, pa.binary(), b"ab", b"ab"),
    (FIXED, pa.binary(), b"a", BAD),
    (FIXED, pa.string(), b"ab", WRONG),
    (logical("string", "uuid"), pa.string(), sized(b"no uuid"), "no uuid"),
    ({**FIXED, "size": 16, "logicalType": "uuid"}, pa.binary(), b"0" * 16, b"0" * 16),
    ({**FIXED, "size": 12, "logicalType": "duration"}, pa.binary(), b"\xff" * 12, b"\xff" * 12),
    ({**FIXED, "size": 12, "logicalType": "duration"}, pa.duration("us"), b"\0" * 12, WRONG),
    (DECIMAL, pa.decimal128(9, 2), sized(b"\xff"), Decimal("-0.01")),
    (DECIMAL, pa.decimal128(4, 1), sized(b"\x0a"), Decimal("0.1")),
    (DECIMAL, pa.decimal128(4, 1), sized(b"\x0b"), WRONG),
    (DECIMAL, pa.decimal256(76, 2), sized(b"\1" * 65), WRONG),
    (DECIMAL, pa.float64(), sized(b"\x0a"), WRONG),
    (
        {**FIXED, **DECIMAL, "type": "fixed", "precision": 4},
        pa.decimal128(4, 2),
        b"\x27\x0f",
        Decimal("99.99"),
    ),
    # Decimals that cannot be are plain bytes.
    (logical("bytes", "decimal", precision=2, scale=3), pa.binary(), sized(b"a"), b"a"),
    (logical("bytes", "decimal", scale=3), pa.binary(), sized(b"a"), b"a"),
    (logical("bytes", "decimal", precision="9"), pa.binary(), sized(b"a"), b"a"),
    ({**FIXED, **DECIMAL, "type": "fixed", "precision": 5}, pa.binary(), b"ab", b"ab"),
    (logical("string", "decimal", precision=4), pa.string(), sized(b"a"), "a"),
]
TIMES = [
    *((logical("int", "date"), pa.int64(), zigzag(n), WRONG) for n in (0,)),
    *((logical("int", "time-millis"), TIME, zigzag(n), n * 10**6) for n in (0, DAY * 1000 - 1)),
    *((logical("int", "time-millis"), TIME, zigzag(n), WRONG) for n in (-1, DAY * 1000, *INT)),
    *((logical("long", "time-micros"), TIME, zigzag(n), n * 1000) for n in (0, DAY * 10**6 - 1)),
    *(
        (logical("long", "time-micros"), TIME, zigzag(n), WRONG)
        for n in (-1, DAY * 10**6, *LONG_INT)
    ),
    (logical("int", "timestamp-millis"), UTC, zigzag(1), WRONG),  # none: it is one of long
    (logical("int", "timestamp-millis"), pa.int32(), zigzag(1), 1),
    (logical("long", "timestamp-millis"), LOCAL, zigzag(1), WRONG),
    (logical("long", "local-timestamp-millis"), UTC, zigzag(1), WRONG),
    *((logical("long", "timestamp-millis"), UTC, zigzag(n), WRONG) for n in LONG_INT),
    *((logical("long", "timestamp-nanos"), UTC, zigzag(n), WRONG) for n in (1, 999, -1)),
]
NESTED = [
    (["null", "string"], pa.string(), b"\0", None),
    *((["null", "string"], pa.string(), zigzag(n) + b"\2a", "a" if n == 1 else BAD) for n in (1, 2, -1)),
    *((["null", "int", "string"], pa.string(), zigzag(n) + b"\2a", BAD) for n in (3, -1, -2)),
    (["int", "string"], pa.string(), b"\2\2a", "a"),
    (["int", "string"], pa.string(), b"\0\2", WRONG),
    (["null"], pa.string(), b"\0", None),
    ("null", pa.string(), b"", None),
    ({"type": "array", "items": "int"}, pa.list_(pa.int32()), b"\4\2\4\2\6\0", [1, 2, 3]),
    ({"type": "array", "items": "int"}, pa.list_(pa.int32()), b"\3\4\2\4\0", [1, 2]),
    ({"type": "array", "items": "int"}, pa.list_(pa.int32()), b"\3\6\2\4\0", BAD),  # three bytes
    ({"type": "array", "items": "int"}, pa.list_(pa.int32()), b"\3\1\2\4\0", BAD),
    ({"type": "array", "items": "int"}, pa.list_(pa.int32()), zigzag(2**62) + b"\2\0", BAD),
    ({"type": "array", "items": "null"}, pa.list_(pa.int32()), b"\6\0", [None] * 3),
    ({"type": "array", "items": "null"}, pa.list_(pa.int32()), zigzag(2**40) + b"\0", BAD),
    ({"type": "array", "items": "int"}, pa.list_(pa.int32()), zigzag(64) + b"\2" * 64 + b"\2\2\0", [1] * 65),
    ({"type": "map", "values": "int"}, MAP, b"\2\2a\2\0", [("a", 1)]),
    ({"type": "map", "values": "int"}, pa.map_(pa.binary(), pa.int32()), b"\2\2a\2\0", [(b"a", 1)]),
    ({"type": "map", "values": "int"}, pa.map_(pa.int32(), pa.int32()), b"\2\0021\2\0", WRONG),
    ({"type": "map", "values": "int"}, MAP, b"\1\6\2a\2\0", [("a", 1)]),
    ({"type": "map", "values": "int"}, MAP, b"\2\1a\2\0", BAD),
    (ROW, pa.struct([("a", pa.int32()), ("b", pa.int32())]), b"\2", {"a": 1, "b": None}),
    (ROW, pa.struct([("a", pa.float32())]), zigzag(2**24 + 1), WRONG),
    ({"type": {"type": "array", "items": {"type": {"type": "int"}}}}, pa.list_(pa.int32()), b"\2\2\0", [1]),
    ("int", pa.int32(), b"\2\0", BAD),
    ("int", pa.int32(), b"", BAD),
]  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "column", "payload", "wanted"), [*NUMBERS, *TEXTS, *TIMES, *NESTED]
)
def test_a_leaf_of_avro_is_what_was_sent_or_is_refused(
    dtype: Any, column: pa.DataType, payload: bytes, wanted: Any
) -> None:
    assert read_avro(dtype, column, payload) == wanted


@pytest.mark.parametrize("unit", ["millis", "micros", "nanos"])
@pytest.mark.parametrize("prefix", ["", "local-"])
def test_an_instant_of_avro_is_its_number_of_microseconds(prefix: str, unit: str) -> None:
    """Also beyond the years of Python's datetimes."""
    factor = {"millis": 1000, "micros": 1, "nanos": 1}[unit]
    divisor = 1000 if unit == "nanos" else 1
    numbers = [0, -1, 253_402_300_800_000, -62_135_596_800_001, 2**62 // factor // divisor]
    written = Written(
        "AVRO", json.dumps(record(("x", logical("long", f"{prefix}timestamp-{unit}"))))
    )
    schema = pa.schema([("x", LOCAL if prefix else UTC)])
    reader = _make_reader(written, schema)
    values = pa.array([HEADER + zigzag(n * divisor) for n in numbers], pa.binary())
    found = Decoder(schema, {}, False, {7: reader}.get).decode(values)
    assert found.field("reason").null_count == len(numbers)
    assert found.field("c0").cast(pa.int64()).to_pylist() == [n * factor for n in numbers]


UNKNOWN = [
    (logical("int", "date"), 19_000, "2022-01-08"),
    (logical("int", "date"), -719_162, "0001-01-01"),
    (logical("int", "date"), -719_163, -719_163),
    (logical("int", "date"), 2_932_896, "9999-12-31"),
    (logical("int", "date"), 2_932_897, 2_932_897),
    (logical("int", "time-millis"), DAY * 1000 - 1, "23:59:59.999"),
    (logical("int", "time-millis"), DAY * 1000, DAY * 1000),
    (logical("long", "time-micros"), 1, "00:00:00.000001"),
    (logical("long", "time-micros"), -1, -1),
    (logical("long", "timestamp-millis"), 253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
    (logical("long", "timestamp-millis"), 253_402_300_800_000, 253_402_300_800_000),
    (logical("long", "timestamp-millis"), -62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
    (logical("long", "timestamp-micros"), -62_135_596_800_000_001, -62_135_596_800_000_001),
    *((logical("long", f"timestamp-{unit}"), n, n) for unit in ("millis", "micros") for n in LONG_INT),
    (logical("long", "timestamp-nanos"), 2**63 - 1, "2262-04-11T23:47:16.854775807Z"),
    (logical("long", "local-timestamp-nanos"), 1 - 2**63, "1677-09-21T00:12:43.145224193"),
    (logical("long", "local-timestamp-millis"), 8_640_000_000_000_000, 8_640_000_000_000_000),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "number", "wanted"), UNKNOWN)
def test_a_time_that_the_reader_lacks_has_its_text_or_its_number(
    dtype: Any, number: int, wanted: Any
) -> None:
    written = Written("AVRO", json.dumps(record(("x", dtype))))
    [row] = decode(written, [pa.field("id", pa.int64())], zigzag(number), keep=True)
    assert json.loads(row["unknown"]) == {"x": wanted}


def test_a_field_without_a_text_does_not_reject_the_record() -> None:
    """An unknown decimal of Avro of any scale is text; one of more than 64 bytes is named."""
    far, huge = (logical("bytes", "decimal", precision=200, scale=n) for n in (80, 2))
    schema = record(("id", "long"), ("far", far), ("huge", huge), ("name", "string"))
    payload = zigzag(5) + sized(b"\x05") + sized(b"\1" * 65) + sized(b"a")
    written, columns = Written("AVRO", json.dumps(schema)), [pa.field("id", pa.int64())]
    for keep in (True, False):
        [row] = decode(written, columns, payload, keep=keep)
        assert (row["reason"], row["c0"]) == (None, 5)
        wanted = {"far": "5E-80", "name": "a", WITHOUT_TEXT: ["huge"]}
        assert (row["unknown"] and json.loads(row["unknown"])) == (wanted if keep else None)


def test_an_error_inside_of_a_record_is_a_record() -> None:
    error = {"type": "error", "name": "shop.Failed", "fields": [{"name": "b", "type": "bytes"}]}
    written = Written("AVRO", json.dumps(record(("x", error))))
    [row] = decode(written, [], sized(b"\xff"), keep=True)
    assert (row["reason"], json.loads(row["unknown"])) == (None, {"x": {"b": "/w=="}})
    assert read_avro(error, pa.struct([("b", pa.binary())]), sized(b"\xff")) == {"b": b"\xff"}


def test_a_union_of_records_is_read_with_the_name_of_each() -> None:
    placed = record(("id", "long"), ("at", logical("long", "timestamp-millis")), name="shop.Placed")
    paid = record(("sum", "double"), ("id", "int"), name="shop.Paid")
    references = {"shop.Placed": json.dumps(placed), "shop.Paid": json.dumps(paid)}
    written = Written("AVRO", json.dumps(["null", "shop.Placed", "shop.Paid"]), references)
    columns = [pa.field("id", pa.int64(), nullable=False), pa.field("sum", pa.float64())]
    payloads = [
        zigzag(1) + zigzag(7) + zigzag(0),
        zigzag(2) + struct.pack("<d", 1.5) + zigzag(8),
        zigzag(0),
        zigzag(3),
        zigzag(-1) + struct.pack("<d", 1.5) + zigzag(8),
        zigzag(1) + zigzag(7) + zigzag(0) + b"\0",
    ]
    first, second, *others = decode(written, columns, *payloads, keep=True)
    assert (first["record"], first["c0"], first["c1"]) == ("shop.Placed", 7, None)
    assert json.loads(first["unknown"]) == {"at": "1970-01-01T00:00:00.000Z"}
    assert (second["record"], second["c0"], second["c1"]) == ("shop.Paid", 8, 1.5)
    assert second["unknown"] is None
    assert [(row["reason"], row["record"]) for row in others] == [(BAD, None)] * 4
    [row] = decode(Written("AVRO", '["null", "string"]'), columns, b"\2\2a")
    assert row["reason"] == "unknown_schema"


LEAVES: list[tuple[Any, list[Any]]] = [
    ("null", [None]),
    ("boolean", [True, False]),
    ("int", [0, *INT]),
    ("long", [0, *LONG_INT]),
    ("float", [0.0, 1.5]),
    ("double", [-0.0, 1e300]),
    ("bytes", [b"", b"\xff\0"]),
    ("string", ["", "é"]),
    (ENUM, ["A", "C"]),
    (FIXED, [b"ab"]),
]


def test_nearly_a_record_is_read_by_the_standard() -> None:
    """Bytes with one change: accepted only as fastavro and Apache Avro read them, and if they are canonical."""
    rng, read, refused = random.Random(7), 0, 0
    for _ in range(cases(60, 5_000)):
        # Others read billions of nulls from a few bytes.
        chosen = rng.sample(LEAVES[1:], 2)
        chosen.append(rng.choice([leaf for leaf in LEAVES if leaf not in chosen]))
        first, values = chosen[0]
        fields = [
            ("a", first),
            ("b", {"type": "array", "items": chosen[1][0]}),
            ("c", ["null", chosen[2][0]] if chosen[2][0] != "null" else ["null", "int"]),
            ("d", {"type": "map", "values": ["int", "string"]}),
        ]
        schema = record(*fields)
        parsed, reference = fastavro.parse_schema(schema), avro.schema.parse(json.dumps(schema))
        optional = [None] if chosen[2][0] == "null" else [None, *chosen[2][1]]
        file = io.BytesIO()
        event = {
            "a": rng.choice(values),
            "b": rng.choices(chosen[1][1], k=rng.randrange(3)),
            "c": rng.choice(optional),
            "d": {"k": 1, "l": "x"} if rng.random() < 0.5 else {},
        }
        fastavro.schemaless_writer(file, parsed, event)
        reader: Any = _make_reader(Written("AVRO", json.dumps(schema)), pa.schema([]))
        for _ in range(20):
            payload = bytearray(file.getvalue())
            match rng.randrange(4):
                case 0 if payload:
                    payload[rng.randrange(len(payload))] = rng.choice([0, 1, 2, 127, 128, 255])
                case 1 if payload:
                    del payload[rng.randrange(len(payload))]
                case 2:
                    payload.insert(rng.randrange(len(payload) + 1), rng.randrange(256))
            data = bytes(payload)
            try:
                _, got = reader.parse(data)
            except Exception:
                got = None
            theirs, again = _fastavro(parsed, data)
            is_canonical = theirs is not None and again == data and _is_in_range(theirs, fields)
            assert got is not None or not is_canonical, (schema, data)
            if got is None:
                refused += 1
                continue
            read += 1
            assert repr(_plain(got)) == repr(theirs), (schema, data)
            decoder = avro.io.BinaryDecoder(io.BytesIO(data))
            apache = avro.io.DatumReader(reference).read(decoder)
            assert repr(apache) == repr(theirs), (schema, data)
    assert min(read, refused) > 100
    print(f"{read} read, {refused} refused")


def _fastavro(parsed: Any, data: bytes) -> tuple[Any, bytes | None]:
    """The record, and its bytes if fastavro writes it; None if it is not one."""
    file, again = io.BytesIO(data), io.BytesIO()
    try:
        found = fastavro.schemaless_reader(file, parsed, None)
        fastavro.schemaless_writer(again, parsed, found)
    except Exception:
        return None, None
    return (found, again.getvalue()) if file.tell() == len(data) else (None, None)


def _is_in_range(event: Any, fields: list[tuple[str, Any]]) -> bool:
    """Whether integers of "int" have 32 bits, which fastavro does not check."""
    narrow = [event["a"]] if fields[0][1] == "int" else []
    narrow += event["b"] if fields[1][1]["items"] == "int" else []
    narrow += [event["c"]] if fields[2][1][1] == "int" else []
    narrow += [value for value in event["d"].values() if isinstance(value, int)]
    return all(value is None or INT[0] <= value <= INT[1] for value in narrow)


def _plain(event: dict[str, Any]) -> dict[str, Any]:
    """The record, without the positions in unions of several types."""
    return {**event, "d": {key: value for key, (_, value) in event["d"].items()}}


def protobuf(*fields: tuple[str, Any], syntax: str = "proto3") -> tuple[Written, Any]:
    """A schema with one message of fields, and its class."""
    needs = ["any", "struct", "timestamp", "duration", "field_mask", "wrappers"]
    made = descriptor_pb2.FileDescriptorProto(
        name=f"e{random.random()}.proto",
        package="shop",
        syntax=syntax,
        dependency=[f"google/protobuf/{name}.proto" for name in needs],
    )
    made.dependency.extend(["google/type/timeofday.proto", "google/type/date.proto"])
    made.dependency.append("confluent/type/decimal.proto")
    of = made.message_type.add(name="E")
    for number, (name, dtype) in enumerate(fields, 1):
        field = of.field.add(name=name, number=number, label=P.LABEL_OPTIONAL)
        if isinstance(dtype, tuple):
            field.label = P.LABEL_REPEATED
            entry = of.nested_type.add(name=f"{name.capitalize()}Entry")
            entry.options.map_entry = True
            for part, inner in enumerate(dtype, 1):
                entry.field.add(name=["key", "value"][part - 1], number=part, type=inner, label=1)
            field.type, field.type_name = P.TYPE_MESSAGE, f".shop.E.{entry.name}"
        elif isinstance(dtype, str):
            is_enum = dtype == "protobuf.NullValue"
            field.type = P.TYPE_ENUM if is_enum else P.TYPE_MESSAGE
            field.type_name = f".{'' if dtype.startswith('confluent') else 'google.'}{dtype}"
        else:
            field.type = dtype
    pool = descriptor_pool.DescriptorPool()
    from confluent_kafka.schema_registry.common.protobuf import _init_pool

    _init_pool(pool)
    pool.Add(made)
    make = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.E"))
    return Written("PROTOBUF", base64.b64encode(made.SerializeToString()).decode()), make


SCALARS = {
    P.TYPE_INT32: INT, P.TYPE_SINT32: INT, P.TYPE_SFIXED32: INT,
    P.TYPE_UINT32: (0, 2**32 - 1), P.TYPE_FIXED32: (0, 2**32 - 1),
    P.TYPE_INT64: LONG_INT, P.TYPE_SINT64: LONG_INT, P.TYPE_SFIXED64: LONG_INT,
    P.TYPE_UINT64: (0, 2**64 - 1), P.TYPE_FIXED64: (0, 2**64 - 1),
}  # fmt: skip


@pytest.mark.parametrize("dtype", SCALARS)
def test_an_integer_of_protobuf_is_what_was_sent_or_is_refused(dtype: int) -> None:
    written, make = protobuf(("x", dtype))
    for value in SCALARS[dtype]:
        payload = b"\0" + make(x=value).SerializeToString()
        for column in (pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(20, 0)):
            [row] = decode(written, [pa.field("x", column)], payload)
            if pa.types.is_integer(column):
                bits = column.bit_width - 1
                fits = -(2**bits) <= value < 2**bits
            else:
                single = pa.types.is_float32(column)
                fits = (
                    pa.types.is_decimal(column)
                    or int((np.float32 if single else float)(value)) == value
                )
            assert (row["c0"], row["reason"]) == ((value, None) if fits else (None, WRONG))


KNOWN = [
    ("protobuf.Timestamp", UTC, {"seconds": -62_135_596_800}, -62_135_596_800_000_000),
    ("protobuf.Timestamp", UTC, {"seconds": 253_402_300_799, "nanos": 999_999_000}, 253_402_300_799_999_999),
    *(("protobuf.Timestamp", UTC, {"seconds": n}, WRONG) for n in (-62_135_596_801, 253_402_300_800, 2**63 - 1)),
    *(("protobuf.Timestamp", UTC, {"nanos": n}, WRONG) for n in (-1000, 10**9, 1, 2**31 - 1)),
    ("protobuf.Timestamp", LOCAL, {}, WRONG),
    *(("protobuf.Duration", pa.duration("us"), {"seconds": n}, n * 10**6) for n in (315_576_000_000, -315_576_000_000)),
    *(("protobuf.Duration", pa.duration("us"), {"seconds": n}, WRONG) for n in (315_576_000_001, -315_576_000_001)),
    ("protobuf.Duration", pa.duration("us"), {"seconds": -1, "nanos": -1000}, -1_000_001),
    *(("protobuf.Duration", pa.duration("us"), {"seconds": s, "nanos": n}, WRONG) for s, n in ((1, -1000), (-1, 1000), (0, 10**9))),
    ("type.TimeOfDay", TIME, {"hours": 23, "minutes": 59, "seconds": 59, "nanos": 999_999_000}, DAY * 10**9 - 1000),
    *(("type.TimeOfDay", TIME, parts, WRONG) for parts in (
        {"hours": 24}, {"hours": -1}, {"minutes": 60}, {"seconds": 60}, {"nanos": 10**9}, {"nanos": 1},
        {"hours": 1, "minutes": -1}, {"minutes": 1, "seconds": -1}, {"seconds": 1, "nanos": -1000})),
    *(("type.Date", pa.date32(), dict(zip(("year", "month", "day"), parts, strict=True)), wanted) for parts, wanted in (
        ((1, 1, 1), -719_162), ((9999, 12, 31), 2_932_896), ((0, 1, 1), WRONG), ((2023, 2, 29), WRONG), ((2023, 0, 0), WRONG), ((10000, 1, 1), WRONG))),
    *(("protobuf.Int64Value", pa.float64(), {"value": n}, wanted) for n, wanted in ((2**60, 2.0**60), (2**53 + 1, WRONG))),
    ("protobuf.UInt64Value", pa.int64(), {"value": 2**64 - 1}, WRONG),
    ("protobuf.BytesValue", pa.string(), {"value": b"\xff"}, WRONG),
    ("protobuf.BoolValue", pa.bool_(), {}, False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "column", "parts", "wanted"), KNOWN)
def test_a_message_of_googles_is_what_was_sent_or_is_refused(
    name: str, column: pa.DataType, parts: dict[str, Any], wanted: Any
) -> None:
    written, make = protobuf(("x", name))
    payload = b"\0" + make(x=parts).SerializeToString()
    schema = pa.schema([("x", column)])
    values = pa.array([HEADER + payload], pa.binary())
    found = Decoder(schema, {}, False, {7: _make_reader(written, schema)}.get).decode(values)
    is_time = pa.types.is_temporal(column)
    value = found.field("c0").cast(pa.int32() if pa.types.is_date(column) else pa.int64()) if is_time else found.field("c0")  # fmt: skip
    assert (found.field("reason")[0].as_py() or value[0].as_py()) == wanted


def test_bytes_that_are_nearly_a_message_are_read_by_googles_rules() -> None:
    written, make = protobuf(("i", P.TYPE_INT32), ("s", P.TYPE_STRING), ("d", P.TYPE_DOUBLE))
    good = make(i=1, s="é", d=1.5).SerializeToString()
    payloads = [
        b"\x08" + b"\xff" * 10 + b"\1",  # a varint of 11 bytes
        b"\x08" + b"\x80" * 9 + b"\0",
        b"\x12\2\xc3\x28",  # not UTF-8
        b"\x12\x7f",
        b"\x0b",  # a group that does not end
        b"\x0f",  # a wire type that there is not
        b"\0\1",  # field 0
        b"\x28\1" + good,  # a field that the schema lacks
        *(good[:n] for n in range(len(good))),
    ]
    columns = [pa.field("i", pa.int32()), pa.field("s", pa.string()), pa.field("d", pa.float64())]
    for payload, row in zip(
        payloads, decode(written, columns, *(b"\0" + p for p in payloads)), strict=True
    ):
        try:
            theirs = make.FromString(payload)
        except Exception:
            assert row["reason"] == "unparsable_protobuf", payload
        else:
            assert row["reason"] is None
            assert (row["c0"], row["c1"], row["c2"]) == (theirs.i, theirs.s, theirs.d), payload


def test_random_bytes_are_read_by_googles_rules() -> None:
    """Messages with up to three changes: what is read, and what is refused."""
    rng, read = random.Random(3), 0
    parts: dict[int, tuple[Any, pa.DataType]] = {
        P.TYPE_INT32: (5, pa.int64()),
        P.TYPE_SINT64: (-7, pa.int64()),
        P.TYPE_FIXED32: (9, pa.int64()),
        P.TYPE_DOUBLE: (1.5, pa.float64()),
        P.TYPE_STRING: ("é", pa.string()),
        P.TYPE_BYTES: (b"\xff", pa.binary()),
        P.TYPE_BOOL: (True, pa.bool_()),
    }
    names = [f"f{number}" for number in range(len(parts))]
    written, make = protobuf(*zip(names, parts, strict=True))
    columns = [pa.field(n, of) for n, (_, of) in zip(names, parts.values(), strict=True)]
    sent = dict(zip(names, (value for value, _ in parts.values()), strict=True))
    payloads = []
    for _ in range(cases(500, 50_000)):
        data = bytearray(make(**sent).SerializeToString())
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(data))
            match rng.randrange(3):
                case 0:
                    data[at] = rng.randrange(256)
                case 1:
                    del data[at]
                case _:
                    data.insert(at, rng.randrange(256))
        payloads.append(bytes(data))
    rows = decode(written, columns, *(b"\0" + data for data in payloads), keep=True)
    for data, row in zip(payloads, rows, strict=True):
        try:
            theirs = make.FromString(data)
        except Exception:
            assert row["reason"] == "unparsable_protobuf", data
            continue
        read += 1
        assert row["reason"] is None, data
        got = [row[f"c{number}"] for number in range(len(names))]
        assert repr(got) == repr([getattr(theirs, name) for name in names]), data
    assert 20 < read < len(payloads)


def test_keys_of_maps_are_of_the_readers_type_or_text() -> None:
    for dtype, key, text in (
        (P.TYPE_INT32, -5, "-5"),
        (P.TYPE_BOOL, True, "true"),
        (P.TYPE_STRING, "a", "a"),
        (P.TYPE_UINT64, 2**64 - 1, str(2**64 - 1)),
    ):
        written, make = protobuf(("m", (dtype, P.TYPE_INT64)))
        payload = b"\0" + make(m={key: 2**60}).SerializeToString()
        own = {P.TYPE_BOOL: pa.bool_(), P.TYPE_STRING: pa.binary(), P.TYPE_UINT64: pa.int64()}
        of = own.get(dtype, pa.int64())
        wanted = None if dtype == P.TYPE_UINT64 else [(key.encode() if key == "a" else key, 2**60)]
        for column, items in ((pa.string(), [(text, 2.0**60)]), (of, wanted)):
            value = pa.float64() if column == pa.string() else pa.int64()
            [row] = decode(written, [pa.field("m", pa.map_(column, value))], payload)
            assert row["c0"] == items
            assert row["reason"] == (None if items else WRONG)


def test_a_message_with_fields_without_a_text_is_read() -> None:
    """Each of them is named in `unknown`; the fields beside them are there."""
    written, make = protobuf(
        ("id", P.TYPE_INT64),
        ("any", "protobuf.Any"),
        ("value", "protobuf.Value"),
        ("at", "protobuf.Timestamp"),
        ("mask", "protobuf.FieldMask"),
        ("wait", "protobuf.Duration"),
        ("name", P.TYPE_STRING),
    )
    bad: dict[str, Any] = {
        "any": {"type_url": "type.googleapis.com/other.Team", "value": b"\x08\1"},
        "value": {"number_value": math.nan},
        "at": {"seconds": 253_402_300_800},
        "mask": {"paths": ["a_B"]},
        "wait": {"seconds": 10**12},
    }
    good: dict[str, Any] = {
        "any": {"type_url": "type.googleapis.com/google.protobuf.Int64Value", "value": b"\x08\1"},
        "value": {"number_value": 1.5},
        "at": {"seconds": 1},
        "mask": {"paths": ["a"]},
        "wait": {"seconds": 1},
    }
    columns = [pa.field("id", pa.int64())]
    texts = {"at": "1970-01-01T00:00:01Z", "value": 1.5, "mask": "a", "wait": "1s"}
    for number in range(1 << len(bad)):
        worse = [name for n, name in enumerate(bad) if number >> n & 1]
        parts = {name: (bad if name in worse else good)[name] for name in bad}
        payload = b"\0" + make(id=1, name="n", **parts).SerializeToString()
        for keep in (True, False):
            [row] = decode(written, columns, payload, keep=keep)
            assert (row["reason"], row["c0"], row["record"]) == (None, 1, "shop.E")
        [row] = decode(written, columns, payload, keep=True)
        unknown = json.loads(row["unknown"])
        assert unknown.pop(WITHOUT_TEXT, []) == sorted(worse)
        assert unknown.pop("name") == "n"
        unknown.pop("any", None)
        assert unknown == {name: text for name, text in texts.items() if name not in worse}
