"""What the job reads: departures, the schedule, landings, the weather, a register of aircraft;
movements and outcomes of flights, and the alerts of dispatchers.

All feeds except the register and the alerts are the data of the package. The package has no registration
dates: the times at which aircraft are entered, corrected and removed are generated deterministically. It
has no dispatchers, whose alerts are invented, and does not say when a flight was cancelled: its outcome
arrives at its scheduled time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa

from examples.flights.flights import departures, of_days, packaged
from examples.flights.log import files_of, write_log

__all__ = ["FEEDS", "Feed", "feeds", "write_feeds"]

_INSTANT = pa.timestamp("us", tz="UTC")
_RENAMED = {
    "AIRBUS INDUSTRIE": "AIRBUS",
    "MCDONNELL DOUGLAS AIRCRAFT CO": "MCDONNELL DOUGLAS",
    "MCDONNELL DOUGLAS CORPORATION": "MCDONNELL DOUGLAS",
}
"""Spellings of one manufacturer in the package."""
_AGAIN = 7
"""One in this many entries of the register is delivered twice."""
_HISTORY = 3
"""Days before the first one whose outcomes are read: the pattern looks back as far."""
_ALERTS = (
    # When they are entered, in quarters of the departures; the change, the alert and its query.
    (0, "insert", "cancelled", "cancelled AND origin:LGA"),
    (0, "insert", "west coast", '("los angeles" OR "san francisco") AND delay:[120 TO *]'),
    (0, "insert", "united", "+carrier:UA +delay:>240 -chicago"),
    (0, "insert", "early", "delay:[* TO -20]"),
    (0, "insert", "islands", "honol* OR anchorage"),
    (2, "update_postimage", "united", "+carrier:UA +delay:>360 -chicago"),
    (2, "update_postimage", "west coast", "delay:>soon"),  # is no number: the former query stays
    (2, "delete", "early", None),
    (2, "insert", "envoy", "envoy AND NOT cancelled AND delay:>=180"),
)
"""What dispatchers want to know, as queries in Lucene's syntax."""


@dataclass(frozen=True, slots=True)
class Feed:
    """One of the logs.

    Parameters
    ----------
    schema : Schema
        Its columns; the first identifies a row.
    arrives : str
        The column with the instant at which a row arrives.
    """

    schema: pa.Schema
    arrives: str


FEEDS = {
    "departures": Feed(
        pa.schema(
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
        ),
        arrives="departed",
    ),
    "schedule": Feed(
        pa.schema([("flight_id", pa.int64()), ("origin", pa.string()), ("scheduled", _INSTANT)]),
        arrives="scheduled",
    ),
    "landings": Feed(
        pa.schema([("flight_id", pa.int64()), ("landed", _INSTANT)]), arrives="landed"
    ),
    "weather": Feed(
        pa.schema(
            [
                ("observation", pa.int64()),
                ("origin", pa.string()),
                ("observed", _INSTANT),
                ("visibility", pa.float64()),
                ("wind", pa.float64()),
            ]
        ),
        arrives="observed",
    ),
    "register": Feed(
        pa.schema(
            [
                ("entry", pa.int64()),
                ("tailnum", pa.string()),
                ("manufacturer", pa.string()),
                ("built", pa.int64()),
                ("_change_type", pa.string()),
                ("entered", _INSTANT),
            ]
        ),
        arrives="entered",
    ),
    "movements": Feed(
        pa.schema(
            [
                ("flight_id", pa.int64()),
                ("tailnum", pa.string()),
                ("event", pa.string()),
                ("at", _INSTANT),
            ]
        ),
        arrives="at",
    ),
    "outcomes": Feed(
        pa.schema(
            [
                ("flight_id", pa.int64()),
                ("origin", pa.string()),
                ("dest", pa.string()),
                ("carrier", pa.string()),
                ("tailnum", pa.string()),
                ("scheduled", _INSTANT),
                ("delay", pa.int64()),
                ("notice", pa.string()),
            ]
        ),
        arrives="known",
    ),
    "alerts": Feed(
        pa.schema(
            [
                ("entry", pa.int64()),
                ("alert", pa.string()),
                ("query", pa.string()),
                ("_change_type", pa.string()),
            ]
        ),
        arrives="entered",
    ),
}
"""The logs by name. `delay` is in minutes, and null of a cancelled flight; `visibility` in miles,
`wind` in miles per hour, `built` is a year. `event` is "arrived" or "departed"."""


def feeds(table: pd.DataFrame, days: int | None) -> dict[str, pd.DataFrame]:
    """The rows of each log, in the order in which they arrive.

    Parameters
    ----------
    table : DataFrame
        The flights of the package.
    days : int, optional
        Limit to this number of days, from the storm on.
    """
    chosen = of_days(table, days)
    left = departures(chosen)
    found = {
        "departures": left,
        "schedule": chosen.sort_values(["scheduled", "flight_id"], ignore_index=True),
        "landings": chosen.dropna(subset=["landed"]).sort_values(["landed", "flight_id"]),
        "weather": _weather(left["departed"]),
        "register": _register(left),
        "movements": _movements(left),
        "outcomes": _outcomes(of_days(table, days, before=_HISTORY)),
        "alerts": _alerts(left["departed"]),
    }
    return {name: found[name].reset_index(drop=True) for name in FEEDS}


