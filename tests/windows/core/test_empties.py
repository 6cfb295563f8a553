"""Windows without rows, published for keys that had some. Times are microseconds."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops.aggregates.core.functions import Count
from streamops.kernel.core import Metrics
from streamops.kernel.grids import CalendarGrid, CumulativeGrid, FixedGrid
from streamops.kernel.time import MAX_INSTANT
from streamops.windows.core import panes
from tests.windows.core.play import SCHEMA, SUM, Stream

INSERT, BEFORE, AFTER = "insert", "update_preimage", "update_postimage"
HOUR = 3_600_000_000


def instant(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp()) * 1_000_000


def dense(*shape: Any, empty_for: int = 20, **arguments: Any) -> Stream:
    return Stream(*shape, empty_for=empty_for, **arguments)


def starts(rows: list[tuple[Any, ...]]) -> list[tuple[Any, int]]:
    """Start and count of windows."""
    return [(row[1], row[2]) for row in rows]


# What is published.


def test_empty_windows_are_published_for_empty_for_after_a_window_with_rows() -> None:
    stream = dense(10)
    assert stream.step(3, watermark=10) == [("a", 0, 1)]
    assert stream.counts == Metrics(rows=1, on_time=1, results=1)
    assert stream.step(watermark=19) == []
    assert stream.step(watermark=20) == [("a", 10, 0)]
    assert stream.counts == Metrics(results=1)
    assert stream.step(watermark=100) == [("a", 20, 0)]
    assert stream.state.rows == 0


def test_a_bound_between_two_ends_counts_up_to_the_first() -> None:
    assert starts(dense(10, empty_for=29).run(3)) == [(0, 1), (10, 0), (20, 0)]
    assert starts(dense(10, empty_for=30).run(3)) == [(0, 1), (10, 0), (20, 0), (30, 0)]
    assert starts(dense(10, empty_for=9).run(3)) == [(0, 1)]


def test_gaps_are_filled_up_to_empty_for() -> None:
    assert starts(dense(10).run(3, 35, 78)) == [
        (0, 1), (10, 0), (20, 0), (30, 1), (40, 0), (50, 0), (70, 1), (80, 0), (90, 0),
    ]  # fmt: skip


def test_no_empty_window_precedes_the_first_row_of_a_key() -> None:
    assert dense(10).run((3, "a"), (33, "b"))[3] == ("b", 30, 1)


def test_a_key_is_filled_whatever_other_keys_do() -> None:
    stream = dense(10)
    stream.step((3, "a"), (95, "b"))
    assert stream.step(watermark=95) == [("a", 0, 1), ("a", 10, 0), ("a", 20, 0)]


def test_an_empty_window_has_the_values_of_no_rows() -> None:
    stream = dense(10, agg={"n": Count(None), **SUM}, empty_for=10)
    assert stream.run((3, "a", 7)) == [("a", 0, 1, 7), ("a", 10, 0, None)]


def test_a_null_is_a_key_and_no_key_columns_are_one_key() -> None:
    assert [row[1:] for row in dense(10).run((3, None))] == [(0, 1), (10, 0), (20, 0)]
    assert dense(10, by=()).run(3) == [(0, 1), (10, 0), (20, 0)]


def test_overlapping_windows_are_empty_after_the_last_window_of_a_row() -> None:
    # The row lies in [0, 10) and [5, 15); windows that end by 15 + 12 are filled.
    assert starts(dense(10, 5, empty_for=12).run(7)) == [(0, 1), (5, 1), (10, 0), (15, 0)]
    # If hop does not divide size, a hop has two panes.
    assert starts(dense(10, 4, empty_for=9).run(3, 9)) == [
        (-4, 1), (0, 2), (4, 1), (8, 1), (12, 0), (16, 0),
    ]  # fmt: skip


def test_a_period_without_rows_begins_with_empty_totals() -> None:
    stream = dense(CumulativeGrid(FixedGrid(30, 30), 10), empty_for=20)
    assert stream.run(12, 85) == [
        ("a", 0, 1), ("a", 0, 1), ("a", 30, 0), ("a", 30, 0), ("a", 60, 1),
        ("a", 90, 0), ("a", 90, 0),
    ]  # fmt: skip


def test_numbers_without_a_window_are_left_out() -> None:
    """Numbers beyond the end of a short period; a day that a zone skipped."""
    day = CalendarGrid("day", "UTC")
    totals = dense(CumulativeGrid(day, 12 * HOUR), empty_for=36 * HOUR).run(1)
    assert [row[1:] for row in totals] == [
        (0, 1), (0, 1), (24 * HOUR, 0), (24 * HOUR, 0), (48 * HOUR, 0),
    ]  # fmt: skip
    change = instant("2011-12-30T10:00")
    days = dense(CalendarGrid("day", "Pacific/Apia"), empty_for=48 * HOUR).run(change - 1)
    assert starts(days) == [(change - 24 * HOUR, 1), (change, 0), (change + 24 * HOUR, 0)]


def test_nothing_is_filled_beyond_the_calendar() -> None:
    stream = dense(10 * HOUR, empty_for=50 * HOUR)
    assert 2 <= len(stream.run(MAX_INSTANT - 25 * HOUR)) <= 3
    assert len(stream.run(MAX_INSTANT)) == 1


# Late rows.


def test_a_straggler_in_an_empty_window_corrects_it() -> None:
    stream = dense(10, stragglers="retract", lateness=50)
    stream.step(3, watermark=30)
    assert stream.step(15) == [("a", 10, 0, 0, BEFORE), ("a", 10, 1, 1, AFTER)]
    assert stream.counts == Metrics(rows=1, stragglers=1, corrections=1)
    # The row is new, so empty windows go on for longer.
    assert stream.step(watermark=50) == [("a", 30, 0, 0, INSERT)]


def test_a_straggler_causes_empty_windows_in_the_past() -> None:
    stream = dense(10, stragglers="update", lateness=100)
    stream.step((90, "b"), watermark=45)
    assert stream.step((3, "a")) == [("a", 0, 1, 1), ("a", 10, 0, 1), ("a", 20, 0, 1)]
    assert stream.counts == Metrics(rows=1, stragglers=1, results=3)
    assert stream.step((33, "a")) == [("a", 30, 1, 1)]
    # What is open follows on time.
    assert stream.step(watermark=50) == [("a", 40, 0, 0)]


def test_a_straggler_that_changes_no_value_corrects_no_empty_window() -> None:
    stream = dense(10, stragglers="retract", lateness=50, agg=SUM)
    stream.step(3, watermark=30)
    assert stream.step((15, "a", None), watermark=30) == []
    assert stream.step((16, "a", 4)) == [
        ("a", 10, None, 0, BEFORE), ("a", 10, 4, 1, AFTER),
    ]  # fmt: skip


def test_a_dropped_row_causes_no_empty_windows() -> None:
    stream = dense(10)
    stream.step((90, "b"), watermark=50)
    stream.step((3, "a"), watermark=50)
    assert stream.step(watermark=60) == []


def test_a_row_that_is_late_for_one_window_causes_empty_windows_after_the_next() -> None:
    stream = dense(10, 5, empty_for=5)
    stream.step((90, "b"), watermark=12)
    stream.step((7, "a"), watermark=12)
    assert stream.counts == Metrics(rows=1, on_time=1, too_late=1)
    assert stream.step(watermark=40) == [("a", 5, 1), ("a", 10, 0)]


# Together with early results.


def test_empty_windows_are_never_early() -> None:
    stream = dense(10, stragglers="retract", lateness=50, early="every batch")
    assert stream.step(3) == [("a", 0, 1, 0, "early", INSERT)]
    assert stream.step(watermark=20) == [
        ("a", 0, 1, 0, "early", BEFORE),
        ("a", 0, 1, 1, "on_time", AFTER),
        ("a", 10, 0, 0, "on_time", INSERT),
    ]
    assert stream.step(25, 14) == [
        ("a", 10, 0, 0, "on_time", BEFORE),
        ("a", 10, 1, 1, "late", AFTER),
        ("a", 20, 1, 0, "early", INSERT),
    ]
    assert [row[1:5] for row in stream.finish() if row[5] != BEFORE] == [
        (20, 1, 1, "on_time"), (30, 0, 0, "on_time"), (40, 0, 0, "on_time"),
    ]  # fmt: skip


# State.


def test_a_key_with_only_empty_windows_is_one_row_without_aggregates() -> None:
    lists = {"all": agg.collect_list("v", at_most=9, tie_break="v").bind(SCHEMA, time="t")}
    stream = dense(10, agg=lists, empty_for=50)
    stream.step((3, "a", 7), (13, "a", 8), watermark=20)
    panes = stream.state.tables["panes"].to_pylist()
    assert [(row["pane"], row["agg.0.rows"]) for row in panes] == [(10, [])]
    assert stream.step(watermark=30) == [("a", 20, [])]
    assert stream.step((33, "a", 9), watermark=40) == [("a", 30, [9])]
    assert stream.state.tables["panes"].column("pane").to_pylist() == [30]


def test_a_key_is_evicted_with_its_last_empty_window() -> None:
    stream = dense(10, empty_for=29)
    stream.step(3)
    ends = []
    while stream.deadline is not None:
        ends.append(stream.deadline)
        assert len(stream.step(watermark=stream.deadline)) == 1
    assert ends == [10, 20, 30]
    assert stream.state.rows == 0


def test_with_corrections_it_is_evicted_after_the_allowed_lateness() -> None:
    stream = dense(10, stragglers="update", lateness=15)
    stream.step(3, watermark=30)
    assert stream.deadline == 45
    stream.step(watermark=44)
    assert stream.state.rows == 1
    stream.step(watermark=45)
    assert stream.state.rows == 0


def test_the_older_of_two_panes_is_evicted_when_the_newer_has_no_more_windows_to_publish() -> None:
    stream = dense(10, stragglers="update", lateness=15)
    stream.step(3, 14, watermark=20)
    assert stream.state.rows == 2
    assert stream.deadline == 30  # an empty window ends
    stream.step(watermark=34)
    assert stream.state.rows == 2
    stream.step(watermark=35)
    assert stream.state.tables["panes"].column("pane").to_pylist() == [10]


def test_nothing_changes_in_a_step_in_which_nothing_happens() -> None:
    stream = dense(10, stragglers="update", lateness=15, empty_for=40)
    stream.step(3, watermark=20)
    before = stream.state.tables["panes"]
    stream.step(watermark=29)  # its window cannot change any more, and no other ends
    assert stream.state.tables["panes"].equals(before)
    stream.step(watermark=30)
    assert stream.state.tables["panes"].column("agg.0.count").to_pylist() == [0]


def test_a_watermark_that_jumps_past_everything_publishes_no_more_than_the_bound() -> None:
    stream = dense(10, empty_for=100)
    stream.step(-(10**15), 3)
    assert len(stream.step(watermark=MAX_INSTANT)) == 2 + 2 * 10
    assert stream.state.rows == 0
    assert stream.deadline is None


def test_the_state_of_no_rows_is_neutral() -> None:
    stream = dense(10, agg={"n": Count(None), **SUM})
    states = panes.empty_states(stream.spec, 2)
    assert [state.to_pylist() for state in states] == [[0, 0], [None, None]]
    assert all(isinstance(state, pa.Array) for state in states)


def test_windows_with_empty_for_are_another_state() -> None:
    assert Stream(10).spec.identity["empty_for"] is None
    assert dense(10).spec.identity["empty_for"] == 20


@pytest.mark.parametrize("stragglers", ["drop", "route"])
def test_late_rows_are_routed_with_empty_windows(stragglers: str) -> None:
    stream = dense(10, stragglers=stragglers)
    stream.step(3, watermark=10)
    stream.step(4, watermark=20)
    assert stream.late == ([("too_late", 0, 6, 10, 4)] if stragglers == "route" else [])
