"""Instants and durations, and Spark's watermark."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.kernel.errors import SpecError, located
from streamops.kernel.time import (
    MAX_INSTANT,
    MIN_INSTANT,
    format_duration,
    format_instant,
    parse_duration,
    parse_instant,
    spark_watermark,
)

SECOND = 1_000_000


def micros(value: Any, **limits: int) -> int:
    with located("windows.tumbling"):
        return parse_duration(value, parameter="size", **limits)


def refused(value: Any, **limits: int) -> SpecError:
    with pytest.raises(SpecError) as caught:
        micros(value, **limits)
    return caught.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 microsecond", 1),
        ("2 milliseconds", 2_000),
        ("3 seconds", 3 * SECOND),
        ("1 minute", 60 * SECOND),
        ("1 hour", 3_600 * SECOND),
        ("1 day", 86_400 * SECOND),
        ("1 week", 604_800 * SECOND),
        ("1 hour 30 minutes", 5_400 * SECOND),
        ("1 hour -5 minutes", 3_300 * SECOND),
        ("1hour30minutes", 5_400 * SECOND),
        ("1 HOUR", 3_600 * SECOND),
        ("  10   Seconds ", 10 * SECOND),
        ("+1 second", SECOND),
        ("-1 second", -SECOND),
        ("0 seconds", 0),
    ],
)
def test_a_duration_is_parsed_from_text(text: str, expected: int) -> None:
    assert micros(text) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (dt.timedelta(minutes=30), 1_800 * SECOND),
        (dt.timedelta(microseconds=-1), -1),
        (dt.timedelta(days=1, microseconds=1), 86_400 * SECOND + 1),
    ],
)
def test_a_timedelta_is_a_duration_to_the_microsecond(value: dt.timedelta, expected: int) -> None:
    assert micros(value) == expected


@pytest.mark.parametrize(
    "value",
    ["", " ", "soon", "1", "hour", "1.5 hours", "1 hour 30", 5, None, b"1 hour", "1 fortnight", "1M",
     "1 hours2", "- 1 second", "1e3 seconds"],
)  # fmt: skip
def test_a_value_that_is_not_a_duration_is_refused(value: Any) -> None:
    error = refused(value)
    assert error.code == "INVALID_DURATION"
    units = (
        "units are microsecond, millisecond, second, minute, hour, day, week, singular or plural"
    )
    fix = 'write the unit: size="5 seconds", say' if value == 5 else units
    assert str(error) == (
        "[INVALID_DURATION] windows.tumbling: `size` is not a duration\n"
        f"  got:       size={value!r}\n"
        '  expected:  a timedelta, or text such as "30 minutes" or "1 hour 30 minutes"\n'
        f"  fix:       {fix}"
        "\n  see:       docs/errors.md#invalid_duration"
    )


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("10m", "10 minutes"),
        ("1 h", "1 hour"),
        ("10 S", "10 seconds"),
        ("-1d 12 hrs", "-1 day 12 hours"),
        ("250ms", "250 milliseconds"),
        ("5 mintues", "5 minutes"),
        ("1 hour, 2 minutes", "1 hour 2 minutes"),
    ],
)
def test_an_abbreviated_or_misspelt_duration_is_suggested_in_full(text: str, meant: str) -> None:
    error = refused(text)
    assert (error.code, error.fix) == ("INVALID_DURATION", f'did you mean "{meant}"?')
    assert parse_duration(meant, parameter="size")


@pytest.mark.parametrize("text", ["1 month", "2 Months", "1 quarter", "3 years", "1 day 1 month"])
def test_a_calendar_unit_is_not_a_fixed_duration(text: str) -> None:
    error = refused(text)
    assert error.code == "INVALID_DURATION"
    unit = text.split()[-1].lower().removesuffix("s")
    assert error.what == f"`size` must be a fixed duration, and a {unit} is not one"
    assert error.got == f"size={text!r}"
    days = {"month": 30, "quarter": 90, "year": 365}[unit]
    assert error.fix == (
        f'a fixed length, such as "{days} days"; {unit}s of a calendar are those of a time zone: '
        f'windows.calendar("{unit}", zone)'
    )


def test_a_duration_below_the_minimum_is_refused_and_at_it_is_not() -> None:
    assert micros("1 microsecond", minimum=1) == 1
    error = refused("0 seconds", minimum=1)
    assert str(error) == (
        "[INVALID_DURATION] windows.tumbling: `size` is too small\n"
        "  got:       size='0 seconds'\n"
        "  expected:  at least 1 microsecond\n"
        '  fix:       pass a larger duration, such as size="1 minute"'
        "\n  see:       docs/errors.md#invalid_duration"
    )
    assert refused(dt.timedelta(seconds=-1), minimum=0).expected == "at least 0 seconds"


def test_a_duration_finer_than_the_engine_is_refused() -> None:
    assert micros("2 milliseconds", whole=1_000) == 2_000
    error = refused("1 microsecond", whole=1_000)
    assert str(error) == (
        "[INVALID_DURATION] windows.tumbling: `size` is finer than the engine can honour\n"
        "  got:       size='1 microsecond'\n"
        "  expected:  a multiple of 1 millisecond\n"
        "  fix:       round it: Spark keeps its watermark in whole milliseconds"
        "\n  see:       docs/errors.md#invalid_duration"
    )


@pytest.mark.parametrize(
    "value", ["99999999999999 days", dt.timedelta.max, "9223372036855 seconds"]
)
def test_a_duration_that_does_not_fit_into_64_bits_is_refused(value: Any) -> None:
    assert refused(value).code == "INVALID_DURATION"


@given(st.integers(-(10**16), 10**16))
def test_a_formatted_duration_parses_to_itself(value: int) -> None:
    assert micros(format_duration(value)) == value


@given(st.timedeltas(dt.timedelta(days=-100_000), dt.timedelta(days=100_000)))
def test_a_timedelta_and_its_text_are_the_same_duration(value: dt.timedelta) -> None:
    assert micros(format_duration(micros(value))) == micros(value)


def test_a_duration_is_written_in_the_largest_units_that_fit() -> None:
    assert format_duration(604_800 * SECOND) == "7 days"
    assert format_duration(-90 * SECOND) == "-1 minute -30 seconds"
    assert format_duration(1_001) == "1 millisecond 1 microsecond"


def test_an_aware_datetime_of_any_zone_is_an_instant() -> None:
    paris = dt.timezone(dt.timedelta(hours=2))
    instant = dt.datetime(1970, 1, 1, 2, 0, 0, 1, tzinfo=paris)
    assert parse_instant(instant, parameter="origin") == 1
    before = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)
    assert parse_instant(before, parameter="origin") == -1


def test_a_datetime_without_a_zone_is_refused() -> None:
    instant = dt.datetime(2024, 1, 1)  # noqa: DTZ001  (this is the mistake)
    with pytest.raises(SpecError) as caught, located("windows.tumbling"):
        parse_instant(instant, parameter="origin")
    assert str(caught.value) == (
        "[INVALID_PARAMETER] windows.tumbling: `origin` has no time zone\n"
        "  got:       origin=datetime.datetime(2024, 1, 1, 0, 0)\n"
        "  expected:  an aware datetime\n"
        "  fix:       add a time zone: datetime(..., tzinfo=timezone.utc)"
        "\n  see:       docs/errors.md#invalid_parameter"
    )


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (None, "none yet"),
        (0, "1970-01-01 00:00:00Z"),
        (-1, "1969-12-31 23:59:59.999999Z"),
        (MAX_INSTANT, "9999-12-31 23:59:59.999999Z"),
        (MAX_INSTANT + 1, "253402300800000000 microseconds since 1970"),
        (MIN_INSTANT - 1, "-62135596800000001 microseconds since 1970"),
    ],
)
def test_an_instant_is_formatted_in_utc(instant: int | None, text: str) -> None:
    assert format_instant(instant) == text


def test_the_first_instant_of_the_calendar_has_four_digits_in_its_year() -> None:
    assert format_instant(MIN_INSTANT) == "0001-01-01 00:00:00Z"


def test_a_watermark_is_rounded_down_to_whole_milliseconds() -> None:
    assert spark_watermark(10_000_999, 4_000_000) == 6_000
    assert spark_watermark(10_001_000, 4_000_000) == 6_001


def test_a_watermark_starts_at_zero_and_does_not_fall_below() -> None:
    assert spark_watermark(None, 0) == 0
    assert spark_watermark(-5_000_000, 0) == 0
    assert spark_watermark(3_999_999, 4_000_000) == 0
    assert spark_watermark(4_001_000, 4_000_000) == 1
