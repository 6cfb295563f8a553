"""Patterns before and behind other operators, in a replay."""

from __future__ import annotations

from typing import Any

import pytest

from streamops import aggregates as agg
from streamops import patterns, windows
from streamops.errors import WatermarkError
from streamops.testing import at, replay

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


def test_patterns_of_matches_need_room_for_both_bounds() -> None:
    pairs = patterns.match(
        "first second",
        define={"second": patterns.previous("v") < "v"},
        time="ts",
        by="k",
        within="15 seconds",
        measures={"v": patterns.last("second", "v")},
        delay="20 seconds",
    )
    with pytest.raises(WatermarkError) as error:
        replay(
            [pairs, patterns.match("a b", define={}, time="match_end", within="1 minute")], EVENTS
        )
    assert error.value.code == "WATERMARK_TOO_TIGHT"
