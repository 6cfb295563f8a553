"""State, memory and open files do not grow with the stream: hundreds of micro-batches of changing keys."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.core import State
from streamops.spark.operator import Operator
from tests.resources import Resources

pytestmark = pytest.mark.laws

ROWS, PACE = 60, 10_000_000  # ten seconds of events in each micro-batch
HOUR = 3_600_000_000
"""The pace of windows of days."""
NOW = 1_700_000_000_000_000
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("lasts", pa.duration("us")),
        ("over", pa.bool_()),
    ]
)
COMMON: dict[str, Any] = {"time": "ts", "by": "k", "agg": {"n": agg.count()}, "delay": "5 seconds"}
CORRECTS = {"allowed_lateness": "1 minute", "too_late": "route"}
POLICIES: list[dict[str, Any]] = [
    {"stragglers": "drop"},
    {"stragglers": "route", "allowed_lateness": "1 minute"},
    {"stragglers": "retract", **CORRECTS},
    {"stragglers": "update", **CORRECTS},
]
SESSIONS: list[dict[str, Any]] = [
    {},
    {"gap_column": "lasts", "early": "every batch"},
    {"until": "over"},
    {"max_length": "1 minute"},
    {"until": "over", "max_length": "30 seconds", "early": "every batch"},
]
OPERATORS: list[Operator] = [
    *(windows.tumbling("10 seconds", **COMMON, **policy) for policy in POLICIES),
    *(windows.hopping("25 seconds", "10 seconds", **COMMON, **policy) for policy in POLICIES),
    *(
        windows.hopping("25 seconds", "10 seconds", early="every batch", **COMMON, **policy)
        for policy in POLICIES
    ),
    *(
        windows.hopping("25 seconds", "10 seconds", empty_for="1 minute", **COMMON, **policy)
        for policy in POLICIES
    ),
    windows.cumulative(
        "1 minute",
        "10 seconds",
        early="every batch",
        empty_for="30 seconds",
        **COMMON,
        **POLICIES[2],
    ),
    *(
        windows.calendar("day", "Europe/Berlin", early="every batch", **COMMON, **policy)
        for policy in (POLICIES[0], {**POLICIES[2], "allowed_lateness": "1 day"})
    ),
    *(windows.sliding("20 seconds", early="every batch", **COMMON, **p) for p in POLICIES[1:3]),
    *(
        windows.session("15 seconds", **COMMON, **session, **policy)
        for policy in POLICIES[:3]
        for session in SESSIONS
    ),
]


def micro_batch(number: int, pace: int, rng: np.random.Generator) -> pa.Table:
    """Rows of keys that live for some twenty micro-batches; a tenth is up to two minutes late."""
    late = np.where(rng.random(ROWS) < 0.1, rng.integers(0, 120_000_000, ROWS), 0)
    times = NOW + number * pace + rng.integers(0, pace, ROWS) - late
    columns = [
        pa.array(number // 20 * 40 + rng.integers(0, 40, ROWS)),
        pa.array(times).cast(SCHEMA[1].type),
        pa.array(rng.integers(1, 15_000_000, ROWS)).cast(SCHEMA[2].type),
        pa.array(rng.random(ROWS) < 0.1),
    ]
    return pa.table(columns, schema=SCHEMA)


@pytest.mark.parametrize("batches", [120, pytest.param(1_000, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("transform", OPERATORS, ids=lambda t: repr(t)[8:110])
def test_state_is_as_large_in_the_last_quarter_as_in_the_second(
    transform: Operator, batches: int
) -> None:
    core, spec = transform.core, transform.parameters.resolve((SCHEMA,), carried=(None,), shards=1)
    rng, state, newest = np.random.default_rng(7), State.empty(core.layout(spec)), NOW
    sizes, resources = [], Resources()
    pace = HOUR if transform.name == "windows.calendar" else PACE
    for number in range(batches):
        batch = micro_batch(number, pace, rng)
        watermark = newest - dt.timedelta(seconds=5) // dt.timedelta(microseconds=1)
        packed = core.pack(spec, batch.select(spec.input.names))
        state = core.step(spec, state, [packed], watermark).state
        newest = max(newest, int(np.asarray(batch.column("ts").cast(pa.int64())).max()))
        sizes.append(state.rows)
        resources.measure()
    quarter = batches // 4
    second, last = max(sizes[quarter : 2 * quarter]), max(sizes[3 * quarter :])
    assert second > 20, "the state is too small to show anything"
    assert last <= 1.1 * second, f"{second} entries in the second quarter, {last} in the last"
    resources.check()
