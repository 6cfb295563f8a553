"""Schemas that change while a query runs: every record is read exactly or rejected, and nothing restarts."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql import functions as F

pytest.importorskip(
    "confluent_kafka.schema_registry.avro", reason="the extra registry is not installed"
)

from streamops import sources
from tests.kafka.broker import Broker
from tests.servers.registry import Registry, running
from tests.settings import configured
from tests.sources.evolutions import DEFAULTS, FORMATS, READER, ROW, Evolution, Evolver

pytestmark = pytest.mark.spark

TIMEOUT = 120
PASSWORD = "s3cret-of-the-registry"
KAFKA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
IMPATIENT = {"timeout": 1, "max.retries": 2, "retries.wait.ms": 100, "retries.max.wait.ms": 200}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running("reader", PASSWORD) as found:
        yield found


def login(registry: Registry, password: str = PASSWORD, **more: Any) -> dict[str, Any]:
    return {"url": registry.url, "basic.auth.user.info": f"reader:{password}", **more}


def parse(registry: Registry, schema: str = READER, **more: Any) -> Any:
    return sources.kafka_events(
        schema,
        registry=login(registry, **more),
        unknown_fields="keep",
        defaults=DEFAULTS if schema == READER else None,
        keep=["key"],
    )


@dataclass
class Expected:
    """Numbered records, and what is read of each of them."""

    messages: list[bytes] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)
    unknown: list[Any] = field(default_factory=list)

    def add(self, version: Evolution) -> list[dict[str, Any]]:
        """Number the records of a version, and return them as those of a producer."""
        first = len(self.messages)
        self.messages += version.messages
        self.rows += version.expected
        self.unknown += version.unknown
        numbers = range(first, len(self.messages))
        return [{"key": str(n), "value": self.messages[n]} for n in numbers]

    def check(self, found: pa.Table) -> None:
        """Each record once: as it was sent, or with the reason, its bytes and the schema's id."""
        by_number = {int(row["key"]): row for row in found.to_pylist()}
        assert len(by_number) == len(found) == len(self.messages)
        for n, (message, wanted, unknown) in enumerate(
            zip(self.messages, self.rows, self.unknown, strict=True)
        ):
            row, rejected = by_number[n], by_number[n]["rejected"]
            if isinstance(wanted, str):
                header = int.from_bytes(message[1:5], "big")
                facts = {"reason": wanted, "value": message, "key": row["key"]}
                assert rejected == {**facts, "schema_id": header}, (n, message)
                assert all(row[name] is None for name in ROW.names), n
                continue
            assert rejected is None, (n, message, rejected)
            assert plain(row) == plain(wanted), (n, message)
            text = row["unknown"]
            assert (None if text is None else json.loads(text)) == unknown, (n, message)


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """The columns of the reader, with the map as a dictionary."""
    pairs = row["attrs"]
    columns = {name: row[name] for name in ROW.names}
    return columns | {"attrs": None if pairs is None else dict(pairs)}


