"""Records of Kafka are parsed exactly, or rejected with the reason and their bytes."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import sources, split_side_output
from streamops.errors import ColumnNotFound, SchemaError, SpecError
from streamops.sources.kafka_events import REASONS

pytestmark = pytest.mark.spark

KAFKA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
AT = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
SCHEMA = "page string NOT NULL, ts timestamp, ms int, price decimal(6,2), tags array<int>"
AVRO = json.dumps(
    {
        "type": "record",
        "name": "View",
        "fields": [
            {"name": "page", "type": "string"},
            {"name": "ms", "type": ["null", "int"], "default": None},
        ],
    }
)


def records(
    spark: SparkSession, *values: str | bytes | None, key: bytes | None = b"k"
) -> DataFrame:
    rows = [
        (key, value.encode() if isinstance(value, str) else value, "views", 2, 10 + n, AT, 0)
        for n, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, KAFKA)


def reasons(frame: DataFrame) -> list[Any]:
    return [row[0] for row in frame.orderBy("_offset").select("rejected.reason").collect()]


def test_a_record_has_typed_columns_and_its_position(spark: SparkSession) -> None:
    value = '{"page": "a", "ts": "2026-01-01T00:00:00Z", "ms": 3, "price": 1.10, "tags": [1, null], "x": 0}'
    frame = records(spark, value).transform(sources.kafka_events(SCHEMA, keep=["key"]))
    [row] = (
        frame.withColumn("ts", F.unix_micros("ts"))
        .withColumn("_timestamp", F.col("_timestamp").cast("string"))
        .collect()
    )
    assert row.asDict() == {
        "page": "a",
        "ts": 1_767_225_600_000_000,
        "ms": 3,
        "price": Decimal("1.10"),
        "tags": [1, None],
        "_topic": "views",
        "_partition": 2,
        "_offset": 10,
        "_timestamp": str(row["_timestamp"]),
        "rejected": None,
        "key": bytearray(b"k"),
    }
    assert [field.simpleString() for field in frame.schema.fields] == [
        "page:string",
        "ts:timestamp",
        "ms:int",
        "price:decimal(6,2)",
        "tags:array<int>",
        "_topic:string",
        "_partition:int",
        "_offset:bigint",
        "_timestamp:timestamp",
        "rejected:struct<reason:string,value:binary,key:binary>",
        "key:binary",
    ]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('{"page": "a"}', None),
        ('{"page": "a", "ms": null, "ts": null, "price": null, "tags": null}', None),
        (' {"page": ""} ', None),
        (None, "null_value"),
        ("", "unparsable_json"),
        ("null", "unparsable_json"),
        ("3", "unparsable_json"),
        ('[{"page": "a"}]', "unparsable_json"),
        ('{"page": "a"', "unparsable_json"),
        ('{"page": "a"} {"page": "b"}', "unparsable_json"),
        ('{"page": "a"}]', "unparsable_json"),
        (b'{"page": "\xff"}', "unparsable_json"),
        ('{"page": "a", "ms": "3.5"}', "wrong_type"),
        ('{"page": "a", "ms": 3.5}', "wrong_type"),
        ('{"page": "a", "ms": 2147483648}', "wrong_type"),
        ('{"page": "a", "ms": true}', "wrong_type"),
        ('{"page": "a", "ts": 1767225600}', "wrong_type"),
        ('{"page": "a", "ts": "yesterday"}', "wrong_type"),
        ('{"page": "a", "price": 1.234}', "wrong_type"),
        ('{"page": "a", "price": 123456.00}', "wrong_type"),
        ('{"page": "a", "tags": [1, "x"]}', "wrong_type"),
        ('{"page": "a", "tags": {}}', "wrong_type"),
        ("{}", "missing_field"),
        ('{"page": null}', "missing_field"),
        ('{"Page": "a"}', "missing_field"),
        ('{"ms": "x"}', "wrong_type"),
    ],
)
def test_a_record_is_parsed_or_rejected_with_its_reason(
    spark: SparkSession, value: Any, reason: str | None
) -> None:
    frame = records(spark, value).transform(sources.kafka_events(SCHEMA))
    [row] = frame.collect()
    raw = value.encode() if isinstance(value, str) else value
    if reason is None:
        assert row["rejected"] is None
        assert row["page"] is not None
    else:
        assert row["rejected"].asDict() == {"reason": reason, "value": raw, "key": b"k"}
        assert row["page"] is row["ms"] is row["tags"] is None
    assert (row["_topic"], row["_partition"], row["_offset"]) == ("views", 2, 10)


VALUES: list[tuple[str, str, str | None]] = [
    ("tinyint", "127", "127"),
    ("tinyint", "200", None),
    ("array<tinyint>", "[1,200]", None),
    ("map<string,smallint>", '{"x":40000}', None),
    ("double", "1e400", None),
    ("double", "1e-400", None),
    ("double", '"-Infinity"', "-Infinity"),
    ("double", '"INF"', None),
    ("float", "1.00000017881393432617187499", "1.0000001"),
    ("decimal(10,2)", "150e-2", "1.50"),
    ("decimal(10,2)", "1.00000000000000000001e0", None),
    ("date", '"2026-01-01"', "2026-01-01"),
    ("date", '"2026"', None),
    ("date", '"2026-01-01Tgarbage"', None),
    ("date", '"2026-01-01\\n"', None),
    ("timestamp", '"2026-01-01T00:00:00.123456000Z"', "2026-01-01 00:00:00.123456"),
    ("timestamp", '"2026-01-01T00:00:00.123456789Z"', None),
    ("timestamp", '"2026-01-01T00:00:00 Europe/Berlin"', None),
    ("timestamp_ntz", '"2026-01-01T00:00:00.5"', "2026-01-01 00:00:00.5"),
    ("timestamp_ntz", '"2026-01-01T00:00:00Z"', None),
    ("binary", '"AAE="', "\x00\x01"),
    ("binary", '"AAF="', None),
    ("binary", "1234", None),
    ("string", "1e400", "1e400"),
    ("string", "[1.50,12345678901234567890.5]", "[1.50,12345678901234567890.5]"),
    ("struct<a:int>", '{"a":1,"a":2}', None),
    ("struct<a:int>", '"{\\"a\\":1}"', None),
    ("struct<`a.b`:int>", '{"a.b":1}', "{1}"),
]


def test_a_value_that_spark_would_change_is_rejected(spark: SparkSession) -> None:
    types = list(dict.fromkeys(type_ for type_, _, _ in VALUES))
    schema = ", ".join(f"`c.{number}` {type_}" for number, type_ in enumerate(types))
    made = [f'{{"c.{types.index(type_)}":{value}}}' for type_, value, _ in VALUES]
    frame = records(spark, *made).transform(sources.kafka_events(schema)).orderBy("_offset")
    columns = [F.col(f"`c.{number}`").cast("string") for number in range(len(types))]
    rows = frame.select("rejected.reason", F.coalesce(*columns)).collect()
    for (type_, value, expected), (reason, got) in zip(VALUES, rows, strict=True):
        assert (reason, got) == (None if expected else "wrong_type", expected), (type_, value)


def test_rejected_records_are_split_from_the_others(spark: SparkSession) -> None:
    frame = records(spark, '{"page": "a"}', "?", None).transform(sources.kafka_events(SCHEMA))
    good, rejected = split_side_output(frame)
    assert [row["page"] for row in good.collect()] == ["a"]
    assert "rejected" not in good.columns
    assert reasons(rejected) == ["unparsable_json", "null_value"]


def test_tombstones_are_rejected_kept_or_dropped(spark: SparkSession) -> None:
    frame = records(spark, '{"page": "a"}', None)
    stored = frame.transform(sources.kafka_events(SCHEMA, tombstones="keep", keep=["key"]))
    rows = stored.orderBy("_offset").select("page", "_tombstone", "rejected", "key").collect()
    assert [tuple(row) for row in rows] == [("a", False, None, b"k"), (None, True, None, b"k")]
    assert reasons(frame.transform(sources.kafka_events(SCHEMA, tombstones="drop"))) == [None]
    assert reasons(frame.transform(sources.kafka_events(SCHEMA))) == [None, "null_value"]


def test_the_header_of_the_wire_format_is_removed_and_other_schemas_are_rejected(
    spark: SparkSession,
) -> None:
    body = b'{"page": "a"}'
    values = [b"\x00\x00\x00\x00\x07" + body, b"\x00\x00\x00\x01\x00" + body]
    values += [b"\x00\x00\x00\x00\x08" + body, body, b"\x00\x00", b"\x00\x00\x00\x00\x07"]
    frame = records(spark, *values).transform(sources.kafka_events(SCHEMA, schema_id=[7, 256]))
    assert reasons(frame) == [None, None, *["unknown_schema"] * 3, "unparsable_json"]


@pytest.mark.kafka
def test_avro_is_parsed_or_rejected(spark: SparkSession, avro: None) -> None:
    header = b"\x00\x00\x00\x00\x07"
    good = b"\x02a\x02\x06"  # "a", and the second type of the union: 3
    values = [header + good, header + b"\x02a\x00", header + b"\x40a", header, None, good]
    operator = sources.kafka_events(AVRO, format="avro", schema_id=7)
    frame = records(spark, *values).transform(operator)
    rows = frame.orderBy("_offset").select("page", "ms").collect()
    assert [tuple(row) for row in rows[:2]] == [("a", 3), ("a", None)]
    expected = [None, None, "unparsable_avro", "unparsable_avro", "null_value", "unknown_schema"]
    assert reasons(frame) == expected
    nulls = AVRO.replace('"string"', '["null", "string"]')
    assert nulls != AVRO
    frame = records(spark, b"\x00\x00", b"\x04").transform(
        sources.kafka_events(nulls, format="avro")
    )
    assert reasons(frame) == [None, "unparsable_avro"]
    plain = records(spark, good).transform(sources.kafka_events(AVRO, format="avro"))
    assert [row["page"] for row in plain.collect()] == ["a"]


@pytest.mark.kafka
@pytest.mark.parametrize(
    "schema", ['"string"', '{"type": "record"}', "page string", '["null", "int"]']
)
def test_a_schema_that_is_no_avro_record_is_refused(
    spark: SparkSession, avro: None, schema: str
) -> None:
    with pytest.raises(SpecError, match="INVALID_SCHEMA"):
        records(spark, b"").transform(sources.kafka_events(schema, format="avro"))


def test_all_reasons_are_metrics(spark: SparkSession) -> None:
    counts = sources.kafka_events("a int").parameters.counts()
    assert {"parsed", "rejected", "side_output", *REASONS} == set(counts)


@pytest.mark.parametrize("taken", ["_offset", "REJECTED", "key"])
def test_a_field_with_a_taken_name_is_refused(spark: SparkSession, taken: str) -> None:
    operator = sources.kafka_events(f"a int, {taken} int", keep=["key"])
    with pytest.raises(SpecError, match="NAME_TAKEN"):
        records(spark, "{}").transform(operator)


def test_a_frame_that_is_not_that_of_kafka_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ColumnNotFound, match="`the Kafka source`"):
        records(spark, "{}").drop("offset").transform(sources.kafka_events("a int"))
    with pytest.raises(SchemaError, match="COLUMN_TYPE"):
        records(spark, "{}").withColumn("value", F.lit(1)).transform(sources.kafka_events("a int"))


@pytest.mark.slow
def test_avro_without_its_package_is_refused() -> None:
    # A session of another process, because that of the tests may have the package.
    program = f"""
from streamops import local_session, sources
spark = local_session()
frame = spark.createDataFrame([], {KAFKA!r})
frame.transform(sources.kafka_events({AVRO!r}, format="avro"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert "RequirementError: [PACKAGE_MISSING]" in done.stderr
