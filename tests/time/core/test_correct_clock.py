"""Corrected times of a table: boundary cases compared with the oracle of the Spark expressions."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

from streamops import sketches, time
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.testing import at, replay
from streamops.time.core.track_clock import CorrectClockSpec, correct
from tests.oracles import clocks

HOUR, DAY = 3_600_000_000, 86_400_000_000
NOON = 1_709_985_600_000_000
BORDERS = [
    *(None, NOON - DAY, NOON - DAY - 1, NOON - 1, NOON, NOON + 1, NOON + DAY, NOON + DAY + 1),
    *(0, MIN_INSTANT, MIN_INSTANT - 1, MAX_INSTANT, MAX_INSTANT + 1, -(2**63) + 1, 2**63 - 1),
]
TRIPLES = list(itertools.product(BORDERS, repeat=3))
LIMITS: dict[str, Any] = {
    "tolerance": 0, "longest_wait": None, "largest_offset": None, "otherwise": "received"
}  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"tolerance": DAY, "otherwise": "device"},
        {"longest_wait": DAY, "largest_offset": DAY, "otherwise": "null"},
        {"longest_wait": 0},
        {"largest_offset": 0},
    ],
    ids=repr,
)
def test_boundary_cases_equal_the_oracle(arguments: dict[str, Any]) -> None:
    wanted = [clocks.correct_clock(*triple, **arguments) for triple in TRIPLES]
    instant = pa.timestamp("us", tz="UTC")
    three = [
        pa.chunked_array([pa.array(column, pa.int64()).cast(instant)])
        for column in zip(*TRIPLES, strict=True)
    ]
    offsets = pa.chunked_array([pa.array([row.offset for row in wanted], pa.int64())])
    good = pa.chunked_array([["corrected"] * len(wanted)])
    spec = CorrectClockSpec(time="event", sent="sent", received="received", **LIMITS | arguments)
    rows = pa.table(three, ["event", "sent", "received"])
    found = correct(spec, rows, offsets, good)
    columns = [found[0].cast(pa.int64()), found[1].cast(pa.int64()), found[2]]
    got = list(zip(*(column.to_pylist() for column in columns), strict=True))
    assert got == [tuple(row) for row in wanted]


def test_operators_that_annotate_rows_can_be_replayed() -> None:
    tracked = time.track_clock("ts", by="k", sent="sent", received="received").options(shards=2)
    row = {"k": "a", "ts": at(0), "sent": at(0), "received": at(102)}
    slow = {"k": "a", "ts": at(5), "sent": at(5), "received": at(135)}
    one, two = replay(tracked, [[row], [slow]], restart=True)
    assert [r["clock_quality"] for r in (*one.rows, *two.rows)] == ["corrected", "estimated"]
    assert two.rows[0]["corrected_time"] == at(107)
    assert (two.batch, two.counts, two.late_rows) == (1, None, [])
    seen = sketches.seen("id", capacity=1_000, false_positive_rate=1e-6).options(shards=1)
    first, again = replay(seen, [[{"id": 1}, {"id": 1}], [{"id": 1}, {"id": 2}]])
    assert [row["id"] for row in (*first.rows, *again.rows)] == [1, 2]
