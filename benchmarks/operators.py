"""The operators of streamops that are measured. The other systems run without this library in the process."""

from __future__ import annotations

from pyspark.sql import DataFrame

from benchmarks import per_key
from benchmarks.joins import REMOVED
from benchmarks.stream import DELAY
from benchmarks.workloads import (
    CAPACITY,
    COUNTED_MS,
    GAP_MS,
    HIGH,
    HOPS,
    LOW,
    RATE,
    REACH_MS,
    WITHIN_MS,
    P,
)
from streamops import aggregates as agg
from streamops import joins, patterns, process, search, sketches, windows
from streamops.spark.operator import Operator

TOTALS = {"n": agg.count(), "total": agg.sum("v")}


def build_window(workload: str) -> Operator:
    """The operator over one stream, by the name of the workload."""
    match workload:
        case "seen":
            return sketches.seen("k", capacity=CAPACITY, false_positive_rate=RATE)
        case "distinct":
            users = {"users": agg.approx_count_distinct("u", p=P)}
            size = f"{COUNTED_MS} milliseconds"
            return windows.tumbling(size, time="ts", by="k", agg=users, delay=DELAY)
        case "tumbling":
            return windows.tumbling("1 minute", time="ts", by="k", agg=TOTALS, delay=DELAY)
        case "hopping":
            size = f"{HOPS} minutes"
            return windows.hopping(size, "1 minute", time="ts", by="k", agg=TOTALS, delay=DELAY)
        case "sliding":
            size = f"{REACH_MS} milliseconds"
            return windows.sliding(size, time="ts", by="k", agg=TOTALS, delay=DELAY)
        case "patterns" | "patterns-hot" | "patterns-starts":
            return patterns.match(
                "low ... high",
                define={"low": f"v < {LOW}", "high": f"v >= {HIGH}"},
                time="ts",
                by="k",
                within=f"{WITHIN_MS} milliseconds",
                measures={"n": patterns.count(), "total": patterns.sum(None, "v")},
                delay=DELAY,
                max_rows=1_000_000,
            )
        case "per-key":
            return process.per_key(
                per_key.alert_at_levels,
                by="k",
                state=per_key.STATE,
                initial={"n": 0, "total": 0.0, "alerts": 0},
                output=per_key.OUTPUT,
            )
        case "session":
            gap = f"{GAP_MS} milliseconds"
            return windows.session(gap, time="ts", by="k", agg=TOTALS, delay=DELAY)
    raise ValueError(f"no operator for the workload {workload!r}")


def build_join(workload: str, right: DataFrame | None) -> Operator:
    """The operator over two streams, by the name of the workload."""
    match workload:
        case "interval":
            return joins.interval(
                right, "0 seconds", "1 hour", by="k", time="ts", how="left", delay=DELAY
            )
        case "temporal":
            return joins.asof(
                right, by="k", time="ts", version="since", sequence="seq", delay=DELAY
            )
        case "tables":
            return joins.tables(
                right, by="c", how="left", key=("k", "c"), sequence="seq", remember=REMOVED
            )
        case "search":
            return search.match(right, text="title", fields="price", sequence="lsn", horizon=0)
    raise ValueError(f"no operator for the workload {workload!r}")
