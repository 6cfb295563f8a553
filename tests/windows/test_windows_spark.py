"""Windows on Spark: that they are wired, on both engines and both state APIs.

What the core decides is tested on the core; here a micro-batch on Spark must give what the
same micro-batch gives without it.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import split_side_output, windows
from streamops.changelog.chains import WATERMARK
from streamops.testing import assert_rows, at, fold, micro_batches, replay, stream

pytestmark = pytest.mark.spark

SHARDS = 3
APIS = ("transformWithStateInPandas", "applyInPandasWithState")
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def rows(*events: tuple[str | None, float | None, int]) -> list[dict[str, Any]]:
    return [{"k": k, "ts": None if s is None else at(s), "v": v} for k, s, v in events]


# Out of order, a straggler within the lateness (5 s in batch 2), one beyond it (batch 4), a
# null key, a null time, a window that only a straggler makes (c).
SCRIPT = [
    rows(("a", 1, 1), ("b", 2, 2), (None, 3, 3)),
    rows(("a", 14, 4), ("b", 31, 5)),
    rows(("a", 5, 6), ("c", 12, 7), ("a", None, 8)),
    rows(("a", 45, 9)),
    rows(("a", 13, 10), ("b", 90, 11), ("b", 20, 12)),
    rows(("b", 100, 13)),
]
AGG = {
    "n": agg.count(),
    "total": agg.sum("v"),
    "mean": agg.mean("v"),
    "least": agg.min("v"),
    "spread": agg.variance("v"),
    "newest": agg.last("v", tie_break="v"),
}
COMMON: dict[str, Any] = {
    "time": "ts",
    "by": "k",
    "agg": AGG,
}
POLICIES: list[dict[str, Any]] = [
    {"stragglers": "drop"},
    {"stragglers": "route", "allowed_lateness": "20 seconds"},
    {"stragglers": "update", "allowed_lateness": "20 seconds"},
    {"stragglers": "retract", "allowed_lateness": "20 seconds", "too_late": "route"},
]


def same(actual: list[Any], expected: list[Any]) -> None:
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert_rows(one.rows, other.rows)
        assert_rows(one.late_rows, other.late_rows)
        assert one.watermark == other.watermark
        assert one.counts == other.counts
        assert one.state_rows == other.state_rows


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p["stragglers"])
def test_a_stream_on_spark_gives_what_its_replay_gives(
    spark: SparkSession, policy: dict[str, Any]
) -> None:
    # Each API serves two of the policies under each kind of window.
    turn = POLICIES.index(policy)
    tumbling = windows.tumbling("10 seconds", delay="5 seconds", **policy, **COMMON).options(
        state_api=APIS[turn % 2], shards=SHARDS
    )
    hopping = windows.hopping(
        "10 seconds",
        "4 seconds",
        delay="5 seconds",
        **policy,
        **COMMON,
    ).options(state_api=APIS[1 - turn % 2], shards=SHARDS)
    for transform in (tumbling, hopping):
        same(
            stream(spark, transform, SCRIPT, schema=SCHEMA),
            replay(transform, SCRIPT, schema=SCHEMA),
        )


def test_the_two_engines_publish_the_same_windows_in_the_same_micro_batches(
    spark: SparkSession,
) -> None:
    for make in (
        lambda engine: windows.tumbling("10 seconds", delay="5 seconds", **COMMON).options(
            engine=engine, shards=SHARDS
        ),
        lambda engine: windows.hopping(
            "10 seconds", "4 seconds", delay="5 seconds", origin="1 second", **COMMON
        ).options(engine=engine, shards=SHARDS),
    ):
        native = stream(spark, make("native"), SCRIPT, schema=SCHEMA)
        kernel = replay(make("kernel"), SCRIPT, schema=SCHEMA)
        for one, other in zip(native, kernel, strict=True):
            assert_rows(one.rows, other.rows)


def test_a_frame_with_its_own_watermark_gives_the_results_of_spark(
    spark: SparkSession,
) -> None:
    # The row at 5 s is behind the watermark, but its hopping window is still open.
    script = [rows(("a", 1, 1)), rows(("a", 12, 2)), rows(("a", 5, 3)), rows(("a", 60, 4))]
    window = ("10 seconds", "4 seconds")
    ours = stream(
        spark,
        windows.hopping(*window, **COMMON).options(shards=SHARDS),
        script,
        schema=SCHEMA,
        watermark="5 seconds",
    )
    native = stream(
        spark,
        windows.hopping(*window, **COMMON).options(engine="native", shards=SHARDS),
        script,
        schema=SCHEMA,
        watermark="5 seconds",
    )
    assert any(result.rows for result in ours)
    for one, other in zip(ours, native, strict=True):
        assert_rows(one.rows, other.rows)


def test_a_batch_gives_the_same_on_both_engines_and_under_every_policy(
    spark: SparkSession,
) -> None:
    frame = spark.createDataFrame(
        [tuple(row[name] for name in SCHEMA.names) for batch in SCRIPT for row in batch],
        "k string, v long, ts timestamp",
    )
    for size in (("10 seconds",), ("10 seconds", "4 seconds")):
        operator = windows.tumbling if len(size) == 1 else windows.hopping
        for policy in POLICIES:
            kernel = frame.transform(operator(*size, **policy, **COMMON).options(engine="kernel"))
            if "route" in policy.values():
                results, late = split_side_output(kernel)
                assert [r["reason"] for r in late.collect()] == ["null_time"]
                kernel = results
            plain = {k: v for k, v in policy.items() if v != "route" and k != "too_late"}
            native = frame.transform(operator(*size, **plain, **COMMON).options(engine="native"))
            assert_rows(kernel, native)


def folded(spark: SparkSession, frame: DataFrame, directory: Any) -> list[dict[str, Any]]:
    query = (
        frame.writeStream.outputMode("append")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .format("parquet")
        .option("path", str(directory / "out"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(200)
    return [row.asDict() for row in spark.read.parquet(str(directory / "out")).collect()]


def test_operators_chain_in_one_query_ours_and_native(spark: SparkSession, tmp_path: Any) -> None:
    script = [rows(*((k, s + b * 20, 1) for k in "ab" for s in range(20))) for b in range(6)]
    fine = windows.tumbling(
        "5 seconds",
        time="ts",
        by="k",
        agg={"n": agg.count()},
        delay="2 seconds",
    ).options(shards=2)
    coarse = windows.tumbling(
        "20 seconds",
        time="window_start",
        by="k",
        agg={"n": agg.sum("n")},
    ).options(shards=2)

    ours = micro_batches(spark, script, schema=SCHEMA).transform(fine).transform(coarse)
    expected = {(k, at(20 * i).replace(tzinfo=None), 20) for k in "ab" for i in range(5)}
    (tmp_path / "ours").mkdir()
    got = folded(spark, ours, tmp_path / "ours")
    assert {(r["k"], r["window_start"], r["n"]) for r in got} == expected
    assert len(got) == len(expected)

    # A native windowed aggregation before ours, and one after it.
    before = windows.tumbling(
        "5 seconds",
        time="ts",
        by="k",
        agg={"n": agg.count()},
        delay="2 seconds",
    ).options(engine="native")
    middle = windows.tumbling(
        "10 seconds",
        time="window_start",
        by="k",
        agg={"n": agg.sum("n")},
    ).options(shards=2)
    both = micro_batches(spark, script, schema=SCHEMA).transform(before).transform(middle)
    after = both.groupBy("k", F.window("window_end", "20 seconds", startTime="1 second")).agg(
        F.sum("n").alias("n")
    )
    (tmp_path / "native").mkdir()
    got = folded(spark, after.select("k", "window.start", "n"), tmp_path / "native")
    # Ends 10, 20 | 30, 40 | ...: shifted by a second, so that an end lies inside its window.
    expected = {(k, at(1 + 20 * i).replace(tzinfo=None), 20) for k in "ab" for i in range(5)}
    assert {(r["k"], r["start"], r["n"]) for r in got} == expected


def test_a_chain_continues_after_a_restart(spark: SparkSession, tmp_path: Any) -> None:
    script = [rows(*((k, s + b * 20, 1) for k in "ab" for s in range(20))) for b in range(6)]
    fine = windows.tumbling(
        "5 seconds",
        time="ts",
        by="k",
        agg={"n": agg.count()},
        delay="2 seconds",
    ).options(shards=2)
    coarse = windows.tumbling(
        "20 seconds",
        time="window_start",
        by="k",
        agg={"n": agg.sum("n")},
    ).options(shards=2)
    for there in (script[:3], script):
        frame = micro_batches(spark, there, schema=SCHEMA).transform(fine).transform(coarse)
        got = folded(spark, frame, tmp_path)
    expected = {(k, at(20 * i).replace(tzinfo=None), 20) for k in "ab" for i in range(5)}
    assert {(r["k"], r["window_start"], r["n"]) for r in got} == expected
    assert len(got) == len(expected)


def test_the_mark_of_a_watermark_is_the_key_spark_uses(spark: SparkSession) -> None:
    """The plan restores this metadata key after a Python map; Spark must not rename it."""
    frame = micro_batches(spark, SCRIPT[:1], schema=SCHEMA).withWatermark("ts", "7 seconds")
    assert frame.schema["ts"].metadata == {WATERMARK: 7000}


def test_a_restart_continues_and_refuses_other_parameters(
    spark: SparkSession, tmp_path: Any
) -> None:
    def operator(**changed: Any) -> Any:
        arguments = {**COMMON, "delay": "5 seconds", "stragglers": "retract", **changed}
        arguments.setdefault("allowed_lateness", "20 seconds")
        shards = arguments.pop("shards", SHARDS)
        return windows.tumbling(arguments.pop("size", "10 seconds"), **arguments).options(
            shards=shards
        )

    whole = replay(operator(), SCRIPT, schema=SCHEMA)
    first = stream(spark, operator(), SCRIPT[:3], schema=SCHEMA, directory=tmp_path)
    rest = stream(spark, operator(), SCRIPT[3:], schema=SCHEMA, directory=tmp_path)
    assert_rows(fold([*first, *rest]), fold(whole))

    more = [rows(("a", 200, 1))]
    for changed, code, message in (
        ({"shards": 5}, "STATE_SHARDS", "shards=3"),
        ({"size": "20 seconds"}, "STATE_PARAMETERS", "size=10000000"),
        ({"agg": {"n": agg.sum("v")}}, "STATE_PARAMETERS", "agg"),
    ):
        with pytest.raises(StreamingQueryException) as caught:
            stream(spark, operator(**changed), more, schema=SCHEMA, directory=tmp_path)
        assert f"[{code}]" in str(caught.value)
        assert message in str(caught.value)
        more = []  # they wait in the source since the first attempt


def test_the_session_time_zone_changes_nothing(spark: SparkSession) -> None:
    transform = windows.tumbling("10 seconds", delay="5 seconds", **POLICIES[3], **COMMON).options(
        shards=SHARDS
    )
    expected = replay(transform, SCRIPT, schema=SCHEMA)
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        same(stream(spark, transform, SCRIPT, schema=SCHEMA), expected)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


EVERY_TYPE = """
    named_struct('a', 1, 'b', array(1.5D, null)) as st, array('x', null) as ar,
    map('k', named_struct('z', 1L)) as mp, cast(1.25 as decimal(10,2)) as de,
    cast('99999999999999999999999999999.123456789' as decimal(38,9)) as big,
    X'00FF' as bi, true as bo, 1Y as by, 2S as sh, 3 as i, 4L as l, float('nan') as fl,
    double('-infinity') as do, 'text' as s, date'1969-12-31' as da,
    timestamp'1969-12-31 23:59:59.999999Z' as tz, timestamp_ntz'2024-03-10 02:30:00' as nt,
    interval '1 02:03:04.5' day to second as dt, time'12:34:56.789' as ti,
    parse_json('{"a": 1}') as va, cast(null as void) as vo, cast(null as string) as nu
