"""Patterns before and behind other operators, in a replay and on Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streamops import aggregates as agg
from streamops import patterns, windows
from streamops.errors import WatermarkError
from streamops.testing import assert_rows, at, replay, stream

EVENTS = [
    [{"k": "x", "ts": at(s), "v": v} for s, v in ((1, 5), (2, 5), (11, 20), (12, 5), (21, 30))],
    [{"k": "x", "ts": at(s), "v": v} for s, v in ((31, 1), (41, 50), (52, 60))],
    [{"k": "x", "ts": at(600), "v": 0}],
]


def rising(**given: Any) -> Any:
    return patterns.match(
        "any more more",
        define={"more": patterns.previous("total") < "total"},
        time="window_end",
        by="k",
        within="30 seconds",
        measures={"totals": patterns.collect_list(None, "total")},
        **given,
    )


def test_patterns_find_sequences_of_window_results() -> None:
    totals = windows.tumbling(
        "10 seconds",
        time="ts",
        by="k",
        agg={"total": agg.sum("v")},
        delay="5 seconds",
        allowed_lateness="30 seconds",  # as much as a match may lie behind the watermark
    )
    found = [
        row for result in replay([totals, rising()], EVENTS, flush=True) for row in result.rows
    ]
    assert [row["totals"] for row in found] == [[10, 25, 30], [1, 50, 60]]
    with pytest.raises(WatermarkError) as error:
        replay([totals.options(shards=1), rising(delay="1 second")], EVENTS)
    assert error.value.code == "WATERMARK_TWICE"


def test_windows_count_matches() -> None:
    pairs = patterns.match(
        "small big",
        define={"small": patterns.current("v") < 10, "big": patterns.current("v") >= 10},
        time="ts",
        by="k",
        within="15 seconds",
        measures={"v": patterns.last("big", "v")},
        delay="5 seconds",
    )
    counts = windows.tumbling("1 minute", time="match_end", by="k", agg={"n": agg.count()})
    results = replay([pairs, counts], EVENTS, flush=True)
    assert [row["n"] for result in results for row in result.rows] == [3]


def test_patterns_of_matches_need_room_for_both_bounds_if_another_operator_follows() -> None:
    pairs = patterns.match(
        "first second",
        define={"second": patterns.previous("v") < "v"},
        time="ts",
        by="k",
        within="15 seconds",
        measures={"v": patterns.last("second", "v")},
        delay="20 seconds",
    )
    twice = patterns.match("a b", define={}, time="match_end", within="1 minute")
    results = replay([pairs, twice], EVENTS, flush=True)
    assert [row["match_end"] for result in results for row in result.rows] == [at(21)]
    counts = windows.tumbling("1 minute", time="match_end", agg={"n": agg.count()})
    with pytest.raises(WatermarkError) as error:
        replay([pairs, twice, counts], EVENTS)
    assert error.value.code == "WATERMARK_LOST"


COUNTS = {"a": [3, 1, 2, 4, 2, 1, 2], "b": [2, 2, 1, 1, 1, 3, 1]}
"""Rows of each key, in windows of ten seconds."""

COUNTED = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", "UTC"))])

RECOVERIES: list[Any] = [
    windows.tumbling(
        "10 seconds",
        time="ts",
        by="k",
        agg={"n": agg.count()},
        delay="5 seconds",
        allowed_lateness="2 minutes",
    ),
    patterns.match(
        "start below+ back",
        define={
            "below": patterns.initial("n") > "n",
            "back": patterns.initial("n") <= "n",
        },
        time="window_end",
        by="k",
        within="1 minute",
        measures={"counts": patterns.collect_list(None, "n"), "low": patterns.min("below", "n")},
    ),
    windows.tumbling(
        "1 hour", time="match_end", agg={"matches": agg.count(), "low": agg.min("low")}
    ),
]


def counted(*, every: int) -> list[list[dict[str, Any]]]:
    """The rows in micro-batches of so many, newer ones first in each, and one that closes all windows."""
    rows = [
        {"k": k, "ts": at(10 * n + i)}
        for k, counts in COUNTS.items()
        for n, count in enumerate(counts)
        for i in range(count)
    ]
    rows.sort(key=lambda row: row["ts"])
    batches = [rows[n : n + every][::-1] for n in range(0, len(rows), every)]
    return [*batches, [{"k": "end", "ts": at(7_300)}]]


@pytest.mark.parametrize("every", [1, 4, 100])
def test_a_match_ends_where_the_count_of_its_own_first_window_is_reached(every: int) -> None:
    found = replay(RECOVERIES[:2], counted(every=every), schema=COUNTED)
    matches = [(row["k"], row["counts"]) for result in found for row in result.rows]
    assert sorted(matches) == [("a", [2, 1, 2]), ("a", [3, 1, 2, 4]), ("b", [2, 1, 1, 1, 3])]


def test_windows_over_the_matches_do_not_depend_on_the_micro_batches() -> None:
    results = [
        [
            row
            for result in replay(RECOVERIES, counted(every=n), schema=COUNTED)
            for row in result.rows
        ]
        for n in (1, 4, 100)
    ]
    assert results[0] == results[1] == results[2]
    assert [(row["matches"], row["low"]) for row in results[0]] == [(3, 1)]


@pytest.mark.spark
def test_the_chain_on_spark_is_as_replayed(spark: SparkSession) -> None:
    batches = counted(every=8)
    actual = stream(spark, RECOVERIES, batches, schema=COUNTED)
    expected = replay(RECOVERIES, batches, schema=COUNTED)
    assert any(result.rows for result in expected)
    for one, other in zip(actual, expected, strict=True):
        assert_rows(one.rows, other.rows)
