"""Early results and empty windows on Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.errors import SpecError
from streamops.testing import assert_rows, fold, replay, stream
from tests.windows.test_windows_spark import AGG, APIS, COMMON, SCHEMA, SCRIPT, same

pytestmark = pytest.mark.spark

LATE: dict[str, Any] = {"allowed_lateness": "20 seconds", "too_late": "route"}


def hopping(**arguments: Any) -> Any:
    shape = {"delay": "5 seconds", "early": "every batch", "stragglers": "retract", **LATE}
    return windows.hopping("10 seconds", "4 seconds", **(COMMON | shape | arguments))


def growing(**arguments: Any) -> Any:
    shape = {"delay": "5 seconds", "early": "every batch", "stragglers": "route"}
    return windows.cumulative("20 seconds", "10 seconds", **(COMMON | shape | arguments))


def sliding(**arguments: Any) -> Any:
    shape = {"delay": "5 seconds", "early": "every batch", "stragglers": "retract", **LATE}
    return windows.sliding("15 seconds", **(COMMON | shape | arguments))


def filled(**arguments: Any) -> Any:
    shape = {"delay": "5 seconds", "empty_for": "20 seconds"}
    return windows.tumbling("10 seconds", **(COMMON | shape | arguments))


def test_a_stream_on_spark_gives_what_its_replay_gives(spark: SparkSession) -> None:
    for make, api in ((hopping, APIS[0]), (growing, APIS[1]), (sliding, APIS[0])):
        replayed = replay(make(), SCRIPT, schema=SCHEMA)
        same(stream(spark, make().options(state_api=api), SCRIPT, schema=SCHEMA), replayed)
        timings = {row["timing"] for result in replayed for row in result.rows}
        assert timings == {"early", "on_time", *(["late"] if make is not growing else [])}


def test_windows_without_rows_on_spark_are_those_of_the_replay(spark: SparkSession) -> None:
    retract: dict[str, Any] = {"stragglers": "retract", "early": "every batch", **LATE}
    for arguments, api in (({}, APIS[0]), (retract, APIS[1])):
        replayed = replay(filled(**arguments), SCRIPT, schema=SCHEMA)
        same(
            stream(spark, filled(**arguments).options(state_api=api), SCRIPT, schema=SCHEMA),
            replayed,
        )
        assert sum(row["n"] == 0 for result in replayed for row in result.rows) > 3


def test_a_batch_is_filled_as_spark_would_fill_it_by_hand(spark: SparkSession) -> None:
    events = [row for batch in SCRIPT for row in batch if row["ts"] is not None]
    frame = spark.createDataFrame(pa.Table.from_pylist(events, SCHEMA))
    mixed = AGG | {
        "values": agg.collect_list("v", at_most=9, tie_break="v"),
        "kinds": agg.count_distinct("v", at_most=9),
        "median": agg.percentile("v", 0.5, at_most=9),
        "best": agg.top(2, "v", ranked_by="v", tie_break="v"),
    }
    ours = frame.transform(filled(agg=mixed, delay=None))
    window = F.window("ts", "10 seconds")
    there = frame.select("k", window.start.alias("window_start")).distinct()
    slots = there.select(
        "k", F.explode(F.expr("sequence(0, 20, 10)")).alias("s"), "window_start"
    ).select("k", (F.col("window_start") + F.expr("make_dt_interval(0, 0, 0, s)")).alias("at"))
    rows = frame.withColumn("at", window.start).withColumnRenamed("k", "key")
    same_key = F.col("k").eqNullSafe(F.col("key"))
    joined = slots.distinct().join(rows, same_key & (slots["at"] == rows["at"]), "left")
    values = [
        a.to_spark(time="ts").alias(name) for name, a in mixed.items() if name not in ("n", "best")
    ]
    theirs = joined.groupBy("k", slots["at"].alias("window_start")).agg(
        F.count("ts").alias("n"), *values
    )
    names = theirs.columns
    assert_rows(ours.select(*names), theirs)
    empty = ours.where("n = 0").select("best").distinct().collect()
    assert [list(row["best"]) for row in empty] == [[]]
    assert theirs.where("n = 0").count() > 3
    with pytest.raises(SpecError, match="PARAMETERS_CONTRADICT"):
        frame.transform(filled(delay=None).options(engine="native"))


def test_a_batch_has_no_early_results_on_either_engine(spark: SparkSession) -> None:
    events = [row for batch in SCRIPT for row in batch]
    frame = spark.createDataFrame(pa.Table.from_pylist(events, SCHEMA))
    kernel, native = (
        frame.transform(hopping(delay=None, too_late="drop").options(engine=engine))
        for engine in ("kernel", "native")
    )
    assert kernel.schema == native.schema
    assert_rows(kernel, native)
    assert {(r["revision"], r["timing"], r["_change_type"]) for r in kernel.collect()} == {
        (0, "on_time", "insert")
    }
    there, native = (
        frame.transform(sliding(delay=None, too_late="drop").options(engine=engine))
        for engine in ("kernel", "native")
    )
    assert_rows(there, native)


def test_a_restart_continues_and_refuses_more_empty_windows(
    spark: SparkSession, tmp_path: Any
) -> None:
    arguments = {"empty_for": "8 seconds"}
    whole = replay(hopping(**arguments), SCRIPT, schema=SCHEMA)
    first = stream(spark, hopping(**arguments), SCRIPT[:3], schema=SCHEMA, directory=tmp_path)
    rest = stream(spark, hopping(**arguments), SCRIPT[3:], schema=SCHEMA, directory=tmp_path)
    names = ("revision", "timing")
    there, here = (
        [{n: v for n, v in row.items() if n not in names} for row in fold(results)]
        for results in (whole, [*first, *rest])
    )
    assert_rows(here, there)
    with pytest.raises(StreamingQueryException) as caught:
        stream(spark, hopping(empty_for="20 seconds"), SCRIPT[:1], directory=tmp_path)
    assert "[STATE_PARAMETERS]" in str(caught.value)
    assert "empty_for=8000000" in str(caught.value)


def test_spark_itself_is_refused_on_a_stream(spark: SparkSession) -> None:
    with pytest.raises(SpecError, match="PARAMETERS_CONTRADICT"):
        stream(spark, hopping().options(engine="native"), SCRIPT[:1], schema=SCHEMA)
