"""Functions per key for tests, with their operators. Workers import this module."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

from streamops import process
from streamops.spark.operator import Operator

Row = Any
IDLE = dt.timedelta(seconds=15)


def add_up(key: Row, rows: Iterator[Row], state: Any) -> Iterator[tuple[Any, ...]]:
    """The sum so far, at every row."""
    for row in rows:
        state.n += 1
        state.total += row.v or 0
        yield state.n, state.total


def watch(key: Row, rows: Iterator[Row], state: Any, timers: process.Timers) -> Iterator[Any]:
    """Count rows until a key is idle."""
    for row in rows:
        state.n += 1
        state.values.append(row.v)
        timers.cancel_all()
        timers.set(row.ts + IDLE)
        if row.v is not None and row.v % 5 == 0:
            yield {"event": "five", "n": state.n}


def idle(
    key: Row, time: dt.datetime, state: Any, timers: process.Timers
) -> Iterator[tuple[Any, ...]]:
    """Emit the rows of the burst, and forget them."""
    yield "idle", state.n, sorted(value for value in state.values if value is not None)
    state.n, state.values = 0, []


def total_of_windows(key: Row, rows: Iterator[Row], state: Any) -> Iterator[tuple[Any, ...]]:
    """The sum of window results so far."""
    for row in rows:
        state.total += row.n
        yield (state.total,)


def first_seen(key: Row, rows: Iterator[Row], state: Any) -> Iterator[tuple[Any, ...]]:
    """Whether a key was not seen before."""
    for _ in rows:
        if not state.is_known:
            state.is_known = True
            yield (True,)


def fail_at_zero(key: Row, rows: Iterator[Row], state: Any) -> Iterator[tuple[Any, ...]]:
    """Raise an exception for a value of zero, after the state was changed."""
    for row in rows:
        state.n += 1
        yield state.n, 60 // row.v


def sums(**parameters: Any) -> Operator:
    """The sums of keys."""
    given: dict[str, Any] = {
        "by": "k",
        "state": "n bigint, total bigint",
        "initial": {"n": 0, "total": 0},
        "output": "n bigint, total bigint",
    }
    return process.per_key(add_up, **{**given, **parameters})


def bursts(**parameters: Any) -> Operator:
    """Bursts of rows, with timers."""
    given: dict[str, Any] = {
        "by": "k",
        "state": {"n": "int", "values": "array<bigint>"},
        "initial": {"n": 0, "values": []},
        "output": "event string, n int, burst array<bigint>",
        "time": "ts",
        "delay": "10 seconds",
        "on_timer": idle,
    }
    return process.per_key(watch, **{**given, **parameters})


def window_totals(**parameters: Any) -> Operator:
    """Sums over results of windows."""
    return process.per_key(
        total_of_windows,
        by="k",
        state="total bigint",
        initial={"total": 0},
        output="total bigint",
        time="window_end",
        **parameters,
    )


def quotients(**parameters: Any) -> Operator:
    """A function that fails for some rows, which are routed."""
    return process.per_key(
        fail_at_zero,
        by="k",
        state="n bigint",
        initial={"n": 0},
        output="n bigint, quotient bigint",
        **{"errors": "route", **parameters},
    )


def distinct_values() -> Operator:
    """Each key once, whatever the order in which its rows arrive."""
    return process.per_key(
        first_seen, by=["k", "v"], state="is_known boolean", output="is_first boolean"
    )
