"""Windows on other grids in the core: days of the calendar, and totals that grow."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pytest

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.core import Metrics
from streamops.kernel.grids import CalendarGrid, CumulativeGrid, FixedGrid, Grid
from streamops.kernel.time import MAX_INSTANT
from streamops.testing import at, fold, replay
from tests.windows.core.play import SUM, Stream

HOUR = 3_600_000_000
NEW_YORK = "America/New_York"


def instant(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp()) * 1_000_000


def growing(size: int = 60, every: int = 10, **arguments: Any) -> Stream:
    return Stream(CumulativeGrid(FixedGrid(size, size), every), **arguments)


# Calendar windows.


def test_a_day_closes_at_its_own_midnight() -> None:
    stream = Stream(CalendarGrid("day", NEW_YORK))
    start, end = instant("2013-11-03T04:00"), instant("2013-11-04T05:00")
    stream.step(start, end - 1, end)
    assert stream.deadline == end
    assert stream.step(watermark=end - 1) == []
    assert stream.step(watermark=end) == [("a", start, 2)]
    assert stream.state.rows == 1
    assert stream.deadline == end + 24 * HOUR


def test_a_skipped_day_delays_no_result_and_has_none() -> None:
    stream = Stream(CalendarGrid("day", "Pacific/Apia"), stragglers="retract", lateness=HOUR)
    change = instant("2011-12-30T10:00")
    stream.step(change - 1, change)
    assert stream.step(watermark=change) == [("a", change - 24 * HOUR, 1, 0, "insert")]
    assert stream.deadline == change + HOUR
    stream.step(change - 2, watermark=change + HOUR)
    assert stream.counts == Metrics(rows=1, stragglers=1, corrections=1)
    assert stream.state.rows == 1
    assert stream.step(watermark=change + 24 * HOUR) == [("a", change, 1, 0, "insert")]


# Cumulative windows.


def test_every_window_holds_the_total_so_far() -> None:
    assert growing(30, agg=SUM).run((1, "a", 1), (12, "a", 2), (25, "a", 4)) == [
        ("a", 0, 1),
        ("a", 0, 3),
        ("a", 0, 7),
    ]


@pytest.mark.thorough
def test_panes_in_the_same_open_windows_are_merged() -> None:
    stream = growing(3_000, 10, agg=SUM)
    most = 0
    for now in range(0, 3_000, 10):
        rows = stream.step((now, "a", 1), (now + 5, "b", 1), watermark=now)
        if now:
            assert rows == [("a", 0, now // 10), ("b", 0, now // 10)]
        most = max(most, stream.state.rows)
    assert most == 2
    assert stream.step(watermark=3_000) == [("a", 0, 300), ("b", 0, 300)]
    assert stream.state.rows == 0


@pytest.mark.thorough
def test_panes_that_stragglers_can_still_change_are_not_merged() -> None:
    stream = growing(60_000, 10, stragglers="update", lateness=100)
    most = 0
    for now in range(0, 2_000, 10):
        stream.step(now, watermark=now)
        most = max(most, len(stream.state.tables["panes"]))
    assert most == 11
    # A straggler of 95 before: each of the windows since then is corrected, and counts on.
    changed = stream.step(1_895, watermark=2_000)
    assert [row[2] for row in changed] == [*range(191, 201), 201]
    assert [row[3] for row in changed] == [1] * 10 + [0]


def test_rows_too_late_for_some_windows_count_in_others_after_panes_are_merged() -> None:
    stream = growing(agg=SUM)
    stream.step((1, "a", 1), watermark=30)
    stream.step((2, "a", 2), watermark=30)
    assert stream.counts == Metrics(rows=1, on_time=3, too_late=3)
    assert stream.state.rows == 2
    assert stream.step(watermark=40) == [("a", 0, 3)]
    assert stream.state.rows == 1
    assert stream.finish() == [("a", 0, 3), ("a", 0, 3)]


def test_panes_are_not_merged_while_nothing_is_published() -> None:
    stream = growing(stragglers="update", lateness=15)
    stream.step(1, 12, watermark=25)
    before = stream.state.tables["panes"]
    stream.step(watermark=29)  # what ended at 10 is final; nothing ends between 25 and 29
    assert stream.state.tables["panes"].equals(before)
    stream.step(watermark=30)
    assert stream.state.tables["panes"].column("pane").to_pylist() == [10]


def test_panes_of_a_key_are_merged_independently_of_other_keys() -> None:
    stream = growing()
    stream.step((1, "a"), (11, "a"), (35, "b"), watermark=20)
    panes = stream.state.tables["panes"]
    assert panes.column("pane").to_pylist() == [20, 30]
    assert stream.deadline == 30


@pytest.mark.parametrize("size", [60, 24 * HOUR])
def test_a_watermark_that_jumps_closes_all_windows_of_all_periods(size: int) -> None:
    stream = growing(size, size // 6)
    stream.step(1, size + size // 2)
    ends = [row for row in stream.step(watermark=MAX_INSTANT) if row[0] == "a"]
    assert len(ends) == 6 + 3
    assert stream.state.rows == 0
    assert stream.deadline is None


def test_the_deadline_is_the_end_of_the_next_window_of_the_period() -> None:
    stream = growing()
    stream.step(1)
    ends = []
    while stream.deadline is not None:
        ends.append(stream.deadline)
        assert stream.step(watermark=stream.deadline) == [("a", 0, 1)]
    assert ends == [10, 20, 30, 40, 50, 60]


@pytest.mark.parametrize("early", ["never", "every batch"])
def test_preimages_of_totals_have_the_published_bits(early: Any) -> None:
    transform = windows.cumulative(
        "60 seconds",
        "5 seconds",
        time="ts",
        agg={"x": agg.sum("x")},
        delay="5 seconds",
        allowed_lateness="40 seconds",
        stragglers="retract",
        early=early,
    )
    dice = random.Random(7)
    script = [
        [{"ts": at(abs(6 * b - dice.choice([0, 0, 3, 30]))), "x": dice.random()} for _ in range(4)]
        for b in range(14)
    ]
    results = replay(transform, script, flush=True)
    assert sum(result.counts.corrections for result in results if result.counts) > 9
    fold(results)


# Both.


@pytest.mark.slow
@pytest.mark.parametrize("stragglers", ["drop", "route", "update", "retract"])
@pytest.mark.parametrize(
    ("grid", "pace"),
    [
        (CalendarGrid("day", "Europe/Berlin"), 6 * HOUR),
        (CumulativeGrid(CalendarGrid("day", "Europe/Berlin"), HOUR), HOUR // 2),
    ],
    ids=["calendar", "cumulative"],
)
def test_keys_that_end_leave_no_state(grid: Grid, pace: int, stragglers: str) -> None:
    stream = Stream(grid, stragglers=stragglers, lateness=24 * HOUR)
    rows = []
    for number in range(1_000):
        now = instant("2013-01-01T00:00") + number * pace
        late = now - pace * (number % 10)
        stream.step((now, f"key {number}"), (late, f"key {number - 3}"), watermark=now)
        rows.append(stream.state.rows)
    assert max(rows[750:]) <= 1.1 * max(rows[250:500])
    stream.step(watermark=MAX_INSTANT)
    assert stream.state.rows == 0
