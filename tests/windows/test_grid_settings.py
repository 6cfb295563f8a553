"""What a user may say about calendar and cumulative windows, and the answers to mistakes."""

from __future__ import annotations

import datetime as dt
from typing import Any, get_args

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.calendar import Unit
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from streamops.kernel.grids import CalendarGrid, CumulativeGrid, FixedGrid
from streamops.spark.operator import Operator

SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("k", pa.string()), ("v", pa.int64())])
HOUR = 3_600_000_000
DAY = 24 * HOUR


def calendar(unit: Any = "day", zone: Any = "Europe/Berlin", **arguments: Any) -> Operator:
    return windows.calendar(unit, zone, **({"time": "ts", "agg": {"n": agg.count()}} | arguments))


def cumulative(size: Any = "1 day", every: Any = "1 hour", **arguments: Any) -> Operator:
    return windows.cumulative(
        size, every, **({"time": "ts", "agg": {"n": agg.count()}} | arguments)
    )


def spec(transform: Operator) -> Any:
    return transform.parameters.resolve((SCHEMA,), carried=(0,), shards=1)


def refused(make: Any, *args: Any, **arguments: Any) -> SpecError:
    with pytest.raises(SpecError) as caught:
        make(*args, **arguments)
    return caught.value


# Valid parameters.


@pytest.mark.parametrize("unit", get_args(Unit))
def test_every_unit_is_accepted(unit: Any) -> None:
    assert spec(calendar(unit)).grid == CalendarGrid(unit, "Europe/Berlin", "monday")


def test_a_week_may_start_on_any_day() -> None:
    assert spec(calendar("week", week_start="sunday")).grid.week_start == "sunday"
    arguments = {"zone": "UTC", "week_start": "saturday"}
    assert spec(cumulative("week", "1 day", **arguments)).grid.periods.week_start == "saturday"


def test_a_period_is_a_duration_or_with_a_zone_a_unit() -> None:
    assert spec(cumulative("1 day", "6 hours", origin="30 hours")).grid == CumulativeGrid(
        FixedGrid(DAY, DAY, 6 * HOUR), 6 * HOUR
    )
    assert spec(cumulative("day", "6 hours", zone="Asia/Kolkata")).grid == CumulativeGrid(
        CalendarGrid("day", "Asia/Kolkata"), 6 * HOUR
    )
    two = dt.timedelta(hours=2)
    assert spec(cumulative(two, two)).grid == CumulativeGrid(
        FixedGrid(2 * HOUR, 2 * HOUR), 2 * HOUR
    )


def test_an_origin_may_be_an_instant() -> None:
    origin = dt.datetime(2024, 3, 1, 8, tzinfo=dt.UTC)
    assert spec(cumulative(origin=origin)).grid.periods.origin == 8 * HOUR


@pytest.mark.parametrize("make", [calendar, cumulative])
def test_the_output_has_the_columns_of_other_windows(make: Any) -> None:
    corrected = {"stragglers": "retract", "allowed_lateness": "1 hour"}
    names = spec(make(by="k", **corrected, too_late="route", delay="1 hour")).output.names
    assert names == [
        "k", "window_start", "window_end", "n", "revision", "_change_type", "late",
    ]  # fmt: skip


def test_repr_shows_the_parameters_of_the_windows_first() -> None:
    assert repr(calendar("week")).startswith(
        "windows.calendar(unit='week', zone='Europe/Berlin', time='ts', "
    )
    assert repr(cumulative("90 minutes", "1 minute")).startswith(
        "windows.cumulative(size='1 hour 30 minutes', every='1 minute', time='ts', "
    )
    assert "zone='UTC'" in repr(cumulative("month", "1 day", zone="UTC"))
    assert repr(cumulative().options(name="mine")).endswith(".options(name='mine')")


# What a checkpoint depends on.


def test_another_calendar_is_another_identity() -> None:
    operators = [
        calendar(),
        calendar("month"),
        calendar(zone="Europe/Paris"),
        calendar("week"),
        calendar("week", week_start="sunday"),
        cumulative(),
        cumulative("2 days"),
        cumulative(every="2 hours"),
        cumulative(origin="1 hour"),
        cumulative("day", zone="Europe/Berlin"),
        cumulative("day", zone="Europe/Paris"),
        cumulative("month", "1 day", zone="Europe/Berlin"),
        windows.tumbling("1 day", time="ts", agg={"n": agg.count()}),
    ]
    identities = [str(spec(operator).identity) for operator in operators]
    assert len(set(identities)) == len(operators)


