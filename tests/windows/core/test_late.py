"""Late rows as rows, one sentence each. Times are microseconds."""

from __future__ import annotations

import pytest

from streamops.kernel.core import Metrics, State
from streamops.kernel.time import MAX_INSTANT
from streamops.testing.laws import to_rows
from streamops.windows.core.grid import GridCore
from tests.windows.core.play import Stream, batch, table


def test_a_late_row_is_delivered_with_the_reason_the_lateness_and_the_watermark() -> None:
    stream = Stream(10, stragglers="route", lateness=20)
    stream.step(watermark=10)
    assert stream.step(4) == []
    assert stream.late == [("straggler", 0, 6, 10, 4)]
    assert stream.counts == Metrics(rows=1, stragglers=1)


def test_a_late_row_carries_its_key_its_window_and_itself_and_no_result() -> None:
    spec = Stream(10, stragglers="route").spec
    before = (
        GridCore()
        .step(spec, State.empty(GridCore().layout(spec)), [GridCore().pack(spec, table([]))], 10)
        .state
    )
    late = GridCore().step(spec, before, [GridCore().pack(spec, table([(4, "b", 7)]))], 10).late
    assert to_rows(late) == [
        {
            "k": "b",
            "window_start": 0,
            "window_end": 10,
            "n": None,
            "late": {
                "side": None,
                "reason": "too_late",
                "lateness": 6,
                "watermark": 10,
                "window": {"start": 0, "end": 10},
                "row": {"t": 4, "k": "b", "v": 7},
            },
        }
    ]


def test_beyond_the_allowed_lateness_the_reason_is_too_late() -> None:
    stream = Stream(10, stragglers="route", lateness=20)
    stream.step(watermark=30)
    stream.step(9, 10)
    assert stream.late == [("straggler", 10, 20, 30, 10), ("too_late", 0, 21, 30, 9)]


def test_a_row_is_delivered_once_per_window_missed_and_counted_in_the_others() -> None:
    stream = Stream(10, 5, stragglers="route", lateness=20)
    stream.step(watermark=10)
    assert stream.step(7, watermark=15) == [("a", 5, 1)]
    assert stream.late == [("straggler", 0, 3, 10, 7)]
    assert stream.counts == Metrics(rows=1, on_time=1, stragglers=1, results=1)


def test_a_row_without_a_time_is_delivered_without_a_window() -> None:
    stream = Stream(10, 5, stragglers="route")
    stream.step(watermark=10)
    assert stream.step(None, 12, watermark=15) == [("a", 5, 1)]
    assert stream.late == [("null_time", None, None, None, None)]
    assert stream.counts == Metrics(rows=2, rejected=1, on_time=2, results=1)


def test_a_time_outside_of_the_calendar_is_delivered_with_its_row() -> None:
    stream = Stream(10, stragglers="route")
    stream.step(MAX_INSTANT + 1)
    assert stream.late == [("time_out_of_range", None, None, None, MAX_INSTANT + 1)]
    assert stream.counts == Metrics(rows=1, rejected=1)


def test_before_there_is_a_watermark_no_row_is_late() -> None:
    stream = Stream(10, stragglers="route")
    stream.step(-5, 100)
    assert stream.late == []


def test_a_batch_routes_rejected_rows_only() -> None:
    stream = Stream(10, stragglers="route")
    rows = to_rows(batch(stream.spec, table([(25,), (1,), (None, "b")])))
    assert [row["late"] and row["late"]["reason"] for row in rows] == [None, None, "null_time"]
    assert rows[2]["k"] == "b"


@pytest.mark.parametrize("stragglers", ["update", "retract"])
def test_with_corrections_only_rows_that_are_too_late_are_routed(stragglers: str) -> None:
    stream = Stream(10, stragglers=stragglers, too_late="route", lateness=20)
    stream.step(11, watermark=35)
    emitted = stream.step(12, 9, None)
    assert emitted[-1][:4] == ("a", 10, 2, 1)
    assert stream.late == [
        ("null_time", None, None, None, None),
        ("too_late", 0, 26, 35, 9),
    ]
    assert stream.counts == Metrics(rows=3, rejected=1, stragglers=1, too_late=1, corrections=1)


def test_a_late_row_has_neither_revision_nor_change_type() -> None:
    spec = Stream(10, stragglers="retract", too_late="route").spec
    late = to_rows(batch(spec, table([(None,)])))
    assert (late[0]["revision"], late[0]["_change_type"]) == (None, None)


def test_without_routing_the_output_has_no_late_column() -> None:
    assert "late" not in Stream(10, stragglers="update", lateness=20).spec.output.names
    assert Stream(10, stragglers="route").spec.output.names[-1] == "late"
