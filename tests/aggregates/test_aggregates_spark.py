"""An aggregate says the same in the kernel and in Spark's own aggregation."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.values import comparable
from streamops.testing.laws import to_rows
from tests.aggregates.samples import DECIMALS, FLOATS, INTEGERS, ORDERED, SCHEMA, TYPES, VALUES

EXACT = {
    str(aggregate): aggregate
    for aggregate in (
        agg.count(),
        *(agg.count(name) for name in TYPES),
        *(agg.sum(name) for name in [*INTEGERS, *FLOATS, *DECIMALS, "span"]),
        *(agg.mean(name) for name in [*INTEGERS, *FLOATS, "money", "tiny"]),
        *(function(name) for name in ORDERED for function in (agg.min, agg.max)),
        *(f(name, tie_break="seq") for name in TYPES for f in (agg.first, agg.last)),
    )
}
ROUNDED = {
    str(aggregate): aggregate
    for aggregate in (
        *(agg.variance(name) for name in [*INTEGERS, "double", "money"]),
        *(agg.stddev(name) for name in [*INTEGERS, "double", "money"]),
    )
}


def frame(spark: SparkSession) -> DataFrame:
    """300 rows in four groups, of which one has no values and one has one row."""
    dice = random.Random(1)
    columns: dict[str, list[Any]] = {name: [] for name in ["key", *SCHEMA.names]}
    for number in range(300):
        key = dice.choice(["a", "b", None]) if number else "lone"
        columns["key"].append(key)
        columns["ts"].append(dice.randrange(-20, 20) * 1_000_000)
        columns["seq"].append(number * 7 % 307)
        for name in TYPES:
            nothing = key is None or dice.random() < 0.2
            columns[name].append(None if nothing else dice.choice(VALUES[name]))
    arrays = {"key": pa.array(columns.pop("key")), "ts": pa.array(columns.pop("ts"), pa.int64())}
    arrays["ts"] = arrays["ts"].cast(SCHEMA.field("ts").type)
    arrays |= {
        name: pa.array(arguments, SCHEMA.field(name).type) for name, arguments in columns.items()
    }
    return spark.createDataFrame(pa.table(arrays))


def results(events: DataFrame, aggregates: dict[str, agg.Aggregate], engine: Any) -> list[Any]:
    tumbling = windows.tumbling(
        "10 seconds",
        time="ts",
        by="key",
        agg=aggregates,
    ).options(engine=engine, shards=2)
    rows = to_rows(events.transform(tumbling).toArrow())
    return sorted(rows, key=lambda row: (row["key"] or "", row["window_start"]))


def twelve_digits(value: float | None) -> Any:
    """The value as far as both engines must agree; a spread below that is none."""
    arguments = text(value)
    return (
        arguments if isinstance(arguments, str) else pytest.approx(arguments, rel=1e-12, abs=1e-12)
    )


def text(value: float | None) -> Any:
    return str(value) if value is None or math.isnan(value) else value


def test_where_arithmetic_is_exact_both_engines_agree_to_the_last_bit(spark: SparkSession) -> None:
    events = frame(spark)
    kernel, native = (results(events, EXACT, engine) for engine in ("kernel", "native"))
    assert len(kernel) > 10
    for ours, theirs in zip(kernel, native, strict=True):
        for name, arguments in ours.items():
            assert comparable(arguments) == comparable(theirs[name]), name


def test_where_arithmetic_rounds_both_engines_agree_to_twelve_digits(spark: SparkSession) -> None:
    events = frame(spark)
    kernel, native = (results(events, ROUNDED, engine) for engine in ("kernel", "native"))
    for ours, theirs in zip(kernel, native, strict=True):
        for name in ROUNDED:
            assert twelve_digits(theirs[name]) == text(ours[name]), name


def test_an_aggregate_can_be_used_in_sparks_own_grouping(spark: SparkSession) -> None:
    events = frame(spark)
    native = events.groupBy("key").agg(
        *(a.to_spark(time="ts").alias(name) for name, a in EXACT.items())
    )
    whole = windows.tumbling(
        "40 seconds",
        time="ts",
        by="key",
        agg=EXACT,
        origin="20 seconds",
    ).options(engine="kernel", shards=2)
    ours = to_rows(events.transform(whole).drop("window_start", "window_end").toArrow())
    theirs = to_rows(native.toArrow())
    assert sorted(map(comparable, ours)) == sorted(map(comparable, theirs))


def test_long_integers_and_large_decimals_have_the_mean_that_spark_gives(
    spark: SparkSession,
) -> None:
    rows = [(0, 2**53 + 1, Decimal(10**30 + 1)), (1, 2**63 - 1, Decimal(-1)), (1, None, None)]
    events = spark.createDataFrame(rows, "second long, long long, huge decimal(38,0)")
    events = events.select(F.timestamp_seconds("second").alias("ts"), "long", "huge")
    means = {"long": agg.mean("long"), "huge": agg.mean("huge")}
    kernel, native = (
        to_rows(
            events.transform(
                windows.tumbling("1 second", time="ts", agg=means).options(engine=engine, shards=1)
            )
            .orderBy("window_start")
            .toArrow()
        )
        for engine in ("kernel", "native")
    )
    assert kernel == native
