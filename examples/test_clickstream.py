"""Tests of the clickstream job: its logic without Spark, then the job once on Spark."""

from __future__ import annotations

from pathlib import Path

from chispa import assert_df_equality
from pyspark.sql import SparkSession

from examples import data
from examples.clickstream import once, start, visits
from examples.feed import Row, at, write
from streamops import sinks
from streamops.testing import assert_rows, replay


def click(number: int, minute: float, page: str = "home") -> Row:
    return {"click": number, "user": "ada", "page": page, "at": at(9, minute)}


def test_clicks_half_an_hour_apart_are_one_visit() -> None:
    one = [click(1, 0), click(2, 30, "paid")]
    two = [click(3, 61), click(4, 70, "search")]
    first, second = (row for r in replay(visits, [[*two, *one]], flush=True) for row in r.rows)
    assert (first["clicks"], first["entry"], first["exit"]) == (2, "home", "paid")
    assert (first["window_start"], first["window_end"]) == (at(9), at(10))
    assert (second["clicks"], second["entry"], second["exit"]) == (2, "home", "search")


def test_a_click_that_is_delivered_twice_counts_once() -> None:
    twice = [[click(1, 0), click(2, 5)], [click(1, 0)], [click(9, 90)], []]
    assert [row["clicks"] for r in replay([once, visits], twice) for row in r.rows] == [2]


def test_a_visit_is_published_five_minutes_after_its_end() -> None:
    results = replay(visits, [[click(1, 0)], [click(2, 34.9)], [], [click(3, 35)], []])
    assert [len(result.rows) for result in results] == [0, 0, 0, 0, 1]


def test_a_click_of_a_closed_visit_is_routed_with_its_reason() -> None:
    (late,) = (
        row
        for result in replay(visits, [[click(1, 120)], [], [click(2, 0, "basket")]])
        for row in result.late_rows
    )
    assert (late["reason"], late["row"]["page"]) == ("too_late", "basket")


def test_visits_depend_neither_on_disorder_nor_on_micro_batches() -> None:
    rows = [row for batch in data.clicks() for row in batch]
    ordered = sorted(rows, key=lambda row: row["at"])
    whole, sliced = (
        [row for result in replay([once, visits], batches, flush=True) for row in result.rows]
        for batches in ([rows], [ordered[n : n + 7] for n in range(0, len(rows), 7)])
    )
    assert_rows(whole, sliced)


def test_the_job_writes_visits_and_late_clicks(spark: SparkSession, tmp_path: Path) -> None:
    script = [[click(1, 0), click(2, 5, "paid"), click(1, 0)], [click(3, 90)], [], [click(4, 1)]]
    write(script, tmp_path / "clicks")
    start(spark, tmp_path).awaitTermination()
    written = sinks.read_parquet(f"{tmp_path}/visits", spark=spark)
    visit = {"user": "ada", "window_start": at(9), "window_end": at(9, 35)}
    visit |= {"clicks": 2, "entry": "home", "exit": "paid"}
    expected = spark.createDataFrame([visit], written.schema)
    assert_df_equality(written, expected, ignore_nullable=True, ignore_row_order=True)
    late = sinks.read_parquet(f"{tmp_path}/late", spark=spark)
    assert [(row.reason, row.time.minute) for row in late.collect()] == [("too_late", 1)]
