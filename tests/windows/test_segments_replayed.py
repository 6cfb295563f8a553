"""Windows whose panes are stored in segments, compared with the same windows without."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel import segments
from streamops.spark.operator import Operator
from streamops.testing import BatchResult, at, replay

TOTALS = {"n": agg.count(), "total": agg.sum("v"), "users": agg.count_distinct("v", at_most=10)}
ROWS = st.lists(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5)), max_size=12), max_size=9)
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])


def operators(stragglers: Any) -> dict[str, Operator]:
    common: dict[str, Any] = {
        "time": "ts",
        "by": "k",
        "agg": TOTALS,
        "delay": "5 seconds",
        "stragglers": stragglers,
    }
    return {
        "tumbling": windows.tumbling("10 seconds", **common),
        "short": windows.tumbling("1 second", **common),
        "hopping": windows.hopping("10 seconds", "3 seconds", **common),
        "calendar": windows.calendar("day", zone="UTC", **common),
    }


@pytest.mark.laws
@pytest.mark.parametrize("stragglers", ["drop", "route"])
@pytest.mark.parametrize("windows", ["tumbling", "short", "hopping", "calendar"])
@given(script=ROWS, limit=st.integers(0, 6), shards=st.integers(1, 2))
def test_segments_change_no_result(
    windows: str, stragglers: Any, script: Any, limit: int, shards: int
) -> None:
    operator = operators(stragglers)[windows]
    batches = [
        [{"k": str(k), "v": t % 4, "ts": at(t + 15 * i)} for t, k in rows]
        for i, rows in enumerate(script)
    ]

    def run(limit: int) -> list[BatchResult]:
        with patch.object(segments, "LIMIT", limit):
            return replay(operator, batches, shards=shards, flush=True, schema=SCHEMA, restart=True)

    plain, found = run(1_000), run(limit)
    assert [sorted(map(repr, result.rows)) for result in found] == [
        sorted(map(repr, result.rows)) for result in plain
    ]
    assert [result.counts for result in found] == [result.counts for result in plain]
