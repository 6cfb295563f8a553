"""Windows of every grid and time zone beside those of earlier days, weeks, months, quarters and years.

The expectation enumerates the dates of a calendar and the windows of a grid in plain Python. The earlier
window is the one of the same grid whose start has the same local time on the earlier date.
"""

from __future__ import annotations

import bisect
import datetime as dt
import itertools
import random
import statistics
import zoneinfo
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from streamops import windows
from streamops.testing import replay
from tests.borders import cases
from tests.oracles.calendars import begin, clock, is_first
from tests.oracles.compare import EPOCH, LENGTHS, MICROSECOND, ended, moved
from tests.oracles.windows import Interval

SECOND = 1_000_000
HOUR = 3_600 * SECOND
DAY = 24 * HOUR
ONE = dt.timedelta(days=1)
SPANS = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}

# Zones, and dates at which something happened there.
NOTABLE = [
    *(("Europe/Berlin", day) for day in ("2025-03-30", "2022-10-30", "2024-02-29")),
    *(("America/New_York", day) for day in ("2013-03-10", "2013-11-03", "2024-02-29")),
    *(("Australia/Lord_Howe", day) for day in ("2013-04-07", "2013-10-06")),  # half an hour
    *(("America/Sao_Paulo", day) for day in ("2013-10-20", "2013-02-17")),  # at midnight
    *(("America/Havana", day) for day in ("2013-03-10", "2013-11-03")),
    *(("Asia/Beirut", day) for day in ("2013-03-31", "2013-10-27")),
    *(("America/Asuncion", day) for day in ("2013-10-06", "2014-03-23")),
    ("America/Toronto", "1919-03-31"),  # from half past eleven to half past midnight
    ("Pacific/Apia", "2011-12-30"),  # skipped
    ("Pacific/Kiritimati", "1994-12-31"),
    ("Pacific/Kwajalein", "1993-08-21"),
    ("Asia/Kathmandu", "1986-01-01"),  # a quarter of an hour
    ("Antarctica/Troll", "2014-03-30"),  # two hours
    ("Africa/Casablanca", "2024-03-10"),
    ("UTC", "2024-02-29"),
]


def instants_of(zone: str, reading: dt.datetime) -> tuple[list[int], int]:
    """Every instant with this local time, and the first one with it or a later one."""
    there = (reading.replace(tzinfo=dt.UTC) - EPOCH) // MICROSECOND
    offsets = {
        (clock(zone, there + hour * HOUR) - reading) // MICROSECOND - hour * HOUR
        for hour in range(-36, 37)
    }
    possible = sorted(there - offset for offset in offsets)
    showing = [instant for instant in possible if clock(zone, instant) == reading]
    if showing:
        return showing, showing[0]
    seconds = range(possible[0] - SECOND, possible[-1] + SECOND, SECOND)
    return [], seconds[bisect.bisect(seconds, reading, key=lambda at: clock(zone, at))]


@dataclass
class Grid:
    """Windows between two dates. ``dates`` has the first date of each, and the one after its last."""

    zone: str
    windows: set[Interval]
    dates: dict[Interval, tuple[dt.date, dt.date]]
    shape: str

    def earlier(self, window: Interval, unit: str, units: int) -> Interval | None:
        """The window that many units before, if the grid has it."""
        if self.shape == "fixed":
            start = clock(self.zone, window[0])
            day = moved(start.date(), unit, units)
            if day is None:
                return None
            showing, _ = instants_of(self.zone, dt.datetime.combine(day, start.time()))
            length = window[1] - window[0]
            found = (showing[0], showing[0] + length) if showing else None
            if (
                found is None
                or found in self.windows
                or begin(self.zone, start.date()) != window[0]
            ):
                return found
            # The day has no midnight: this is also when a window of midnight would start.
            end = clock(self.zone, window[1] - 1) + MICROSECOND
            until = dt.datetime.combine(ended(start.date(), end.date(), unit, day), end.time())
            return begin(self.zone, day), instants_of(self.zone, until)[1]
        first, after = self.dates[window]
        target = moved(first, unit, units)
        if target is None:
            return None
        is_skipped = begin(self.zone, target) == begin(self.zone, target + ONE)
        if is_skipped and (after == first + ONE or self.shape == "cumulative"):
            return None
        until = ended(first, after, unit, target)
        start = begin(self.zone, target)
        if self.shape == "calendar":
            return start, begin(self.zone, until)
        whole = start, begin(self.zone, until)
        if begin(self.zone, after) != window[1]:  # inside of the last date
            time = (clock(self.zone, window[1] - 1) + MICROSECOND).time()
            date = (clock(self.zone, window[1] - 1) + MICROSECOND).date()
            until = ended(first, date, unit, target)
            whole = start, instants_of(self.zone, dt.datetime.combine(until, time))[1]
        if whole in self.windows:
            return whole
        if any(clock(self.zone, edge).time() > dt.time() for edge in (window[0], start)):
            return None  # without a midnight, a day has other ends
        return (start, start + window[1] - window[0])


