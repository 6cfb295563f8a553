"""The sketches of the job: aircraft of airlines, delays of routes, the busiest routes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import sketches, windows
from streamops.testing import replay

__all__ = ["PROBABILITIES", "SHARE", "routed", "sketched", "years"]

PROBABILITIES = (0.5, 0.9, 0.99)
SHARE = 0.02
"""Of all departures: a route that has it is one of the busiest."""
_P = 10  # a kilobyte; most airlines have fewer aircraft a day than it counts exactly
_K = 400


def sketched(settings: Mapping[str, Any]) -> dict[str, Callable[[DataFrame], DataFrame]]:
    """The operators by their name in the tables.

    Parameters
    ----------
    settings : mapping
        Of windows: the event time, what becomes of stragglers, and so on; with aggregates.
    """
    aircraft = {
        "aircraft": agg.approx_count_distinct("tailnum", p=_P),
        "sketch": sketches.hll_sketch_agg("tailnum", p=_P),
    }
    return {
        "airline_days": windows.calendar(
            "day",
            "America/New_York",
            by="carrier",
            **{**settings, "agg": {**settings["agg"], **aircraft}},
        ).options(name="airline_days"),
        # Without windows: emitted whenever they change. A window of a year would still be open when the
        # log ends.
        "route_delays": windows.running(
            by=("origin", "dest"),
            agg={"delays": agg.approx_percentile("delay", PROBABILITIES, k=_K)},
            changes="retract",
        ).options(shards=2, name="route_delays"),
        "busiest_routes": windows.running(
            agg={"routes": agg.approx_top_k("route", at_least=SHARE)},
            changes="retract",
        ).options(shards=1, name="busiest_routes"),
    }


def routed(departures: DataFrame) -> DataFrame:
    """The departures with their route, such as "JFK-LAX"."""
    return departures.withColumn("route", F.concat_ws("-", "origin", "dest"))


def years(days: pa.Table) -> pa.Table:
    """The aircraft of each airline in the year: the stored sketches of its days, merged.

    The same operator would merge them in a stream. There, a year is open until flights of the next
    one come.
    """
    aircraft = sketches.merge("sketch", like=agg.approx_count_distinct("tailnum", p=_P))
    per_year = windows.calendar(
        "year",
        "America/New_York",
        time="window_start",
        by="carrier",
        agg={"days": agg.count(), "aircraft": aircraft},
        delay="0 seconds",
    )
    merged = replay(per_year, [days.drop_columns("aircraft")], flush=True)[-1].table
    return merged.sort_by("carrier")
