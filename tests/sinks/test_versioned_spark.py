"""The search index and the cache under queries that fail and start again."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import sinks, windows
from streamops.errors import SchemaError, SinkError
from streamops.sinks.versioned import VersionedStore

if TYPE_CHECKING:
    from tests.servers.opensearch import Server as OpenSearch
    from tests.servers.redis import Server as Redis

pytestmark = pytest.mark.spark

BATCHES = 4
Store = tuple[VersionedStore, Callable[[], dict[str, dict[str, Any]]]]


def index(server: OpenSearch, **given: Any) -> Store:
    name = f"index-{uuid.uuid4().hex}"

    def read() -> dict[str, dict[str, Any]]:
        return {key: hit["_source"] for key, hit in server.documents(name).items()}

    return sinks.opensearch(server.url, name, **{"key": "k", "patience": "1 second", **given}), read


def cache(server: Redis, **given: Any) -> Store:
    prefix = f"cache-{uuid.uuid4().hex}"

    def read() -> dict[str, dict[str, Any]]:
        with server.connect() as client:
            keys = client.keys(f"{prefix}:*")
            rows = {key: json.loads(client.get(key)) for key in keys}
        for row in rows.values():
            del row["_version"]
        return {key.removeprefix(f"{prefix}:"): row for key, row in rows.items()}

    return sinks.redis(server.url, prefix, **{"key": "k", "patience": "1 second", **given}), read


def run(
    spark: SparkSession, folder: Path, sink: Callable[[DataFrame, int], None], mode: Any
) -> None:
    """Run a query to its end. It fails after the write of two micro-batches, which are written again."""
    source = folder / "input"
    source.mkdir()
    for number in range(BATCHES):
        keys = [f"kéy {k * (number + 1) % 5}" for k in range(8)]
        rows = pa.table({"k": keys, "v": [number * 10 + k for k in range(8)]})
        pq.write_table(rows, source / f"{number}.parquet")
    failed = set()

    def deliver(batch: DataFrame, number: int) -> None:
        sink(batch, number)
        if number in (0, 2) and number not in failed:
            failed.add(number)
            raise RuntimeError(f"stopped after {number}")

    for _ in range(3):
        stream = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 1)
        counting = windows.running(by="k", agg={"n": agg.count(), "v": agg.sum("v")}, changes=mode)
        query = (
            stream.parquet(str(source))
            .transform(counting)
            .writeStream.foreachBatch(deliver)
            .outputMode("append" if mode == "retract" else "update")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if "stopped after" not in str(error):
                raise
    assert failed == {0, 2}


def batch_result(spark: SparkSession, folder: Path) -> dict[str, tuple[int, int]]:
    frame = spark.read.parquet(str(folder / "input")).groupBy("k")
    rows = frame.agg(F.count("*").alias("n"), F.sum("v").alias("v")).collect()
    return {row.k: (row.n, row.v) for row in rows}


@pytest.mark.smoke
def test_index_and_cache_are_the_batch_result(
    spark: SparkSession, opensearch: OpenSearch, redis: Redis, tmp_path: Path
) -> None:
    (first, of_index), (second, of_cache) = index(opensearch), cache(redis)
    both = sinks.fan_out({"index": first, "cache": second})
    run(spark, tmp_path, both, "retract")
    expected = batch_result(spark, tmp_path)
    for read in (of_index, of_cache):
        assert {key: (row["n"], row["v"]) for key, row in read().items()} == expected
    assert [found.creates for found in both.check().targets] == [(), ()]


def test_rows_are_written_exactly(
    spark: SparkSession, opensearch: OpenSearch, redis: Redis
) -> None:
    schema = "k string, n int, at timestamp, price decimal(30,10), tags array<string>, revision int"
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, dt.UTC)
    price = Decimal("12345678901234567890.0123456789")
    values = [("a:b%", 1, at, price, ["ü", None], 3), ('q"\\\n', 2, None, None, None, 0)]
    frame = spark.createDataFrame(values, schema)
    for make, server in ((index, opensearch), (cache, redis)):
        store: Any = make
        sink, read = store(server)
        sink.write(frame, query="exact")
        found = read()
        assert {*found} == {"a:b%", 'q"\\\n'}
        assert found["a:b%"]["at"] == "2026-01-02T03:04:05.678901Z"
        assert found["a:b%"]["tags"] == ["ü", None]
        assert found['q"\\\n']["price"] is None
        pair, read = store(server, key=["k", "n"])
        pair.write(frame, query="exact")
        assert {*read()} == {"a%3Ab%25:1", 'q"\\\n:2'}
    with redis.connect() as client:
        (key,) = client.keys(f"{sink.prefix}:a*")
        assert '"price":12345678901234567890.0123456789' in client.get(key)


def test_captured_changes_and_their_deletes(
    spark: SparkSession, opensearch: OpenSearch, redis: Redis
) -> None:
    rows = [
        ("a", 1, "insert", 10),
        ("a", 1, "update_preimage", 20),
        ("a", 2, "update_postimage", 20),
        ("b", 1, "insert", 30),
        ("b", 1, "delete", 40),
        ("c", 1, "delete", 50),
        ("c", 2, "insert", 50),
    ]
    frame = spark.createDataFrame(rows, "k string, n int, _change_type string, lsn bigint")
    for make, server in ((index, opensearch), (cache, redis)):
        store: Any = make
        sink, read = store(server, sequence="lsn")
        sink.write(frame.repartition(5), query="changes")
        for _ in range(2):
            assert {key: row["n"] for key, row in read().items()} == {"a": 2, "c": 2}
            sink.write(frame.where("lsn < 45"), query="again")


def test_rows_that_are_refused(
    spark: SparkSession, opensearch: OpenSearch, redis: Redis, tmp_path: Path
) -> None:
    frame = spark.createDataFrame(
        [("a", 1, 1), (None, 2, 1), ("c", 3, None), ("d", 4, -1)], "k string, n int, revision int"
    )
    for make, server in ((index, opensearch), (cache, redis)):
        store: Any = make
        sink, read = store(server)
        with pytest.raises(SinkError, match="TARGET_REFUSED") as error:
            sink.write(frame, query="refused")
        assert error.value.got.startswith("3 rows; the first: ")
        folder = str(tmp_path / make.__name__)
        sink, read = store(server, rejected=sinks.parquet(folder))
        for _ in range(2):  # as after a restart
            sink.write(frame, query="refused")
        assert {*read()} == {"a"}
        found = sinks.read_parquet(folder).to_table().to_pylist()
        assert {row["reason"] for row in found} == {
            "null_key",
            "null_sequence",
            "sequence_out_of_range",
        }
        assert {(row["operator"], row["output"]) for row in found} == {(sink.label, "rejected")}
        assert json.loads(found[0]["row"]).keys() == {"k", "n", "revision"}
        assert len(sink.check().targets) == 2


def test_a_document_that_the_mapping_refuses(
    spark: SparkSession, opensearch: OpenSearch, tmp_path: Path
) -> None:
    folder = str(tmp_path / "rejected")
    sink, read = index(opensearch, rejected=sinks.parquet(folder))
    mapping = {"mappings": {"properties": {"v": {"type": "long"}}}}
    settings = {"settings": {"index.gc_deletes": "2h"}, **mapping}
    opensearch.request("PUT", f"/{sink.label.split(chr(39))[1]}", settings)
    frame = spark.createDataFrame(
        [("a", "1", 1), ("b", "x", 1)], "k string, v string, revision int"
    )
    sink.after(lambda batch: batch.where("k < 'z'")).write(frame, query="mapping")
    assert {*read()} == {"a"}
    (row,) = sinks.read_parquet(folder).to_table().to_pylist()
    assert row["reason"].startswith("mapper_parsing_exception: failed to parse field [v]")
    assert json.loads(row["row"]) == {"k": "b", "v": "x", "revision": 1}


def test_frames_that_are_refused(spark: SparkSession, redis: Redis) -> None:
    sink, read = cache(redis)

    def refuses(code: str, frame: DataFrame, sink: VersionedStore = sink) -> None:
        with pytest.raises(SchemaError, match=code):
            sink.write(frame, query="refused")

    base = spark.range(1).select(F.lit("a").alias("k"))
    refuses("FRAME_TYPE", base)
    refuses("COLUMN_NOT_FOUND", base.select(F.lit(1).alias("revision")))
    for wrong in (F.lit("1"), F.lit(1.5), F.struct(F.lit(1)), F.lit(None)):
        refuses("SEQUENCE_TYPE", base.withColumn("revision", wrong))
    several, _ = cache(redis, sequence=["a", "b"])
    refuses("SEQUENCE_TYPE", base.select("*", F.lit(1).alias("a"), F.lit(1).alias("b")), several)
    refuses("NAME_TAKEN", base.select("*", F.lit(1).alias("revision"), F.lit(1).alias("_version")))
    floats, _ = cache(redis, key="f")
    refuses(
        "TYPE_UNSUPPORTED", base.select(F.lit(1.5).alias("f"), F.lit(1).alias("revision")), floats
    )
    assert read() == {}


def test_a_server_that_is_not_there(spark: SparkSession, redis: Redis) -> None:
    frame = spark.range(3).select("id", F.lit(1).alias("revision"))
    client = {"password": "a secret"}
    with redis.connect() as admin:
        for url in ("redis://127.0.0.1:1/0", "redis://user:a%20secret@127.0.0.1:1/0"):
            sink = sinks.redis(url, "x", key="id", client=client, patience="0 seconds")
            with pytest.raises(SinkError, match="TARGET_UNAVAILABLE") as error:
                sink.write(frame, query="x")
            assert "secret" not in f"{error.value} {sink!r}"
        admin.ping()


def test_an_error_of_a_task_is_one_of_the_sink(spark: SparkSession, redis: Redis) -> None:
    """The server stops to take writes after the driver has looked at it."""
    sink, _ = cache(redis)
    frame = spark.range(3).select(F.col("id").cast("string").alias("k"), F.lit(1).alias("revision"))
    with redis.connect() as admin:
        admin.config_set("maxmemory", "1")
        try:
            with pytest.raises(SinkError, match="TARGET_UNAVAILABLE") as error:
                sink.write(frame, query="x")
        finally:
            admin.config_set("maxmemory", "0")
    assert error.value.got.startswith("OutOfMemoryError")
    assert error.value.where == sink.label