@pytest.mark.parametrize("make", [calendar, cumulative])
def test_the_delay_is_not_part_of_the_identity(make: Any) -> None:
    one, other = (make(delay=delay).parameters for delay in ("1 hour", "2 hours"))
    assert (
        one.resolve((SCHEMA,), carried=(None,), shards=1).identity
        == other.resolve((SCHEMA,), carried=(None,), shards=1).identity
    )


# Mistakes.


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        ("hour", "write one of 'day', 'week', 'month', 'quarter', 'year'"),
        ("days", "write unit='day', or another of them"),
        ("weekly_in_utc", "write unit='week', or another of them"),
        ("1 day", "write unit='day', or another of them"),
        ("Day", "write unit='day', or another of them"),
        (None, "write one of 'day', 'week', 'month', 'quarter', 'year'"),
    ],
)
def test_an_unknown_unit_is_refused(value: Any, fix: str) -> None:
    assert str(refused(calendar, value)) == (
        "[UNKNOWN_CHOICE] windows.calendar: `unit` is not one of its choices\n"
        f"  got:       unit={value!r}\n"
        "  expected:  one of 'day', 'week', 'month', 'quarter', 'year'\n"
        f"  fix:       {fix}"
        "\n  see:       docs/errors.md#unknown_choice"
    )


def test_a_duration_is_not_a_calendar_unit() -> None:
    error = refused(cumulative, "1 day", zone="UTC")
    assert (error.code, error.got) == ("UNKNOWN_CHOICE", "size='1 day'")
    assert error.expected == "one of 'day', 'week', 'month', 'quarter', 'year'"


@pytest.mark.parametrize(
    ("zone", "fix"),
    [
        ("Europe/Berln", "did you mean 'Europe/Berlin'?"),
        ("europe/berlin", "did you mean 'Europe/Berlin'?"),
        ("America/New York", "did you mean 'America/New_York'?"),
        ("Kolkata", "did you mean 'Asia/Kolkata'?"),
        ("new york", "did you mean 'America/New_York'?"),
        ("+02:00", "write the name of a zone, or 'UTC'"),
        ("", "write the name of a zone, or 'UTC'"),
        ("../Europe/Berlin", "did you mean 'Europe/Berlin'?"),
        (None, "write the name of a zone, or 'UTC'"),
        (dt.UTC, "did you mean 'UTC'?"),
    ],
)
def test_an_unknown_zone_is_refused_with_the_nearest_name(zone: Any, fix: str) -> None:
    assert str(refused(calendar, zone=zone)) == (
        "[INVALID_PARAMETER] windows.calendar: `zone` is not a time zone\n"
        f"  got:       zone={zone!r}\n"
        "  expected:  an IANA name such as 'Europe/Berlin'; zoneinfo.available_timezones() "
        "lists them\n"
        f"  fix:       {fix}"
        "\n  see:       docs/errors.md#invalid_parameter"
    )


def test_a_zone_that_counts_leap_seconds_is_refused() -> None:
    assert refused(cumulative, "day", zone="right/Europe/Berlin").code == "INVALID_PARAMETER"


def test_an_unknown_weekday_is_refused() -> None:
    error = refused(calendar, "week", week_start="Sunday")
    assert (error.code, error.got) == ("UNKNOWN_CHOICE", "week_start='Sunday'")


@pytest.mark.parametrize(
    ("error", "formatted"),
    [
        (refused(calendar, "month", week_start="sunday"), "windows.calendar unit='month'"),
        (
            refused(cumulative, "day", zone="UTC", week_start="sunday"),
            "windows.cumulative size='day'",
        ),
    ],
)
def test_week_start_without_weeks_is_refused(error: SpecError, formatted: str) -> None:
    where, _, given = formatted.partition(" ")
    parameter = given.partition("=")[0]
    assert str(error) == (
        f"[PARAMETER_WITHOUT_EFFECT] {where}: `week_start` applies to weeks "
        "only\n"
        f"  got:       week_start='sunday' with {given}\n"
        f"  expected:  {parameter}='week' with it\n"
        "  fix:       leave week_start out"
        "\n  see:       docs/errors.md#parameter_without_effect"
    )


def test_week_start_with_a_duration_is_refused() -> None:
    assert str(refused(cumulative, "7 days", week_start="sunday")) == (
        "[PARAMETER_WITHOUT_EFFECT] windows.cumulative: `week_start` applies to weeks "
        "only\n"
        "  got:       week_start='sunday' with size='7 days'\n"
        "  expected:  size='week' and a zone with it\n"
        "  fix:       leave week_start out; origin shifts fixed periods"
        "\n  see:       docs/errors.md#parameter_without_effect"
    )


