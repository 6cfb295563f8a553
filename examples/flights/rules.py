"""The rules of the job: a pattern of flights, stored queries over their outcomes, and the duty of crews."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from examples.flights.contents import RULES
from streamops import patterns, process, search

__all__ = ["LIMIT", "REST", "alerts", "duty", "grounded", "ruled"]

Transform = Callable[[DataFrame], DataFrame]

LIMIT = dt.timedelta(hours=16)
"""How long a crew may be on duty."""
REST = dt.timedelta(hours=8)
"""The time on the ground that ends a duty."""
_LOST = dt.timedelta(days=1)
"""No flight takes so long: one that has not landed by then was diverted."""

_ON_DUTY: dict[str, Any] = {"flights": 0, "in_the_air": False}


def grounded() -> Transform:
    """Aircraft that left late three times in a row, and whose next flight was cancelled.

    In the order of the schedule. A flight leaves up to 21 hours and 41 minutes late, so the watermark waits
    for a day.
    """
    return patterns.match(
        "late{3} cancelled",
        define={"late": "delay > 15", "cancelled": "delay IS NULL"},
        time="scheduled",
        by="tailnum",
        within="3 days",
        tie_break="flight_id",
        measures={
            "flight_id": patterns.last("cancelled", "flight_id"),
            "minutes": patterns.sum("late", "delay"),
        },
        delay="1 day",
    ).options(name="grounded", shards=2)


def alerts(queries: DataFrame | None) -> Transform:
    """Flights with the stored queries of dispatchers that match them."""
    return search.match(
        queries,
        text="notice",
        fields=["origin", "dest", "carrier", "delay"],
        id="alert",
        sequence="entry",
        horizon=1_000,
        into="alert",
    ).options(name="alerts", shards=1)


def duty() -> Transform:
    """Flights that violate the limit of their crew's duty.

    The package has no crews. Here one crew stays with an aircraft, until it has been on the ground for
    eight hours: then it has rested, and its next departure begins another duty.
    """
    return process.per_key(
        _follow,
        on_timer=_reach,
        by="tailnum",
        state="since timestamp, flights bigint, flight_id bigint, in_the_air boolean, rested timestamp",
        initial=_ON_DUTY,
        output="flight_id bigint, violation string, since timestamp, departures bigint",
        time="at",
        # An aircraft lands before it leaves: "arrived" is less than "departed".
        order_by=["event", "flight_id"],
        delay="0 seconds",
    ).options(name="duty", shards=2)


def _follow(key: Any, rows: Iterator[Any], state: Any, timers: Any) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        if row.event == "departed":
            if state.since is None:
                state.since = row.at
                timers.set(row.at + LIMIT)
            state.flights += 1
            if row.at > state.since + LIMIT:
                yield row.flight_id, "departed beyond the limit", state.since, state.flights
            state.flight_id, state.in_the_air = row.flight_id, True
            _rest_at(row.at + _LOST, state, timers)
        elif row.flight_id == state.flight_id:
            state.in_the_air = False
            _rest_at(row.at + REST, state, timers)


def _rest_at(time: dt.datetime, state: Any, timers: Any) -> None:
    if state.rested is not None and state.rested != state.since + LIMIT:
        timers.cancel(state.rested)
    timers.set(time)
    state.rested = time


def _reach(key: Any, time: dt.datetime, state: Any, timers: Any) -> Iterator[tuple[Any, ...]]:
    if time == state.since + LIMIT and state.in_the_air:
        yield state.flight_id, "in the air at the limit", state.since, state.flights
    if time == state.rested:
        # As at the beginning: the key is not stored any more.
        state.since = state.flight_id = state.rested = None
        state.flights, state.in_the_air = 0, False
        timers.cancel_all()


def ruled(read: Callable[[str], DataFrame], name: str) -> DataFrame:
    """The rows of one of the rules, which are never retracted.

    Parameters
    ----------
    read : callable
        Returns a log by name.
    name : str
        The name of the rule.
    """
    return _APPLIED[name](read).select(*RULES[name].columns, F.lit("insert").alias("_change_type"))


def _grounded(read: Callable[[str], DataFrame]) -> DataFrame:
    # Without an aircraft, flights do not follow one another.
    return read("outcomes").where("tailnum IS NOT NULL").transform(grounded())


def _alerts(read: Callable[[str], DataFrame]) -> DataFrame:
    return read("outcomes").transform(alerts(read("alerts")))


def _duty(read: Callable[[str], DataFrame]) -> DataFrame:
    return read("movements").transform(duty())


_APPLIED: dict[str, Callable[[Callable[[str], DataFrame]], DataFrame]] = {
    "grounded": _grounded,
    "alerts": _alerts,
    "duty": _duty,
}
