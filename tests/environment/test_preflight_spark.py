"""Requirements and contradictions are reported while the plan is built, before a query starts."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import joins, windows
from streamops.changelog.chains import METRICS, WATERMARK
from streamops.environment import settings
from streamops.kernel.errors import RequirementError, SchemaError, SpecError, WatermarkError
from tests.settings import configured

pytestmark = pytest.mark.spark

_DAY = dt.timedelta(days=1)


def events(spark: SparkSession) -> Any:
    return spark.readStream.format("rate").load().withColumnRenamed("timestamp", "ts")


def tumbling(
    *, engine: Any = None, state_api: Any = None, name: str | None = None, **parameters: Any
) -> Any:
    operator = windows.tumbling("1 minute", time="ts", agg={"n": agg.count()}, **parameters)
    return operator.options(engine=engine, state_api=state_api, name=name)


def test_a_stream_without_a_watermark_is_refused(spark: SparkSession) -> None:
    with pytest.raises(WatermarkError, match="WATERMARK_MISSING") as caught:
        events(spark).transform(tumbling())
    assert 'delay="30 seconds"' in caught.value.fix


def test_a_second_watermark_is_refused(spark: SparkSession) -> None:
    with pytest.raises(WatermarkError, match="WATERMARK_TWICE"):
        events(spark).withWatermark("ts", "1 minute").transform(tumbling(delay="1 minute"))


def test_a_watermark_tighter_than_the_lateness_is_refused(spark: SparkSession) -> None:
    frame = events(spark).withWatermark("ts", "1 minute")
    with pytest.raises(WatermarkError, match="WATERMARK_TOO_TIGHT") as caught:
        frame.transform(tumbling(allowed_lateness="2 minutes", stragglers="update"))
    assert "1 minute" in caught.value.got


def test_a_batch_needs_no_watermark(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "ts timestamp")
    assert frame.transform(tumbling()).columns == ["window_start", "window_end", "n"]


@pytest.mark.parametrize(("partitions", "messages"), [(200, 1), (7, 0)])
def test_shuffle_partitions_without_a_shard_are_reported_once(
    spark: SparkSession,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    partitions: int,
    messages: int,
) -> None:
    monkeypatch.setattr(settings, "_advised", set())
    with configured(spark, {settings.PARTITIONS: str(partitions)}), caplog.at_level("WARNING"):
        for _ in range(3):
            events(spark).transform(tumbling(delay="1 minute").options(shards=2))
        spark.createDataFrame([], "ts timestamp").transform(tumbling())
    found = [record.message for record in caplog.records if record.name == "streamops.spark"]
    assert len(found) == messages
    for message in found:
        assert (
            "windows.tumbling has 2 shards, and the session 200 shuffle partitions: 198" in message
        )
        assert 'spark.conf.set("spark.sql.shuffle.partitions", "2")' in message


def test_a_native_engine_that_cannot_say_it_is_refused(spark: SparkSession) -> None:
    arguments = {"delay": "1 minute", "stragglers": "retract", "allowed_lateness": "1 hour"}
    with pytest.raises(SpecError, match="PARAMETERS_CONTRADICT"):
        events(spark).transform(tumbling(engine="native", **arguments))


@pytest.mark.parametrize(
    ("arguments", "names", "fix"),
    [
        (
            {"stragglers": "update", "allowed_lateness": "1 hour"},
            "revision",
            ".where(\"revision = 0\").drop('revision')",
        ),
        (
            {"stragglers": "retract", "allowed_lateness": "1 hour"},
            "revision, _change_type",
            ".where(\"revision = 0 AND _change_type IN ('insert', 'update_postimage')\")"
            ".drop('revision', '_change_type')",
        ),
        ({"early": "every batch"}, "revision", ".where(\"timing = 'on_time'\").drop('revision')"),
        ({"stragglers": "route"}, "late", '.where("late IS NULL").drop("late")'),
    ],
)
def test_revisions_and_late_rows_are_not_aggregated_by_mistake(
    spark: SparkSession, arguments: dict[str, Any], names: str, fix: str
) -> None:
    hourly = windows.tumbling("1 hour", time="window_start", agg={"n": agg.sum("n")})
    results = events(spark).transform(tumbling(delay="1 minute", **arguments))
    with pytest.raises(SchemaError, match="ROWS_REVISED") as caught:
        results.transform(hourly)
    assert caught.value.got.endswith(f"with {names}")
    assert fix in caught.value.fix
    with pytest.raises(SchemaError, match=r"ROWS_REVISED|CHANGE_STREAM_INPUT"):
        results.where("n > 1").transform(
            windows.running(by="window_start", agg={"distinct": agg.approx_count_distinct("n")})
        )
    # A user who drops the columns that distinguish them has selected the rows that count.
    assert "n" in results.drop(*names.split(", ")).transform(hourly).columns
    # A column of the user's own that is called like one of ours is none of ours.
    own = events(spark).withColumn("revision", F.lit(1)).withColumn("late", F.lit(None))
    assert "n" in own.transform(tumbling(delay="1 minute")).columns


def test_a_second_operator_behind_apply_in_pandas_with_state_is_refused(
    spark: SparkSession,
) -> None:
    first = tumbling(delay="1 minute", state_api="applyInPandasWithState")
    with pytest.raises(SpecError, match="STATE_API_NOT_CHAINABLE"):
        events(spark).transform(first).transform(
            windows.tumbling("1 hour", time="window_start", agg={"n": agg.sum("n")})
        )


def test_a_watermark_on_another_column_is_refused(spark: SparkSession) -> None:
    frame = events(spark).withColumn("ingested", F.col("ts")).withWatermark("ingested", "1 minute")
    with pytest.raises(WatermarkError, match="WATERMARK_MISSING") as caught:
        frame.transform(tumbling())
    assert caught.value.got == "time='ts' on a frame with a watermark on 'ingested'"


def test_a_watermark_that_was_lost_on_the_way_is_refused_with_and_without_a_second_one(
    spark: SparkSession,
) -> None:
    unnamed = (
        events(spark)
        .withWatermark("ts", "1 minute")
        .select((F.col("ts") + F.lit(_DAY)).alias("ts"))
    )
    counted = events(spark).transform(tumbling(delay="1 minute")).select("n", "window_start")
    hourly = windows.tumbling("1 hour", time="window_start", agg={"n": agg.sum("n")})
    for behind in (
        lambda: unnamed.transform(tumbling()),
        lambda: unnamed.transform(tumbling(delay="1 minute")),
        lambda: counted.transform(hourly),
    ):
        with pytest.raises(WatermarkError, match="WATERMARK_LOST") as caught:
            behind()
        assert "window_end" in caught.value.fix


def test_what_a_query_noted_on_columns_that_were_stored_is_no_watermark(
    spark: SparkSession, tmp_path: Path
) -> None:
    stored = str(tmp_path / "counted")
    counted = events(spark).transform(tumbling(delay="1 minute"))
    notes = {field.name: field.metadata for field in counted.schema.fields}
    assert WATERMARK in notes["window_end"]
    assert METRICS in notes["window_end"]
    rows = spark.createDataFrame([], counted.schema)
    rows.write.parquet(stored)
    schema = spark.read.parquet(stored).schema
    assert WATERMARK in schema["window_end"].metadata
    again = spark.readStream.schema(schema).parquet(stored)

    hourly = windows.tumbling("1 hour", time="window_end", agg={"n": agg.sum("n")})
    with pytest.raises(WatermarkError, match="WATERMARK_MISSING"):
        again.transform(hourly)
    own = again.transform(
        windows.tumbling("1 hour", time="window_end", agg={"n": agg.sum("n")}, delay="1 minute")
    )
    assert own.schema["window_end"].metadata[METRICS] == "tumbling"
    # What is noted in the query itself stays.
    chained = counted.transform(hourly)
    assert chained.schema["window_end"].metadata[METRICS] == "tumbling,tumbling-2"


def test_a_session_in_which_the_faster_stream_sets_the_watermark_is_refused(
    spark: SparkSession,
) -> None:
    policy = "spark.sql.streaming.multipleWatermarkPolicy"
    pairs = joins.interval(
        events(spark), "0 seconds", "1 minute", by="value", time="ts", delay="1 minute"
    )
    spark.conf.set(policy, "max")
    try:
        with pytest.raises(RequirementError, match="WATERMARK_POLICY") as caught:
            events(spark).transform(pairs)
        assert policy in caught.value.fix
        assert events(spark).transform(tumbling(delay="1 minute")).isStreaming
    finally:
        spark.conf.unset(policy)
    assert events(spark).transform(pairs).isStreaming


def test_the_window_of_sparks_own_aggregation_may_come_before(spark: SparkSession) -> None:
    counted = (
        events(spark).withWatermark("ts", "1 minute").groupBy(F.window("ts", "1 minute")).count()
    )
    hourly = {"agg": {"n": agg.sum("count")}}
    start = counted.select("window", F.col("window.start").alias("start"), "count")
    end = counted.select(F.window_time("window").alias("end"), "count")
    for time, frame in (("start", start), ("end", end)):
        assert frame.transform(windows.tumbling("1 hour", time=time, **hourly)).isStreaming


@pytest.mark.parametrize("first", ["kernel", "native"])
def test_sparks_own_windows_behind_windows_need_the_column_with_the_watermark(
    spark: SparkSession, first: str
) -> None:
    minutes = events(spark).transform(tumbling(delay="1 minute", engine=first))
    for make in (windows.tumbling, windows.session):
        by_start = make("1 hour", time="window_start", agg={"n": agg.sum("n")})
        with pytest.raises(SpecError, match="WATERMARK_MISSING") as caught:
            minutes.transform(by_start.options(engine="native"))
        assert caught.value.got.endswith("time='window_start', and a watermark on window_end")
        # A hint does not lead there.
        assert minutes.transform(by_start.options(expected_keys=1)).isStreaming
        by_end = make("1 hour", time="window_end", agg={"n": agg.sum("n")})
        assert minutes.transform(by_end.options(engine="native")).isStreaming


def test_two_columns_of_one_name_are_refused(spark: SparkSession) -> None:
    frame = events(spark).select("ts", F.lit(1).alias("x"), F.lit(2).alias("x"))
    with pytest.raises(SchemaError, match="DUPLICATE_COLUMN"):
        frame.transform(tumbling(delay="1 minute"))


def test_names_that_differ_only_in_case_are_equal_unless_spark_is_case_sensitive(
    spark: SparkSession,
) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        frame = events(spark).select("ts", F.lit(1).alias("x"), F.lit(2).alias("X"))
        assert frame.transform(tumbling(delay="1 minute", by="X")).columns[0] == "X"
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    with pytest.raises(SchemaError, match="DUPLICATE_COLUMN"):
        frame.transform(tumbling(delay="1 minute"))


def test_names_with_dots_and_backticks_are_quoted(spark: SparkSession) -> None:
    frame = spark.sql("select timestamp'2024-01-01' as `t.s`, 1 as `a``b`, 'x' as `k y`")
    for engine in ("kernel", "native"):
        result = frame.transform(
            windows.tumbling(
                "1 minute",
                time="t.s",
                by="k y",
                agg={"a.b": agg.sum("a`b")},
            ).options(engine=engine)
        )
        assert result.columns == ["k y", "window_start", "window_end", "a.b"]
        assert result.collect()[0][3] == 1


def test_more_lateness_than_the_operator_before_is_refused(spark: SparkSession) -> None:
    first = tumbling(delay="1 hour", allowed_lateness="1 minute")
    second = windows.tumbling(
        "1 hour",
        time="window_start",
        agg={"n": agg.sum("n")},
        allowed_lateness="2 minutes",
        stragglers="update",
    )
    with pytest.raises(WatermarkError, match="WATERMARK_TOO_TIGHT") as caught:
        events(spark).transform(first).transform(second)
    assert "1 minute" in caught.value.expected


def test_a_collated_key_is_refused(spark: SparkSession) -> None:
    frame = spark.sql("select timestamp'2024-01-01' as ts, 'a' collate utf8_lcase as k")
    with pytest.raises(SchemaError, match="TYPE_UNSUPPORTED"):
        frame.transform(tumbling(by="k", engine="kernel"))
