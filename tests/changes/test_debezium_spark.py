"""Debezium's records on Spark: every kind of record against its oracle, in batch and streaming."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import changes
from streamops.kernel.errors import SchemaError
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
    said = {"op": op, "before": before, "after": after, "source": source}
    return said if order is None else {**said, "transaction": {"id": "571", "total_order": order}}


def records() -> list[Record]:
    made: list[Record] = []
    images = itertools.product(["c", "u", "d", "r"], ROWS, ROWS)
    for number, (op, before, after) in enumerate(images):
        whole: Any = record(op, before, after, POSTGRES, number if number % 3 else None)
        if number % 2:
            whole = {"schema": {"type": "struct", "fields": []}, "payload": whole}
        made.append((json.dumps(whole), KEYS[number % len(KEYS)]))
    made += [(json.dumps(record("c", None, row(), source, 3)), None) for source in SOURCES]
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


def said_of(rows: list[dict[str, Any]]) -> dict[int, Any]:
    """What was said of each record, as the oracle says it."""
    said: dict[int, Any] = {}
    for each in rows:
        rejected = each["rejected"]
        if rejected is not None:
            assert each["_change_type"] is None
            said[each["number"]] = rejected["reason"]
            continue
        image = {name: each[name] for name in ("id", "name", "tags")}
        place = tuple(each["_sequence"].values())
        change = (each["_change_type"], image, place, each["_snapshot"], each["_unavailable"])
        said.setdefault(each["number"], []).append(change)
    return said


@pytest.mark.parametrize(
    ("preimages", "absent"), [("drop", "null"), ("publish", "unavailable"), ("drop", "reject")]
)
def test_every_record_is_what_its_oracle_says(
    spark: SparkSession, preimages: Any, absent: Any
) -> None:
    reading = changes.from_debezium(
        SCHEMA,
        key="id",
        message_key="key",
        preimages=preimages,
        absent=absent,
        keep=["number"],
    )
    frame = frame_of(spark, RECORDS)
    if preimages == "publish":  # as Kafka has them
        frame = frame.select(
            "number", *(F.col(name).cast("binary").alias(name) for name in ("value", "key"))
        )
    rows = frame.transform(reading).toArrow().to_pylist()
    said, oracle = said_of(rows), DebeziumOracle(preimages, absent)
    expected = {n: oracle.read(*each) for n, each in enumerate(RECORDS)}
    for number, (text, key) in enumerate(RECORDS):
        assert said.get(number) == expected[number], (text, key)
    words = {each for each in expected.values() if isinstance(each, str)}
    assert words == {
        "unparsable_json",
        "no_operation",
        "unknown_operation",
        "truncate",
        "no_row",
        "row_does_not_fit",
        "null_key",
        "no_sequence",
    }
    kept = [each for each in rows if each["rejected"] is not None]
    for each in kept:  # nothing is lost
        text, key = RECORDS[each["number"]]
        as_came = (each["rejected"]["value"], each["rejected"]["key"])
        if preimages == "publish":
            as_came = tuple(None if part is None else part.decode() for part in as_came)  # type: ignore[assignment]
        assert as_came == (text, key)


def test_types_tombstones_and_positions_of_ones_own(spark: SparkSession) -> None:
    rows = [
        {"id": 1, "at": "2024-03-09T12:00:00Z", "d": 0.12345678901234567891, "o": {"a": 1}},
        {"id": 2, "at": 1_700_000_000_000_000, "d": 1, "o": None},
        {"id": 3, "at": None, "d": None, "o": {"a": "x"}},
        {"id": 4, "at": None, "d": None, "o": PLACEHOLDER},
        {"id": 5, "d": 1},
    ]
    values = [json.dumps(record("c", None, each, None)) for each in rows]
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
    assert str(first["d"]) == "0.12345678901234567891"  # exactly as it came
    assert first["at"] == dt.datetime(2024, 3, 9, 12)  # noqa: DTZ001 (the session is in UTC)
    assert first["_sequence"]["offset"] == 0
    for each in (number, misfit, absent):
        assert each["rejected"]["reason"] == "row_does_not_fit"
    assert (lacking["o"], lacking["_unavailable"], lacking["rejected"]) == (None, ["o"], None)
    assert (tombstone["id"], tombstone["_tombstone"], tombstone["_change_type"]) == (9, True, None)
    assert (tombstone["rejected"], tombstone["_sequence"]) == (None, None)
    assert nowhere["rejected"]["reason"] == "no_sequence"


def test_a_value_that_the_row_before_does_not_tell_either_is_unavailable(
    spark: SparkSession,
) -> None:
    # Postgres sends of the row before only the columns of an index that identifies it.
    before, after = row(1, None, None), row(1, PLACEHOLDER, [1])
    frame = frame_of(spark, [(json.dumps(record("u", before, after, POSTGRES)), None)])
    (change,) = frame.transform(changes.from_debezium(SCHEMA, key="id")).collect()
    assert (change["name"], change["_unavailable"]) == (None, ["name"])


def test_when_the_database_made_a_change_is_told_where_it_can_be(spark: SparkSession) -> None:
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


def test_a_stream_is_read_counted_and_sorted_out(spark: SparkSession, tmp_path: Path) -> None:
    moved = json.dumps(record("u", row(1), row(2), POSTGRES))
    script = [
        [{"value": moved}, {"value": "nonsense"}],
        [{"value": json.dumps(record("d", row(2), None, {**POSTGRES, "lsn": 24_023_129}))}],
    ]
    schema = pa.schema([("value", pa.string())])
    frame = micro_batches(spark, script, schema=schema, directory=tmp_path)
    reading = changes.from_debezium(SCHEMA, key="id", name="read")
    good_rows, bad_rows = [], []

    def write(batch: DataFrame, number: int) -> None:
        good, rejected = changes.split_rejected(batch)
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
    assert [tuple(each) for each in good_rows] == [
        ("delete", 1, 24_023_128),
        ("insert", 2, 24_023_128),
        ("delete", 2, 24_023_129),
    ]
    assert [tuple(each) for each in bad_rows] == [("unparsable_json", "nonsense", None)]
    counted = [each.observedMetrics["read"].asDict() for each in query.recentProgress]
    assert [(each["changes"], each["rejected"]) for each in counted] == [(2, 1), (1, 0)]
    assert counted[0]["unparsable_json"] == 1


def test_what_is_no_record_is_refused_before_it_runs(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "x")], "value int, text string")
    cases: list[tuple[str, dict[str, Any]]] = [
        ("COLUMN_TYPE", {}),
        ("COLUMN_NOT_FOUND", {"value": "values"}),
        ("COLUMN_NOT_FOUND", {"value": "text", "message_key": "key"}),
        ("COLUMN_NOT_FOUND", {"value": "text", "sequence": ["offset"]}),
        ("COLUMN_NOT_FOUND", {"value": "text", "keep": ["topic"]}),
        ("COLUMN_NOT_FOUND", {"value": "text", "key": "number"}),
        ("NOT_A_SCHEMA", {"value": "text", "schema": "id whatever"}),
        ("NAME_TAKEN", {"value": "text", "schema": "id int, Rejected int"}),
        ("NAME_TAKEN", {"value": "text", "schema": "id int, text int", "keep": ["text"]}),
    ]
    for code, changed in cases:
        said = {"schema": SCHEMA, "key": "id", **changed}
        with pytest.raises(ValueError, match=rf"\[{code}\]"):
            frame.transform(changes.from_debezium(said.pop("schema"), **said))
    with pytest.raises(SchemaError, match=r"\[NOT_ROUTED\]"):
        changes.split_rejected(frame)