"""


@pytest.mark.parametrize("api", APIS)
def test_columns_of_every_type_pass_through_unharmed(
    spark: SparkSession, tmp_path: Any, api: str
) -> None:
    """As late rows, as values of `last`, and as keys: no step converts them to pandas columns."""
    spark.conf.set("spark.sql.timeType.enabled", "true")
    source = spark.sql(f"select timestamp'2024-01-01 00:00:01Z' as ts, 1 as seq, {EVERY_TYPE}")
    far, farther = (
        source.withColumn("ts", F.expr(f"timestamp'2024-01-01 0{hour}:00:00Z'")) for hour in (1, 2)
    )
    types = [name for name in source.columns if name not in ("ts", "seq")]
    keys = [name for name in types if name not in ("mp", "va", "vo")]
    # By the third, rows are compared with the watermark of the first; the fourth closes the window of the first two.
    tables = [frame.toArrow() for frame in (far, far, source, farther)]
    transform = windows.tumbling(
        "10 seconds",
        time="ts",
        by=keys,
        agg={f"last_{name}": agg.last(name, tie_break="seq") for name in types},
        delay="5 seconds",
        stragglers="route",
    ).options(shards=2, state_api=api)
    collected: dict[str, list[str]] = {"late": [], "keys": [], "values": []}

    def keep(batch: DataFrame, number: int) -> None:
        batch.persist()
        results, late = split_side_output(batch)
        collected["late"] += _as_json(late, {f"row.{name}": name for name in types})
        collected["keys"] += _as_json(results, {name: name for name in keys})
        collected["values"] += _as_json(results, {f"last_{name}": name for name in types})
        batch.unpersist()

    query = (
        micro_batches(spark, tables, directory=tmp_path)
        .transform(transform)
        .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(keep)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(200)
    whole = _as_json(source, {name: name for name in types})
    assert collected["late"] == whole
    assert collected["values"] == whole
    assert collected["keys"] == _as_json(source, {name: name for name in keys})


def _as_json(frame: DataFrame, names: dict[str, str]) -> list[str]:
    """The columns as Spark itself writes them: the values do not pass through Python."""
    columns = F.struct(*(F.col(column).alias(name) for column, name in names.items()))
    return [row[0] for row in frame.select(F.to_json(columns)).collect()]


def test_each_operator_of_a_query_has_metrics_under_its_own_name(
    spark: SparkSession, tmp_path: Any
) -> None:
    fine = windows.tumbling(
        "5 seconds", **{**COMMON, "agg": {"n": agg.count()}}, delay="1 second"
    ).options(shards=SHARDS)
    coarse = windows.tumbling(
        "10 seconds",
        time="window_start",
        by="k",
        agg={"n": agg.sum("n")},
    ).options(shards=2)
    frame = micro_batches(spark, SCRIPT[:2], schema=SCHEMA).transform(fine).transform(coarse)
    query = (
        frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .format("noop")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(200)
    counts = [p.observedMetrics for p in query.recentProgress]
    assert [t["tumbling"]["rows"] for t in counts][:2] == [3, 2]
    assert sum(t["tumbling-2"]["rows"] or 0 for t in counts) == 4
    assert counts[-1]["tumbling"]["watermark"] == "2024-01-01 00:00:30"
