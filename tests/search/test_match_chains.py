"""Stored queries after and before windows, and over several shards, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import search, windows
from streamops.testing import assert_rows, at, replay

QUERIES = pa.schema([("id", pa.int64()), ("query", pa.string()), ("lsn", pa.int64())])
EVENTS = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("k", pa.string()), ("v", pa.int64())])
GIVEN: dict[str, Any] = {"sequence": "lsn", "horizon": 10}


def event(second: float, k: str, v: int = 1) -> dict[str, Any]:
    return {"ts": at(second), "k": k, "v": v}


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_the_number_of_shards_changes_neither_matches_nor_metrics(shards: int) -> None:
    operator = search.match(None, text="k", fields="v", **GIVEN, rejected="route")
    queries = [
        {"id": n, "query": text, "lsn": 1}
        for n, text in enumerate(["a", "b v:>1", "-a", "(", "v:[2 TO *]", "a AND v:1", "a b"])
    ]
    script: list[Any] = [
        ([event(0, "a b"), event(1, "b", 2)], queries),
        ([event(2, "c"), event(3, "a", 3)], [{"id": 0, "query": "c", "lsn": 2}]),
    ]
    schemas = (EVENTS, QUERIES)
    one = replay(operator, script, schema=schemas, shards=1)
    other = replay(operator, script, schema=schemas, shards=shards, restart=True)
    for first, second in zip(one, other, strict=True):
        assert first.table.num_rows > 0
        assert_rows(first.table, second.table)
        assert_rows(first.late, second.late)
        assert first.counts == second.counts
        assert first.state_rows == second.state_rows


def test_matches_are_counted_in_windows() -> None:
    counts = windows.tumbling(
        "10 seconds", time="ts", by="query_id", agg={"n": agg.count()}, delay="0 seconds"
    )
    script: list[Any] = [
        ([event(1, "a"), event(2, "a b"), event(3, "c")], [{"id": 7, "query": "a", "lsn": 1}, {"id": 8, "query": "b OR c", "lsn": 1}]),
        ([event(20, "a")], None),
        (None, None),
    ]  # fmt: skip
    results = replay(
        [search.match(None, text="k", **GIVEN), counts], script, schema=(EVENTS, QUERIES)
    )
    found = sorted((row["query_id"], row["n"]) for result in results for row in result.rows)
    assert found == [(7, 2), (8, 2)]
