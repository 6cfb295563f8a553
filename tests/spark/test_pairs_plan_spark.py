"""Operators with two inputs on Spark: chains with other operators, batches, and errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import time, windows
from streamops.changelog.chains import METRICS, REVISED, STATE_API, WATERMARK
from streamops.environment.settings import PROVIDER
from streamops.kernel.errors import SchemaError, SpecError, StreamopsError, WatermarkError
from streamops.testing import assert_rows, at, micro_batches
from streamops.testing.streaming import run_query
from tests.spark.pair_cores import earlier, tally

pytestmark = pytest.mark.spark

SHARDS = 2
APIS: Any = ("transformWithStateInPandas", "applyInPandasWithState")
INSTANT = pa.timestamp("us", tz="UTC")
EVENTS = pa.schema([("k", pa.string()), ("ts", INSTANT)])
RIGHT = pa.schema([("key", pa.string()), ("at", INSTANT)])


def events(*rows: tuple[str, float]) -> list[dict[str, Any]]:
    return [{"k": k, "ts": at(s)} for k, s in rows]


def others(*rows: tuple[str, float]) -> list[dict[str, Any]]:
    return [{"key": k, "at": at(s)} for k, s in rows]


def marks(results: list[Any]) -> list[str]:
    return [progress.eventTime.get("watermark", "")[11:19] for _, _, progress in results]


@pytest.mark.parametrize("api", APIS)
def test_an_input_without_new_rows_holds_the_watermark(
    spark: SparkSession, api: Any, tmp_path: Path
) -> None:
    """The left frame has a watermark, and the operator defines one on the right frame."""

    def run(left: list[Any], right: list[Any]) -> list[Any]:
        frames = [
            micro_batches(spark, batches, schema=schema, directory=tmp_path / name)
            for name, batches, schema in (("l", left, EVENTS), ("r", right, RIGHT))
        ]
        marked = frames[0].withWatermark("ts", "2 seconds")
        pair = earlier(frames[1], delay=(None, "20 seconds"), state_api=api)
        return run_query(marked.transform(pair), tmp_path, 300)

    # The right source has no new offsets, which differs from a micro-batch without rows.
    ran = run([events(("a", 10)), events(("a", 90)), events(("b", 95))], [others(("a", 1))])
    assert marks(ran)[1:] == ["23:59:41"] * (len(ran) - 1)
    assert [len(rows) for _, rows, _ in ran] == [0] * len(ran)
    ran = run([events(("c", 100))], [others(("b", 50)), others(("a", 200))])
    assert [len(rows) for _, rows, _ in ran] == [0, 1, 2]
    assert marks(ran) == ["23:59:41", "00:00:30", "00:01:38"]
    # Every shard runs in every micro-batch, also if the left source has no new offsets.
    assert [p.observedMetrics["earlier"]["state_rows"] for _, _, p in ran] == [6, 6, 4]
    assert_rows(
        pa.concat_tables([rows for _, rows, _ in ran]).drop_columns("late"),
        [
            {"k": "a", "ts": at(10), "n": 1},
            {"k": "a", "ts": at(90), "n": 1},
            {"k": "b", "ts": at(95), "n": 1},
        ],
    )


def test_windows_may_precede_and_follow(spark: SparkSession, tmp_path: Path) -> None:
    """Three stateful operators and two watermarks in one query: the result equals the batch."""
    left = [events(("a", 1), ("a", 12)), events(("b", 25), ("a", 31)), events(("a", 300))]
    right = [others(("a", 5), ("b", 2)), others(("a", 18)), others(("b", 300))]
    counted: dict[str, Any] = {
        "by": "k",
        "agg": {"n": agg.count()},
    }

    def chain(left: DataFrame, right: DataFrame, delay: str | None) -> DataFrame:
        before = windows.tumbling("10 seconds", time="ts", delay=delay, **counted).options(
            shards=SHARDS
        )
        pair = earlier(right, time=("window_end", "at"), delay=(None, delay))
        summed = {"windows": agg.count(), "earlier": agg.sum("n_earlier")}
        behind = windows.tumbling("20 seconds", time="window_end", by="k", agg=summed).options(
            shards=2
        )
        joined = left.transform(before).withColumnRenamed("n", "c").transform(pair)
        return (
            joined.withColumnRenamed("n", "n_earlier")
            .drop("window_start", "late")
            .transform(behind)
        )

    frames = [
        micro_batches(spark, batches, schema=schema, directory=tmp_path / name)
        for name, batches, schema in (("l", left, EVENTS), ("r", right, RIGHT))
    ]
    ran = run_query(chain(*frames, "0 seconds"), tmp_path, 300)
    whole = [
        spark.createDataFrame(
            pa.Table.from_pylist([row for batch in batches for row in batch], schema).to_pandas()
        )
        for batches, schema in ((left[:2], EVENTS), (right, RIGHT))
    ]
    assert_rows(pa.concat_tables([rows for _, rows, _ in ran]), chain(*whole, None).toArrow())
    metrics = ran[0][2].observedMetrics
    assert set(metrics) == {"tumbling", "earlier", "tumbling-2"}
    assert metrics["earlier"]["rows"] == 2


def test_a_batch_has_the_types_and_comments_of_the_frames(
    spark: SparkSession,
) -> None:
    left = spark.sql(
        "select k, ts, x collate utf8_lcase x from values "
        "('a', timestamp'2024-01-01 00:00:10Z', 'X'), ('a', null, 'y'), "
        "(null, timestamp'2024-01-01', 'Z') as t(k, ts, x)"
    )
    odd = F.col("x").alias("odd.name", metadata={"comment": "as written"})
    left = left.select("k", "ts", odd)
    right = spark.sql("select 'a' key, timestamp'2024-01-01 00:00:09Z' at")
    result = left.transform(earlier(right))
    assert_rows(
        result.where("late is null").select(
            "k", "n", F.col("`odd.name`").cast("string").alias("x")
        ),
        [{"k": "a", "n": 1, "x": "X"}, {"k": None, "n": 0, "x": "Z"}],
    )
    field = result.schema["odd.name"]
    assert field.dataType == left.schema["odd.name"].dataType
    assert field.metadata == {"comment": "as written"}
    late = result.schema["late"].dataType["row"].dataType["left"].dataType
    assert late["odd.name"].dataType == left.schema["odd.name"].dataType
    assert result.where("late.reason = 'null_time' and late.row.left.`odd.name` = 'Y'").count() == 1
    twice = left.transform(tally(right)).unionByName(left.transform(tally(right)))
    assert_rows(
        twice.distinct(),
        [
            {"k": "a", "lefts": 2, "rights": 1, "revision": 0},
            {"k": None, "lefts": 1, "rights": 0, "revision": 0},
        ],
    )
    named = left.transform(tally(right, name="mine")).collect()
    assert len(named) == 2


def stream_of(spark: SparkSession, *columns: str) -> DataFrame:
    return spark.readStream.format("rate").load().selectExpr(*columns)


def refused(make: Callable[[], Any]) -> StreamopsError:
    with pytest.raises(StreamopsError) as caught:
        make()
    return caught.value


def test_mistakes_are_reported_while_the_plan_is_built(spark: SparkSession) -> None:
    left = stream_of(spark, "'a' k", "timestamp ts")
    right = stream_of(spark, "'a' key", "timestamp at")
    table = spark.sql("select 'a' key, timestamp'2024-01-01' at")

    mixed = refused(lambda: left.transform(earlier(table, delay="1 second")))
    assert (type(mixed), mixed.code) == (SpecError, "STREAMING_FRAME")
    assert "left: streaming, right: batch" in str(mixed)
    assert refused(lambda: table.transform(tally(left, by=("key", "k")))).code == "STREAMING_FRAME"

    bare = refused(lambda: left.transform(earlier(right, delay=("1 second", None))))
    assert (type(bare), bare.code, bare.where) == (
        WatermarkError,
        "WATERMARK_MISSING",
        "joins.earlier, right frame",
    )
    twice = left.withWatermark("ts", "1 second")
    again = refused(lambda: twice.transform(earlier(right, delay="1 second")))
    assert (again.code, again.where) == ("WATERMARK_TWICE", "joins.earlier, left frame")

    numbers = stream_of(spark, "1 key", "timestamp at")
    unlike = refused(lambda: left.transform(earlier(numbers, delay="1 second")))
    assert (type(unlike), unlike.code) == (SchemaError, "COLUMNS_DIFFER")
    assert "string and int" in str(unlike)

    lowered = stream_of(spark, "'a' collate utf8_lcase key", "timestamp at")
    collated = refused(lambda: left.transform(earlier(lowered, delay="1 second")))
    assert (collated.code, collated.where) == ("TYPE_UNSUPPORTED", "joins.earlier, right frame")

    native = refused(lambda: left.transform(tally(right, engine="native")))
    assert native.code == "PARAMETERS_CONTRADICT"


def test_the_metadata_of_preceding_operators_is_read_on_both_sides(spark: SparkSession) -> None:
    left = stream_of(spark, "'a' k", "timestamp ts")
    right = stream_of(spark, "'a' key", "timestamp at")
    last = right.transform(
        windows.tumbling(
            "1 second",
            time="at",
            by="key",
            agg={"n": agg.count()},
            delay="1 second",
        ).options(state_api="applyInPandasWithState")
    ).withColumnRenamed("window_end", "at")
    chained = refused(lambda: left.transform(earlier(last, delay=("1 second", None))))
    assert (chained.code, chained.where) == (
        "STATE_API_NOT_CHAINABLE",
        "joins.earlier, right frame",
    )
    first = left.transform(tally(right, name="counts"))
    metadata = {f.name: f.metadata for f in first.schema.fields if METRICS in f.metadata}
    assert metadata == {
        "revision": {METRICS: "counts", STATE_API: "transformWithStateInPandas", REVISED: True}
    }
    timed = left.transform(earlier(right, delay=("1 second", "3 seconds"), lag="1 second"))
    assert timed.schema["ts"].metadata[WATERMARK] == 4_000
    second = timed.select("k", "ts").transform(
        earlier(right, name="earlier", delay=(None, "9 seconds"))
    )
    assert second.schema["ts"].metadata[METRICS] == "earlier,earlier-2"
    clocked = [
        frame.transform(
            time.producers(key, time=at_, delay="1 second", idle="1 hour").options(
                state_api=APIS[1]
            )
        )
        for frame, key, at_ in ((left, "k", "ts"), (right, "key", "at"))
    ]
    only_once = refused(lambda: clocked[0].transform(earlier(clocked[1])))
    assert (only_once.code, only_once.where) == ("STATE_API_NOT_CHAINABLE", "joins.earlier")
    provider = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, "another provider")
    try:
        stock = left.transform(tally(right))
        apis = [f.metadata[STATE_API] for f in stock.schema.fields if STATE_API in f.metadata]
        assert apis == [APIS[1]]
        assert refused(lambda: left.transform(tally(right, state_api=APIS[0]))).code == (
            "ROCKSDB_REQUIRED"
        )
    finally:
        spark.conf.set(PROVIDER, provider)
