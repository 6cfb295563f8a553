"""Mistakes of newcomers that need a session: of frames, of chains, of the state store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import changes, joins, local_session, windows
from streamops.environment.settings import PROVIDER
from tests.errors.mistakes import LATE, Mistake, raised, tumbling

HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
ROCKSDB_SETTING = f'spark.conf.set("{PROVIDER}"'
PER_HOUR = windows.tumbling("1 hour", time="window_start", agg={"n": agg.sum("n")})


def events(spark: SparkSession) -> Any:
    return (
        spark.readStream.format("rate").load().selectExpr("value % 3 k", "timestamp ts", "value v")
    )


@contextlib.contextmanager
def stock(spark: SparkSession) -> Iterator[None]:
    """The session as if nobody had set a state store."""
    before = str(spark.conf.get(PROVIDER))
    spark.conf.set(PROVIDER, HDFS)
    try:
        yield
    finally:
        spark.conf.set(PROVIDER, before)


def chained_on_a_stock_session(spark: SparkSession) -> None:
    with stock(spark):
        events(spark).transform(tumbling(delay="1 minute")).transform(PER_HOUR)


def without_rocksdb(spark: SparkSession) -> None:
    selected = tumbling(delay="1 minute").options(state_api="transformWithStateInPandas")
    with stock(spark):
        events(spark).transform(selected)


def chained_on_the_wrong_state_api(spark: SparkSession) -> None:
    first = tumbling(delay="1 minute").options(state_api="applyInPandasWithState")
    events(spark).transform(first).transform(PER_HOUR)


def start(spark: SparkSession, mode: str) -> None:
    result = events(spark).transform(tumbling(delay="1 minute"))
    result.writeStream.outputMode(mode).format("noop").start().stop()


def join_with_a_batch(spark: SparkSession) -> None:
    table = spark.range(3).selectExpr("id k", "timestamp_seconds(id) ts")
    operator = joins.interval(table, by="k", time="ts", lower="0 seconds", upper="1 minute")
    events(spark).transform(operator)


def join_with_a_name(spark: SparkSession) -> None:
    right: Any = "payments"
    operator = joins.interval(right, by="k", time="ts", lower="0 seconds", upper="1 minute")
    events(spark).transform(operator)


ON_SPARK = (
    Mistake(
        "a second watermark",
        "WATERMARK_TWICE",
        "leave delay out",
        lambda spark: (
            events(spark).withWatermark("ts", "1 minute").transform(tumbling(delay="1 minute"))
        ),
    ),
    Mistake(
        "delay= in the second operator of a chain",
        "WATERMARK_TWICE",
        "leave delay out",
        lambda spark: (
            events(spark)
            .transform(tumbling(delay="1 minute"))
            .transform(tumbling("1 hour", time="window_start", delay="1 minute"))
        ),
    ),
    Mistake(
        "a watermark on another column",
        "WATERMARK_MISSING",
        "name 'ts' in withWatermark",
        lambda spark: (
            events(spark)
            .withColumn("received", F.col("ts"))
            .withWatermark("received", "1 minute")
            .transform(tumbling())
        ),
    ),
    Mistake(
        "a column instead of its name",
        "PARAMETER_TYPE",
        "write the name in quotes",
        lambda spark: tumbling(by=F.col("k")),
    ),
    Mistake(
        "an aggregate of Spark",
        "NOT_AN_AGGREGATE",
        'agg={"n": aggregates.count()}',
        lambda spark: tumbling(agg={"n": F.count("*")}),
    ),
    Mistake(
        "a sum of Spark",
        "NOT_AN_AGGREGATE",
        'agg={"x": aggregates.sum("v")}',
        lambda spark: tumbling(agg={"x": F.sum("v")}),
    ),
    Mistake(
        "a mean of Spark over an expression",
        "NOT_AN_AGGREGATE",
        'df.withColumn("value", ...); then agg={"x": aggregates.mean("value")}',
        lambda spark: tumbling(agg={"x": F.avg(F.col("v") * 2).alias("x")}),
    ),
    Mistake(
        "an expression in an aggregate",
        "PARAMETER_TYPE",
        'make the expression a column first: df.withColumn("value", ...); then write "value"',
        lambda spark: tumbling(agg={"x": agg.sum(F.col("v") * 2)}),  # type: ignore[arg-type]
    ),
    Mistake(
        "timestamps as text",
        "COLUMN_TYPE",
        "df.withColumn('ts', F.col('ts').try_cast('timestamp_ltz'))",
        lambda spark: (
            events(spark)
            .withColumn("ts", F.lit("2026-01-01"))
            .transform(tumbling(delay="1 minute"))
        ),
    ),
    Mistake(
        "corrections as the input of windows",
        "ROWS_REVISED",
        'stragglers="drop" in the operator before',
        lambda spark: (
            events(spark).transform(tumbling(delay="1 minute", **LATE)).transform(PER_HOUR)
        ),
    ),
    Mistake(
        "two operators on a stock session",
        "STATE_API_NOT_CHAINABLE",
        ROCKSDB_SETTING,
        chained_on_a_stock_session,
    ),
    Mistake(
        "two operators on the wrong state API",
        "STATE_API_NOT_CHAINABLE",
        "build these frames again, without state_api",
        chained_on_the_wrong_state_api,
    ),
    Mistake("no RocksDB", "ROCKSDB_REQUIRED", ROCKSDB_SETTING, without_rocksdb),
    Mistake(
        "a stream joined with a batch frame",
        "STREAMING_FRAME",
        "read the right frame with spark.readStream",
        join_with_a_batch,
    ),
    Mistake("a table by its name", "NOT_A_FRAME", "spark.readStream.table", join_with_a_name),
    Mistake(
        "the schema of a topic without commas",
        "INVALID_SCHEMA",
        "name string",
        lambda spark: (
            spark.readStream.format("rate")
            .load()
            .selectExpr("string(value) AS value")
            .transform(changes.from_debezium(schema="id bigint name string", key="id"))
        ),
    ),
    # Spark's own error, at the start of the query: its code differs between releases.
    Mistake("complete mode", "", "output mode", lambda spark: start(spark, "complete")),
)


def raise_on_spark(
    mistakes: Sequence[Mistake], spark: SparkSession | None = None
) -> list[tuple[Mistake, Exception]]:
    """The errors of all mistakes, in one session."""
    session = spark or local_session()
    return [(mistake, raised(mistake, session)) for mistake in mistakes]
