"""Corrected clocks on Spark: boundary cases compared with an oracle, and simulated clocks."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import time, windows
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, parse_instant
from streamops.testing import START, assert_rows, at, micro_batches
from tests.oracles import clocks

pytestmark = pytest.mark.spark

SECOND, HOUR, DAY = 1_000_000, 3_600_000_000, 86_400_000_000
THREE = {"sent": "sent", "received": "received"}
NOON = parse_instant(dt.datetime(2024, 3, 9, 12, tzinfo=dt.UTC), parameter="")
BORDERS = [
    *(None, NOON - DAY, NOON - DAY - 1, NOON - 1, NOON, NOON + 1, NOON + DAY, NOON + DAY + 1),
    *(0, MIN_INSTANT, MIN_INSTANT - 1, MAX_INSTANT, MAX_INSTANT + 1, -(2**63) + 1, 2**63 - 1),
]
TRIPLES = list(itertools.product(BORDERS, repeat=3))


def messages(spark: SparkSession, triples: list[Any]) -> DataFrame:
    rows = [(number, *triple) for number, triple in enumerate(triples)]
    names = ("ts", "sent", "received")
    frame = spark.createDataFrame(rows, "number long, ts long, sent long, received long")
    return frame.select("number", *(F.timestamp_micros(name).alias(name) for name in names))


def corrected(frame: DataFrame, **arguments: Any) -> list[Any]:
    """Time, offset and quality of each row, in microseconds."""
    done = frame.transform(time.correct_clock("ts", **THREE, **arguments))
    micro = F.expr("interval '0.000001' second")
    offset = F.col("clock_offset")
    back = F.unix_micros("received") - F.unix_micros("sent")
    return [
        tuple(row)
        for row in done.orderBy("number")
        .select(
            F.unix_micros("corrected_time"),
            F.when(offset == micro * back, back).when(offset.isNotNull(), F.lit(-1)),
            "clock_quality",
        )
        .collect()
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, {}),
        (
            {"tolerance": "1 day", "otherwise": "device"},
            {"tolerance": DAY, "otherwise": "device"},
        ),
        (
            {"longest_wait": "1 day", "largest_offset": "1 day", "otherwise": "null"},
            {"longest_wait": DAY, "largest_offset": DAY, "otherwise": "null"},
        ),
        ({"longest_wait": "0 seconds"}, {"longest_wait": 0}),
    ],
    ids=repr,
)
def test_boundary_cases_equal_the_oracle(
    spark: SparkSession, arguments: dict[str, Any], expected: dict[str, Any]
) -> None:
    # In New York the day that starts at noon of 9 March 2024 has 23 hours.
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        got = corrected(messages(spark, TRIPLES), **arguments)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    for found, triple in zip(got, TRIPLES, strict=True):
        assert found == clocks.correct_clock(*triple, **expected), triple
    for (found, *_), (_, _, received) in zip(got, TRIPLES, strict=True):
        # The corrected time is never after the time of receipt.
        if found is not None and clocks.in_calendar(received) is not None:
            assert found <= received


class Device:
    """A device with a wrong clock: a function from the true time to the time of the clock."""

    def __init__(self, seed: int, clock: Any) -> None:
        self.random = random.Random(seed)
        self.clock = clock

    def messages(self, count: int, *, longest_wait: int, longest_delay: int) -> list[Any]:
        """Return true times of event and sending, the delay, and the three timestamps of a row."""
        result = []
        for number in range(count):
            event = NOON + number * 60 * SECOND + self.random.randrange(SECOND)
            sent = event + self.random.randrange(longest_wait)
            delay = self.random.randrange(1_000, longest_delay)
            stamps = (self.clock(event), self.clock(sent), sent + delay)
            result.append((event, sent, delay, stamps))
        return result


def errors(spark: SparkSession, sent: list[Any], **arguments: Any) -> list[Any]:
    """The error of each corrected time, its quality, and the message."""
    got = corrected(messages(spark, [stamps for *_, stamps in sent]), **arguments)
    return [
        (instant - message[0], quality, message)
        for (instant, _, quality), message in zip(got, sent, strict=True)
    ]


WAITS = {"longest_wait": 10 * HOUR, "longest_delay": 2 * SECOND}


def test_the_error_of_a_clock_with_a_constant_offset_is_the_delay(spark: SparkSession) -> None:
    sent_messages = [
        message
        for offset in (-400 * DAY, -3 * SECOND, 0, 7 * HOUR, 30_000 * DAY)
        for message in Device(1, lambda true, offset=offset: true + offset).messages(100, **WAITS)
    ]
    for error, quality, (_, _, delay, _) in errors(spark, sent_messages):
        assert quality == "corrected"
        assert error == delay


def test_a_clock_that_drifts_adds_an_error_of_its_drift_times_the_wait(spark: SparkSession) -> None:
    share = 0.0002  # 17 seconds a day, fast
    device = Device(2, lambda true: true + int((true - NOON) * share) - 5 * HOUR)
    for error, quality, (event, sent, delay, _) in errors(spark, device.messages(300, **WAITS)):
        assert quality == "corrected"
        assert abs(error - (delay - (sent - event) * share)) <= 2
        assert -share * WAITS["longest_wait"] <= error <= WAITS["longest_delay"]


def test_a_clock_that_is_set_between_event_and_sending_is_detected_by_the_wait(
    spark: SparkSession,
) -> None:
    booted, set_at = NOON + 50 * 60 * SECOND, NOON + 150 * 60 * SECOND
    # One clock is set from 1970 to the right time, the other one five hours back.
    forward = Device(3, lambda true: true if true >= set_at else true - booted)
    back = Device(4, lambda true: true if true >= set_at else true + 5 * HOUR)
    waits = {"longest_wait": HOUR, "longest_delay": 2 * SECOND}
    for device, flaw in ((forward, "waited_too_long"), (back, "sent_before_event")):
        seen = set()
        sent_messages = device.messages(300, **waits)
        for error, quality, (event, sent, delay, _) in errors(
            spark, sent_messages, longest_wait="1 hour"
        ):
            was_set_between = event < set_at <= sent
            assert quality == (flaw if was_set_between else "corrected")
            # The result is the time of receipt: late by the wait and the delay, never early.
            assert error == (sent - event if was_set_between else 0) + delay
            seen.add(quality)
        assert seen == {flaw, "corrected"}


def test_a_random_clock_never_results_in_a_time_after_the_receipt(spark: SparkSession) -> None:
    dice = random.Random(5)
    sent_messages = Device(6, lambda true: true + dice.randrange(-(10**16), 10**16)).messages(
        400, **WAITS
    )
    qualities = set()
    for error, quality, (event, sent, delay, _) in errors(
        spark, sent_messages, longest_wait="10 hours", largest_offset="30 days"
    ):
        qualities.add(quality)
        assert error <= sent - event + delay
        if quality == "corrected":
            assert error >= -WAITS["longest_wait"]
        else:
            assert error == sent - event + delay
    assert {"sent_before_event", "waited_too_long"} <= qualities


def test_times_within_the_tolerance_are_not_changed(spark: SparkSession) -> None:
    sent_messages = Device(7, lambda true: true + SECOND // 2).messages(200, **WAITS)
    found = set()
    for error, quality, (_, _, delay, _) in errors(spark, sent_messages, tolerance="1 second"):
        offset = delay - SECOND // 2
        is_near = 0 <= offset <= SECOND
        assert quality == ("plausible" if is_near else "corrected")
        assert error == (SECOND // 2 if is_near else delay)
        found.add(quality)
    assert found == {"plausible", "corrected"}


def test_a_stream_reports_metrics_and_a_guard_and_a_window_may_follow(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = pa.schema([(name, pa.timestamp("us", "UTC")) for name in ("ts", "sent", "re.ceived")])

    def message(second: int | None, wait: int | None, received: Any) -> dict[str, Any]:
        # The clock of the device is a day ahead.
        ahead = dt.timedelta(days=1)
        ts = None if second is None else at(second) + ahead
        sent = None if second is None or wait is None else at(second + wait) + ahead
        return {"ts": ts, "sent": sent, "re.ceived": received}

    poison = START.replace(year=2999)
    script = [
        [message(1, 0, at(1)), message(3, 8, at(11))],
        [message(14, 1, at(15)), message(2, 0, poison), message(None, None, at(13))],
        [message(16, None, at(18)), message(21, -2, at(24))],
        [message(45, 0, at(45))],
    ]
    chain = [
        time.correct_clock("ts", sent="sent", received="re.ceived"),
        time.guard("corrected_time", arrival="re.ceived"),
        windows.tumbling(
            "10 seconds",
            time="corrected_time",
            agg={"n": agg.count()},
            delay="5 seconds",
        ).options(shards=2),
    ]
    frame = micro_batches(spark, script, schema=schema, directory=tmp_path)
    for transform in chain:
        frame = frame.transform(transform)
    output: list[Any] = []
    query = (
        frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(lambda batch, _: output.extend(batch.toArrow().to_pylist()))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(200)
    assert_rows(
        output,
        [
            {"window_start": at(s), "window_end": at(s + 10), "n": n}
            for s, n in ((0, 2), (10, 3), (20, 1))
        ],
    )
    metrics = [progress.observedMetrics for progress in query.recentProgress]
    qualities = {
        "rows": 8,
        "corrected": 5,
        "no_event_time": 1,
        "no_sent_time": 1,
        "sent_before_event": 1,
        "plausible": 0,
    }
    for count, number in qualities.items():
        assert sum(m["correct_clock"][count] or 0 for m in metrics) == number, count
    assert sum(m["guard"]["future"] or 0 for m in metrics) == 1
    assert sum(m["tumbling"]["rejected"] or 0 for m in metrics) == 1