def calendar_grid(zone: str, unit: str, week_start: str, first: dt.date, last: dt.date) -> Grid:
    """The units of the calendar; those that have no instant are left out."""
    days = [first + ONE * n for n in range((last - first).days)]
    starts = [day for day in days if is_first(unit, week_start, day)]
    dates = {
        (begin(zone, one), begin(zone, other)): (one, other)
        for one, other in itertools.pairwise(starts)
    }
    dates = {window: both for window, both in dates.items() if window[0] < window[1]}
    return Grid(zone, set(dates), dates, "calendar")


def cumulative_grid(periods: Grid, every: int) -> Grid:
    """Windows that grow through each period."""
    dates = {}
    for (start, end), (first, _) in periods.dates.items():
        for reached in range(start + every, end + every, every):
            over = min(reached, end)
            day = first
            while begin(periods.zone, day) < over:
                day += ONE
            dates[start, over] = (first, day)
    return Grid(periods.zone, set(dates), dates, "cumulative")


def fixed_grid(zone: str, size: int, hop: int, origin: int, first: dt.date, last: dt.date) -> Grid:
    """Windows of a length of time."""
    start = (begin(zone, first) - origin) // hop * hop + origin
    found = {(at, at + size) for at in range(start, begin(zone, last), hop)}
    return Grid(zone, found, {}, "fixed")


def draw(seed: int) -> tuple[Grid, str, int, int]:
    """A grid around a date at which something happened, a unit, how many periods, and the days."""
    rng = random.Random(seed)
    zone, text = rng.choice(NOTABLE)
    day = dt.date.fromisoformat(text)
    if rng.random() < 0.4:
        zone = rng.choice(ZONES)
        day = dt.date(rng.randint(1905, 2036), rng.randint(1, 12), rng.randint(1, 28))
    unit, periods = rng.choice(list(SPANS)), rng.choice([1, 1, 3, 5])
    shape = rng.choice(["day", "day", "unit", "fixed", "cumulative"])
    if shape == "fixed":
        unit, periods = rng.choice(["day", "day", "week", "month"]), min(periods, 3)
        before = SPANS[unit] * periods + 2
        first, last = day - ONE * before, day + ONE * (SPANS[unit] + 3)
        size, hop = rng.choice([(60, 60), (60, 30), (120, 60), (30, 30), (360, 360), (1440, 720)])
        if unit == "month":
            size, hop, periods = 1440, rng.choice([1440, 720]), 1
        minute = 60 * SECOND
        origin = rng.choice([0, begin(zone, first)])
        grid = fixed_grid(zone, size * minute, hop * minute, origin, first, last)
    else:
        width = rng.choice(["day", "month"]) if shape == "cumulative" else shape
        if shape == "unit":
            width = rng.choice(["week", "month", "quarter", "year"])
        if width == "quarter":
            unit = rng.choice(["quarter", "year"])
        if width in ("week", "year"):
            unit = width
        before = SPANS[unit] * periods + SPANS[width]
        if shape == "cumulative":
            periods = 1
            before = 40 if width == "day" and unit != "year" else SPANS[unit] + 62
            unit = rng.choice(["month", "quarter", "year"]) if width == "month" else unit
            unit = rng.choice(["day", "week", "month"]) if width == "day" else unit
        first = day - ONE * min(before, 1100)
        last = day + ONE * (min(SPANS[unit], 130) + 40 + SPANS[width])
        grid = calendar_grid(zone, width, rng.choice(["monday", "friday", "sunday"]), first, last)
        if shape == "cumulative":
            every = rng.choice([1, 3, 6]) * HOUR if width == "day" else rng.choice([24, 48]) * HOUR
            grid = cumulative_grid(grid, every)
    return grid, unit, periods, (last - first).days


