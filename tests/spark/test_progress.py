"""A progress in plain values, from the JVM and over Connect."""

from __future__ import annotations

import datetime as dt

import pytest
from pyspark.sql import Row

from streamops.kernel.time import MAX_INSTANT, parse_instant
from streamops.spark.progress import parse_metrics, parse_progress_time


def test_metrics_are_named_whether_they_come_from_the_jvm_or_over_connect() -> None:
    assert parse_metrics(Row(rows=3, rejected=None)) == {"rows": 3, "rejected": None}
    over_connect = Row(
        values=[3, None], schema={"fields": [{"name": "rows"}, {"name": "rejected"}]}
    )
    assert parse_metrics(over_connect) == {"rows": 3, "rejected": None}
    assert parse_metrics(None) == {}


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01T00:00:00.000Z", 0),
        ("1969-12-31T23:59:59.999Z", -1_000),
        ("1970-01-01T00:00:01.500Z", 1_500_000),
        ("9999-12-31T23:59:59.999Z", MAX_INSTANT - 999),
        ("12345-01-01T00:00:00.000Z", MAX_INSTANT),
        ("+294247-01-10T04:00:54.775Z", MAX_INSTANT),
        (None, None),
    ],
)
def test_an_instant_of_a_progress_is_read(text: str | None, micros: int | None) -> None:
    assert parse_progress_time(text) == micros


def test_what_is_no_instant_is_an_error() -> None:
    with pytest.raises(ValueError, match="soon"):
        parse_progress_time("soon")
    assert parse_progress_time("2024-03-10T07:00:00.000Z") == parse_instant(
        dt.datetime(2024, 3, 10, 7, tzinfo=dt.UTC), parameter=""
    )