def _weather(departed: pd.Series) -> pd.DataFrame:
    """The observations of the hours of these departures. Some hours have none."""
    table = packaged("weather.csv", ["origin", "time_hour", "visib", "wind_speed"])
    observations = pd.DataFrame(
        {
            "observation": range(len(table)),
            "origin": table["origin"],
            "observed": pd.to_datetime(table["time_hour"], utc=True).dt.as_unit("us"),
            "visibility": table["visib"],
            "wind": table["wind_speed"],
        }
    ).sort_values(["observed", "observation"])
    hour = pd.Timedelta(hours=1)
    ours: pd.DataFrame = observations[
        observations["observed"].between(departed.min() - hour, departed.max())
    ]
    return ours


def _register(left: pd.DataFrame) -> pd.DataFrame:
    """The log of a register of aircraft: upserts and deletes, some delivered twice.

    An aircraft is entered when it first leaves. After half of all departures manufacturers are
    called by one name each; after three quarters aircraft that have not left since are removed. At
    the end every seventh entry is delivered again, also of removed aircraft.
    """
    half, late, end = (left["departed"].iloc[n * (len(left) - 1) // 4] for n in (2, 3, 4))
    table = packaged("planes.csv", ["tailnum", "manufacturer", "year"])
    seen = left.groupby("tailnum")["departed"].agg(entered="min", last="max")
    ours = table.astype({"year": "Int64"}).rename(columns={"year": "built"})
    ours = ours.merge(seen, left_on="tailnum", right_index=True)
    proper = ours["manufacturer"].replace(_RENAMED)
    early = ours["entered"] < half
    inserts = ours.assign(manufacturer=ours["manufacturer"].where(early, proper))
    updates = ours.assign(manufacturer=proper, entered=half)
    updates = updates[early & (proper != ours["manufacturer"])]
    deletes = ours.assign(manufacturer=proper, entered=late)[ours["last"] < half]
    changes = {"insert": inserts, "update_postimage": updates, "delete": deletes}
    log = pd.concat(
        [rows.assign(_change_type=change_type) for change_type, rows in changes.items()]
    )
    log = log.sort_values(["entered", "tailnum"], ignore_index=True).drop(columns="last")
    log.insert(0, "entry", range(1, len(log) + 1))
    again = log[log["entry"] % _AGAIN == 0].assign(entered=end)
    whole: pd.DataFrame = pd.concat([log, again], ignore_index=True)
    return whole


def _movements(left: pd.DataFrame) -> pd.DataFrame:
    """Departures and landings of flights whose aircraft is known."""
    flights = left.dropna(subset=["tailnum"])
    events = {"departed": flights["departed"], "arrived": flights["landed"].dropna()}
    log = pd.concat(
        [
            flights.loc[times.index, ["flight_id", "tailnum"]].assign(event=event, at=times)
            for event, times in events.items()
        ]
    )
    return log.sort_values(["at", "flight_id", "event"])


def _outcomes(flights: pd.DataFrame) -> pd.DataFrame:
    """Every flight once it left, or was to leave if it was cancelled, with a notice in words."""
    airlines, airports = (
        packaged(f"{name}.csv", [code, "name"]).set_index(code)["name"]
        for name, code in (("airlines", "carrier"), ("airports", "faa"))
    )
    dest = flights["dest"]
    left = flights["departed"]
    notice = flights["carrier"].map(airlines) + " " + flights["flight"].astype(str)
    notice += " to " + dest.map(airports).fillna(dest)
    notice += left.isna().map({True: ", cancelled", False: ""})
    log = flights.assign(known=left.fillna(flights["scheduled"]), notice=notice)
    return log.sort_values(["known", "flight_id"])


def _alerts(departed: pd.Series) -> pd.DataFrame:
    """The log of the dispatchers' alerts. The first entry is delivered again at the end."""
    entered = [departed.iloc[quarter * (len(departed) - 1) // 4] for quarter, *_ in _ALERTS]
    log = pd.DataFrame(
        [entry[1:] for entry in _ALERTS], columns=["_change_type", "alert", "query"]
    ).assign(entered=entered)
    log.insert(0, "entry", range(1, len(log) + 1))
    again = log[:1].assign(entered=departed.iloc[-1])
    return pd.concat([log, again], ignore_index=True)


def write_feeds(rows: Mapping[str, pd.DataFrame], cuts: pd.DatetimeIndex, folder: Path) -> int:
    """Write the logs, each into a folder of its own.

    Returns
    -------
    int
        How many files each of them has.
    """
    times = {name: rows[name][feed.arrives] for name, feed in FEEDS.items()}
    first = times["departures"]
    count = int(files_of(first, cuts).max()) + 1
    for name, feed in FEEDS.items():
        numbers = files_of(times[name], cuts, first)
        write_log(rows[name], numbers, count, folder / name, feed.schema)
    return count
