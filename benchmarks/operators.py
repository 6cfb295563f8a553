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
    LATENESS_MS,
    LOW,
    RATE,
    REACH_MS,
    WITHIN_MS,
    P,
)
from streamops import aggregates as agg
from streamops import joins, patterns, process, search, sketches, windows
from streamops.spark.operator import Operator

_ONE_KEY = ("patterns-starts", "patterns-cut", "patterns-absent")
TOTALS = {"n": agg.count(), "total": agg.sum("v")}


def build_window(workload: str) -> Operator:
    """The operator over one stream, by the name of the workload."""
    match workload:
        case "running":
            return windows.running(by="k", agg=TOTALS)
        case "corrections":
            return windows.tumbling(
                "1 minute",
                time="ts",
                by="k",
                agg=TOTALS,
                delay=DELAY,
                allowed_lateness=f"{LATENESS_MS} milliseconds",
                stragglers="retract",
            )
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
        case _ if workload.startswith("patterns"):
            return _build_pattern(workload)
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


def _build_pattern(workload: str) -> Operator:
    """A pattern with two measures."""
    text, define = "low ... high", {"low": f"v < {LOW}", "high": f"v >= {HIGH}"}
    if workload == "patterns-cut":  # all rows are one match, which the bound cuts into pieces
        text, define = "low{2,}", {"low": f"v < {LOW}"}
    if workload == "patterns-absent":  # every row starts a match, and nearly every row breaks it
        text, define = "any+ zero !other", {"zero": "v = 0", "other": "v >= 0"}
    # Of one key, 150,000 rows are undecided at a time, more than the default.
    limit = {"max_rows": 1_000_000} if workload in _ONE_KEY else {}
    return patterns.match(
        text,
        define=define,
        time="ts",
        by="k",
        within=f"{WITHIN_MS} milliseconds",
        measures={"n": patterns.count(), "total": patterns.sum(None, "v")},
        delay=DELAY,
        **limit,
    )


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
