"""Tumbling and hopping windows, one sentence each. Times are microseconds."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamops.aggregates.core.functions import ByTime
from streamops.kernel.core import Metrics, State
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.testing.laws import to_rows
from streamops.windows.core.grid import GridCore
from tests.windows.core.play import SUM, Stream, batch, table

MORNING = 1_700_000_000_000_000


def test_an_empty_batch_emits_and_stores_nothing() -> None:
    stream = Stream(10)
    assert stream.step() == []
    assert stream.state.rows == 0
    assert stream.counts == Metrics()
    assert stream.deadline is None


def test_an_empty_batch_with_a_watermark_keeps_the_watermark() -> None:
    stream = Stream(10)
    assert stream.step(watermark=50) == []
    assert stream.state.watermark == 50


def test_one_row_is_published_once_the_watermark_is_at_the_end_of_its_window() -> None:
    stream = Stream(10)
    assert stream.step(3) == []
    assert stream.step(watermark=9) == []
    assert stream.step(watermark=10) == [("a", 0, 1)]
    assert stream.step(watermark=11) == []
    assert stream.state.rows == 0


def test_a_window_carries_its_start_and_its_end() -> None:
    stream = Stream(10, 5)
    rows = to_rows(batch(stream.spec, table([(7,)])))
    assert [(row["window_start"], row["window_end"]) for row in rows] == [(0, 10), (5, 15)]


def test_rows_of_equal_times_are_all_counted() -> None:
    assert Stream(10).run(5, 5, 5) == [("a", 0, 3)]


def test_a_row_exactly_at_a_border_belongs_to_the_window_that_starts_there() -> None:
    assert Stream(10).run(10) == [("a", 10, 1)]


def test_a_row_one_microsecond_before_a_border_belongs_to_the_window_that_ends_there() -> None:
    assert Stream(10).run(9) == [("a", 0, 1)]


def test_a_row_one_microsecond_after_a_border_belongs_to_the_window_that_starts_there() -> None:
    assert Stream(10).run(11) == [("a", 10, 1)]


def test_rows_before_1970_have_windows_like_any_other() -> None:
    assert Stream(10).run(-1, -10, -11) == [("a", -20, 1), ("a", -10, 2)]


def test_the_origin_is_where_a_window_starts() -> None:
    assert Stream(10, origin=3).run(2, 3, 12, 13) == [("a", -7, 1), ("a", 3, 2), ("a", 13, 1)]


def test_rows_out_of_order_are_where_they_belong() -> None:
    stream = Stream(10)
    stream.step(25, 3)
    stream.step(14, 4)
    assert stream.step(watermark=30) == [("a", 0, 2), ("a", 10, 1), ("a", 20, 1)]


def test_rows_of_one_window_from_several_batches_are_one_result() -> None:
    stream = Stream(10, agg=SUM)
    stream.step((1, "a", 5), (2, "b", 7))
    stream.step((3, "a", 6))
    assert stream.step(watermark=10) == [("a", 0, 11), ("b", 0, 7)]


def test_a_late_row_is_dropped_and_counted() -> None:
    stream = Stream(10)
    stream.step(15, watermark=10)
    assert stream.step(9, 10) == []
    assert stream.counts == Metrics(rows=2, on_time=1, too_late=1)
    assert stream.late == []
    assert stream.step(watermark=20) == [("a", 10, 2)]


def test_a_row_is_compared_with_the_watermark_of_the_batch_before() -> None:
    stream = Stream(10)
    assert stream.step(5, watermark=30) == [("a", 0, 1)]
    assert stream.counts == Metrics(rows=1, on_time=1, results=1)
    assert stream.step(5, watermark=30) == []
    assert stream.counts == Metrics(rows=1, too_late=1)


def test_a_key_without_further_rows_is_published_and_evicted() -> None:
    stream = Stream(10)
    stream.step((1, "gone"))
    assert stream.step((12, "here"), watermark=10) == [("gone", 0, 1)]
    assert stream.state.rows == 1


def test_a_watermark_that_jumps_past_everything_closes_everything() -> None:
    stream = Stream(10, 5)
    stream.step(1, 22, MORNING)
    starts = [start for _, start, _ in stream.step(watermark=MAX_INSTANT)]
    assert starts == [-5, 0, 15, 20, MORNING - 5, MORNING]
    assert stream.state.rows == 0
    assert stream.deadline is None


def test_a_watermark_that_does_not_move_closes_nothing_again() -> None:
    stream = Stream(10)
    assert stream.step(1, watermark=10) == [("a", 0, 1)]
    assert stream.step(watermark=10) == []
    assert stream.step(watermark=None) == []
    assert stream.state.watermark == 10


def test_a_watermark_never_goes_back() -> None:
    stream = Stream(10)
    stream.step(watermark=20)
    stream.step(watermark=5)
    assert stream.state.watermark == 20
    stream.step(15)
    assert stream.counts.too_late == 1


def test_without_a_watermark_nothing_is_published_before_the_end() -> None:
    stream = Stream(10)
    assert stream.step(1, 2) == []
    assert stream.step(MORNING) == []
    assert stream.finish() == [("a", 0, 2), ("a", MORNING, 1)]


def test_the_end_of_the_stream_publishes_what_is_open_and_nothing_twice() -> None:
    stream = Stream(10)
    assert stream.step(1, 11, watermark=10) == [("a", 0, 1)]
    assert stream.finish() == [("a", 10, 1)]


def test_a_row_lies_in_every_window_that_contains_it() -> None:
    assert Stream(12, 4).run(0) == [("a", -8, 1), ("a", -4, 1), ("a", 0, 1)]


def test_if_hop_does_not_divide_size_a_row_may_lie_in_one_window_fewer() -> None:
    assert Stream(10, 4).run(1) == [("a", -8, 1), ("a", -4, 1), ("a", 0, 1)]
    assert Stream(10, 4).run(2) == [("a", -4, 1), ("a", 0, 1)]


def test_windows_that_overlap_close_one_by_one() -> None:
    stream = Stream(10, 5)
    stream.step(3, 7)
    assert stream.step(watermark=5) == [("a", -5, 1)]
    assert stream.step(watermark=10) == [("a", 0, 2)]
    assert stream.step(watermark=15) == [("a", 5, 1)]
    assert stream.state.rows == 0


def test_a_row_that_is_late_for_one_window_still_counts_in_the_next() -> None:
    stream = Stream(10, 5)
    stream.step(7, watermark=10)
    assert stream.step(8, watermark=15) == [("a", 5, 2)]
    assert stream.counts == Metrics(rows=1, on_time=1, too_late=1, results=1)


def test_a_row_without_a_time_is_rejected_and_counted() -> None:
    stream = Stream(10)
    assert stream.step(None, 1, (None, "b"), watermark=10) == [("a", 0, 1)]
    assert stream.counts == Metrics(rows=3, rejected=2, on_time=1, results=1)


@pytest.mark.parametrize("instant", [MIN_INSTANT - 1, MAX_INSTANT + 1, 2**62, -(2**62)])
def test_a_time_outside_of_the_calendar_is_rejected(instant: int) -> None:
    stream = Stream(10)
    assert stream.step(instant) == []
    assert stream.counts == Metrics(rows=1, rejected=1)
    assert stream.state.rows == 0


@pytest.mark.parametrize("instant", [MIN_INSTANT, MAX_INSTANT])
def test_the_first_and_the_last_instant_of_the_calendar_are_counted(instant: int) -> None:
    assert Stream(10).run(instant) == [("a", instant // 10 * 10, 1)]


def test_a_null_key_is_a_group_of_its_own() -> None:
    assert Stream(10).run((1, None), (2, ""), (3, None)) == [(None, 0, 2), ("", 0, 1)]


def test_without_a_key_there_is_one_group_for_all() -> None:
    stream = Stream(10, by=())
    stream.step((1, "a"), (2, "b"))
    assert stream.step(watermark=10) == [(0, 2)]


def test_two_keys_make_a_group_where_both_are_equal() -> None:
    assert Stream(10, by=("k", "v")).run((1, "a", 1), (2, "a", 2), (3, "a", 1)) == [
        ("a", 1, 0, 2),
        ("a", 2, 0, 1),
    ]


def test_the_event_time_may_be_a_key() -> None:
    assert Stream(10, by=("t",)).run(1, 1, 2) == [(1, 0, 2), (2, 0, 1)]


def test_a_window_of_one_microsecond_is_an_instant() -> None:
    assert Stream(1).run(0, 0, 1, -1) == [("a", -1, 1), ("a", 0, 2), ("a", 1, 1)]


def test_the_value_of_the_earliest_row_survives_the_batches() -> None:
    types = pa.string(), pa.timestamp("us", tz="UTC"), pa.int64()
    stream = Stream(10, by=(), agg={"first": ByTime("k", "t", "v", *types, latest=False)})
    stream.step((5, "later", 0))
    stream.step((4, "tie", 2), (4, "first", 1))
    assert stream.step(watermark=10) == [(0, "first")]


def test_the_next_deadline_is_the_end_of_the_first_open_window() -> None:
    stream = Stream(10, 5)
    stream.step(12, 7)
    assert stream.deadline == 10
    stream.step(watermark=10)
    assert stream.deadline == 15
    stream.step(watermark=20)
    assert stream.deadline is None


def test_the_batch_accepts_other_columns_and_labels() -> None:
    stream = Stream(10)
    rows = table([(1,)])
    paris = rows.column("t").cast(pa.timestamp("us", tz="Europe/Paris"))
    given = rows.set_column(0, "t", paris).append_column("extra", [["x"]]).select([2, 3, 0, 1])
    assert to_rows(batch(stream.spec, given)) == to_rows(batch(stream.spec, rows))


def test_the_state_is_checked_and_shown_when_it_breaks_an_invariant() -> None:
    stream = Stream(10)
    stream.step(1, 11)
    panes = stream.state.tables["panes"]
    GridCore().check(stream.spec, stream.state)
    off_grid = panes.set_column(1, "pane", pa.array([1, 10]))
    for broken, watermark, what in [
        (off_grid, None, "a pane off the grid"),
        (pa.concat_tables([panes, panes]), None, "a pane twice"),
        (panes.append_column("x", pa.array([1, 2])), None, "another schema"),
        (panes, 10, "overdue"),
    ]:
        with pytest.raises(AssertionError, match=what):
            GridCore().check(stream.spec, State(watermark, {"panes": broken}))


def test_check_detects_a_revision_that_was_never_published() -> None:
    stream = Stream(10, stragglers="update", lateness=100)
    stream.step(1, watermark=10)
    stream.step(2)
    revisions = stream.state.tables["revisions"]
    never = revisions.set_column(2, "revision", pa.array([0], pa.int32()))
    with pytest.raises(AssertionError, match="revision"):
        GridCore().check(stream.spec, State(10, {**stream.state.tables, "revisions": never}))