@contextmanager
def live(
    frame: DataFrame, checkpoint: Path, found: list[pa.Table], number: Callable[[int], Any] = id
) -> Iterator[Any]:
    """A query that runs until the block ends, and collects its micro-batches."""

    def write(batch: DataFrame, batch_id: int) -> None:
        number(batch_id)
        found.append(batch.toArrow())

    query = (
        frame.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        yield query
    finally:
        query.stop()


@pytest.mark.laws
def test_records_of_a_thousand_versions_of_json_are_what_was_sent(
    spark: SparkSession, registry: Registry
) -> None:
    expected = Expected()
    with registry.client() as client:
        evolver = Evolver(client, random.Random(7))
        for n in range(1_000):
            expected.add(evolver.evolve("JSON", is_compatible=n % 5 > 0))
    rows = [
        (str(n).encode(), message, "events", 0, n, None)
        for n, message in enumerate(expected.messages)
    ]
    random.Random(1).shuffle(rows)
    found = spark.createDataFrame(rows, KAFKA).transform(parse(registry))
    expected.check(found.toArrow())
    reasons = {row for row in expected.rows if isinstance(row, str)}
    assert reasons == {"wrong_type", "missing_field"}


def test_a_record_of_json_has_less_than_1000_levels(
    spark: SparkSession, registry: Registry
) -> None:
    number = registry.register("events-value", '{"type": "object"}', format="JSON")
    rows = []
    for n, depth in enumerate((997, 1_000, 100_000)):
        deep = f'{{"id": {n}, "deep": {"[" * depth}{"]" * depth}}}'.encode()
        rows.append((b"k", number.to_bytes(5, "big") + deep, "events", 0, n, None))
    frame = spark.createDataFrame(rows, KAFKA).transform(parse(registry, "id bigint"))
    found = frame.orderBy("_offset").collect()
    assert [row["id"] for row in found] == [0, None, None]
    assert [row["rejected"] and row["rejected"]["reason"] for row in found] == [
        None,
        "unparsable_json",
        "unparsable_json",
    ]
    assert found[0]["unknown"].count("[") == 997


@pytest.mark.parametrize(
    ("versions", "rounds"),
    [pytest.param(60, 4, marks=pytest.mark.smoke), pytest.param(1_000, 20, marks=pytest.mark.slow)],
)
def test_schemas_change_while_a_query_runs(
    spark: SparkSession,
    kafka: Broker,
    registry: Registry,
    tmp_path: Path,
    versions: int,
    rounds: int,
) -> None:
    """As many compatible versions in all three formats in one topic, and a quarter as many others."""
    topic = kafka.create_topic(partitions=3)
    plan = sources.replay(topic, servers=kafka.bootstrap)
    frame = plan.read_stream(spark, since="start").transform(parse(registry))
    found: list[pa.Table] = []
    numbers: list[int] = []
    expected = Expected()
    started = time.monotonic()
    with (
        registry.client() as client,
        live(frame, tmp_path / "checkpoint", found, numbers.append) as query,
    ):
        evolver = Evolver(client, random.Random(versions))
        whole = versions + versions // 4
        for start in range(rounds):
            for n in range(start, whole, rounds):
                version = evolver.evolve(FORMATS[n % 3], is_compatible=n < versions)
                kafka.produce(topic, expected.add(version))
            query.processAllAvailable()
        assert query.isActive
        runs = {str(progress.runId) for progress in query.recentProgress}
    assert runs == {query.runId}
    assert numbers == list(range(len(numbers)))  # none was repeated, as after a failure
    assert len(numbers) >= rounds
    expected.check(pa.concat_tables(found))
    ids = {message[:5] for message in expected.messages}
    assert len(ids) == whole
    seconds = time.monotonic() - started
    print(
        f"{len(ids)} schemas, {len(expected.rows)} rows, {len(numbers)} micro-batches: {seconds:.0f} s"
    )


def send(kafka: Broker, topic: str, registry: Registry, number: int) -> None:
    """Register a schema of its own for an event, and write it, whether the registry answers or not."""
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
    schema = {"type": "record", "name": f"Event{number}", "fields": fields}
    header = registry.register("events-value", json.dumps(schema), format="AVRO").to_bytes(5, "big")
    kafka.produce(topic, [{"value": header + bytes([2 * number]) + b"\x02a"}])


def ids(found: list[pa.Table]) -> list[int]:
    assert all(table.column("rejected").null_count == len(table) for table in found)
    return sorted(number for table in found for number in table.column("id").to_pylist())


def set_status(status: int | None) -> Callable[[Registry], None]:
    return lambda registry: setattr(registry, "status", status)


OUTAGES: dict[str, tuple[Callable[[Registry], None], Callable[[Registry], None]]] = {
    "stopped": (Registry.stop, Registry.start),
    "slow": (lambda r: setattr(r, "delay", 3.0), lambda r: setattr(r, "delay", 0.0)),
    **{str(status): (set_status(status), set_status(None)) for status in (429, 500, 503)},
}


@pytest.mark.parametrize("outage", OUTAGES)
def test_a_query_waits_for_the_registry(
    spark: SparkSession, kafka: Broker, registry: Registry, tmp_path: Path, outage: str
) -> None:
    begin, end = OUTAGES[outage]
    topic = kafka.create_topic()
    plan = sources.replay(topic, servers=kafka.bootstrap)
    parsed = parse(registry, "id bigint NOT NULL, name string", timeout=1)
    frame = plan.read_stream(spark, since="start").transform(parsed)
    found: list[pa.Table] = []
    with live(frame, tmp_path, found) as query:
        send(kafka, topic, registry, 0)
        query.processAllAvailable()
        begin(registry)
        # What the worker process knows is read on.
        kafka.produce(topic, [{"key": "0", "value": b"\0\0\0\0\1\x02\x02a"}])
        query.processAllAvailable()
        assert ids(found) == [0, 1]
        send(kafka, topic, registry, 2)
        time.sleep(3)
        assert query.isActive
        assert ids(found) == [0, 1]
        end(registry)
        query.processAllAvailable()
        assert {str(progress.runId) for progress in query.recentProgress} == {query.runId}
    assert ids(found) == [0, 1, 2]


@pytest.mark.parametrize(
    ("outage", "reason"),
    [
        ("stopped", "Error"),
        ("slow", "Timeout"),
        ("500", "HTTP status 500"),
        ("401", "HTTP status 401"),
    ],
)
def test_a_long_outage_ends_the_query_and_a_restart_loses_nothing(
    spark: SparkSession,
    kafka: Broker,
    registry: Registry,
    tmp_path: Path,
    outage: str,
    reason: str,
) -> None:
    begin, end = {**OUTAGES, "401": (set_status(401), set_status(None))}[outage]
    topic = kafka.create_topic()
    plan = sources.replay(topic, servers=kafka.bootstrap)
    parsed = parse(registry, "id bigint NOT NULL, name string", **IMPATIENT)
    frame = plan.read_stream(spark, since="start").transform(parsed)
    found: list[pa.Table] = []
    with live(frame, tmp_path, found) as query:
        send(kafka, topic, registry, 0)
        query.processAllAvailable()
        begin(registry)
        send(kafka, topic, registry, 1)
        with pytest.raises(StreamingQueryException, match="SOURCE_UNAVAILABLE") as error:
            query.awaitTermination(TIMEOUT)
    assert re.search(rf"got: +.*{reason}", str(error.value)), error.value
    assert PASSWORD not in str(error.value)
    end(registry)
    with live(frame, tmp_path, found) as query:
        send(kafka, topic, registry, 2)
        query.processAllAvailable()
    assert ids(found) == [0, 1, 2]


@pytest.mark.smoke
def test_several_records_of_one_schema_have_times_of_day(
    spark: SparkSession, registry: Registry
) -> None:
    """A union of records at the top of a schema, and a column of type time."""
    if not hasattr(types, "TimeType"):
        pytest.skip("Spark 4.1 has the type")
    micros, millis = (
        {"type": base, "logicalType": f"time-{unit}"}
        for base, unit in (("long", "micros"), ("int", "millis"))
    )
    records = [
        {"type": "record", "name": name, "fields": [{"name": "t", "type": of}, *more]}
        for name, of, more in (
            ("shop.Placed", micros, []),
            ("shop.Paid", millis, [{"name": "x", "type": "long"}]),
        )
    ]
    header = registry.register("events-value", json.dumps(records), format="AVRO")
    payloads = [b"\0\2", b"\2\2\4", b"\2\1\4", b"\4\2\4"]  # the third is -1 milliseconds
    rows = [
        (b"k", header.to_bytes(5, "big") + payload, "events", 0, n, None)
        for n, payload in enumerate(payloads)
    ]
    with configured(spark, {"spark.sql.timeType.enabled": "true"}):
        frame = spark.createDataFrame(rows, KAFKA)
        parsed = frame.transform(parse(registry, "t time(6), x bigint")).orderBy("_offset")
        found = parsed.select(
            F.col("t").cast("string"), "x", "_record", "rejected.reason", "unknown"
        ).collect()
    assert [tuple(row) for row in found] == [
        ("00:00:00.000001", None, "shop.Placed", None, None),
        ("00:00:00.001", 2, "shop.Paid", None, None),
        (None, None, "shop.Paid", "wrong_type", None),
        (None, None, None, "unparsable_avro", None),
    ]
