"""Both engines accept the same rows, and emit the same values of the same types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import split_side_output, windows
from streamops.kernel.errors import SpecError
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.testing import micro_batches

pytestmark = pytest.mark.spark

SHARDS = 2
ENGINES = ("kernel", "native")
ANSI = "spark.sql.ansi.enabled"
MINUTE = 60_000_000
# 2024-01-01 00:00:00 UTC, in microseconds.
MIDNIGHT = 1_704_067_200_000_000

RAW = pa.schema([("micros", pa.int64()), ("k", pa.string()), ("v", pa.int64())])
# Both ends of the calendar and one microsecond beyond, and a null time, key and value.
ROWS: list[dict[str, Any]] = [
    {"micros": MIDNIGHT, "k": "a", "v": 1},
    {"micros": MIDNIGHT + 5_000_000, "k": "a", "v": 2},
    {"micros": MIDNIGHT + 70_000_000, "k": "a", "v": None},
    {"micros": MIDNIGHT, "k": None, "v": 3},
    {"micros": MIDNIGHT + 1, "k": None, "v": 4},
    {"micros": None, "k": "a", "v": 5},
    {"micros": None, "k": None, "v": 6},
    {"micros": MAX_INSTANT + 1, "k": "a", "v": 7},
    {"micros": MIN_INSTANT - 1, "k": "a", "v": 8},
]
ENDS: list[dict[str, Any]] = [
    {"micros": MAX_INSTANT, "k": "b", "v": 9},
    {"micros": MIN_INSTANT, "k": "b", "v": 10},
]
AGG = {
    "n": agg.count(),
    "values": agg.count("v"),
    "total": agg.sum("v"),
    "price": agg.sum("de"),
    "mean_price": agg.mean("de"),
    "mean": agg.mean("v"),
    "longest": agg.max("dh"),
    "sum_long": agg.sum("dh"),
    "earliest": agg.min("t0"),
    "newest": agg.last("t0", tie_break="v"),
}
KEYS = ("k", "t0", "dh", "always", "ar")


@pytest.fixture(autouse=True)
def _session(spark: SparkSession) -> Iterator[None]:
    ansi = spark.conf.get(ANSI)
    spark.conf.set("spark.sql.timeType.enabled", "true")
    yield
    spark.conf.set(ANSI, str(ansi))


def typed(raw: DataFrame) -> DataFrame:
    """Columns whose types Arrow does not distinguish, computed from plain ones."""
    return raw.select(
        F.timestamp_micros("micros").alias("ts"),
        F.col("k").alias("k", metadata={"comment": "who"}),
        "v",
        F.expr("cast(v / 4 as decimal(10,2))").alias("de"),
        F.expr("case when v < 5 then cast('12:34:56' as time(0)) end").alias("t0"),
        F.expr("cast(make_dt_interval(1, coalesce(v, 0)) as interval day to hour)").alias("dh"),
        F.lit("x").alias("always"),
        F.expr("array(cast('01:02:03.456' as time(3)))").alias("ar"),
    )


def batch(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    return typed(spark.createDataFrame(pa.Table.from_pylist(rows, RAW)))


def tumbling(engine: Any = "auto", **arguments: Any) -> Any:
    arguments = {"time": "ts", "by": KEYS, "agg": AGG, **arguments}
    return windows.tumbling("1 minute", **arguments).options(engine=engine, shards=SHARDS)


def assert_declared_alike(kernel: DataFrame, native: DataFrame) -> None:
    """Names, types and nulls at every depth, and the comments of keys."""
    for ours, theirs in zip(kernel.schema.fields, native.schema.fields, strict=True):
        assert (ours.name, ours.dataType) == (theirs.name, theirs.dataType)
        assert (ours.name, ours.nullable) == (theirs.name, theirs.nullable)
        if ours.name in KEYS:
            assert ours.metadata == theirs.metadata


def assert_same_rows(one: DataFrame, other: DataFrame) -> None:
    assert one.exceptAll(other).count() == 0
    assert other.exceptAll(one).count() == 0


def test_both_engines_give_the_same_table_of_a_batch(spark: SparkSession) -> None:
    frame = batch(spark, ROWS + ENDS)
    kernel, native = (frame.transform(tumbling(engine)) for engine in ENGINES)
    assert_declared_alike(kernel, native)
    assert_same_rows(kernel, native)
    assert kernel.agg(F.sum("n")).collect()[0][0] == len(ROWS + ENDS) - 4


def test_a_key_and_a_picked_value_have_the_types_of_their_columns(spark: SparkSession) -> None:
    frame = batch(spark, ROWS)
    wanted = {name: frame.schema[name].dataType.simpleString() for name in KEYS}
    wanted |= {"longest": "interval day to hour", "sum_long": "interval day to hour"}
    wanted |= {"earliest": "time(0)", "newest": "time(0)"}
    assert wanted["dh"] == "interval day to hour"
    assert (wanted["t0"], wanted["ar"]) == ("time(0)", "array<time(3)>")
    for engine in ENGINES:
        schema = frame.transform(tumbling(engine)).schema
        assert {name: schema[name].dataType.simpleString() for name in wanted} == wanted
        assert schema["k"].metadata == {"comment": "who"}
        assert schema["always"].nullable


def test_both_engines_publish_the_same_rows_of_a_stream_and_reject_the_same(
    spark: SparkSession, tmp_path: Any
) -> None:
    # If a row of year 10000 were not rejected, it would move the watermark past everything.
    script = [ROWS, [{"micros": MIDNIGHT + 3 * MINUTE, "k": "a", "v": 1}], ROWS[5:]]
    script += [[{"micros": MIDNIGHT + 5 * MINUTE, "k": "a", "v": 1}]]
    frames, observed = {}, {}
    for engine in ENGINES:
        folder = tmp_path / engine
        folder.mkdir()
        source = micro_batches(spark, script, schema=RAW, directory=folder)
        stream = typed(source).transform(tumbling(engine, delay="10 seconds"))
        collected: list[pa.Table] = []
        query = (
            stream.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
            .foreachBatch(lambda rows, _, collected=collected: collected.append(rows.toArrow()))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(200)
        metrics = [p.observedMetrics["tumbling"] for p in query.recentProgress]
        observed[engine] = [(m["rows"] or 0, m["rejected"] or 0) for m in metrics]
        frames[engine] = (stream, pa.concat_tables(collected))
    (kernel, published), (native, theirs) = (frames[engine] for engine in ENGINES)
    assert_declared_alike(kernel, native)
    assert sorted(map(str, published.to_pylist())) == sorted(map(str, theirs.to_pylist()))
    assert sum(published.column("n").to_pylist()) == 6
    assert [counts for counts in observed["kernel"] if counts[0]] == [
        (9, 4),
        (1, 0),
        (4, 4),
        (1, 0),
    ]
    assert observed["kernel"] == observed["native"]


def test_a_late_row_has_the_types_of_the_frame(spark: SparkSession) -> None:
    frame = spark.sql(
        """
        select cast(null as timestamp) as ts, 'a' as k, cast('01:02:03' as time(0)) as t0,
            interval '26' hour as h, 'X' collate utf8_lcase as word,
            map(interval '5' second, cast('01:02:03.4' as time(1))) as mp,
            named_struct('va', parse_json('{"a": 1}'), 'no', null, 'd', interval '3' day) as st
        """
    )
    frame = frame.withMetadata("t0", {"comment": "when"})
    routed = frame.transform(tumbling(by="k", agg={"n": agg.count()}, stragglers="route"))
    row = routed.schema["late"].dataType["row"].dataType
    assert row.simpleString() == frame.schema.simpleString()
    assert row["t0"].metadata == {"comment": "when"}
    _, late = split_side_output(routed)
    whole = frame.select(F.to_json(F.struct("*"))).collect()
    assert late.select(F.to_json("row")).collect() == whole


def test_a_sum_raises_an_error_also_where_spark_would_wrap_around(spark: SparkSession) -> None:
    rows = [{**ROWS[0], "v": (1 << 63) - 1}, ROWS[1]]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, RAW)).select(
        F.timestamp_micros("micros").alias("ts"), "v", F.expr("1.5BD").alias("de")
    )
    spark.conf.set(ANSI, "false")
    for aggregate in (agg.sum("v"), agg.sum("de"), agg.mean("de")):
        with pytest.raises(SpecError, match="PARAMETERS_CONTRADICT") as caught:
            frame.transform(tumbling("native", by=(), agg={"x": aggregate}))
        assert ANSI in caught.value.expected
    with pytest.raises(PythonException, match="NUMERIC_OVERFLOW"):
        frame.transform(tumbling(by=(), agg={"x": agg.sum("v")})).collect()
    # What cannot overflow does not depend on the setting.
    calm = {"n": agg.count(), "mean": agg.mean("v"), "most": agg.max("de")}
    assert frame.transform(tumbling("native", by=(), agg=calm)).collect()[0]["n"] == 2


def test_two_operators_meet_in_one_batch_query(spark: SparkSession) -> None:
    frame = batch(spark, ROWS)
    for engine in ENGINES:
        branch = frame.transform(tumbling(engine, agg={"n": agg.count()}))
        other = frame.where("v > 1").transform(tumbling(engine, agg={"n": agg.count()}))
        assert branch.union(other).agg(F.sum("n")).collect()[0][0] == 5 + 3
        coarse = windows.tumbling("1 hour", time="window_start", agg={"n": agg.sum("n")})
        assert branch.transform(coarse).collect()[0]["n"] == 5
    # With a name there are metrics, and Spark requires different names.
    named = frame.transform(tumbling("native").options(name="mine"))
    with pytest.raises(AnalysisException, match="DUPLICATED_METRICS_NAME"):
        named.union(
            frame.where("v > 1").transform(tumbling("native").options(name="mine"))
        ).collect()
