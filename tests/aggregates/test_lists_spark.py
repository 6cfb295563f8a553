"""Aggregates that keep values say the same in the kernel and in Spark's own aggregation."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.aggregation import Aggregation
from streamops.kernel.errors import SpecError
from streamops.kernel.values import comparable
from streamops.testing import assert_rows, at, fold, replay, stream
from streamops.testing.laws import to_rows
from tests.aggregates.own import GeometricMean, Spelled
from tests.aggregates.samples import COMPARABLE, DECIMALS, FLOATS, INTEGERS, ORDERED, TYPES
from tests.aggregates.test_aggregates_spark import frame

pytestmark = pytest.mark.spark

NUMBERS = [*INTEGERS, *FLOATS, *DECIMALS]
PROBABILITIES = [0.5, 0.0, 0.1, 1 / 3, 0.99, 1.0]
CONSEQUENCES: tuple[Any, ...] = ("null", "reject_new", "evict_oldest")

SAME: dict[str, list[Aggregation]] = {
    "distinct": [
        *(agg.count_distinct(name, at_most=1000) for name in COMPARABLE),
        *(agg.count_distinct(name, at_most=3, when_full="null") for name in COMPARABLE),
    ],
    "quantiles": [
        *(agg.percentile(name, PROBABILITIES, at_most=1000) for name in NUMBERS),
        *(agg.percentile(name, 0.7, at_most=9, when_full="null") for name in NUMBERS),
    ],
    "collect": [
        *(agg.collect_list(name, at_most=1000, tie_break="seq") for name in TYPES),
        *(
            agg.collect_list(name, at_most=3, tie_break="seq", when_full=consequence)
            for name, consequence in zip(ORDERED, CONSEQUENCES * 9, strict=False)
        ),
    ],
    "top": [
        *(agg.top(3, "text", ranked_by=name, tie_break="seq") for name in ORDERED),
        *(agg.top(9, name, ranked_by="double", tie_break="seq") for name in ("map", "struct")),
    ],
}


def ours(events: DataFrame, aggregates: list[Aggregation], engine: Any = "kernel") -> DataFrame:
    """Per key and ten seconds."""
    named = {str(item): item for item in aggregates}
    per_key = windows.tumbling(
        "10 seconds",
        time="ts",
        by="key",
        agg=named,
    ).options(engine=engine, shards=2)
    return events.transform(per_key)


def theirs(events: DataFrame, aggregates: list[Aggregation]) -> DataFrame:
    """The same by Spark's own grouping."""
    window = F.window("ts", "10 seconds").alias("w")
    expressions = [item.to_spark(time="ts").alias(str(item)) for item in aggregates]
    grouped = events.groupBy("key", window).agg(*expressions)
    names = ["`" + str(item) + "`" for item in aggregates]
    edges = F.col("w.start").alias("window_start"), F.col("w.end").alias("window_end")
    return grouped.select("key", *edges, *names)


def sorted_rows(results: DataFrame) -> list[dict[str, Any]]:
    rows = to_rows(results.toArrow())
    return sorted(rows, key=lambda row: (row["key"] or "", row["window_start"]))


@pytest.mark.parametrize("function", SAME)
def test_both_engines_agree_to_the_last_bit(spark: SparkSession, function: str) -> None:
    events = frame(spark)
    kernel, native = ours(events, SAME[function]), theirs(events, SAME[function])
    types = [[(f.name, f.dataType.simpleString()) for f in x.schema] for x in (kernel, native)]
    assert types[0] == types[1]
    pairs = list(zip(sorted_rows(kernel), sorted_rows(native), strict=True))
    assert len(pairs) > 10
    for one, other in pairs:
        for name, arguments in one.items():
            assert comparable(arguments) == comparable(other[name]), name


def test_interpolated_quantiles_have_the_bits_that_spark_gives_them(spark: SparkSession) -> None:
    dice = random.Random(7)
    rows = [
        (key, i, dice.gauss(0, 1e3), dice.randrange(2**60), f"{dice.randrange(10**18)}e-9")
        for i, key in enumerate("abcdefgh" * 25)
        if dice.random() < 0.8
    ]
    events = spark.createDataFrame(rows, "key string, i long, x double, n long, d string").select(
        "key",
        F.timestamp_seconds("i").alias("ts"),
        "x",
        "n",
        F.expr("cast(d as decimal(38, 12)) d"),
    )
    requested = [dice.random() for _ in range(20)]
    aggregates: list[Aggregation] = [agg.percentile(item, requested, at_most=100) for item in "xnd"]
    assert sorted_rows(ours(events, aggregates)) == sorted_rows(theirs(events, aggregates))


FULL: list[Aggregation] = [
    agg.count_distinct("seq", at_most=2),
    agg.percentile("long", 0.5, at_most=2),
    agg.collect_list("text", at_most=2, tie_break="seq"),
]


@pytest.mark.parametrize("aggregate", FULL, ids=str)
def test_a_bound_that_is_passed_fails_the_query_on_either_side(
    spark: SparkSession, aggregate: Aggregation
) -> None:
    events = frame(spark)
    with pytest.raises(PythonException, match="STATE_FULL"):
        ours(events, [aggregate], "auto").collect()
    with pytest.raises(PySparkException, match="STATE_FULL"):
        theirs(events, [aggregate]).collect()
    with pytest.raises(SpecError, match="PARAMETERS_CONTRADICT") as caught:
        ours(events, [aggregate], "native")
    assert "of aggregates that Spark has" in caught.value.expected