def test_a_calendar_unit_without_a_zone_is_refused() -> None:
    assert str(refused(cumulative, "day")) == (
        "[PARAMETER_MISSING] windows.cumulative: where a day of the calendar starts depends on "
        "the time zone\n"
        "  got:       size='day' without zone\n"
        "  expected:  a zone with it, or a fixed duration\n"
        '  fix:       for example zone="Europe/Berlin"; or size="1 day", which is 24 hours'
        "\n  see:       docs/errors.md#parameter_missing"
    )


def test_an_origin_with_a_zone_is_refused() -> None:
    assert str(refused(cumulative, "day", zone="UTC", origin="6 hours")) == (
        "[PARAMETER_WITHOUT_EFFECT] windows.cumulative: `origin` shifts fixed periods, and calendar periods start "
        "at fixed dates\n"
        "  got:       origin='6 hours' with a zone\n"
        "  expected:  one of the two\n"
        "  fix:       leave out origin or zone"
        "\n  see:       docs/errors.md#parameter_without_effect"
    )


@pytest.mark.parametrize(
    ("arguments", "got"),
    [
        (("1 hour", "2 hours"), "every='2 hours', size='1 hour'"),
        (("day", "25 hours"), "every='1 day 1 hour', size='day'"),
    ],
)
def test_every_longer_than_the_period_is_refused(arguments: Any, got: str) -> None:
    zone = {"zone": "UTC"} if arguments[0] == "day" else {}
    assert str(refused(cumulative, *arguments, **zone)) == (
        "[PARAMETERS_CONTRADICT] windows.cumulative: `every` is longer than `size`: no window would "
        "end within its period\n"
        f"  got:       {got}\n"
        "  expected:  0 < every <= size\n"
        "  fix:       shorten every, or lengthen size"
        "\n  see:       docs/errors.md#parameters_contradict"
    )


@pytest.mark.parametrize("parameter", ["size", "every"])
@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("0 seconds", "INVALID_DURATION"),
        ("-1 hour", "INVALID_DURATION"),
        ("1 month", "INVALID_DURATION"),
        ("soon", "INVALID_DURATION"),
        (60, "INVALID_DURATION"),
        (None, "INVALID_DURATION"),
    ],
)
def test_an_invalid_length_is_refused(parameter: str, value: Any, code: str) -> None:
    error = refused(cumulative, **{parameter: value})
    assert (error.code, error.where) == (code, "windows.cumulative")
    assert error.got == f"{parameter}={value!r}"


def test_more_than_ten_thousand_windows_per_period_are_refused() -> None:
    assert spec(cumulative("10000 seconds", "1 second")).grid.width == 10_000
    assert spec(cumulative("year", "1 hour", zone="UTC")).grid.every == HOUR
    error = refused(cumulative, "year", "52 minutes", zone="UTC")
    assert str(error) == (
        "[PARAMETER_OUT_OF_RANGE] windows.cumulative: "
        "each event would lie in too many windows\n"
        "  got:       every='52 minutes', size='year': 10,136 windows\n"
        "  expected:  at most 10,000 windows per event: ceil(size / every)\n"
        "  fix:       lengthen every; for one result per event use windows.sliding"
        "\n  see:       docs/errors.md#parameter_out_of_range"
    )
    assert refused(cumulative, "10000 seconds", "999 milliseconds").code == "PARAMETER_OUT_OF_RANGE"


@pytest.mark.parametrize("make", [calendar, cumulative])
def test_mistakes_that_all_windows_share_have_the_same_answers(make: Any) -> None:
    for arguments, code in (
        ({"delay": "-1 second"}, "INVALID_DURATION"),
        ({"allowed_lateness": "1500 microseconds"}, "INVALID_DURATION"),
        ({"stragglers": "Drop"}, "UNKNOWN_CHOICE"),
        ({"too_late": "route"}, "PARAMETER_WITHOUT_EFFECT"),
        ({"agg": {}}, "PARAMETER_MISSING"),
        ({"by": "window_start"}, "NAME_TAKEN"),
        ({"time": None}, "PARAMETER_TYPE"),
    ):
        error = refused(make, **arguments)
        assert (error.code, error.where) == (code, make(delay="1 hour").name)
    with pytest.raises(ColumnNotFound, match="did you mean 'ts'"):
        spec(make(time="tss"))
    with pytest.raises(SchemaError, match="COLUMN_TYPE"):
        spec(make(time="v"))
