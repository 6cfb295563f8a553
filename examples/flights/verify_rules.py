"""The rules of the stream against the same rules in pandas, which share no code with them.

Nothing here knows how streamops works, or reads a query: what each one means is written once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

__all__ = ["alerts", "duty", "grounded", "is_valid"]

LATE = 15
"""Minutes. A flight that left later was late."""
IN_A_ROW = 3
SPAN = pd.Timedelta(days=3)
"""The flights of one case are scheduled in less than this."""
LIMIT = pd.Timedelta(hours=16)
REST = pd.Timedelta(hours=8)
LOST = pd.Timedelta(days=1)
_AT_ONCE = pd.Timestamp("1970-01-01", tz="UTC")

Feeds = Mapping[str, pd.DataFrame]

_CALIFORNIA, _CHICAGO, _FAR = ["LAX", "SFO"], ["MDW", "ORD"], ["ANC", "HNL"]
_MEANS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "cancelled AND origin:LGA": lambda f: f["delay"].isna() & (f["origin"] == "LGA"),
    '("los angeles" OR "san francisco") AND delay:[120 TO *]': lambda f: (
        f["dest"].isin(_CALIFORNIA) & (f["delay"] >= 120)
    ),
    "+carrier:UA +delay:>240 -chicago": lambda f: (
        (f["carrier"] == "UA") & (f["delay"] > 240) & ~f["dest"].isin(_CHICAGO)
    ),
    "delay:[* TO -20]": lambda f: f["delay"] <= -20,
    "honol* OR anchorage": lambda f: f["dest"].isin(_FAR),
    "+carrier:UA +delay:>360 -chicago": lambda f: (
        (f["carrier"] == "UA") & (f["delay"] > 360) & ~f["dest"].isin(_CHICAGO)
    ),
    "envoy AND NOT cancelled AND delay:>=180": lambda f: (
        (f["carrier"] == "MQ") & (f["delay"] >= 180)
    ),
}
"""The stored queries that are valid, and the flights that each of them means."""


def grounded(feeds: Feeds) -> pd.DataFrame:
    """Cancelled flights of aircraft whose three flights before were late, in less than three days."""
    flights = feeds["outcomes"].dropna(subset=["tailnum"])
    flights = flights.sort_values(["tailnum", "scheduled", "flight_id"])
    late = (flights["delay"] > LATE).fillna(False).astype(bool)
    found = flights["delay"].isna()
    minutes = pd.Series(0, index=flights.index)
    for back in range(1, IN_A_ROW + 1):
        found &= late.groupby(flights["tailnum"]).shift(back, fill_value=False)
        minutes += flights["delay"].groupby(flights["tailnum"]).shift(back).fillna(0).astype(int)
    start = flights["scheduled"].groupby(flights["tailnum"]).shift(IN_A_ROW)
    end = flights["scheduled"]
    found &= end - start < SPAN
    # No flight is in two cases: each of them ends with its only cancelled flight.
    table = flights[["flight_id", "tailnum"]].assign(
        match_start=start, match_end=end, minutes=minutes, due=end
    )
    return table[found]


def alerts(feeds: Feeds, flown: pd.Series, entered: pd.Series) -> pd.DataFrame:
    """Flights with the alerts that were in effect in their micro-batch.

    Parameters
    ----------
    feeds : mapping of str to DataFrame
        The rows of the logs.
    flown, entered : Series
        The micro-batch of each outcome, and of each entry of the alerts.
    """
    outcomes, entries = feeds["outcomes"], feeds["alerts"]
    pieces = []
    for number, flights in outcomes.groupby(flown):
        known = entries[(entered <= number) & is_valid(entries)].sort_values("entry")
        last = known.drop_duplicates("alert", keep="last")
        for entry in last[last["_change_type"] != "delete"].itertuples():
            ours = flights[_MEANS[str(entry.query)](flights).fillna(False).astype(bool)]
            pieces.append(ours.assign(alert=entry.alert))
    columns = ["flight_id", "alert", "origin", "dest", "carrier", "delay"]
    table: pd.DataFrame = pd.concat(pieces, ignore_index=True)[columns]
    return table.assign(due=_AT_ONCE)


def is_valid(entries: pd.DataFrame) -> pd.Series:
    """Whether an entry of the alerts is a delete, or has a query with a meaning."""
    valid: pd.Series = entries["query"].isin(_MEANS.keys()) | (entries["_change_type"] == "delete")
    return valid


def duty(feeds: Feeds) -> pd.DataFrame:
    """Flights beyond the limit of their crew's duty, or in the air as it is reached."""
    log = feeds["movements"]
    departed, arrived = (
        log[log["event"] == event].rename(columns={"at": event}).drop(columns="event")
        for event in ("departed", "arrived")
    )
    flights = departed.merge(arrived, how="left", on=["flight_id", "tailnum"])
    flights = flights.sort_values(["tailnum", "departed", "flight_id"])
    of_aircraft = flights.groupby("tailnum")
    before, landed = of_aircraft["departed"].shift(), of_aircraft["arrived"].shift()
    # Of a flight that has not landed when the next one leaves, nothing more is known.
    rested = (landed + REST).where(landed <= flights["departed"], before + LOST)
    number = (before.isna() | (flights["departed"] > rested)).cumsum()
    of_duty = flights["departed"].groupby(number)
    since = of_duty.transform("min")
    limit = since + LIMIT
    following = of_duty.shift(-1)
    beyond = flights["departed"] > limit
    is_last = following.isna() | (following > limit)
    in_the_air = ~beyond & is_last & ~(flights["arrived"] <= limit)
    at = flights["departed"].where(beyond, limit)
    table = flights[["flight_id", "tailnum"]].assign(
        at=at,
        violation=beyond.map({True: "departed beyond the limit", False: "in the air at the limit"}),
        since=since,
        departures=of_duty.cumcount() + 1,
        due=at,
    )
    return table[beyond | in_the_air]
