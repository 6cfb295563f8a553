"""Histories of rows about the days on which clocks are changed."""

from __future__ import annotations

import datetime as dt
from typing import Any, get_args

from hypothesis import strategies as st

from streamops import windows
from streamops.kernel.calendar import LONGEST, Unit
from streamops.testing.laws import Case
from tests.laws.strategies import (
    AGGREGATES,
    SCHEMA,
    case_of,
    earlies,
    empty_parameters,
    latenesses,
    silences,
    tables,
)
from tests.oracles.calendars import CalendarOracle, CumulativeOracle, interval
from tests.oracles.windows import GridOracle

HOUR = 3_600_000_000
# A zone, and an hour near which its clocks are changed.
CHANGES = [
    ("UTC", "2012-12-31T23:00"),
    ("America/New_York", "2013-03-10T07:00"),
    ("America/New_York", "2013-11-03T06:00"),
    ("Europe/Berlin", "2013-03-31T01:00"),
    ("Europe/Berlin", "2013-10-27T01:00"),
    ("Australia/Lord_Howe", "2013-04-06T15:00"),
    ("Australia/Lord_Howe", "2013-10-05T15:00"),
    ("America/Sao_Paulo", "2018-02-18T02:00"),
    ("America/Sao_Paulo", "2018-11-04T03:00"),
    ("America/Havana", "2013-11-03T05:00"),
    ("Asia/Kolkata", "2000-02-28T18:00"),
    ("Pacific/Apia", "2011-12-30T10:00"),
    ("America/New_York", "1969-10-26T06:00"),
]


def common(draw: st.DrawFn, pace: int) -> dict[str, Any]:
    """What all windows have in common, as the oracle takes it."""
    stragglers = draw(st.sampled_from(["retract", "update", "route", "drop"]))
    corrects = stragglers in ("update", "retract")
    early = draw(earlies)
    names = draw(st.lists(st.sampled_from(sorted(AGGREGATES)), min_size=1, max_size=3, unique=True))
    return {
        "by": draw(st.sampled_from([(), ("word",), ("number",), ("number", "word")])),
        "time": "ts",
        "agg": {name: AGGREGATES[name] for name in names},
        "allowed_lateness": draw(latenesses(pace, corrects=corrects, early=early)),
        "stragglers": stragglers,
        "too_late": draw(st.sampled_from(["drop", "route"])) if corrects else "drop",
        "early": early,
    }


def hours_of(size: int | str) -> int:
    """Hours of a period, more or less."""
    return LONGEST[size] * 24 if isinstance(size, str) else size // HOUR


@st.composite
def calendars(draw: st.DrawFn) -> Case:
    """Calendar windows, and micro-batches about a change of their clocks."""
    unit = draw(st.sampled_from(["day", "day", "day", *get_args(Unit)]))
    week_start = draw(st.sampled_from(["monday", "sunday"])) if unit == "week" else "monday"
    zone, change = draw(st.sampled_from(CHANGES))
    pace = hours_of(unit) * HOUR // draw(st.sampled_from([2, 3, 24]))
    # A unit is at most an hour or two longer than another, or a few days.
    empty_for = draw(silences(hours_of(unit) * HOUR))
    settings = CalendarOracle(
        unit=unit, zone=zone, week_start=week_start, empty_for=empty_for, **common(draw, pace)
    )
    made = windows.calendar(
        unit, zone, week_start=week_start, **arguments(draw, settings, pace)
    ).parameters
    base_time = draw(base_times(settings, change, pace))
    return history(draw, settings, made, base_time, pace)


@st.composite
def cumulatives(draw: st.DrawFn) -> Case:
    """Cumulative windows, and micro-batches about a change of their clocks."""
    zone, change = draw(st.sampled_from(CHANGES))
    size = draw(st.sampled_from(["day", "day", "day", "week", "month", 24 * HOUR, HOUR, 7 * HOUR]))
    length = hours_of(size) * HOUR
    pace = length // draw(st.sampled_from([2, 6, 24]))
    every = length // draw(st.sampled_from([24, 7, 3, 1]))
    settings = CumulativeOracle(
        size=size,
        every=every,
        empty_for=draw(silences(every)),
        origin=0 if isinstance(size, str) else draw(st.sampled_from([0, 1, HOUR // 2])),
        zone=zone if isinstance(size, str) else "",
        **common(draw, pace),
    )
    made = windows.cumulative(
        settings.size if isinstance(settings.size, str) else micros(settings.size),
        micros(settings.every),
        zone=settings.zone or None,
        week_start="monday",
        origin=micros(settings.origin) if settings.origin else "0 seconds",
        **arguments(draw, settings, pace),
    ).parameters
    base_time = draw(base_times(settings, change, pace))
    return history(draw, settings, made, base_time, pace)


@st.composite
def base_times(draw: st.DrawFn, settings: GridOracle, change: str, pace: int) -> int:
    """Where the stream starts: some paces before the change, or a border of windows near it."""
    changed = dt.datetime.fromisoformat(change).replace(tzinfo=dt.UTC)
    instant = int(changed.timestamp()) * 1_000_000
    if isinstance(settings, CalendarOracle):
        borders = interval(settings.unit, settings.zone, settings.week_start, instant)
    else:
        borders = settings.windows_of(instant)[0]
    return draw(st.sampled_from([instant, *borders])) - pace * draw(st.integers(0, 6))


def arguments(draw: st.DrawFn, settings: GridOracle, pace: int) -> dict[str, Any]:
    """The common parameters of the operator."""
    names = ("by", "time", "agg", "stragglers", "too_late", "early")
    return (
        empty_parameters(settings)
        | {name: getattr(settings, name) for name in names}
        | {
            "delay": micros(pace * draw(st.sampled_from([0, 0, 1, 2]))),
            "allowed_lateness": micros(settings.allowed_lateness),
        }
    )


def history(draw: st.DrawFn, settings: GridOracle, made: Any, base_time: int, pace: int) -> Case:
    """These windows over micro-batches drawn for them."""
    spec = made.resolve((SCHEMA,), carried=(None,), shards=1)
    batches = draw(tables(base_time, pace))
    return case_of(settings, spec, batches, seed=draw(st.integers(0, 2**16)))


def micros(count: int) -> dt.timedelta:
    """A duration as users write one."""
    return dt.timedelta(microseconds=count)