def test_an_aggregate_of_ones_own_runs_where_it_may(spark: SparkSession) -> None:
    rows = [("a", 1, 2), ("a", 2, 8), ("a", 3, None)]
    events = spark.createDataFrame(rows, "key string, i long, v long")
    events = events.select("key", F.timestamp_seconds("i").alias("ts"), "v")
    by_engine = {
        (type(own).__name__, engine): ours(events, [own], engine).collect()[0][str(own)]
        for own in (GeometricMean("v"), Spelled("v"))
        for engine in ("auto", "kernel")
    }
    assert by_engine == {
        ("GeometricMean", "auto"): pytest.approx(4.0),
        ("GeometricMean", "kernel"): pytest.approx(4.0),
        ("Spelled", "auto"): pytest.approx(-4.0),
        ("Spelled", "kernel"): pytest.approx(4.0),
    }


SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("seq", pa.int64()),
        ("x", pa.float64()),
    ]
)


def arguments(*rows: tuple[str, int, int, float | None]) -> list[dict[str, Any]]:
    return [{"k": k, "ts": at(second), "seq": n, "x": x} for k, second, n, x in rows]


# A straggler in the third, in the fourth one that fills its window.
SCRIPT = [
    arguments(("a", 1, 1, 0.5), ("a", 8, 2, float("nan")), ("b", 2, 3, None)),
    arguments(("a", 14, 4, 1.0), ("b", 31, 5, 2.0)),
    arguments(("a", 5, 6, 0.5), ("c", 12, 7, -0.0)),
    arguments(("a", 2, 8, 7.0), ("a", 3, 9, 8.0), ("b", 60, 10, 0.0)),
    arguments(("b", 90, 11, 0.0)),
]


@pytest.mark.parametrize("api", ["transformWithStateInPandas", "applyInPandasWithState"])
def test_lists_of_state_are_continued_after_a_restart(
    spark: SparkSession, tmp_path: Path, api: Any
) -> None:
    transform = windows.hopping(
        "20 seconds",
        "10 seconds",
        time="ts",
        by="k",
        agg={
            "values": agg.count_distinct("x", at_most=3, when_full="null"),
            "some": agg.percentile("x", [0, 0.5], at_most=9),
            "path": agg.collect_list("x", at_most=2, tie_break="seq", when_full="evict_oldest"),
            "best": agg.top(2, "seq", ranked_by="x", tie_break="seq"),
            "mean": GeometricMean("x"),
        },
        delay="5 seconds",
        allowed_lateness="1 minute",
        stragglers="retract",
    ).options(shards=2, state_api=api)
    whole = replay(transform, SCRIPT, schema=SCHEMA)
    first = stream(spark, transform, SCRIPT[:3], schema=SCHEMA, directory=tmp_path)
    rest = stream(spark, transform, SCRIPT[3:], schema=SCHEMA, directory=tmp_path)
    folded = fold([*first, *rest])
    assert any(row["values"] is None for row in folded)
    assert_rows(folded, fold(whole))


def test_a_full_window_fails_a_stream_with_five_facts(spark: SparkSession) -> None:
    transform = windows.tumbling(
        "10 seconds", time="ts", agg={"n": agg.count_distinct("seq", at_most=1)}, delay="0 seconds"
    )
    with pytest.raises(StreamingQueryException) as caught:
        stream(spark, transform, SCRIPT[:2], schema=SCHEMA)
    text = str(caught.value)
    assert "[STATE_FULL] aggregates.count_distinct: a result needs more values of 'seq'" in text
    assert "raise at_most; or return null" in text


EVERY_TYPE = """
    named_struct('a', 1, 'b', array(1.5D, null)) as st, array('x', null) as ar,
    map('k', named_struct('z', 1L)) as mp, cast(1.25 as decimal(10,2)) as de,
    X'00FF' as bi, true as bo, 1Y as by, 3 as i, double('-infinity') as do, 'text' as s,
    date'1969-12-31' as da, timestamp'1969-12-31 23:59:59.999999Z' as tz,
    timestamp_ntz'2024-03-10 02:30:00' as nt, interval '1 02:03:04.5' day to second as dt,
    interval '1 02' day to hour as dh, cast('12:34:56' as time(0)) as t0,
    array(cast('12:34:56.789' as time(3))) as a3, parse_json('{"a": 1}') as va
"""


def test_values_of_every_type_are_collected_unharmed(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.timeType.enabled", "true")
    source = spark.sql(f"select timestamp'2024-01-01 00:00:01Z' as ts, 1 as seq, {EVERY_TYPE}")
    types = [name for name in source.columns if name not in ("ts", "seq")]
    whole = {name: agg.collect_list(name, at_most=1, tie_break="seq") for name in types}
    results = source.transform(windows.tumbling("1 minute", time="ts", agg=whole).options(shards=1))
    lists = source.select(*(F.array(name).alias(name) for name in types))
    assert results.select(*types).schema.simpleString() == lists.schema.simpleString()
    text = [F.to_json(F.struct(*types))]
    assert results.select(*text).collect() == lists.select(*text).collect()
