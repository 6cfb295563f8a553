"""Sessions on Spark, compared with Spark's own sessions where these can compute the same."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import windows
from streamops.testing import assert_rows, at, fold, micro_batches, replay, stream
from tests.windows.test_windows_spark import APIS, folded, same

pytestmark = pytest.mark.spark

SHARDS = 3
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("v", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("lasts", pa.duration("us")),
        ("over", pa.bool_()),
    ]
)


def rows(*events: tuple[str | None, float | None, int]) -> list[dict[str, Any]]:
    """Events of (key, second, value); every third ends its session, every second lasts 5 s."""
    return [
        {
            "k": k,
            "ts": None if s is None else at(s),
            "v": v,
            "lasts": dt.timedelta(seconds=10 if v % 2 else 5),
            "over": v % 3 == 0,
        }
        for k, s, v in events
    ]


# Merges of open sessions (batch 2), a straggler that merges (batch 3), one that is on time by its
# own interval but touches a published session (batch 4), one beyond the lateness, null key and time.
SCRIPT = [
    rows(("a", 1, 1), ("b", 2, 2), (None, 3, 4)),
    rows(("a", 14, 4), ("b", 31, 5), ("a", 9, 7)),
    rows(("a", 26, 8), ("c", 12, 7), ("a", None, 8), ("b", 11, 3)),
    rows(("a", 45, 9), ("b", 39, 10)),
    rows(("a", 13, 10), ("b", 90, 11), ("b", 41, 13), ("c", 44, 12)),
    rows(("b", 100, 13)),
]
AGG = {
    "n": agg.count(),
    "total": agg.sum("v"),
    "least": agg.min("v"),
    "newest": agg.last("v", tie_break="v"),
}
COMMON: dict[str, Any] = {
    "time": "ts", "by": "k", "agg": AGG, "delay": "5 seconds"
}  # fmt: skip
RETRACT = {"stragglers": "retract", "allowed_lateness": "20 seconds"}
POLICIES: list[dict[str, Any]] = [
    {"stragglers": "route", "gap_column": "lasts"},
    {**RETRACT, "too_late": "route", "until": "over"},
    {**RETRACT, "early": "every batch", "max_length": "15 seconds"},
    {"until": "over", "max_length": "12 seconds", "early": "every batch"},
]


@pytest.mark.parametrize("number", range(len(POLICIES)))
def test_a_stream_on_spark_gives_what_its_replay_gives(spark: SparkSession, number: int) -> None:
    transform = windows.session("10 seconds", **POLICIES[number], **COMMON).options(
        state_api=APIS[number % 2], shards=SHARDS
    )
    expected = replay(transform, SCRIPT, schema=SCHEMA)
    same(stream(spark, transform, SCRIPT, schema=SCHEMA), expected)
    assert any(result.rows for result in expected)


def test_the_two_engines_publish_the_same_sessions_in_the_same_micro_batches(
    spark: SparkSession,
) -> None:
    """In histories in which no row would extend a published session."""
    script = [*SCRIPT[:2], rows(("a", 26, 8), ("b", 40, 3)), *SCRIPT[5:]]
    native = stream(
        spark,
        windows.session("10 seconds", **COMMON).options(engine="native", shards=SHARDS),
        script,
        schema=SCHEMA,
    )
    kernel = replay(
        windows.session("10 seconds", **COMMON).options(shards=SHARDS), script, schema=SCHEMA
    )
    assert sum(len(result.rows) for result in kernel) > 3
    for one, other in zip(native, kernel, strict=True):
        assert_rows(one.rows, other.rows)


def test_spark_begins_a_second_session_where_ours_has_a_straggler(spark: SparkSession) -> None:
    script = [
        rows(*events)
        for events in ([("a", 0, 1)], [("b", 17, 1)], [], [("a", 10, 1)], [("b", 90, 1)])
    ]
    windows_of = [
        {
            (row["window_start"], row["window_end"])
            for r in results
            for row in r.rows
            if row["k"] == "a"
        }
        for results in (
            stream(
                spark,
                windows.session("10 seconds", **COMMON).options(engine="native", shards=SHARDS),
                script,
                schema=SCHEMA,
            ),
            replay(
                windows.session("10 seconds", **COMMON).options(shards=SHARDS),
                script,
                schema=SCHEMA,
            ),
        )
    ]
    assert windows_of[1] == {(at(0), at(10))}
    assert windows_of[0] == {(at(0), at(10)), (at(10), at(20))}


def test_a_batch_gives_the_same_on_both_engines_and_under_every_policy(
    spark: SparkSession,
) -> None:
    events = [row for batch in SCRIPT for row in batch]
    frame = spark.createDataFrame(pa.Table.from_pylist(events, SCHEMA))
    for policy in ({}, RETRACT, {"early": "every batch"}):
        kernel, native = (
            frame.transform(
                windows.session("10 seconds", **policy, **COMMON).options(
                    engine=engine, shards=SHARDS
                )
            )
            for engine in ("kernel", "native")
        )
        assert kernel.schema == native.schema
        assert_rows(kernel, native)
    for policy in POLICIES:
        got = frame.transform(
            windows.session("10 seconds", **policy, **COMMON).options(shards=SHARDS)
        )
        whole = replay(
            windows.session("10 seconds", **policy, **{**COMMON, "delay": "1 hour"}).options(
                shards=SHARDS
            ),
            [events],
            schema=SCHEMA,
            flush=True,
        )
        plain = got.drop("revision", "timing", "_change_type")
        if "late" in plain.columns:
            plain = plain.where(F.col("late").isNull()).drop("late")
        # Unless results are early, no result is revised without late rows.
        expected = fold(whole) if policy.get("early") else [r for b in whole for r in b.rows]
        names = plain.columns
        assert_rows(plain, [{name: row[name] for name in names} for row in expected])


def test_a_restart_continues_and_refuses_other_parameters(
    spark: SparkSession, tmp_path: Any
) -> None:
    def operator(**changed: Any) -> Any:
        arguments = {**COMMON, **POLICIES[1], "max_length": "1 minute", **changed}
        return windows.session(arguments.pop("gap", "10 seconds"), **arguments).options(
            shards=SHARDS
        )

    whole = replay(operator(), SCRIPT, schema=SCHEMA)
    first = stream(spark, operator(), SCRIPT[:3], schema=SCHEMA, directory=tmp_path)
    rest = stream(spark, operator(), SCRIPT[3:], schema=SCHEMA, directory=tmp_path)
    assert_rows(fold([*first, *rest]), fold(whole))

    more = [rows(("a", 200, 1))]
    for changed, message in (
        ({"until": None}, "until='over'"),
        ({"max_length": "2 minutes"}, "max_length=60000000"),
    ):
        with pytest.raises(StreamingQueryException) as caught:
            stream(spark, operator(**changed), more, schema=SCHEMA, directory=tmp_path)
        assert "[STATE_PARAMETERS]" in str(caught.value)
        assert message in str(caught.value)
        more = []  # they wait in the source since the first attempt


def test_sessions_chain_before_and_behind_other_windows(spark: SparkSession, tmp_path: Any) -> None:
    """Sessions ended by closing rows are emitted behind the watermark, and still count downstream."""

    # A visit of 4 s every 20 s for each key, ended by its third event; b's events arrive 8 s late.
    def visits(k: str, late: int, batch: int) -> list[Any]:
        start = 20 * batch - late
        return [(k, start + 2 * i, 3 if i == 2 else 1) for i in range(3)]

    script = [rows(*visits("a", 0, b), *visits("b", 8, b)) for b in range(8)]
    session = windows.session(
        "10 seconds",
        until="over",
        **{**COMMON, "delay": "1 second", "agg": {"n": agg.count()}},
    ).options(shards=SHARDS)
    per_minute = windows.tumbling(
        "1 minute", time="window_start", by="k", agg={"visits": agg.count(), "n": agg.sum("n")},
        ).options(shards=2)  # fmt: skip
    frame = micro_batches(spark, script, schema=SCHEMA).transform(session).transform(per_minute)
    (tmp_path / "behind").mkdir()
    got = folded(spark, frame, tmp_path / "behind")
    found = {(r["k"], r["window_start"].minute, r["visits"], r["n"]) for r in got}
    assert {("a", 0, 3, 9), ("a", 1, 3, 9), ("b", 0, 3, 9)} <= found | {("b", 0, 3, 9)}
    assert ("b", 0, 3, 9) in found

    seconds = windows.tumbling(
        "2 seconds",
        time="ts",
        by="k",
        agg={"n": agg.count()},
        delay="9 seconds",
    ).options(shards=2)
    after = windows.session(
        "5 seconds",
        time="window_start",
        by="k",
        agg={"n": agg.sum("n")},
    ).options(shards=2)
    frame = micro_batches(spark, script, schema=SCHEMA).transform(seconds).transform(after)
    (tmp_path / "before").mkdir()
    got = folded(spark, frame, tmp_path / "before")
    assert {(r["k"], r["n"]) for r in got} == {("a", 3), ("b", 3)}
    assert len([r for r in got if r["k"] == "a"]) >= 5