ZONES = sorted(name for name in zoneinfo.available_timezones() if "/" in name and name[:3] != "Etc")
INSTANT = pa.timestamp("us", tz="UTC")
TYPE = pa.schema([("window_start", INSTANT), ("window_end", INSTANT), ("v", pa.int64())])


def run(grid: Grid, unit: str, periods: int, seed: int) -> dict[Interval, dict[str, Any]]:
    """The comparisons by their windows."""
    rng = random.Random(seed)
    there = sorted(grid.windows, key=lambda window: (window[1], window[0]))
    if grid.shape != "cumulative":
        there = [window for window in there if rng.random() < 0.9]
    value = {window: rng.randrange(1_000_000) for window in there}
    operator = windows.compare(
        unit,  # type: ignore[arg-type]
        values="v",
        zone=grid.zone,
        delay="0 seconds",
        periods=periods,
        min_periods=1 if periods > 1 else None,
    )
    columns = [pa.array([w[edge] for w in there], pa.int64()).cast(INSTANT) for edge in (0, 1)]
    table = pa.table([*columns, pa.array([value[w] for w in there], pa.int64())], schema=TYPE)
    cuts = [0, *sorted(rng.sample(range(len(there)), min(9, len(there)))), len(there)]
    batches = [table.slice(one, two - one) for one, two in itertools.pairwise(cuts)]
    found = {}
    for result in replay(operator, batches, schema=TYPE, flush=True):
        for row in result.rows:
            window = tuple(
                (row[edge] - EPOCH) // MICROSECOND for edge in ("window_start", "window_end")
            )
            found[window] = row
    assert sorted(found) == sorted(there)
    return {window: {**found[window], "all": value} for window in there}


def compare(seed: int) -> Iterator[tuple[int, str]]:
    """The days of the calendar, then for each comparison whether it had an earlier window."""
    grid, unit, periods, days = draw(seed)
    yield days, "days"
    if not grid.windows:
        return
    for window, row in run(grid, unit, periods, seed).items():
        where = (
            f"seed {seed}: {grid.zone} {grid.shape} {unit} {clock(grid.zone, window[0])} {window}"
        )
        values = []
        for units in range(1, periods + 1):
            earlier = grid.earlier(window, unit, units)
            values.append(row["all"].get(earlier) if earlier is not None else None)
        assert row["previous_v"] == values[0], where
        known = [value for value in values if value is not None]
        if periods > 1:
            assert row["count_v"] == len(known), where
            assert row["median_v"] == (statistics.median(known) if known else None), where
        yield 1, "found" if values[0] is not None else "none"


def test_windows_are_compared_with_those_of_the_same_grid_on_earlier_dates() -> None:
    counts: Counter[str] = Counter()
    for seed in range(cases(10, 1_000)):
        for number, what in compare(seed):
            counts[what] += number
    print(dict(counts))
    assert counts["found"] > counts["none"] / 4 > 0


@pytest.mark.parametrize(
    ("unit", "day", "before"),
    [
        ("month", "2025-04-30", "2025-03-30"),
        ("month", "2022-11-30", "2022-10-30"),
        ("quarter", "2025-06-30", "2025-03-30"),
        ("month", "2025-03-30", "2025-01-30"),
        ("month", "2024-02-29", "2024-01-29"),
        ("year", "2024-02-29", "2023-02-28"),
    ],
)
def test_a_day_at_the_end_of_its_month_is_compared_with_the_same_date(
    unit: str, day: str, before: str
) -> None:
    dates = [dt.date.fromisoformat(text) for text in (before, day)]
    zone = "Europe/Berlin"
    grid = calendar_grid(zone, "day", "monday", dates[0], dates[1] + 2 * ONE)
    found = run(grid, unit, 1, seed=5)
    window, earlier = ((begin(zone, date), begin(zone, date + ONE)) for date in reversed(dates))
    value = grid.earlier(window, unit, 1)
    assert (value == earlier) is (moved(dates[1], unit, 1) == dates[0])
    expected = found[window]["all"].get(value)
    assert found[window]["previous_v"] == expected
    assert set(LENGTHS) >= {unit}
