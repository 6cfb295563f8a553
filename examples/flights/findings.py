"""Highlights of the year, read from the tables of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from examples.flights.flights import NEW_YORK
from examples.flights.tables import read_table

__all__ = ["findings"]

_HOUR = pd.Timedelta(hours=1)


def findings(out: Path) -> str:
    """Return the highlights of every table."""
    sections = (
        _changed_clocks,
        _fullest_day,
        _busiest_hour,
        _largest_fleet,
        _busiest_route,
        _never_landed,
        _in_fog,
        _by_manufacturer,
        _grounded,
        _alerts,
        _duty,
    )
    return "\n".join(line for section in sections for line in section(out))


def _changed_clocks(out: Path) -> Iterator[str]:
    days = read_table(out, "days")
    days["hours"] = (days["window_end"] - days["window_start"]).dt.total_seconds() // 3600
    for start, ours in days[days["hours"] != 24].groupby("window_start"):
        day = pd.Timestamp(str(start)).tz_convert(NEW_YORK)
        counts = ", ".join(f"{row.origin} {row.departures}" for row in ours.itertuples())
        yield (
            f"{day:%-d %B %Y}, when the clocks were changed, had {ours['hours'].iloc[0]:.0f} hours: "
            f"{counts} departures."
        )


def _fullest_day(out: Path) -> Iterator[str]:
    for row in _most(out, "working_days"):
        first = row["window_start"].tz_convert(NEW_YORK)
        last = (row["window_end"] - 8 * _HOUR).tz_convert(NEW_YORK)
        yield (
            f"The aircraft {row['tailnum']} left New York {row['departures']} times in one working "
            f"day, from {first:%-d %B %H:%M} to {last:%-d %B %H:%M}."
        )


def _busiest_hour(out: Path) -> Iterator[str]:
    for row in _most(out, "last_hour"):
        end = row["scheduled"].tz_convert(NEW_YORK)
        yield (
            f"{row['departures']} departures of {row['origin']} were scheduled in the hour up to "
            f"{end:%-d %B %H:%M}: no hour had more."
        )


def _largest_fleet(out: Path) -> Iterator[str]:
    fleets, days = read_table(out, "airline_years"), read_table(out, "airline_days")
    if fleets.empty:
        return
    fleet = max(fleets.to_dict("records"), key=lambda row: row["aircraft"]["estimate"])
    aircraft = fleet["aircraft"]
    ours = [row["estimate"] for row in days[days["carrier"] == fleet["carrier"]]["aircraft"]]
    yield (
        f"{fleet['carrier']} flew about {aircraft['estimate']} aircraft, "
        f"{_between(aircraft['lower'], aircraft['upper'])}, and with {max(ours)} on its fullest day: sketches of "
        f"{_days(fleet['days'])}, merged."
    )


def _busiest_route(out: Path) -> Iterator[str]:
    items = read_table(out, "busiest_routes")["routes"].iloc[0]["items"]
    delays = read_table(out, "route_delays")
    for route in items[:1]:
        ours = delays["origin"] + "-" + delays["dest"] == route["item"]
        median, most, nearly_all = delays[ours]["delays"].iloc[0]["estimate"]
        yield (
            f"The busiest route, {route['item']}, had {_between(route['lower'], route['upper'])} "
            f"departures: a median delay of {median:.0f} minutes, the 90th percentile is {most:.0f}, "
            f"the 99th {nearly_all:.0f}."
        )


def _never_landed(out: Path) -> Iterator[str]:
    table = read_table(out, "arrivals")
    expired = table["status"] == "expired"
    shares = expired.groupby(table["origin"]).mean()
    named = ", ".join(f"{origin} {share:.1%}" for origin, share in shares.items())
    yield f"{expired.sum():,} flights did not land within a day of their schedule: {named}."


def _in_fog(out: Path) -> Iterator[str]:
    table = read_table(out, "weather").dropna(subset=["visibility"])
    delays = table["delay"].astype(float).groupby(table["visibility"] <= 1).agg(["mean", "size"])
    if len(delays) == 2:
        fog = delays.loc[True]
        yield (
            f"{fog['size']:,.0f} departures with a visibility of a mile or less left {fog['mean']:.0f} "
            f"minutes late on average, all others {delays['mean'][False]:.0f}."
        )


def _by_manufacturer(out: Path) -> Iterator[str]:
    table = read_table(out, "aircraft")
    delays = table.groupby("manufacturer")["delay"].agg(["mean", "size"])
    common = delays[delays["size"] >= len(table) / 100].sort_values("mean")
    if len(common) > 1:
        least, most = common.iloc[0], common.iloc[-1]
        yield (
            f"Aircraft of {least.name} left {least['mean']:.0f} minutes late on average, those of "
            f"{most.name} {most['mean']:.0f}: of manufacturers with 1% of the departures, the least "
            "and the most."
        )


def _grounded(out: Path) -> Iterator[str]:
    table = read_table(out, "grounded")
    for row in table.nlargest(1, "minutes").to_dict("records"):
        day = row["match_end"].tz_convert(NEW_YORK)
        yield (
            f"{_times(len(table))} the next flight of an aircraft that had left late three times in a row "
            f"was cancelled; {row['tailnum']}, on {day:%-d %B}, after {row['minutes']:,} minutes of delay."
        )


def _alerts(out: Path) -> Iterator[str]:
    table = read_table(out, "alerts")
    counts = table.groupby("alert").size().sort_values(ascending=False)
    if len(counts):
        named = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        yield f"The alerts of the dispatchers matched {len(table):,} times: {named}."


def _duty(out: Path) -> Iterator[str]:
    table = read_table(out, "duty")
    if table.empty:
        return
    in_the_air = (table["violation"] == "in the air at the limit").sum()
    yield (
        "If one crew stayed with its aircraft until it had eight hours of rest, "
        f"{_flights(in_the_air)} would have been in the air at its limit of sixteen hours, and "
        f"{_flights(len(table) - in_the_air)} would have left beyond it."
    )


def _flights(number: int) -> str:
    return "one flight" if number == 1 else f"{number:,} flights"


def _times(number: int) -> str:
    return "Once" if number == 1 else f"{number:,} times"


def _between(lower: int, upper: int) -> str:
    return f"{lower:,}" if lower == upper else f"{lower:,} to {upper:,}"


def _days(number: int) -> str:
    return "one day" if number == 1 else f"{number} days"


def _most(out: Path, windows: str) -> list[dict[Any, Any]]:
    """The result of the most departures, if there is one."""
    return read_table(out, windows).nlargest(1, "departures").to_dict("records")
