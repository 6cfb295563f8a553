"""Tests of the sensor fleet: its logic without Spark, then the job once on Spark."""

from __future__ import annotations

from pathlib import Path

from chispa import assert_df_equality
from pyspark.sql import SparkSession

from examples import data
from examples.feed import Row, at, write
from examples.sensor_fleet import correct, start, temperatures
from streamops import sinks
from streamops.testing import fold, replay


def reading(minute: float, celsius: float, *, sent: float = 0, fast: float = 0) -> Row:
    """A reading of a sensor whose clock is fast by so many minutes."""
    row: Row = {"sensor": "attic", "celsius": celsius, "measured_at": at(9, minute + fast)}
    sent = max(minute, sent)
    return {**row, "sent_at": at(9, sent + fast), "received_at": at(9, sent)}


def test_a_clock_that_is_hours_off_is_corrected() -> None:
    (result,) = replay(correct, [[reading(5, 20, fast=-120), reading(10, 21, fast=-120)]])
    assert [row["corrected_time"] for row in result.rows] == [at(9, 5), at(9, 10)]


def test_a_reading_that_waited_on_the_sensor_is_as_old_as_it_is() -> None:
    (result,) = replay(correct, [[reading(0, 20, sent=90, fast=37)]])
    assert [row["corrected_time"] for row in result.rows] == [at(9)]


def test_a_reading_that_was_stored_corrects_its_window_as_a_revision() -> None:
    script = [[reading(5, 20), reading(6, 19)], [reading(90, 25)], [], [reading(7, 22, sent=91)]]
    results = replay([correct, temperatures], [*script, [reading(8, 21, sent=92)]])
    published = [(row["revision"], row["celsius"]) for r in results for row in r.rows]
    assert published == [(0, 20), (1, 22)]  # the last reading changes nothing


def test_a_reading_that_is_more_than_a_day_late_is_routed() -> None:
    script = [[reading(0, 20)], [reading(26 * 60, 20)], [], [reading(1, 25, sent=26 * 60)]]
    (late,) = (row for r in replay([correct, temperatures], script) for row in r.late_rows)
    assert (late["reason"], late["row"]["celsius"]) == ("too_late", 25)


def test_all_sensors_are_warmest_at_noon() -> None:
    table = fold(replay([correct, temperatures], data.readings(), flush=True))
    for sensor in {row["sensor"] for row in table}:
        rows = (row for row in table if row["sensor"] == sensor)
        warmest = max(rows, key=lambda row: row["celsius"])
        assert warmest["window_start"] in (at(11, 30), at(12))


def test_the_job_writes_temperatures(spark: SparkSession, tmp_path: Path) -> None:
    script = [[reading(5, 20, fast=37), reading(6, 21, fast=37)], [reading(90, 25, fast=37)], []]
    write(script, tmp_path / "readings")
    start(spark, tmp_path).awaitTermination()
    written = sinks.read_parquet(f"{tmp_path}/temperatures", spark=spark)
    window = {"sensor": "attic", "window_start": at(9), "window_end": at(9, 30), "celsius": 21.0}
    window |= {"by_own_clock": at(9, 42), "revision": 0}
    expected = spark.createDataFrame([window], written.schema)
    assert_df_equality(written, expected, ignore_nullable=True, ignore_row_order=True)
