"""The servers of the search index and the cache are killed while a query writes to them."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamops import sinks

if TYPE_CHECKING:
    from tests.servers.opensearch import Server as OpenSearch
    from tests.servers.redis import Server as Redis

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MICRO_BATCHES, KEYS, CHANGES, KILLS = 6, 500, 3_000, 4
SCHEMA = "id long, n long, lsn long, _change_type string"


def write_changes(folder: Path) -> dict[str, int]:
    """Write files with the changes of keys, one for each micro-batch, and return the last row of each key."""
    rng, rows = random.Random(1), {}
    folder.mkdir()
    for number in range(MICRO_BATCHES):
        changes = []
        for lsn in range(number * CHANGES, (number + 1) * CHANGES):
            key = rng.randrange(KEYS)
            change = (
                ("delete" if rng.random() < 0.4 else "update_postimage")
                if key in rows
                else "insert"
            )
            if change == "delete":
                changes.append({"id": key, "n": rows.pop(key), "lsn": lsn, "_change_type": change})
                continue
            rows[key] = lsn % 97
            changes.append({"id": key, "n": rows[key], "lsn": lsn, "_change_type": change})
        rng.shuffle(changes)
        pq.write_table(pa.Table.from_pylist(changes), folder / f"{number}.parquet")
    return {str(key): n for key, n in rows.items()}


@pytest.mark.parametrize("patience", ["2 minutes", "0 seconds"])
def test_a_query_whose_stores_are_killed_leaves_the_last_rows(
    spark: SparkSession, opensearch: OpenSearch, redis: Redis, tmp_path: Path, patience: str
) -> None:
    expected = write_changes(tmp_path / "input")
    name = f"killed-{uuid.uuid4().hex}"
    options: Any = {"key": "id", "sequence": "lsn", "patience": patience, "request_rows": 50}
    index = sinks.opensearch(opensearch.url, name, **options)
    cache = sinks.redis(redis.url, name, **options)
    both = sinks.fan_out({"index": index, "cache": cache})
    # Before, and in, a delivery of each.
    plan = {1: (opensearch, 0.0), 2: (redis, 0.0), 3: (opensearch, 0.5), 4: (redis, 1.0)}
    assert len(plan) == KILLS
    is_dead = threading.Event()
    dead: list[Any] = []

    def kill(server: Any, delay: float) -> None:
        time.sleep(delay)
        server.kill()
        dead.append(server)
        is_dead.set()

    def deliver(batch: DataFrame, number: int) -> None:
        server, delay = plan.pop(number, (None, 0.0))
        if server is not None and not delay:
            kill(server, delay)
        elif server is not None:
            threading.Thread(target=kill, args=(server, delay)).start()
        both(batch, number)

    def start() -> StreamingQuery:
        changes = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return (
            changes.parquet(str(tmp_path / "input"))
            .writeStream.foreachBatch(deliver)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    query, kills, failures = start(), 0, 0
    while query.isActive or kills < KILLS or query.exception() is not None:
        # A server ends with the thread that has started it, which therefore is this one.
        if is_dead.wait(0.1):
            is_dead.clear()
            time.sleep(1)
            dead.pop().start()
            kills += 1
        error = query.exception()
        if error is not None and not dead:
            assert isinstance(error, StreamingQueryException)
            assert "TARGET_UNAVAILABLE" in str(error)
            failures += 1
            assert failures < 10
            query = start()
    assert failures == 0 if patience == "2 minutes" else failures >= 2
    found = opensearch.documents(name)
    assert {key: hit["_source"]["n"] for key, hit in found.items()} == expected
    with redis.connect() as client:
        keys = [key for key in client.scan_iter(f"{name}:*")]
        values = map(json.loads, client.mget(keys))
        assert {key.partition(":")[2]: row["n"] for key, row in zip(keys, values, strict=True)} == (
            expected
        )
