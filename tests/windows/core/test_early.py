"""Windows that are published before they are on time. Times are microseconds."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops.aggregates.core.functions import Extreme
from streamops.kernel.core import Metrics
from streamops.kernel.grids import CumulativeGrid, FixedGrid
from tests.windows.core.play import Stream, batch, late, table

INSERT, BEFORE, AFTER = "insert", "update_preimage", "update_postimage"
LARGEST = {"top": Extreme("v", pa.int64(), greatest=True)}


def early(*shape: Any, **arguments: Any) -> Stream:
    return Stream(*shape, early="every batch", **arguments)


def test_a_window_is_published_in_every_step_that_changes_it() -> None:
    stream = early(10)
    assert stream.step(1) == [("a", 0, 1, 0, "early")]
    assert stream.counts == Metrics(rows=1, on_time=1, results=1)
    assert stream.step(2, 3) == [("a", 0, 3, 1, "early")]
    assert stream.counts == Metrics(rows=2, on_time=2, corrections=1)
    assert stream.step(11) == [("a", 10, 1, 0, "early")]


def test_an_unchanged_value_is_published_again_when_it_is_on_time() -> None:
    stream = early(10)
    stream.step(1)
    assert stream.step(watermark=9) == []
    assert stream.step(watermark=10) == [("a", 0, 1, 1, "on_time")]
    assert stream.counts == Metrics(corrections=1)
    assert stream.state.rows == 0


def test_a_window_that_opens_and_closes_in_one_step_is_published_once_on_time() -> None:
    stream = early(10)
    assert stream.step(1, 2, watermark=10) == [("a", 0, 2, 0, "on_time")]
    assert stream.counts == Metrics(rows=2, on_time=2, results=1)


def test_rows_that_arrive_with_the_watermark_of_their_window_are_on_time() -> None:
    stream = early(10, stragglers="retract", lateness=20)
    stream.step(1)
    assert stream.step(2, watermark=10) == [
        ("a", 0, 1, 0, "early", BEFORE),
        ("a", 0, 2, 1, "on_time", AFTER),
    ]


def test_a_value_that_is_early_and_the_same_is_not_published_again() -> None:
    stream = early(10, agg=LARGEST)
    assert stream.step((1, "a", 5)) == [("a", 0, 5, 0, "early")]
    assert stream.step((2, "a", 5)) == []
    assert stream.step((2, "a", 6)) == [("a", 0, 6, 1, "early")]


def test_a_straggler_is_late_and_its_preimage_has_the_previous_timing() -> None:
    stream = early(10, stragglers="retract", lateness=20)
    stream.step(1)
    stream.step(watermark=10)
    assert stream.step(2) == [
        ("a", 0, 1, 1, "on_time", BEFORE),
        ("a", 0, 2, 2, "late", AFTER),
    ]
    assert stream.step(3) == [("a", 0, 2, 2, "late", BEFORE), ("a", 0, 3, 3, "late", AFTER)]


def test_a_window_published_once_and_on_time_has_no_stored_revision() -> None:
    stream = early(10, stragglers="retract", lateness=20)
    stream.step(1, watermark=10)
    assert len(stream.state.tables["revisions"]) == 0
    assert stream.step(2) == [
        ("a", 0, 1, 0, "on_time", BEFORE),
        ("a", 0, 2, 1, "late", AFTER),
    ]


def test_a_result_of_stragglers_only_starts_at_revision_one() -> None:
    stream = early(10, stragglers="update", lateness=20)
    stream.step(15, watermark=10)
    assert stream.step(2) == [("a", 0, 1, 1, "late")]
    assert stream.step(3) == [("a", 0, 2, 2, "late")]


def test_a_row_changes_every_open_window_it_lies_in() -> None:
    stream = early(10, 5)
    assert stream.step(7) == [("a", 0, 1, 0, "early"), ("a", 5, 1, 0, "early")]
    assert stream.step(2, 7) == [
        ("a", -5, 1, 0, "early"),
        ("a", 0, 3, 1, "early"),
        ("a", 5, 2, 1, "early"),
    ]
    # Late for one of its windows, and on time for the other.
    assert stream.step(watermark=5) == [("a", -5, 1, 1, "on_time")]
    assert stream.step(3) == [("a", 0, 4, 2, "early")]


def test_a_total_grows_in_all_windows_of_its_period_that_end_after_the_row() -> None:
    stream = early(CumulativeGrid(FixedGrid(30, 30), 10), stragglers="retract", lateness=30)
    assert stream.step(12) == [("a", 0, 1, 0, "early", INSERT)] * 2
    assert stream.step(21, watermark=20) == [
        ("a", 0, 1, 0, "early", BEFORE),
        ("a", 0, 1, 0, "early", BEFORE),
        ("a", 0, 1, 1, "on_time", AFTER),
        ("a", 0, 2, 1, "early", AFTER),
    ]


def test_other_keys_are_left_alone() -> None:
    stream = early(10)
    stream.step((1, "a"), (1, "b"))
    assert stream.step((2, "b")) == [("b", 0, 2, 1, "early")]


def test_late_rows_are_routed_with_early_results() -> None:
    stream = early(10, stragglers="route")
    stream.step(1, 12, watermark=10)
    assert stream.step(2, 13) == [("a", 10, 2, 1, "early")]
    assert stream.late == [("too_late", 0, 8, 10, 2)]


@pytest.mark.parametrize("stragglers", ["drop", "update"])
def test_at_the_end_open_windows_are_published_on_time(stragglers: str) -> None:
    stream = early(10, stragglers=stragglers, lateness=20)
    stream.step(1, 12)
    stream.step(13, watermark=10)
    assert stream.finish() == [("a", 10, 2, 2, "on_time")]
    assert early(10).finish() == []


def test_at_the_end_open_windows_are_retracted_and_published_again() -> None:
    stream = early(10, stragglers="retract", lateness=20)
    stream.step(1, 12)
    assert stream.finish() == [
        ("a", 0, 1, 0, "early", BEFORE),
        ("a", 0, 1, 1, "on_time", AFTER),
        ("a", 10, 1, 0, "early", BEFORE),
        ("a", 10, 1, 1, "on_time", AFTER),
    ]


def test_the_batch_has_no_early_results() -> None:
    stream = early(10, stragglers="retract", too_late="route", lateness=20)
    assert stream.run(25, 1, None) == [
        ("a", 0, 1, 0, "on_time", INSERT),
        ("a", 20, 1, 0, "on_time", INSERT),
    ]
    rows = batch(stream.spec, table([(None,)]))
    assert late(rows) == [("null_time", None, None, None, None)]


def test_revisions_of_early_results_are_evicted_with_their_window() -> None:
    stream = early(10, stragglers="update", lateness=20)
    stream.step(1)
    stream.step(2)
    assert [t.num_rows for t in stream.state.tables.values()] == [1, 1]
    assert stream.deadline == 10
    stream.step(watermark=10)
    assert stream.deadline == 30
    stream.step(watermark=29)
    assert [t.num_rows for t in stream.state.tables.values()] == [1, 1]
    stream.step(watermark=30)
    assert [t.num_rows for t in stream.state.tables.values()] == [0, 0]


def test_early_results_are_another_state() -> None:
    assert Stream(10).spec.identity["early"] == "never"
    assert early(10).spec.identity["early"] == "every batch"
    assert "timing" not in Stream(10, stragglers="update").state.tables["revisions"].column_names
    assert early(10).state.tables["revisions"].column_names[-1] == "timing"
