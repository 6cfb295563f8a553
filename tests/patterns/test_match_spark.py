"""Patterns on Spark: conditions in Spark SQL, on both state APIs, in batches, in chains."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import patterns, split_side_output, windows
from streamops.errors import SchemaError, SpecError
from streamops.testing import assert_rows, at, replay, stream

pytestmark = pytest.mark.spark

APIS = ("transformWithStateInPandas", "applyInPandasWithState")
SCHEMA = pa.schema(
    [
        ("user name", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("type", pa.string()),
        ("ip", pa.string()),
        ("fail", pa.bool_()),
        ("ok", pa.bool_()),
    ]
)
SQL = {"fail": "type = 'fail' AND ip IS NOT NULL", "ok": "upper(type) = 'OK'"}
"""The same conditions as the columns of these names, which the replay reads."""


def login(user: str | None, second: float | None, type_: str, ip: str | None = "x") -> Any:
    return {
        "user name": user,
        "ts": None if second is None else at(second),
        "type": type_,
        "ip": ip,
        "fail": type_ == "fail" and ip is not None,
        "ok": type_ == "ok",
    }


SCRIPT = [
    [login("a", 1, "fail"), login("a", 3, "fail"), login(None, 2, "fail"), login("b", 1, "fail")],
    [
        login("a", 2, "fail", "y"),
        login("a", 4, "ok", "z"),
        login(None, 4, "ok"),
        login("b", 9, "ok"),
    ],
    [login("a", 20, "fail"), login("a", 21, "fail", None), login("a", None, "fail")],
    [login("b", 40, "ok"), login("a", 30, "ok"), login("c", 38, "fail")],
    [login("a", 2, "fail"), login("b", 90, "ok")],
    [login("b", 100, "ok")],
]


def attacks(define: dict[str, Any], **given: Any) -> Any:
    return patterns.match(
        "fail+ ok",
        define=define,
        time="ts",
        by="user name",
        within="10 seconds",
        measures={
            "attempts": patterns.count("fail"),
            "first": patterns.first("fail", "ts"),
            "last ip": patterns.last("ok", "ip"),
            "names": patterns.classifiers(),
        },
        **given,
    )


@pytest.mark.parametrize("api", APIS)
def test_spark_evaluates_conditions_as_the_columns_say(spark: SparkSession, api: Any) -> None:
    policy: dict[str, Any] = {"delay": "5 seconds", "stragglers": "route", "timeouts": "route"}
    transform = attacks(SQL, **policy).options(state_api=api, shards=3)
    actual = stream(spark, transform, SCRIPT, schema=SCHEMA)
    columns = attacks({"fail": "fail", "ok": "ok"}, **policy).options(shards=3)
    expected = replay(columns, SCRIPT, schema=SCHEMA)
    assert [len(result.rows) for result in expected] != [0] * len(expected)
    assert {row["reason"] for result in expected for row in result.late_rows} == {
        "null_time",
        "too_late",
        "timed_out",
    }
    for one, other in zip(actual, expected, strict=True):
        assert_rows(one.rows, other.rows)
        assert_rows(one.late_rows, other.late_rows)
        assert one.counts == other.counts
        assert one.state_rows == other.state_rows


def frame_of(spark: SparkSession) -> DataFrame:
    rows = [row for batch in SCRIPT for row in batch]
    return spark.createDataFrame(
        [tuple(row[name] for name in SCHEMA.names) for row in rows],
        "`user name` string, ts timestamp, type string, ip string, fail boolean, ok boolean",
    )


def test_a_batch_has_the_matches_of_all_rows(spark: SparkSession) -> None:
    found = frame_of(spark).transform(attacks(SQL)).orderBy("match_start", "user name").collect()
    # Without a watermark, the row at second 2 that came last is not late.
    assert [(row["user name"], row["attempts"], row["last ip"]) for row in found] == [
        ("a", 4, "z"),
        ("b", 1, "x"),
        (None, 1, "x"),
    ]
    assert found[0]["first"] == found[0]["match_start"]
    assert found[0]["names"] == ["fail"] * 4 + ["ok"]


def test_earlier_rows_of_sql_expressions(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [(at(n), price, "X") for n, price in enumerate([10, 8, 5, 9, 12])],
        "ts timestamp, price int, symbol string",
    )
    found = rows.transform(
        patterns.match(
            "start down+ up+",
            define={
                "down": "symbol = 'X'" & (patterns.previous("price * 2") > "price * 2"),
                "up": patterns.previous("price") < patterns.current("price"),
            },
            time="ts",
            measures={"prices": patterns.collect_list(None, "price")},
        )
    )
    assert found.dtypes[-1] == ("prices", "array<int>")
    assert [row["prices"] for row in found.collect()] == [[10, 8, 5, 9, 12]]


@pytest.mark.parametrize("api", APIS)
def test_the_first_row_of_the_match_in_sql_expressions(spark: SparkSession, api: Any) -> None:
    """As a stream, with Spark SQL inside the reference, and in a batch."""

    def returns(value: str, **given: Any) -> Any:
        return patterns.match(
            "from below+ back",
            define={
                "below": patterns.initial(value) > value,
                "back": (patterns.initial(value) <= value) & (patterns.previous(value) < value),
            },
            time="ts",
            by="k",
            within="10 seconds",
            measures={"prices": patterns.collect_list(None, "price")},
            **given,
        )

    prices = [[9, 5, 4], [6, 7, 9], [3, 9, 8], [8, 1, 2]]
    script = [
        [
            {"k": k, "ts": at(3 * n + i), "price": p, "double": 2 * p}
            for k in "xy"
            for i, p in enumerate(of)
        ]
        for n, of in enumerate(prices)
    ]
    transform = returns("price * 2", delay="1 second").options(state_api=api)
    actual = stream(spark, transform, script)
    expected = replay(returns("double", delay="1 second"), script)
    assert any(result.rows for result in expected)
    for one, other in zip(actual, expected, strict=True):
        assert_rows(one.rows, other.rows)
    frame = spark.createDataFrame(
        [tuple(row.values()) for batch in script for row in batch],
        "k string, ts timestamp, price bigint, double bigint",
    )
    found = frame.transform(returns("price * 2")).orderBy("k", "match_start").collect()
    assert [row["prices"] for row in found] == [[9, 5, 4, 6, 7, 9]] * 2


def test_the_side_output_is_split_without_the_name_of_the_event_time(spark: SparkSession) -> None:
    batch = frame_of(spark).transform(attacks(SQL, stragglers="route", timeouts="route"))
    results, late = split_side_output(batch)
    assert results.columns == [
        "user name",
        *("match_start", "match_end", "attempts", "first", "last ip", "names"),
    ]
    assert late.columns == [
        "user name",
        *("match_start", "match_end", "side", "reason", "lateness", "watermark", "window", "row"),
        "steps",
    ]
    assert late.schema["row"].dataType.names == SCHEMA.names  # type: ignore[attr-defined]
    assert {row["reason"] for row in late.collect()} == {"null_time", "timed_out"}


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("no_such_column = 1", "CONDITION_INVALID"),
        ("type = ", "CONDITION_INVALID"),
        ("sum(1) OVER ()", "CONDITION_INVALID"),
        ("length(type)", "CONDITION_INVALID"),
    ],
)
def test_conditions_that_spark_cannot_evaluate_are_refused(
    spark: SparkSession, condition: str, code: str
) -> None:
    with pytest.raises(SchemaError) as error:
        frame_of(spark).transform(attacks({"fail": condition, "ok": "ok"}))
    assert error.value.code == code


def test_a_stream_without_a_bound_is_refused(spark: SparkSession) -> None:
    rate = spark.readStream.format("rate").load()
    with pytest.raises(SpecError) as error:
        rate.transform(patterns.match("a b", define={}, time="timestamp", delay="1 second"))
    assert error.value.code == "PARAMETER_MISSING"


def test_a_chain_of_windows_patterns_and_windows(spark: SparkSession) -> None:
    chain = [
        windows.tumbling(
            "5 seconds",
            time="ts",
            by="user name",
            agg={"n": agg.count()},
            delay="2 seconds",
            allowed_lateness="30 seconds",
        ),
        patterns.match(
            "any fewer",
            define={"fewer": patterns.previous("n") > "n"},
            time="window_end",
            by="user name",
            within="20 seconds",
            measures={"n": patterns.sum(None, "n")},
        ),
        windows.tumbling("1 hour", time="match_end", agg={"n": agg.sum("n")}),
    ]
    closing = [*SCRIPT, [login("z", 9_000, "ok")]]
    actual = stream(spark, chain, closing, schema=SCHEMA)
    expected = replay(chain, closing, schema=SCHEMA)
    assert any(result.rows for result in expected)
    for one, other in zip(actual, expected, strict=True):
        assert_rows(one.rows, other.rows)


def test_a_frame_without_columns_to_store(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(at(1),), (at(2),)], "ts timestamp")
    found = rows.transform(patterns.match("a b", define={"a": "second(ts) = 1"}, time="ts"))
    assert found.select(F.count(F.lit(1))).collect()[0][0] == 1
