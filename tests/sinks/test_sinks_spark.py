"""Sinks as users run them: in foreachBatch, over crashes and restarts, compared with the batch result."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from streamops import aggregates as agg
from streamops import changes, sinks, time, windows
from streamops.errors import ChangeStreamError, SinkError
from streamops.sinks.sink import BatchWriter
from streamops.testing import at, micro_batches
from tests.kafka.broker import Broker
from tests.servers.mariadb import Server as MariaServer
from tests.sinks.attempts import fail_once
from tests.sinks.contract import ODD

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("k", pa.string()), ("ts", TIME), ("v", pa.int64()), ("offset", pa.int64())])
_NUMBERS = itertools.count()


def events(batch: int) -> list[dict[str, Any]]:
    """Events of a micro-batch: some are late for windows of the one before, some have no time."""
    rows = [
        {
            "k": "abc"[n % 3],
            "ts": at(10 * batch + (n * 7) % 13 - 19 * (n % 5 == 0)),
            "v": batch * 100 + n,
            "offset": batch * 100 + n,
        }
        for n in range(20)
    ]
    return [*rows, {"k": "a", "ts": None, "v": 1, "offset": batch * 100 + 20}]


BATCHES = [events(batch) for batch in range(6)]


def counts(stragglers: Any = "retract", **options: Any) -> Any:
    return windows.tumbling(
        "10 seconds",
        time="ts",
        by="k",
        agg={"n": agg.count(), "total": agg.sum("v")},
        delay="2 seconds",
        stragglers=stragglers,
        **options,
    )


@pytest.fixture
def url(postgres: str) -> str:
    folder = postgres.split()[0].partition("=")[2]
    return f"postgresql://postgres@/postgres?host={folder}"


@pytest.fixture
def name() -> str:
    return f"spark {next(_NUMBERS)}"


def run(frame: DataFrame, sink: BatchWriter | Callable[..., None], checkpoint: Path) -> None:
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    query = writer.outputMode("append").trigger(availableNow=True).start()
    try:
        query.awaitTermination(120)
        assert not query.isActive
    finally:
        query.stop()


class Crash(Exception):
    """The driver dies here."""


class Crashing:
    """A sink whose driver dies in chosen micro-batches, before or after the commit of the target."""

    def __init__(self, make: Callable[[], BatchWriter]) -> None:
        self.make, self.before, self.after = make, {1, 3}, {0, 3, 4}
        self.sink = make()

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        if batch_id in self.before:
            self.before.remove(batch_id)
            raise Crash
        self.sink(batch, batch_id)
        if batch_id in self.after:
            self.after.remove(batch_id)
            raise Crash

    def run(self, frame: Callable[[], DataFrame], checkpoint: Path) -> int:
        for crashes in itertools.count():
            self.sink = self.make()  # a process that has just started
            try:
                run(frame(), self, checkpoint)
            except StreamingQueryException as error:
                if "Crash" not in str(error):
                    raise
            else:
                return crashes
        raise AssertionError


def table(url: str, name: str, columns: str = "*") -> list[Any]:
    with psycopg.connect(url) as connection:
        found = connection.execute(f'SELECT {columns} FROM "{name}"'.encode()).fetchall()
    return sorted(found, key=repr)


@pytest.mark.smoke
def test_a_table_equals_the_batch_result_over_crashes(
    spark: SparkSession, url: str, name: str, tmp_path: Path
) -> None:
    operator = counts(allowed_lateness="1 minute")

    def frame() -> DataFrame:
        source = micro_batches(spark, [], schema=SCHEMA, directory=tmp_path)
        return source.transform(operator)

    micro_batches(spark, BATCHES, schema=SCHEMA, directory=tmp_path)
    crashing = Crashing(lambda: sinks.postgres(url, name, key=["k", "window_start"]))
    assert crashing.run(frame, tmp_path / "checkpoint") == 5
    rows = [row for batch in BATCHES for row in batch]
    everything = spark.createDataFrame(pa.Table.from_pylist(rows, SCHEMA)).transform(operator)
    expected = {tuple(row.values())[:-2] for row in everything.toArrow().to_pylist()}
    found = table(url, name, "k, window_start, window_end, n, total")
    # The last windows are still open in the stream.
    assert len(found) == len(set(found)) >= len(expected) - 6
    assert set(found) <= expected
    entry = crashing.sink.read_ledger()  # type: ignore[attr-defined]
    assert entry.generation == 6


def test_a_fan_out_is_repaired_after_a_crash_between_two_sinks(
    spark: SparkSession, url: str, name: str, tmp_path: Path
) -> None:
    calls: list[int] = []

    def make() -> BatchWriter:
        def crash(batch: DataFrame) -> DataFrame:
            calls.append(1)
            if len(calls) in {1, 3}:
                raise Crash
            return batch

        first = sinks.postgres(url, f"{name} first", key=["k", "window_start"])
        second = sinks.postgres(url, f"{name} second", key=["k", "window_start"])
        return sinks.fan_out({"first": first, "second": second.after(crash)})

    micro_batches(spark, BATCHES[:3], schema=SCHEMA, directory=tmp_path)
    crashing = Crashing(make)
    crashing.before, crashing.after = set(), set()

    def frame() -> DataFrame:
        source = micro_batches(spark, [], schema=SCHEMA, directory=tmp_path)
        return source.transform(counts(allowed_lateness="20 seconds"))

    assert crashing.run(frame, tmp_path / "checkpoint") == 2
    assert table(url, f"{name} first") == table(url, f"{name} second") != []


def test_every_row_is_a_result_or_side_output(
    spark: SparkSession, url: str, name: str, tmp_path: Path
) -> None:
    micro_batches(spark, BATCHES, schema=SCHEMA, directory=tmp_path)

    def make() -> BatchWriter:
        return sinks.side_outputs(
            results=sinks.postgres(url, name),
            rejected=sinks.postgres(url, f"{name} rejected"),
            operator="counts",
            time="ts",
        )

    def frame() -> DataFrame:
        source = micro_batches(spark, [], schema=SCHEMA, directory=tmp_path)
        return source.transform(counts("route"))

    Crashing(make).run(frame, tmp_path / "checkpoint")
    columns = "operator, output, reason, time, row::jsonb, position::jsonb ->> 'offset'"
    rejected = table(url, f"{name} rejected", columns)
    counted = sum(row[0] for row in table(url, name, "n"))
    reasons = [row[2] for row in rejected]
    assert reasons.count("null_time") == len(BATCHES)
    assert reasons.count("straggler") + reasons.count("too_late") > 0
    assert {row[:2] for row in rejected} == {("counts", "late")}
    assert all((row[3] is None) == (row[2] == "null_time") for row in rejected)
    in_open_windows = sum(at(50) <= r["ts"] for b in BATCHES for r in b if r["ts"] is not None)
    total = sum(map(len, BATCHES))
    assert counted + len(rejected) <= total <= counted + len(rejected) + in_open_windows
    offsets = [row[5] for row in rejected]
    assert None not in offsets
    assert len(set(offsets)) == len(offsets)


def test_results_and_side_output_are_not_mixed(
    spark: SparkSession, url: str, name: str, tmp_path: Path
) -> None:
    frame = micro_batches(spark, BATCHES[:1], schema=SCHEMA, directory=tmp_path)
    with pytest.raises(StreamingQueryException, match="FRAME_TYPE"):
        run(frame.transform(counts("route")), sinks.postgres(url, name), tmp_path / "checkpoint")


def test_guarded_rows_are_split(spark: SparkSession, url: str, name: str, tmp_path: Path) -> None:
    rows = [
        {"k": "a", "ts": at(1), "v": 1, "offset": 0},
        {"k": "b", "ts": None, "v": 2, "offset": 1},
    ]
    frame = micro_batches(spark, [rows], schema=SCHEMA, directory=tmp_path)
    sink = sinks.side_outputs(
        results=sinks.postgres(url, name),
        rejected=sinks.postgres(url, f"{name} rejected"),
        operator="guard",
    )
    run(frame.transform(time.guard("ts")), sink, tmp_path / "checkpoint")
    assert table(url, name, "k, v") == [("a", 1)]
    assert table(url, f"{name} rejected", "output, row::jsonb ->> 'k'") == [("guarded", "b")]


def test_a_restored_table_is_rewound(
    spark: SparkSession, url: str, name: str, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"

    def sink() -> Any:
        return sinks.postgres(url, name, key=["k", "window_start"])

    def frame() -> DataFrame:
        source = micro_batches(spark, [], schema=SCHEMA, directory=tmp_path)
        return source.transform(counts(allowed_lateness="20 seconds"))

    micro_batches(spark, BATCHES[:2], schema=SCHEMA, directory=tmp_path)
    run(frame(), sink(), checkpoint)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE TABLE copy AS SELECT * FROM "{name}"'.encode())
        connection.execute("CREATE TABLE ledger_copy AS SELECT * FROM streamops_ledger")
    micro_batches(spark, BATCHES[2:4], schema=SCHEMA, directory=tmp_path)
    run(frame(), sink(), checkpoint)
    expected = table(url, name)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'DELETE FROM "{name}"'.encode())
        connection.execute(f'INSERT INTO "{name}" SELECT * FROM copy'.encode())
        connection.execute("DELETE FROM streamops_ledger WHERE sink = %s", (name,))
        restore = "INSERT INTO streamops_ledger SELECT * FROM ledger_copy WHERE sink = %s"
        connection.execute(restore, (name,))
        connection.execute("DROP TABLE copy, ledger_copy")
    micro_batches(spark, BATCHES[4:5], schema=SCHEMA, directory=tmp_path)
    with pytest.raises(StreamingQueryException, match="BATCH_GAP"):
        run(frame(), sink(), checkpoint)
    planned = sinks.rewind(str(checkpoint), sink())
    assert all(Path(path).exists() for path in planned)
    assert sinks.rewind(str(checkpoint), sink(), dry_run=False) == planned
    assert not any(Path(path).exists() for path in planned)
    run(frame(), sink(), checkpoint)
    found = table(url, name)
    assert len(found) >= len(expected)
    assert {row[:3] for row in expected} <= {row[:3] for row in found}
    with pytest.raises(SinkError, match="NOT_A_CHECKPOINT"):
        sinks.rewind(str(tmp_path / "nothing"), sink())


def test_a_batch_frame_is_written_once(spark: SparkSession, url: str, name: str) -> None:
    frame = spark.createDataFrame(
        [(1, {"x": [1, None]}), (2, None)], "k int, nested map<string, array<int>>"
    )
    for _ in range(2):
        sink = sinks.postgres(url, name)
        sink.write(frame, query="backfill")
    assert table(url, name, "k, nested::text") == [(1, '{"x": [1, null]}'), (2, None)]
    with pytest.raises(SinkError, match="QUERY_UNKNOWN"):
        sink(frame, 0)


def test_captured_changes_reach_the_table(
    spark: SparkSession, url: str, name: str, tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.int64()), ("lsn", pa.int64()), ("v", pa.string())])
    batches = [
        [{"id": n, "lsn": 10 * batch + n, "v": f"{batch}{n}"} for n in range(batch, 4)]
        for batch in range(4)
    ]
    micro_batches(spark, batches, schema=schema, directory=tmp_path)

    def frame() -> DataFrame:
        source = micro_batches(spark, [], schema=schema, directory=tmp_path)
        return source.transform(changes.normalize(key="id", sequence="lsn", horizon=100))

    def make() -> BatchWriter:
        return sinks.side_outputs(
            results=sinks.postgres(url, name, key="id"),
            rejected=sinks.postgres(url, f"{name} rejected"),
            operator="normalize",
        )

    Crashing(make).run(frame, tmp_path / "checkpoint")
    assert table(url, name, "id, v") == [(0, "00"), (1, "11"), (2, "22"), (3, "33")]


def test_a_topic_has_each_change_once_over_crashes(
    spark: SparkSession, kafka: Broker, tmp_path: Path
) -> None:
    operator = counts(stragglers="retract", allowed_lateness="1 minute")
    topic = kafka.create_topic(partitions=3)
    micro_batches(spark, BATCHES, schema=SCHEMA, directory=tmp_path)

    def frame() -> DataFrame:
        source = micro_batches(spark, [], schema=SCHEMA, directory=tmp_path)
        return source.transform(operator)

    options = {"servers": kafka.bootstrap, "key": ["k", "window_start"], "records": "debezium"}
    crashing = Crashing(lambda: sinks.kafka(topic, **options))
    assert crashing.run(frame, tmp_path / "checkpoint") == 5
    # Another program reads the topic, and keeps the newest record of each key.
    table: dict[bytes, dict[str, Any]] = {}
    for record in kafka.read(topic):
        if record.value() is None:
            table.pop(record.key(), None)
        else:
            table[record.key()] = json.loads(record.value())["after"]
    rows = [row for batch in BATCHES for row in batch]
    everything = spark.createDataFrame(pa.Table.from_pylist(rows, SCHEMA)).transform(operator)
    expected = {
        (r["k"], r["window_start"], r["n"], r["total"]) for r in everything.toArrow().to_pylist()
    }
    found = {
        (row["k"], dt.datetime.fromisoformat(row["window_start"]), row["n"], row["total"])
        for row in table.values()
    }
    assert len(found) >= len(expected) - 6
    assert found <= expected
    # And this library reads it as changes.
    reading = changes.from_debezium(
        "k string, window_start timestamp, n bigint, total bigint",
        key=["k", "window_start"],
        message_key="key",
        sequence=["offset"],
        preimages="publish",
        keep=["offset"],
    )
    records = [(r.key(), r.value(), r.offset()) for r in kafka.read(topic)]
    read = spark.createDataFrame(records, "key binary, value binary, offset bigint")
    folded = read.transform(reading).transform(
        changes.fold(["k", "window_start"], sequence="offset")
    )
    assert {
        (r["k"], r["window_start"], r["n"], r["total"]) for r in folded.toArrow().to_pylist()
    } == found


def test_odd_names_of_columns_reach_the_topic(spark: SparkSession, kafka: Broker) -> None:
    topic = kafka.create_topic()
    frame = spark.createDataFrame(
        [tuple(f"{name}!" for name in ODD)], StructType([StructField(n, StringType()) for n in ODD])
    )
    sinks.kafka(topic, servers=kafka.bootstrap, key=ODD).write(frame, query=topic)
    (record,) = kafka.read(topic)
    assert json.loads(record.key()) == json.loads(record.value()) == {n: f"{n}!" for n in ODD}


def test_rejected_rows_are_written_to_a_topic(
    spark: SparkSession, kafka: Broker, tmp_path: Path
) -> None:
    results, rejected = (kafka.create_topic() for _ in range(2))
    micro_batches(spark, BATCHES[:3], schema=SCHEMA, directory=tmp_path)

    def make() -> BatchWriter:
        return sinks.side_outputs(
            results=sinks.kafka(results, servers=kafka.bootstrap),
            rejected=sinks.kafka(rejected, servers=kafka.bootstrap),
            operator="guard",
        )

    def frame() -> DataFrame:
        source = micro_batches(spark, [], schema=SCHEMA, directory=tmp_path)
        return source.transform(time.guard("ts"))

    crashing = Crashing(make)
    crashing.before, crashing.after = set(), {0, 1}
    assert crashing.run(frame, tmp_path / "checkpoint") == 2
    rows = [row for batch in BATCHES[:3] for row in batch]
    good = [json.loads(record.value())["offset"] for record in kafka.read(results)]
    assert sorted(good) == sorted(row["offset"] for row in rows if row["ts"] is not None)
    values = [json.loads(record.value()) for record in kafka.read(rejected)]
    assert {value["output"] for value in values} == {"guarded"}
    offsets = sorted(json.loads(value["row"])["offset"] for value in values)
    assert offsets == sorted(row["offset"] for row in rows if row["ts"] is None)


def nested(spark: SparkSession, instant: str, change: str | None = None) -> DataFrame:
    """A row with an instant inside of a struct and of an array."""
    value = f"named_struct('at', TIMESTAMP'{instant}', 'all', array(TIMESTAMP'{instant}'))"
    frame = spark.range(1).selectExpr("id AS k", f"{value} AS p")
    return frame if change is None else frame.selectExpr("*", f"'{change}' AS _change_type")


@pytest.mark.parametrize("database", ["postgres", "sqlite"])
def test_nested_instants_are_exact_in_every_session(
    spark: SparkSession, url: str, name: str, tmp_path: Path, database: str
) -> None:
    def sink(table: str, **options: Any) -> Any:
        if database == "postgres":
            return sinks.postgres(url, f"{name} {table}", **options)
        return sinks.sqlalchemy(f"sqlite:///{tmp_path}/database", table, **options)

    first, second = "2026-01-01 00:00:00.000001Z", "2026-01-01 00:00:00.000002Z"
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    try:
        for batch, zone in enumerate(("UTC", "America/New_York", "Asia/Kolkata")):
            spark.conf.set("spark.sql.session.timeZone", zone)
            # The same micro-batch again is skipped, and a row is found again.
            sink("appended").write(nested(spark, first), query="q")
            change = ["insert", "delete", "insert"][batch]
            sink("multiset").write(nested(spark, first, change), query="q", batch_id=batch)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    # Rows that differ by a microsecond are different rows.
    with pytest.raises(ChangeStreamError, match="PREIMAGE_NOT_PUBLISHED"):
        sink("multiset").write(nested(spark, second, "delete"), query="q", batch_id=3)
    text = "2026-01-01T00:00:00.000001Z"
    if database == "postgres":
        with psycopg.connect(url) as connection:
            found = connection.execute(f'SELECT p FROM "{name} multiset"').fetchall()
    else:
        with closing(sqlite3.connect(tmp_path / "database")) as client:
            found = [(json.loads(p),) for (p,) in client.execute("SELECT p FROM multiset")]
    assert found == [({"at": text, "all": [text]},)]


def test_side_output_is_exact_in_every_session(spark: SparkSession, tmp_path: Path) -> None:
    late = (
        "named_struct('side', 'left', 'window', NULL, 'reason', 'too_late', "
        "'lateness', INTERVAL '1.5' SECOND, 'watermark', "
        "TIMESTAMP'2026-01-01 00:00:00.654321Z', 'row', named_struct('ts', "
        "TIMESTAMP'2026-01-01 00:00:00.123456Z', 'm', map(X'00FF', DATE'2026-01-01'))) AS late"
    )
    frame = spark.range(1).selectExpr("id AS k", late)
    target = f"sqlite:///{tmp_path}/database"
    side = sinks.side_outputs(
        results=sinks.sqlalchemy(target, "results"),
        rejected=sinks.sqlalchemy(target, "rejected"),
        operator="x",
        time="ts",
    )
    settings = {"session.timeZone": "Asia/Kolkata", "timestampType": "TIMESTAMP_NTZ", "jsonGenerator.ignoreNullFields": "false"}  # fmt: skip
    before = {key: spark.conf.get(f"spark.sql.{key}") for key in settings}
    try:
        side.write(frame, query="q")
        for key, value in settings.items():
            spark.conf.set(f"spark.sql.{key}", value)
        side.write(frame, query="q")
    finally:
        for key, found in before.items():
            assert found is not None
            spark.conf.set(f"spark.sql.{key}", found)
    with closing(sqlite3.connect(tmp_path / "database")) as client:
        (row,) = client.execute("SELECT time, watermark, lateness, row FROM rejected").fetchall()
    assert row[:3] == ("2026-01-01 00:00:00.123456", "2026-01-01 00:00:00.654321", "1.5")
    assert json.loads(row[3])["late"]["row"] == {
        "ts": "2026-01-01T00:00:00.123456Z",
        "m": {"AP8=": "2026-01-01"},
    }


def test_a_task_that_fails_after_its_copy_is_repeated(
    spark: SparkSession, url: str, name: str, postgres: str, tmp_path: Path
) -> None:
    """A large micro-batch of a stream, which tasks stage: what the failed attempt has copied does not count."""
    sink = sinks.postgres(url, name, key="k")
    failed = tmp_path / "failed"
    fail_once(sink, failed)
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 500_000).load()
    keyed = frame.selectExpr("value % 400000 AS k", "value AS revision", "repeat('x', 20) AS text")
    writer = keyed.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "c"))
    query = writer.start()
    try:
        with psycopg.connect(postgres, autocommit=True) as client:
            while (entry := sink.read_ledger()) is None or entry.batch < 1:
                assert query.exception() is None
            query.stop()
            entry = sink.read_ledger()
            assert entry is not None
            assert failed.exists()
            last = (entry.batch + 1) * 500_000 - 1
            statement = f'SELECT count(*), max(revision), min(revision) FROM "{name}"'
            found = client.execute(statement.encode()).fetchone()
            assert found == (400_000, last, last - 399_999)
            left = "SELECT count(*) FROM pg_class WHERE relname LIKE 'streamops\\_staging%'"
            assert client.execute(left).fetchone() == (0,)
    finally:
        query.stop()


def test_tasks_stage_a_large_micro_batch_of_mariadb(
    spark: SparkSession, mariadb: MariaServer, tmp_path: Path
) -> None:
    """One of them fails after its rows are staged, and Spark repeats it."""
    sink = sinks.sqlalchemy(mariadb.url(), "by tasks of Spark", key="k")
    frame = spark.range(0, 40_000, 1, 4).selectExpr("id AS k", "id % 7 AS revision", "NULL AS n")
    for batch, rows in enumerate(
        (frame, frame.selectExpr("k", "revision + k % 2 AS revision", "n"))
    ):
        sink.session.is_small = False
        failed = tmp_path / f"failed {batch}"
        fail_once(sink, failed)
        sink.write(rows, query="job", batch_id=batch)
        assert failed.exists()
    with mariadb.connect() as client, client.cursor() as cursor:
        cursor.execute("SELECT count(*), sum(revision - k % 7 = k % 2) FROM `by tasks of Spark`")
        assert cursor.fetchall() == ((40_000, 40_000),)
        cursor.execute("SHOW TABLES LIKE 'streamops\\_staging%'")
        assert cursor.fetchall() == ()
