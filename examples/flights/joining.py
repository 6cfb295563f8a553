"""The joins of the job: flights and landings, departures and the weather, and the register of aircraft."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from examples.flights.contents import JOINED
from streamops import changes, joins, split_side_output

__all__ = ["JOINS", "aircraft", "arrivals", "joined", "registered", "weather"]

Transform = Callable[[DataFrame], DataFrame]

# Each log is ordered by event time, so no delay is needed. Two shards suffice for thousands of keys.
_SETTINGS: dict[str, Any] = {"delay": "0 seconds", "shards": 2}


def arrivals(landings: DataFrame | None) -> Transform:
    """Flights with their landing, if it is within a day of their schedule; else they expire."""
    return joins.interval(
        landings,
        "0 seconds",
        "1 day",
        by="flight_id",
        time=("scheduled", "landed"),
        how="left",
        delay=_SETTINGS["delay"],
    ).options(name="arrivals", shards=_SETTINGS["shards"])


def weather(observations: DataFrame | None) -> Transform:
    """Departures with the weather of their airport as it was observed last, in two hours or less."""
    return joins.asof(
        observations,
        by="origin",
        time="departed",
        version="observed",
        sequence="observation",
        tolerance="2 hours",
        delay=_SETTINGS["delay"],
    ).options(name="weather", shards=_SETTINGS["shards"])


def registered() -> Transform:
    """The register's entries as changes of a table. Duplicates and stale entries are no changes."""
    return changes.normalize(
        "tailnum",
        sequence="entry",
        horizon=100_000,
    ).options(shards=_SETTINGS["shards"], name="register")


def aircraft(register: DataFrame | None) -> Transform:
    """Departures with their aircraft as the register has it now: a change there changes them all."""
    return joins.tables(
        register,
        by="tailnum",
        how="left",
        key=("flight_id", "tailnum"),
    ).options(shards=_SETTINGS["shards"], name="aircraft")


def joined(read: Callable[[str], DataFrame], name: str) -> DataFrame:
    """The rows of one of the joins, as changes of a table.

    Parameters
    ----------
    read : callable
        Returns a log by name.
    name : str
        The name of the join.
    """
    rows = JOINS[name](read)
    # Rows that are never retracted are inserts.
    change = F.col("_change_type") if "_change_type" in rows.columns else F.lit("insert")
    return rows.select(*JOINED[name].columns, change.alias("_change_type"))


def _arrivals(read: Callable[[str], DataFrame]) -> DataFrame:
    return read("schedule").transform(arrivals(read("landings")))


def _weather(read: Callable[[str], DataFrame]) -> DataFrame:
    left = read("departures").select("flight_id", "origin", "departed", "delay")
    return left.transform(weather(read("weather")))


def _aircraft(read: Callable[[str], DataFrame]) -> DataFrame:
    # A departure never changes.
    left = read("departures").select(
        "flight_id", "tailnum", "delay", F.lit("insert").alias("_change_type")
    )
    entries, _ = split_side_output(read("register").drop("entered").transform(registered()))
    return left.transform(aircraft(entries.drop("revision")))


JOINS: dict[str, Callable[[Callable[[str], DataFrame]], DataFrame]] = {
    "arrivals": _arrivals,
    "weather": _weather,
    "aircraft": _aircraft,
}
"""The joins by their name in the tables: their rows, from the logs."""
