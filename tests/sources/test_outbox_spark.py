"""An outbox as a stream and as a batch of Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import sources, split_side_output, windows
from streamops.errors import RequirementError
from tests.sources.shop import Shop, insert, shop

pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")

IS_LIMITED = find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether Spark limits the rows of a micro-batch: since 4.2."""


@pytest.fixture
def orders(postgres: str) -> Iterator[Shop]:
    with shop(postgres) as found:
        yield found


def events_of(orders: Shop, **changes: Any) -> Any:
    given = {
        "slot": orders.slot,
        "publication": "shop",
        "create": "create",
        "max_rows": 5,
        **changes,
    }
    return sources.outbox(orders.where, **given)


class Table:
    """The rows that a query wrote, by micro-batch: a repeated one replaces the former."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}
        self.fail_after: int | None = None

    def write(self, batch: DataFrame, number: int) -> None:
        rows = sorted(batch.collect(), key=lambda row: (row["_lsn"], row["_position"]))
        if number in self.batches:
            assert rows == self.batches[number]  # the same rows again
        self.batches[number] = rows
        if number == self.fail_after:
            self.fail_after = None
            message = "crash before the commit of Spark"
            raise RuntimeError(message)

    @property
    def ids(self) -> list[str]:
        return [row["id"] for number in sorted(self.batches) for row in self.batches[number]]


def run(frame: DataFrame, table: Table, checkpoint: Path) -> Any:
    query = (
        frame.writeStream.foreachBatch(table.write)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(120)
        return query
    finally:
        query.stop()


@pytest.mark.smoke
def test_a_stream_with_restarts_has_the_committed_events_exactly_once(
    spark: SparkSession, orders: Shop, tmp_path: Path
) -> None:
    events, table = events_of(orders), Table()
    stream = events.read_stream(spark)
    begin = orders.log().check()[1]
    with orders.connect() as undone:
        insert(undone, "undone")
        undone.rollback()
    for number in range(8):
        orders.insert(f"a{number}", f"b{number}", payload=json.dumps({"total": number}))
    table.fail_after = 0
    with pytest.raises(StreamingQueryException, match="crash before the commit"):
        run(stream, table, tmp_path)
    assert orders.log().check()[1] == begin  # Spark has committed nothing, so nothing is released
    assert len(events.read(spark).collect()) == 16
    query = run(stream, table, tmp_path)
    orders.insert("c")
    query = run(events.read_stream(spark), table, tmp_path)
    assert table.ids == orders.committed
    assert len(table.batches) == (4 if IS_LIMITED else 2)
    assert orders.log().check()[1] > begin
    assert query.lastProgress["sources"][0]["description"].count("password") == 0
    (row,) = table.batches[max(table.batches)]
    assert row["aggregate_type"] == "order"
    assert row["rejected"] is None


def test_events_feed_operators_and_rejected_rows_are_split(
    spark: SparkSession, orders: Shop, tmp_path: Path
) -> None:
    events = events_of(orders)
    stream = events.read_stream(spark)
    orders.insert("e1", "e2")
    orders.connection.execute("UPDATE outbox SET type = 'x' WHERE id = 'e1'")
    good, rejected = split_side_output(events.read(spark))
    assert sorted(row["id"] for row in good.collect()) == ["e1", "e2"]
    assert [row["rejected"]["reason"] for row in rejected.collect()] == ["updated"]
    per_type = windows.tumbling(
        "1 hour",
        time="_committed_at",
        by="event_type",
        agg={"events": agg.count()},
        delay="0 seconds",
    )
    counted = events.read(spark).where("rejected IS NULL").transform(per_type).collect()
    assert sum(row["events"] for row in counted) == 2
    assert stream.schema == events.read(spark).schema
    assert stream.select(F.col("_committed_at")).schema[0].dataType.simpleString() == "timestamp"


def test_an_error_of_a_running_query_has_its_code_and_its_fix(
    spark: SparkSession, orders: Shop, tmp_path: Path
) -> None:
    events, table = events_of(orders), Table()
    stream = events.read_stream(spark)
    orders.insert("e1")
    run(stream, table, tmp_path)
    orders.connection.execute("SELECT pg_drop_replication_slot(%s)", [orders.slot])
    with pytest.raises(RequirementError, match="SOURCE_MISSING"):
        events_of(orders, create="refuse").read_stream(spark)
    with pytest.raises(StreamingQueryException, match=r"(?s)SOURCE_MISSING.*fix:"):
        run(stream, table, tmp_path)
    orders.connection.execute("DELETE FROM outbox")
    with pytest.raises(StreamingQueryException, match="SLOT_AHEAD"):
        run(events.read_stream(spark), table, tmp_path)


def test_no_password_is_in_the_checkpoint_or_the_plan(
    spark: SparkSession, orders: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    events, table = events_of(orders), Table()
    stream = events.read_stream(spark)
    orders.insert("e1")
    run(stream, table, tmp_path)
    assert table.ids == ["e1"]
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"hunter2" not in stored
    assert b"lsn" in stored
    assert "hunter2" not in repr(events)
