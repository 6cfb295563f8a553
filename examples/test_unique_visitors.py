"""Tests of the unique visitors: their logic without Spark, then the job once on Spark."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from chispa import assert_df_equality
from pyspark.sql import SparkSession

from examples import data
from examples.feed import Row, at, write
from examples.unique_visitors import per_day, per_hour, roll_up, start
from streamops import sinks, sketches
from streamops.testing import fold, replay


def view(visitor: int, hour: int, minute: float = 0) -> Row:
    return {"visitor": visitor, "at": at(hour, minute)}


def hours(*batches: list[Row]) -> list[Row]:
    """The last revision of every hour, with its estimate, as `roll_up` passes them on."""
    table = fold(replay(per_hour, batches, flush=True))
    for row in table:
        row["in_hour"] = sketches.read(row["visitors"]).estimate()["estimate"]
        del row["revision"]
    return table


def days(*batches: list[Row]) -> dict[dt.date, tuple[int, int]]:
    """Visitors and the sum of hours by day."""
    results = replay(per_day, [hours(*batches)], watermark="0 seconds", flush=True)
    return {
        row["window_start"].date(): (row["visitors"]["estimate"], row["sum_of_hours"])
        for result in results
        for row in result.rows
    }


def test_a_visitor_of_many_hours_is_one_visitor_of_the_day() -> None:
    views = [view(visitor, hour) for visitor in (1, 2) for hour in (9, 11, 20)]
    assert days([*views, view(3, 9)]) == {at(0).date(): (3, 7)}


def test_a_visitor_of_two_days_counts_on_both() -> None:
    assert list(days([view(1, 23), view(1, 24)]).values()) == [(1, 1), (1, 1)]


def test_a_view_that_is_delivered_twice_changes_nothing() -> None:
    assert days([view(1, 9)], [view(1, 9), view(1, 9)]) == days([view(1, 9)])


def test_a_late_view_revises_its_hour_for_a_day_and_is_routed_after() -> None:
    script = [[view(1, 9)], [view(1, 12)], [], [view(2, 9)], [view(1, 60)], [], [view(3, 9)]]
    results = replay(per_hour, script)
    nine = [row for r in results for row in r.rows if row["window_start"] == at(9)]
    estimates = [sketches.read(row["visitors"]).estimate()["estimate"] for row in nine]
    assert [row["revision"] for row in nine] == [0, 1]
    assert estimates == [1, 2]
    assert [row["reason"] for result in results for row in result.late_rows] == ["too_late"]


def test_the_estimates_are_within_three_standard_errors() -> None:
    views = [row for batch in data.page_views() for row in batch]
    estimates = days(views)
    for day, (estimate, _) in estimates.items():
        exact = len({row["visitor"] for row in views if row["at"].date() == day})
        assert abs(estimate - exact) <= 3 * 1.04 / 2**6 * exact


def test_the_job_writes_the_sketches_of_hours(spark: SparkSession, tmp_path: Path) -> None:
    script = [[view(1, 9), view(2, 9), view(1, 10)], [view(1, 12)], [], [view(3, 9)], [view(1, 50)]]
    write(script, tmp_path / "views")
    start(spark, tmp_path).awaitTermination()
    written = sinks.read_parquet(f"{tmp_path}/hours", spark=spark)
    actual = written.transform(roll_up).select("window_start", "visitors.estimate", "sum_of_hours")
    day = {"window_start": at(0), "estimate": 3, "sum_of_hours": 5}
    expected = spark.createDataFrame([day], actual.schema)
    assert_df_equality(actual, expected, ignore_nullable=True, ignore_row_order=True)
