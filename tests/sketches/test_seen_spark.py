"""What was seen before, on Spark: against its oracle, through restarts, and asked in a column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import sketches, state, windows
from streamops.kernel import segments
from streamops.sketches.core.seen import SeenCore
from streamops.testing import at, micro_batches
from streamops.testing.laws import to_rows
from tests.oracles.seen import SeenOracle

pytestmark = pytest.mark.spark

APIS = ("transformWithStateInPandas", "applyInPandasWithState")
UTC = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("order.id", pa.int64()),
        ("shop", pa.string()),
        ("ts", UTC),
        ("n", pa.int64()),
        ("tags", pa.map_(pa.string(), pa.int64())),
    ]
)


def order(number: int | None, shop: str | None, second: int | None) -> dict[str, Any]:
    when = None if second is None else at(second)
    return {"order.id": number, "shop": shop, "ts": when, "tags": [("a", second)]}


# Duplicates in one micro-batch and across them, one that was forgotten, one far behind, and rows that
# cannot be decided.
SCRIPT = [
    [order(1, "a", 5), order(1, "a", 3), order(1, "b", 4), order(2, "a", 6)],
    [],
    [order(1, "a", 60), order(None, "a", 61), order(3, "a", 70), order(3, "a", None)],
    [order(2, "a", 70), order(4, None, 71), order(2, "a", 99)],
    [order(1, "a", 140), order(2, "a", 141), order(5, "a", 141)],
    [order(3, "a", 142), order(5, "a", 142), order(6, "a", 1)],
]
for number, row in enumerate(row for batch in SCRIPT for row in batch):
    row["n"] = number
PARAMETERS: dict[str, Any] = {
    "identity": ["order.id", "shop"], "time": "ts", "horizon": "100 seconds", "capacity": 1_000,
    "false_positive_rate": 1e-6,
}  # fmt: skip


def seen(**changed: Any) -> Any:
    return sketches.seen(**(PARAMETERS | changed)).options(shards=2)


def expected() -> dict[int, str]:
    """The verdict of each row."""
    oracle = SeenOracle(("order.id", "shop"), "ts", 100_000_000, 4)
    found = {}
    for batch in SCRIPT:
        arguments = oracle.judge(to_rows(pa.Table.from_pylist(batch, SCHEMA)))
        found |= {row["n"]: word for row, word in zip(batch, arguments, strict=True)}
    return found


def run(frame: DataFrame, folder: Path) -> tuple[list[dict[str, Any]], list[Any]]:
    """The query's output, and its observed metrics."""
    stored_items: list[dict[str, Any]] = []

    def keep(batch: DataFrame, number: int) -> None:
        stored_items.extend(batch.toArrow().to_pylist())

    query = (
        frame.writeStream.outputMode("append")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(keep)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(200)
    return stored_items, [progress.observedMetrics for progress in query.recentProgress]


@pytest.mark.parametrize(("api", "limit"), [*((api, segments.LIMIT) for api in APIS), (APIS[0], 3)])
def test_a_stream_equals_its_oracle_also_after_a_restart(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: Any, limit: int
) -> None:
    got, emitted = [], []
    monkeypatch.setattr(segments, "LIMIT", limit)
    # What to do with duplicates may change when the query starts again.
    for there, again in ((SCRIPT[:3], "flag"), (SCRIPT[3:], "drop")):
        frame = micro_batches(spark, there, schema=SCHEMA, directory=tmp_path)
        comment = F.col("n").alias("n", metadata={"comment": "its number"})
        result = frame.withColumn("n", comment).transform(seen(again=again).options(state_api=api))
        rows, counts = run(result, tmp_path)
        got += rows
        emitted += [item["seen"] for item in counts if "seen" in item]
    assert result.columns == [*SCHEMA.names, "seen", "seen_full"]
    assert result.schema["n"].metadata["comment"] == "its number"
    wanted = expected()
    assert set(wanted.values()) >= {"first", "again", "too_old", "null_identity", "null_time"}
    first = sum(map(len, SCRIPT[:3]))
    assert {r["n"]: r["seen"] for r in got} == {
        n: word for n, word in wanted.items() if n < first or word != "again"
    }
    assert not any(row["seen_full"] for row in got)
    assert got[0]["tags"] == [("a", got[0]["ts"].second)]
    totals = {name: sum(item[name] or 0 for item in emitted) for name in SeenCore.METRICS}
    assert totals.pop("rows") == len(wanted)
    names_ = list(wanted.values())
    assert totals == {word: names_.count(word) for word in totals}
    more = micro_batches(spark, [[SCRIPT[0][0]]], schema=SCHEMA, directory=tmp_path)
    with pytest.raises(StreamingQueryException) as caught:
        run(more.transform(seen(capacity=999).options(state_api=api)), tmp_path)
    assert "[STATE_PARAMETERS]" in str(caught.value)
    assert "capacity=1000" in str(caught.value)
    (report,) = state.describe(tmp_path / "checkpoint", spark=spark).operators
    assert (report.segments > 0) == (limit == 3)


def test_a_batch_is_decided_in_the_order_of_event_time(spark: SparkSession) -> None:
    wanted = {n: word for n, word in expected().items() if word != "too_old"}  # none in a batch
    rows = [row for batch in SCRIPT for row in batch if row["n"] in wanted]
    table = pa.Table.from_pylist(rows[::-1], SCHEMA)
    frame = spark.createDataFrame(table.cast(SCHEMA))
    got = frame.transform(seen(again="flag")).toArrow().to_pylist()
    assert {row["n"]: row["seen"] for row in got} == wanted
    dropped = frame.transform(seen().options(name="orders")).toArrow().to_pylist()
    assert {row["n"] for row in dropped} == {n for n, word in wanted.items() if word != "again"}
    # Two of them meet without a name, and are counted only where there is one.
    assert frame.transform(seen()).union(frame.transform(seen())).count() == 2 * len(dropped)


def test_windows_and_filters_follow(spark: SparkSession, tmp_path: Path) -> None:
    per_shop = windows.tumbling(
        "50 seconds", time="ts", by="shop", delay="0 seconds", agg={
            "n": agg.count(),
            "orders": sketches.bloom_filter_agg("order.id", capacity=100, false_positive_rate=1e-6),
            "fill": agg.bloom_filter_stats("order.id", capacity=100, false_positive_rate=1e-6),
        },
    ).options(shards=2)  # fmt: skip
    frame = micro_batches(spark, SCRIPT[:4], schema=SCHEMA, directory=tmp_path)
    got, emitted = run(frame.transform(seen()).transform(per_shop), tmp_path)
    closed = {(row["shop"], row["window_start"]): row for row in got}
    assert {key: row["n"] for key, row in closed.items()} == {("a", at(0)): 2, ("b", at(0)): 1}
    assert closed["a", at(0)]["fill"]["estimate"] == 2
    assert sum(item["seen"]["again"] or 0 for item in emitted if "seen" in item) == 4

    blob = closed["a", at(0)]["orders"]
    filter = sketches.read(blob)
    assert isinstance(filter, sketches.StoredBloomFilter)
    assert filter.may_contain([1, 2, 3, None]).tolist() == [True, True, False, False]
    like = sketches.bloom_filter_agg(
        "order.id", capacity=100, false_positive_rate=1e-6, item_type="bigint"
    )
    rows = [(row["window_start"], row["orders"]) for row in got]
    stored = spark.createDataFrame(rows, "ts timestamp, orders binary")
    per_day = windows.tumbling("1 day", time="ts", agg={"all": sketches.merge("orders", like=like)})
    (day,) = stored.transform(per_day).toArrow().to_pylist()
    assert sketches.read(day["all"]) == filter.merge(sketches.read(closed["b", at(0)]["orders"]))

    # The condition in a stream, of a column of another type; what cannot be cast is not in it.
    requested = micro_batches(spark, SCRIPT, schema=SCHEMA, directory=tmp_path / "asked")
    text = F.coalesce(F.col("`order.id`").cast("string"), F.lit("none"))
    known, _ = run(requested.where(sketches.may_contain(blob, text)), tmp_path / "asked")
    assert {row["order.id"] for row in known} == {1, 2}


def test_exceeding_the_capacity_fails_the_query_until_when_full_is_changed(
    spark: SparkSession, tmp_path: Path
) -> None:
    many = [[{**order(i, "a", 5), "n": i} for i in range(start, start + 900)] for start in (0, 900)]
    frame = micro_batches(spark, many[:1], schema=SCHEMA, directory=tmp_path)
    with pytest.raises(StreamingQueryException) as caught:
        run(frame.transform(seen(capacity=100)), tmp_path)
    assert "[STATE_FULL] sketches.seen, identity order.id, shop" in str(caught.value)
    frame = micro_batches(spark, many[1:], schema=SCHEMA, directory=tmp_path)
    got, emitted = run(frame.transform(seen(capacity=100, when_full="evict_oldest")), tmp_path)
    assert [item["seen"]["first"] for item in emitted] == [900, 900]  # both: the query had failed
    assert [item["seen"]["full"] for item in emitted] == [900, 900]
    assert len(got) == 1_800
    assert all(row["seen_full"] for row in got)


def test_spark_and_python_agree_for_every_value(spark: SparkSession) -> None:
    table = pa.table({"v": pa.array([*range(5_000), None], pa.int64())})
    for capacity, rate in ((1_000, 0.2), (100_000, 0.001)):
        made = sketches.bloom_filter_agg("v", capacity=capacity, false_positive_rate=rate)
        frame = spark.createDataFrame(table.slice(0, 1_000)).withColumn("ts", F.lit(at(0)))
        per_hour = windows.tumbling("1 hour", time="ts", agg={"s": made})
        (row,) = frame.transform(per_hour).toArrow().to_pylist()
        filter = sketches.read(row["s"])
        assert isinstance(filter, sketches.StoredBloomFilter)
        requested = spark.createDataFrame(table).select(
            "v", sketches.may_contain(filter, "v").alias("x")
        )
        assert not requested.schema["x"].nullable or requested.where("x is null").count() == 0
        found = {r["v"]: r["x"] for r in requested.toArrow().to_pylist()}
        for other in (
            F.col("v") + 0.5,
            F.col("v").cast("decimal(12,3)") + F.lit("0.001").cast("decimal(4,3)"),
        ):
            between = spark.createDataFrame(table).where(sketches.may_contain(filter, other))
            assert between.count() == 0
        arguments = filter.may_contain(table.column("v")).tolist()
        assert found == dict(zip(table.column("v").to_pylist(), arguments, strict=True))
        assert sum(arguments[:1_000]) == 1_000
        assert sum(arguments[1_000:]) < 1.2 * rate * 4_000 + 10


def test_rows_that_are_dropped_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    frame = micro_batches(spark, [SCRIPT[0], SCRIPT[0]], schema=SCHEMA, directory=tmp_path)
    got, emitted = run(frame.transform(seen().options(name="orders")), tmp_path)
    assert len(got) == 3
    assert [item["orders"]["again"] for item in emitted] == [1, 4]
