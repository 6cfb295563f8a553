"""Read Debezium's records on Spark: all types of records against an oracle, in batch and streaming."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import itertools
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    VarcharType,
)

from streamops import changes, split_side_output
from streamops.kernel.errors import SchemaError, SpecError
from streamops.testing import micro_batches
from tests.oracles.debezium import PLACEHOLDER, DebeziumOracle

pytestmark = pytest.mark.spark

SCHEMA = "id bigint, name string, tags array<int>"
POSTGRES = {"connector": "postgresql", "lsn": 24_023_128, "ts_ms": 1_700_000_000_123}
Record = tuple[str | None, str | None]


def row(number: Any = 1, name: Any = "a", tags: Any = None) -> dict[str, Any]:
    return {"id": number, "name": name, "tags": tags}


ROWS: list[Any] = [
    None,
    row(),
    row(2, None, [1, 2]),
    row(1, PLACEHOLDER, [1]),
    row(1, "b", PLACEHOLDER),
    row(1, "b", [PLACEHOLDER]),
    row(1, "b", [*PLACEHOLDER.encode()]),
    row(None, "c"),
    row("x"),
    row(1.5),
    row(1, "a", [1, "x"]),
    row(1, f'quoted \\" {PLACEHOLDER}'),
    {"id": 1, "tags": [3]},
    row(1, None),
    {**row(1, None), "other": "5"},
    {"id": 1},
    {},
    "text",
    [1],
]
SOURCES: list[Any] = [
    None,
    {},
    {"connector": "postgresql"},
    {"connector": "postgresql", "lsn": None},
    {"connector": "oracle", "scn": "13013937"},
    {"connector": "mysql", "file": "mysql-bin.000003", "pos": 154, "row": 2},
    {"connector": "mysql", "file": "", "pos": 0, "row": 0},
    {"connector": "mariadb", "file": "bin.1000000", "pos": 4},
    {"connector": "sqlserver", "change_lsn": "00000027:00000ac0:0002", "event_serial_no": 2},
    {"connector": "mongodb", "ord": 31},
]
KEYS = [None, '{"id":7}', '{"schema":{"type":"struct"},"payload":{"id":7}}', '{"id":null}']
WRAPPED_NULLS = [
    '{"schema":{},"payload":null}',
    '{"payload":null,"schema":null}',
    ' { "payload" : null , "schema" : {"payload":1} } ',
    '{"payload":null}',
    '{"payload":null,"before":null}',
    '{"payload":null,"schema":null} x',
    '{"schema":null}',
    "null\n",
    "null null",
]
ENDS = ["", " \n", " x", "{}", ' {"op":"d"}', ",", ',{"op":"d"}', "]", "}", "] x", ',{"a":1}] x']


def record(op: Any, before: Any, after: Any, source: Any, order: Any = None) -> dict[str, Any]:
    envelope = {"op": op, "before": before, "after": after, "source": source}
    return (
        envelope
        if order is None
        else {**envelope, "transaction": {"id": "571", "total_order": order}}
    )


def records() -> list[Record]:
    made: list[Record] = []
    images = itertools.product(["c", "u", "d", "r"], ROWS, ROWS)
    for number, (op, before, after) in enumerate(images):
        whole: Any = record(op, before, after, POSTGRES, number if number % 3 else None)
        if number % 2:
            whole = {"schema": {"type": "struct", "fields": []}, "payload": whole}
        made.append((json.dumps(whole), KEYS[number % len(KEYS)]))
    for op, source in itertools.product(["c", "r"], SOURCES):
        made.append((json.dumps(record(op, None, row(), source, 3)), None))
    for op, source in itertools.product(
        ["u", "d"], SOURCES
    ):  # a row that is null except for its key
        made.append((json.dumps(record(op, row(1, None), row(), source, 3)), None))
    for source in SOURCES:  # a truncate has neither images nor a message key
        truncate = {"source": source, "op": "t", "ts_ms": 1_559_033_904_961}
        made.append((json.dumps(truncate), None))
        wrapped = {"schema": {"type": "struct", "fields": []}, "payload": truncate}
        made.append((json.dumps(wrapped), None))
    for op in ("t", "m", "x", "", None, 5):
        made.append((json.dumps(record(op, None, row(), POSTGRES)), None))
    for text in ("", "nonsense", "[]", "5", "null", '{"op":"c"', "{}", '{"payload":{}}', None):
        made.append((text, '{"id":7}'))
    for text in WRAPPED_NULLS:
        made.append((text, '{"id":7}'))
    for op, end in itertools.product(["c", "m"], ENDS):
        made.append((json.dumps(record(op, None, row(), POSTGRES)) + end, None))
    for end in ENDS:
        made.append((json.dumps(record("d", None, None, POSTGRES)), '{"id":7}' + end))
    return made


RECORDS = records()


def frame_of(spark: SparkSession, rows: list[Record]) -> DataFrame:
    numbered = [(number, *pair) for number, pair in enumerate(rows)]
    return spark.createDataFrame(numbered, "number int, value string, key string")


def results_of(rows: list[dict[str, Any]]) -> dict[int, Any]:
    """The reason or the changes of each record, in the form of the oracle."""
    found: dict[int, Any] = {}
    for row in rows:
        rejected = row["rejected"]
        if rejected is not None:
            assert row["_change_type"] is None
            found[row["number"]] = rejected["reason"]
            continue
        image = {name: row[name] for name in ("id", "name", "tags")}
        sequence = tuple(row["_sequence"].values())
        change = (row["_change_type"], image, sequence, row["_snapshot"], row["_unavailable"])
        found.setdefault(row["number"], []).append(change)
    return found


TRUNCATES = {
    # A truncate of `customers`, as Debezium's connector for PostgreSQL sends it, and for MySQL.
    "postgresql": {
        "source": {
            "version": "3.0.0.Final",
            "connector": "postgresql",
            "name": "PostgreSQL_server",
            "ts_ms": 1_559_033_904_863,
            "ts_us": 1_559_033_904_863_123,
            "ts_ns": 1_559_033_904_863_123_000,
            "snapshot": "false",
            "db": "postgres",
            "sequence": '["46523128","46523128"]',
            "schema": "public",
            "table": "customers",
            "txId": 556,
            "lsn": 46_523_128,
            "xmin": None,
        },
        "op": "t",
        "ts_ms": 1_559_033_904_961,
        "transaction": {"id": "556:46523128", "total_order": 1, "data_collection_order": 1},
    },
    "mysql": {
        "before": None,
        "after": None,
        "source": {
            "version": "3.0.0.Final",
            "connector": "mysql",
            "name": "mysql-server-1",
            "ts_ms": 1_465_581_029_000,
            "snapshot": "false",
            "db": "inventory",
            "table": "customers",
            "server_id": 223_344,
            "gtid": None,
            "file": "mysql-bin.000003",
            "pos": 484,
            "row": 0,
            "thread": 7,
            "query": None,
        },
        "transaction": None,
        "op": "t",
        "ts_ms": 1_465_581_029_523,
    },
}


@pytest.mark.parametrize(
    ("connector", "sequence"),
    [("postgresql", (0, 46_523_128, 1)), ("mysql", (3, 484, 0))],
)
def test_a_truncate_of_a_connector_is_a_change_without_key_and_values(
    spark: SparkSession, connector: str, sequence: tuple[int, int, int]
) -> None:
    schema = "id bigint not null, name string not null, tags array<int>"
    reading = changes.from_debezium(schema, key="id", message_key="key", absent="route")
    record = TRUNCATES[connector]
    wrapped = {"schema": {"type": "struct", "fields": [], "optional": False}, "payload": record}
    frame = frame_of(spark, [(json.dumps(record), None), (json.dumps(wrapped), None)])
    for change in frame.transform(reading).toArrow().to_pylist():
        assert (change["id"], change["name"], change["tags"]) == (None, None, None)
        assert change["_change_type"] == "truncate"
        assert tuple(change["_sequence"].values()) == sequence
        assert (change["_snapshot"], change["_unavailable"], change["rejected"]) == (
            False,
            [],
            None,
        )
        assert change["_changed_at"] is not None


def test_a_truncate_empties_the_table_that_the_records_describe(spark: SparkSession) -> None:
    source = TRUNCATES["postgresql"]["source"]
    other_source = {**source, "lsn": 46_523_129}
    lost = {**source, "lsn": 46_523_127}
    records = [
        (json.dumps(record("c", None, row(1, "before"), lost)), None),
        (json.dumps(record("c", None, row(2, "after"), other_source)), None),
        (json.dumps(TRUNCATES["postgresql"]), None),
    ]
    reading = changes.from_debezium(SCHEMA, key="id")
    normalized = changes.normalize("id", sequence="_sequence", time="_changed_at", horizon="1 day")
    table = frame_of(spark, records).transform(reading).transform(normalized)
    assert table.where("rejected is not null").count() == 0
    result = table.where("_change_type is not null")
    final: dict[int, str] = {}
    for change in sorted(result.toArrow().to_pylist(), key=lambda c: c["revision"]):
        if change["_change_type"] == "delete":
            final.pop(change["id"], None)
        elif change["_change_type"] in {"insert", "update_postimage"}:
            final[change["id"]] = change["name"]
    assert final == {2: "after"}


@pytest.mark.parametrize(
    ("preimages", "absent"),
    [("drop", "null"), ("drop", "unavailable"), ("publish", "unavailable"), ("drop", "route")],
)
def test_every_record_equals_the_oracle(spark: SparkSession, preimages: Any, absent: Any) -> None:
    reading = changes.from_debezium(
        SCHEMA,
        key="id",
        message_key="key",
        preimages=preimages,
        absent=absent,
        keep=["number"],
    )
    frame = frame_of(spark, RECORDS)
    if preimages == "publish":  # as binary, as from Kafka
        frame = frame.select(
            "number", *(F.col(name).cast("binary").alias(name) for name in ("value", "key"))
        )
    rows = frame.transform(reading).toArrow().to_pylist()
    found, oracle = results_of(rows), DebeziumOracle(preimages, absent)
    expected = {n: oracle.read(*pair) for n, pair in enumerate(RECORDS)}
    for number, (text, key) in enumerate(RECORDS):
        assert found.get(number) == expected[number], (text, key)
    reasons = {value for value in expected.values() if isinstance(value, str)}
    assert reasons == {
        "unparsable_json",
        "no_operation",
        "unknown_operation",
        "no_row",
        "row_does_not_fit",
        "null_key",
        "value_not_sent",
        "no_sequence",
        *(["no_row_before"] if preimages == "publish" else []),
    }
    rejected_rows = [row for row in rows if row["rejected"] is not None]
    for row in rejected_rows:  # nothing is lost
        text, key = RECORDS[row["number"]]
        original = (row["rejected"]["value"], row["rejected"]["key"])
        if preimages == "publish":
            original = tuple(None if part is None else part.decode() for part in original)  # type: ignore[assignment]
        assert original == (text, key)


def test_types_tombstones_and_sequences_from_columns(spark: SparkSession) -> None:
    rows = [
        {"id": 1, "at": "2024-03-09T12:00:00Z", "d": 0.12345678901234567891, "o": {"a": 1}},
        {"id": 2, "at": 1_700_000_000_000_000, "d": 1, "o": None},
        {"id": 3, "at": None, "d": None, "o": {"a": "x"}},
        {"id": 4, "at": None, "d": None, "o": PLACEHOLDER},
        {"id": 5, "d": 1},
    ]
    values = [json.dumps(record("u", None, row, None)) for row in rows]
    values[0] = values[0].replace("0.12345678901234568", "0.12345678901234567891")
    made = [(value, None, number) for number, value in enumerate(values)]
    made += [(None, '{"id":9}', 5), (values[0], None, None)]
    frame = spark.createDataFrame(made, "value string, key string, offset long")
    reading = changes.from_debezium(
        "id bigint, at timestamp, d decimal(30,20), o struct<a:int> not null",
        key="id",
        message_key="key",
        sequence=["offset"],
        tombstones="keep",
        keep=["offset"],
    )
    result = frame.transform(reading)
    assert result.columns[-3:] == ["_tombstone", "rejected", "offset"]
    assert result.schema["_sequence"].dataType.simpleString() == "struct<offset:bigint>"
    first, number, misfit, lacking, absent, tombstone, nowhere = result.collect()
    assert str(first["d"]) == "0.12345678901234567891"  # exactly as sent
    assert first["at"] == dt.datetime(2024, 3, 9, 12)  # noqa: DTZ001 (the session is in UTC)
    assert first["_sequence"]["offset"] == 0
    for row in (number, misfit, absent):
        assert row["rejected"]["reason"] == "row_does_not_fit"
    assert (lacking["o"], lacking["_unavailable"], lacking["rejected"]) == (None, ["o"], None)
    assert (tombstone["id"], tombstone["_tombstone"], tombstone["_change_type"]) == (9, True, None)
    assert (tombstone["rejected"], tombstone["_sequence"]) == (None, None)
    assert nowhere["rejected"]["reason"] == "no_sequence"


MISFIT = "row_does_not_fit"
NOON = dt.datetime(2024, 3, 9, 12)  # noqa: DTZ001 (the session is in UTC)
VALUES: list[tuple[str, str, Any]] = [
    # Debezium sends times as numbers of milliseconds or microseconds, at any depth.
    ("timestamp", '"2024-03-09T12:00:00Z"', NOON),
    ("timestamp", '"2024-03-09T13:00:00.000001+01:00"', NOON.replace(microsecond=1)),
    ("timestamp", "1700000000000000", MISFIT),
    ("timestamp", '"1700000000"', MISFIT),
    ("array<timestamp>", '["2024-03-09T12:00:00Z",null]', [NOON, None]),
    ("array<timestamp>", "[null,1700000000000000]", MISFIT),
    ("array<timestamp>", f'["{PLACEHOLDER}"]', None),
    ("array<timestamp>", json.dumps([*PLACEHOLDER.encode()]), None),
    ("struct<t: timestamp>", '{"t":"2024-03-09T12:00:00Z"}', (NOON,)),
    ("struct<t: timestamp>", '{"t":null}', (None,)),
    ("struct<t: timestamp>", '{"t":1700000000}', MISFIT),
    ("map<string,timestamp>", '{"a":"2024-03-09T12:00:00Z"}', {"a": NOON}),
    ("map<string,timestamp>", '{"a":1}', MISFIT),
    ("array<struct<m: map<string,timestamp>>>", '[{"m":{"a":1}}]', MISFIT),
    # A time of day has no date.
    ("timestamp", '"12:00:00Z"', MISFIT),
    ("timestamp", '"T12:00:00"', MISFIT),
    ("timestamp", "true", MISFIT),
    # Decimals are read exactly, from a number or from text; bytes in base64 do not fit.
    ("decimal(10,2)", "123.45", Decimal("123.45")),
    ("decimal(10,2)", '"123.4500"', Decimal("123.45")),
    ("decimal(10,2)", "null", None),
    ("decimal(10,2)", '"-1234"', Decimal("-1234.00")),
    ("decimal(10,2)", "1.2E7", Decimal("12000000.00")),
    ("decimal(10,2)", '"0E-10"', Decimal("0.00")),
    ("decimal(10,8)", '"1.5E-7"', Decimal("0.00000015")),
    ("decimal(38,18)", "0.1", Decimal("0.100000000000000000")),
    (
        "decimal(38,20)",
        "12345678901234567.89012345678901234567",
        "12345678901234567.89012345678901234567",
    ),
    (
        "decimal(38,0)",
        "98765432109876543210987654321098765432",
        "98765432109876543210987654321098765432",
    ),
    ("decimal(10,2)", "123.456", MISFIT),
    ("decimal(10,2)", '"123.456"', MISFIT),
    ("decimal(10,2)", "1.5E-7", MISFIT),
    ("decimal(38,2)", "1.2345678912345E7", MISFIT),
    ("decimal(38,20)", '"0.123456789012345678901"', MISFIT),
    ("decimal(10,2)", "123456789.00", MISFIT),
    ("decimal(10,2)", '"12E4"', MISFIT),
    ("decimal(10,2)", '"1E+5"', MISFIT),
    ("decimal(10,2)", '"MDk="', MISFIT),
    ("decimal(10,2)", '"NaN"', MISFIT),
    ("decimal(10,2)", "true", MISFIT),
    ("decimal(10,2)", '{"scale":2,"value":"MDk="}', MISFIT),
    ("decimal(10,2)", '{"a":1,"a":2}', MISFIT),
    ("array<decimal(3,1)>", '[1,"2.5",null]', [Decimal("1.0"), Decimal("2.5"), None]),
    ("array<decimal(3,1)>", "[1,2.55]", MISFIT),
    ("binary", '"MDk="', b"09"),
    ("struct<scale: int, value: binary>", '{"scale":2,"value":"MDk="}', (2, b"09")),
    # A number too large for a float does not fit; infinity does.
    ("float", "1.5", 1.5),
    ("float", '"-Infinity"', float("-inf")),
    ("float", "1e300", MISFIT),
    ("array<float>", "[1,-1e39]", MISFIT),
    ("array<float>", "[0.5,null]", [0.5, None]),
    # Elements that must not be null.
    ("struct<a: int not null, b: array<int>>", '{"a":1}', (1, None)),
    ("struct<a: int not null, b: array<int>>", '{"b":[]}', MISFIT),
    ("struct<a: decimal(3,1) not null>", '{"a":null}', MISFIT),
    ("array<struct<a: timestamp not null>>", '[{"a":null}]', MISFIT),
    # Strings of limited length are strings.
    ("varchar(3)", '"abcd"', "abcd"),
    ("struct<a: char(3) not null>", '{"a":"ab"}', ("ab",)),
]


def test_values_are_exactly_those_sent_or_do_not_fit(spark: SparkSession) -> None:
    types = list(dict.fromkeys(type_ for type_, _, _ in VALUES))
    columns = {type_: f"c{number}" for number, type_ in enumerate(types)}
    schema = ", ".join(["id int", *(f"{name} {type_}" for type_, name in columns.items())])
    made = []
    for number, (type_, value, _) in enumerate(VALUES):
        image = f'{{"id":{number},"{columns[type_]}":{value}}}'
        images = f'"before":{image},"after":null' if number % 2 else f'"after":{image}'
        made.append((number, f'{{"op":"{"d" if number % 2 else "u"}",{images}}}'))
    frame = spark.createDataFrame(made, "number int, value string")
    for given in (schema, StructType.fromDDL(schema)):
        reading = changes.from_debezium(given, key="id", sequence=["number"], keep=["number"])
        result = frame.transform(reading)
        if given is schema:
            rows = result.collect()
    assert result.schema[columns["varchar(3)"]].dataType == StringType()
    for row in rows:
        type_, value, expected = VALUES[row["number"]]
        got = row[columns[type_]] if row["rejected"] is None else row["rejected"]["reason"]
        wanted = (
            Decimal(expected) if type_.startswith("decimal(38") and expected != MISFIT else expected
        )
        assert got == wanted, (type_, value)


def test_null_elements_of_not_null_types_do_not_fit(spark: SparkSession) -> None:
    row_type = (
        StructType()
        .add("id", IntegerType())
        .add("a", ArrayType(VarcharType(3), False))
        .add("m", MapType(StringType(), IntegerType(), False))
    )
    images = ['"a":["x"],"m":{"y":1}', '"a":["x",null]', '"m":{"y":null}', f'"a":["{PLACEHOLDER}"]']
    made = [(f'{{"op":"u","after":{{"id":1,{image}}}}}', n) for n, image in enumerate(images)]
    frame = spark.createDataFrame(made, "value string, offset int")
    reading = changes.from_debezium(row_type, key="id", sequence=["offset"])
    first, *misfits, unavailable = frame.transform(reading).collect()
    assert (first["a"], first["m"], first["rejected"]) == (["x"], {"y": 1}, None)
    assert [row["rejected"]["reason"] for row in misfits] == [MISFIT, MISFIT]
    assert (unavailable["_unavailable"], unavailable["rejected"]) == (["a"], None)


@pytest.mark.parametrize("placeholder", [PLACEHOLDER, "fehlt: \u00e4", "hex:00ff7f"])
def test_the_placeholder_of_every_type_is_unavailable(
    spark: SparkSession, placeholder: str
) -> None:
    is_hex = placeholder.startswith("hex:")
    raw = bytes.fromhex(placeholder[4:]) if is_hex else placeholder.encode()
    text = raw.decode(errors="replace")
    coded = base64.b64encode(raw).decode()
    # As Java's UUID.nameUUIDFromBytes; that of the default is in Debezium's documentation.
    digest = bytearray(hashlib.md5(raw, usedforsecurity=False).digest())
    digest[6], digest[8] = digest[6] & 0x0F | 0x30, digest[8] & 0x3F | 0x80
    name = str(uuid.UUID(bytes=bytes(digest)))
    assert placeholder != PLACEHOLDER or name == "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
    signed = [byte - 256 if byte > 127 else byte for byte in raw]
    cents = []
    for n in signed:  # as few bytes as Java's BigInteger
        size = 1 if -128 <= n * 100 < 128 else 2
        data = (n * 100).to_bytes(size, "big", signed=True)
        cents.append(base64.b64encode(data).decode())
    forms: list[tuple[str, Any]] = [
        ("string", text),
        ("binary", coded),
        ("string", base64.urlsafe_b64encode(raw).decode()),
        ("string", raw.hex()),
        ("map<string,string>", {text: text}),
        ("string", json.dumps({text: text}, ensure_ascii=False, separators=(",", ":"))),
        ("array<string>", [text]),
        ("array<binary>", [coded]),
        ("array<string>", [name]),
        ("array<map<string,string>>", [{text: text}]),
        ("array<smallint>", signed),
        ("array<bigint>", list(raw)),
        ("array<double>", [float(n) for n in signed]),
        ("array<decimal(10,2)>", [f"{n}.00" for n in signed]),
        ("array<binary>", cents),
        ("array<struct<scale:int,value:binary>>", None),
    ]
    numbers = [base64.b64encode(n.to_bytes(1, "big", signed=True)).decode() for n in signed]
    forms[-1] = (forms[-1][0], [{"scale": 0, "value": number} for number in numbers])
    schema = ", ".join(["id int", *(f"c{n} {type_}" for n, (type_, _) in enumerate(forms))])
    after = {"id": 1, **{f"c{n}": form for n, (_, form) in enumerate(forms)}}
    # Longer and shorter values are values.
    other = {"id": 1, "c0": f"{text}x", "c6": [text, text], "c10": [*signed, 1], "c12": [1.0]}
    made = [(json.dumps({"op": "u", "after": row}), n) for n, row in enumerate((after, other))]
    reading = changes.from_debezium(schema, key="id", sequence=["n"], placeholder=placeholder)
    unchanged, changed = (
        spark.createDataFrame(made, "value string, n int").transform(reading).collect()
    )
    assert unchanged["rejected"] is None
    assert unchanged["_unavailable"] == [f"c{n}" for n in range(len(forms))]
    assert [unchanged[f"c{n}"] for n in range(len(forms))] == [None] * len(forms)
    assert (changed["_unavailable"], changed["c6"], changed["c12"]) == ([], [text, text], [1.0])


def test_a_message_key_is_read_with_the_types_of_the_row(spark: SparkSession) -> None:
    record = json.dumps({"op": "d", "before": None})
    keys = ['"2024-03-09T12:00:00Z"', '"12:00:00Z"', "1700000000"]
    made = [(record, f'{{"at":{key},"o":{{"a":1}}}}', n) for n, key in enumerate(keys)]
    frame = spark.createDataFrame(made, "value string, key string, offset int")
    reading = changes.from_debezium(
        "at timestamp, o struct<a: int not null>",
        key=["at", "o"],
        message_key="key",
        sequence=["offset"],
    )
    first, *others = frame.transform(reading).collect()
    assert (first["at"], first["o"], first["_change_type"]) == (NOON, (1,), "delete")
    assert [row["rejected"]["reason"] for row in others] == ["null_key", "null_key"]


def test_times_do_not_depend_on_the_time_parser_policy(spark: SparkSession) -> None:
    old = spark.newSession()
    old.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    made = [
        (f'{{"op":"c","after":{{"id":{n},"at":"{text}"}}}}', n)
        for n, text in enumerate(["2024-03-09T12:00:00.123456Z", "12:00:00.123456Z"])
    ]
    frame = old.createDataFrame(made, "value string, offset int")
    reading = changes.from_debezium("id int, at timestamp", key="id", sequence=["offset"])
    first, second = frame.transform(reading).collect()
    assert first["at"] == NOON.replace(microsecond=123456)
    assert second["rejected"]["reason"] == MISFIT


def test_invalid_utf8_is_rejected_unchanged(spark: SparkSession) -> None:
    record = b'{"op":"c","after":{"id":1,"name":"%s"}}'
    delete = b'{"op":"d","before":null}'
    made = [
        (bytearray(record % "\u00e9".encode()), None, 0),
        (bytearray(record % b"\xff"), None, 1),
        (bytearray(delete), bytearray(b'{"id":"\xff"}'), 2),
    ]
    frame = spark.createDataFrame(made, "value binary, key binary, offset int")
    reading = changes.from_debezium(
        "id string, name string",
        key="id",
        message_key="key",
        sequence=["offset"],
        tombstones="keep",
        keep=["offset"],
    )
    for messages in (frame, frame.withColumn("value", F.col("value").cast("string"))):
        read, no_text, no_key = messages.transform(reading).orderBy("offset").collect()
        assert (read["name"], read["_tombstone"]) == ("\u00e9", False)
        assert (no_text["rejected"]["reason"], no_text["_tombstone"]) == ("unparsable_json", False)
        assert no_key["rejected"]["reason"] == "null_key"
    assert no_key["rejected"]["key"] == made[2][1]


def test_columns_of_any_name_are_copied(spark: SparkSession) -> None:
    names = ["__op", "__key", "__text", "__env", "__before", "__change", "_"]
    frame = spark.createDataFrame(
        [(json.dumps(record("c", None, row(), None)), *names)],
        ", ".join(f"{name} string" for name in ["value", *names]),
    ).withColumns({"_": F.lit(1), "__op": F.lit(2)})
    reading = changes.from_debezium(SCHEMA, key="id", sequence=["_", "__op"], keep=names)
    (change,) = frame.transform(reading).collect()
    assert [change[name] for name in names] == [2, *names[1:-1], 1]
    assert tuple(change["_sequence"]) == (1, 2)


def test_rows_that_must_be_retracted_are_complete(spark: SparkSession) -> None:
    # As sent by Postgres, unless the replica identity of the table is FULL.
    records = [
        ("c", None, {"id": 1, "city": "Ulm"}, None),
        ("u", None, {"id": 1, "city": "Bonn"}, None),
        ("u", {"id": 1, "city": None}, {"id": 2, "city": "Bonn"}, None),
        ("d", {"id": 1, "city": None}, None, None),
        ("d", {"id": 1}, None, None),
        ("d", None, None, '{"id":1}'),
        ("d", {"id": 1, "city": None, "street": "x"}, None, None),
        ("d", {"id": 1, "city": "Ulm"}, None, None),
    ]
    made = [
        (json.dumps(record(op, before, after, POSTGRES)), key) for op, before, after, key in records
    ]
    frame = spark.createDataFrame(made, "value string, key string")
    for schema, reasons in (
        ("id int, city string", [None, *["no_row_before"] * 5, None, None]),
        ("id int", [None, "no_row_before", None, None, None, None, "no_row_before", None, None]),
    ):
        reading = changes.from_debezium(schema, key="id", message_key="key", preimages="publish")
        rows = frame.transform(reading).collect()
        got = [row["rejected"] and row["rejected"]["reason"] for row in rows]
        assert got == reasons


def test_a_value_that_the_row_before_does_not_have_is_unavailable(
    spark: SparkSession,
) -> None:
    # Of the row before Postgres sends only the columns of its identifying index.
    before, after = row(1, None, None), row(1, PLACEHOLDER, [1])
    frame = frame_of(spark, [(json.dumps(record("u", before, after, POSTGRES)), None)])
    (change,) = frame.transform(changes.from_debezium(SCHEMA, key="id")).collect()
    assert (change["name"], change["_unavailable"]) == (None, ["name"])


def test_the_time_of_a_change_is_null_if_it_is_unknown(spark: SparkSession) -> None:
    sources = [
        {**POSTGRES, "ts_us": 1_700_000_000_123_456},
        POSTGRES,
        {**POSTGRES, "ts_ms": 2**62},
        {**POSTGRES, "ts_ms": "soon"},
    ]
    made = [(json.dumps(record("c", None, row(), source)),) for source in sources]
    reading = changes.from_debezium(SCHEMA, key="id")
    frame = spark.createDataFrame(made, "value string").transform(reading)
    got = [r["at"] for r in frame.select(F.unix_micros("_changed_at").alias("at")).collect()]
    assert got == [1_700_000_000_123_456, 1_700_000_000_123_000, None, None]


def test_a_stream_is_read_counted_and_split(spark: SparkSession, tmp_path: Path) -> None:
    moved = json.dumps(record("u", row(1), row(2), POSTGRES))
    script = [
        [{"value": moved}, {"value": "nonsense"}],
        [{"value": json.dumps(record("d", row(2), None, {**POSTGRES, "lsn": 24_023_129}))}],
    ]
    schema = pa.schema([("value", pa.string())])
    frame = micro_batches(spark, script, schema=schema, directory=tmp_path)
    reading = changes.from_debezium(SCHEMA, key="id").options(name="read")
    good_rows, bad_rows = [], []

    def write(batch: DataFrame, number: int) -> None:
        good, rejected = split_side_output(batch)
        assert good.columns == rejected.columns[:-1]
        good_rows.extend(good.select("_change_type", "id", "_sequence.offset").collect())
        bad_rows.extend(rejected.select("rejected.*").collect())

    query = (
        frame.transform(reading)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert [tuple(row) for row in good_rows] == [
        ("delete", 1, 24_023_128),
        ("insert", 2, 24_023_128),
        ("delete", 2, 24_023_129),
    ]
    assert [tuple(row) for row in bad_rows] == [("unparsable_json", "nonsense", None)]
    counted = [step.observedMetrics["read"].asDict() for step in query.recentProgress]
    assert [(row["changes"], row["rejected"]) for row in counted] == [(2, 1), (1, 0)]
    assert counted[0]["unparsable_json"] == 1


def test_frames_without_records_are_refused_before_the_query_runs(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "x")], "value int, text string")
    cases: list[tuple[str, dict[str, Any]]] = [
        ("COLUMN_TYPE", {}),
        ("COLUMN_NOT_FOUND", {"value": "values"}),
        ("TYPE_UNSUPPORTED", {"value": "text", "schema": "id int, a array<map<int,int>>"}),
        ("INVALID_SCHEMA", {"value": "text", "schema": "int"}),
        ("COLUMN_NOT_FOUND", {"value": "text", "message_key": "key"}),
        ("COLUMN_NOT_FOUND", {"value": "text", "sequence": ["offset"]}),
        ("COLUMN_NOT_FOUND", {"value": "text", "keep": ["topic"]}),
        ("COLUMN_NOT_FOUND", {"value": "text", "key": "number"}),
        ("INVALID_SCHEMA", {"value": "text", "schema": "id whatever"}),
        ("NAME_TAKEN", {"value": "text", "schema": "id int, Rejected int"}),
        ("NAME_TAKEN", {"value": "text", "schema": "id int, text int", "keep": ["text"]}),
    ]
    for code, changed in cases:
        settings = {"schema": SCHEMA, "key": "id", **changed}
        with pytest.raises(ValueError, match=rf"\[{code}\]"):
            frame.transform(changes.from_debezium(settings.pop("schema"), **settings))
    with pytest.raises(SpecError, match='Unsupported data type "WHATEVER"'):
        frame.transform(changes.from_debezium("id whatever", key="id", value="text"))
    with pytest.raises(SchemaError, match='"ignoreNullFields": "false"'):
        frame.transform(changes.from_debezium(SCHEMA, key="id"))
    with pytest.raises(SchemaError, match=r"\[FRAME_TYPE\]"):
        split_side_output(frame)
