"""Tests of the fraud pattern: its logic without Spark, then the job once on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession

from examples.feed import Row, at, write
from examples.fraud import once, start, stolen
from streamops import sinks
from streamops.testing import replay

END = 60


def event(number: int, minute: float, amount: float | None) -> Row:
    """A payment, or without an amount a confirmation, with the conditions of the pattern."""
    type_ = "confirmation" if amount is None else "payment"
    row: Row = {"event": number, "card": "7", "type": type_, "amount": amount, "at": at(9, minute)}
    paid = amount or 0.0
    return {**row, "test": 0 < paid < 5, "large": paid > 300, "confirmed": amount is None}


def events(*amounts: float | None) -> list[Row]:
    """Events one minute after the other."""
    return [event(number, number, amount) for number, amount in enumerate(amounts)]


@pytest.mark.parametrize(
    ("amounts", "tests"),
    [
        ((1.0, 2.0, 500.0), [2]),
        ((1.0, 2.0, 3.0, 500.0), [3]),
        ((1.0, 500.0), []),  # one small payment is an ordinary one
        ((1.0, 2.0, 300.0), []),
        ((1.0, 2.0, 50.0, 500.0), []),
        ((1.0, 2.0, 500.0, None), []),  # confirmed
        ((1.0, 2.0, 500.0, 20.0, None), []),
    ],
)
def test_a_tested_card_is_reported_unless_the_owner_confirms(
    amounts: tuple[float | None, ...], tests: list[int]
) -> None:
    results = replay(stolen, [events(*amounts), [event(99, END, 20.0)], []])
    assert [row["tests"] for result in results for row in result.rows] == tests


def test_a_confirmation_counts_until_a_quarter_of_an_hour_after_the_first_test() -> None:
    for minute, alerts in ((14.9, 0), (15, 1)):
        script = [[*events(1.0, 2.0, 500.0), event(9, minute, None)], [event(99, END, 20.0)], []]
        assert sum(len(result.rows) for result in replay(stolen, script)) == alerts


def test_a_payment_that_is_delivered_twice_is_one_test() -> None:
    script = [events(1.0, 500.0), events(1.0), [event(99, END, 20.0)], []]
    assert not [row for result in replay([once, stolen], script) for row in result.rows]
    without = replay(stolen, [[*events(1.0, 500.0), *events(1.0)], *script[2:]])
    assert [row["tests"] for result in without for row in result.rows] == [2]


def test_a_late_event_is_routed() -> None:
    script = [[event(99, END, 20.0)], [], [event(1, 0, 500.0)]]
    (late,) = (row for result in replay(stolen, script) for row in result.late_rows)
    assert (late["reason"], late["row"]["large"]) == ("too_late", True)


def test_the_job_writes_alerts(spark: SparkSession, tmp_path: Path) -> None:
    columns = ("event", "card", "type", "amount", "at")
    script = [events(1.0, 2.0, 500.0), [event(99, END, 20.0)], events(1.0), []]
    write(
        [[{name: row[name] for name in columns} for row in rows] for rows in script],
        tmp_path / "events",
    )
    start(spark, tmp_path).awaitTermination()
    written = sinks.read_parquet(f"{tmp_path}/alerts", spark=spark)
    alert = {"card": "7", "match_start": at(9), "match_end": at(9, 2), "tests": 2, "amount": 500.0}
    expected = spark.createDataFrame([alert], written.schema)
    assert_df_equality(written, expected, ignore_nullable=True, ignore_row_order=True)
