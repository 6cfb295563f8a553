"""Running aggregates, replayed without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.core import Metrics
from streamops.kernel.errors import CapacityError
from streamops.testing import assert_rows, fold, replay
from tests.windows.running_operators import running_count


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("shards", [None, 1, 5])
def test_a_script_is_replayed_over_any_number_of_shards(restart: bool, shards: Any) -> None:
    script = [
        [{"k": "a", "v": 1}, {"k": "b", "v": None}],
        [],
        [{"k": "b", "v": None}, {"k": "a", "v": 4}, {"k": "c", "v": 4}],
    ]
    first, nothing, last = replay(running_count(by="k"), script, restart=restart, shards=shards)
    assert [(row["k"], row["n"]["estimate"]) for row in sorted(first.rows, key=str)] == [
        ("a", 1),
        ("b", 0),
    ]
    assert (nothing.rows, nothing.late_rows, nothing.counts) == ([], [], Metrics())
    assert (nothing.state_rows, nothing.state_bytes) == (first.state_rows, first.state_bytes)
    one, two = ({"estimate": n, "lower": n, "upper": n} for n in (1, 2))
    assert_rows(
        last.rows, [{"k": "a", "n": two, "revision": 1}, {"k": "c", "n": one, "revision": 0}]
    )
    assert last.counts == Metrics(rows=3, results=1, corrections=1)
    assert (last.batch, last.state_rows, last.watermark) == (2, 3, None)


def test_ignored_rows_are_counted_as_rejected() -> None:
    only_one = running_count(by="k", max_keys=1, when_full="reject_new").options(shards=1)
    table = pa.table({"k": ["a", "b", "a"], "v": [1, 2, 3]})
    (result,) = replay(only_one, [table])
    assert result.counts is not None
    assert (len(result.rows), result.counts.rejected + result.counts.rows) in {(1, 4), (1, 5)}


EXACT = {
    "rows": agg.count(),
    "values": agg.count("v"),
    "sum": agg.sum("v"),
    "mean": agg.mean("v"),
    "least": agg.min("v"),
    "greatest": agg.max("v"),
    "variance": agg.variance("v"),
    "stddev": agg.stddev("v"),
    "distinct": agg.count_distinct("v", at_most=5),
    "median": agg.percentile("v", 0.5, at_most=9),
    "quartiles": agg.percentile("v", [0.25, 0.75], at_most=9),
    "top": agg.top(2, "v", ranked_by="v", tie_break="v"),
}
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


@pytest.mark.parametrize("restart", [False, True])
def test_every_exact_aggregate_is_a_running_one(restart: bool) -> None:
    script = [
        [{"k": "a", "v": 4}, {"k": "a", "v": None}, {"k": "b", "v": 7}],
        [{"k": "a", "v": 8}],
        [{"k": "b", "v": None}],
    ]
    totals = windows.running(by="k", agg=EXACT)
    first, second, third = replay(totals, script, schema=SCHEMA, restart=restart)
    assert first.counts == Metrics(rows=3, results=2)
    assert [(row["k"], row["rows"], row["sum"]) for row in second.rows] == [("a", 3, 12)]
    (row,) = second.rows
    assert row == {
        "k": "a",
        "rows": 3,
        "values": 2,
        "sum": 12,
        "mean": 6.0,
        "least": 4,
        "greatest": 8,
        "variance": 8.0,
        "stddev": 8.0**0.5,
        "distinct": 2,
        "median": 6.0,
        "quartiles": [5.0, 7.0],
        "top": [8, 4],
        "revision": 1,
    }
    (row,) = third.rows  # a null is a row, and no value
    assert (row["k"], row["rows"], row["values"], row["top"]) == ("b", 2, 1, [7])


def test_retractions_of_exact_aggregates_are_what_was_emitted() -> None:
    script = [[{"k": "a", "v": v}] for v in (3, 1, None, 3)]
    totals = windows.running(
        by="k", agg={"n": agg.count("v"), "top": EXACT["top"]}, changes="retract"
    )
    played = replay(totals, script, schema=SCHEMA)
    assert [len(batch.rows) for batch in played] == [1, 2, 0, 2]
    emitted = None
    for batch in played:
        for row in batch.rows:
            value = (row["n"], row["top"], row["revision"])
            if row["_change_type"] == "update_preimage":
                assert value == emitted
            else:
                emitted = value
    (final,) = fold((row for batch in played for row in batch.rows), key=["k"])
    assert (final["n"], final["top"]) == (3, [3, 3])


@pytest.mark.parametrize("when_full", ["fail", "null"])
def test_a_bound_holds_over_everything_so_far(when_full: Any) -> None:
    distinct = agg.count_distinct("v", at_most=2, when_full=when_full)
    script = [[{"k": "a", "v": v}] for v in (1, 2, 3)]
    totals = windows.running(by="k", agg={"n": distinct})
    if when_full == "fail":
        with pytest.raises(CapacityError, match="STATE_FULL"):
            replay(totals, script, schema=SCHEMA)
        return
    rows = [row for batch in replay(totals, script, schema=SCHEMA) for row in batch.rows]
    assert [(row["n"], row["revision"]) for row in rows] == [(1, 0), (2, 1), (None, 2)]
