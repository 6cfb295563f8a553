"""Stragglers that correct what was published, one sentence each. Times are microseconds."""

from __future__ import annotations

import pyarrow as pa

from streamops.aggregates.core.functions import Extreme
from streamops.kernel.core import Metrics
from tests.windows.core.play import SUM, Stream

INSERT, BEFORE, AFTER = "insert", "update_preimage", "update_postimage"


def test_a_straggler_publishes_the_new_value_with_the_next_revision() -> None:
    stream = Stream(10, stragglers="update", lateness=20)
    assert stream.step(1, watermark=10) == [("a", 0, 1, 0)]
    assert stream.step(2, watermark=11) == [("a", 0, 2, 1)]
    assert stream.counts == Metrics(rows=1, stragglers=1, corrections=1)
    assert stream.step(3, watermark=12) == [("a", 0, 3, 2)]


def test_a_straggler_retracts_the_published_value() -> None:
    stream = Stream(10, stragglers="retract", lateness=20)
    assert stream.step(1, watermark=10) == [("a", 0, 1, 0, INSERT)]
    assert stream.step(2) == [("a", 0, 1, 0, BEFORE), ("a", 0, 2, 1, AFTER)]
    assert stream.step(3) == [("a", 0, 2, 1, BEFORE), ("a", 0, 3, 2, AFTER)]


def test_all_stragglers_of_a_batch_are_one_correction() -> None:
    stream = Stream(10, stragglers="update", lateness=20)
    stream.step(1, watermark=10)
    assert stream.step(2, 3, 4) == [("a", 0, 4, 1)]
    assert stream.counts == Metrics(rows=3, stragglers=3, corrections=1)


def test_a_straggler_that_changes_no_value_corrects_nothing() -> None:
    largest = {"top": Extreme("v", pa.int64(), greatest=True)}
    stream = Stream(10, stragglers="retract", lateness=20, agg=largest)
    stream.step((1, "a", 5), watermark=10)
    assert stream.step((2, "a", 5)) == []
    assert stream.counts == Metrics(rows=1, stragglers=1)
    assert stream.step((2, "a", 6)) == [("a", 0, 5, 0, BEFORE), ("a", 0, 6, 1, AFTER)]


def test_a_value_that_was_null_is_corrected() -> None:
    stream = Stream(10, stragglers="retract", lateness=20, agg=SUM)
    assert stream.step((1, "a", None), watermark=10) == [("a", 0, None, 0, INSERT)]
    assert stream.step((2, "a", None)) == []
    assert stream.step((3, "a", 0)) == [("a", 0, None, 0, BEFORE), ("a", 0, 0, 1, AFTER)]


def test_a_window_of_stragglers_only_starts_at_revision_one() -> None:
    stream = Stream(10, stragglers="retract", lateness=20)
    stream.step(15, watermark=10)
    assert stream.step(2) == [("a", 0, 1, 1, INSERT)]
    assert stream.counts == Metrics(rows=1, stragglers=1, results=1)
    assert stream.step(3) == [("a", 0, 1, 1, BEFORE), ("a", 0, 2, 2, AFTER)]


def test_a_row_exactly_at_the_allowed_lateness_is_too_late() -> None:
    stream = Stream(10, stragglers="update", lateness=20)
    stream.step(1, watermark=30)
    assert stream.step(2) == []
    assert stream.counts == Metrics(rows=1, too_late=1)


def test_a_row_one_microsecond_before_the_allowed_lateness_is_accepted() -> None:
    stream = Stream(10, stragglers="update", lateness=20)
    stream.step(1, watermark=29)
    assert stream.step(2, watermark=30) == [("a", 0, 2, 1)]
    assert stream.state.rows == 0


def test_without_allowed_lateness_nothing_is_ever_corrected() -> None:
    stream = Stream(10, stragglers="update")
    stream.step(1, watermark=10)
    assert stream.step(2) == []
    assert stream.counts == Metrics(rows=1, too_late=1)


def test_rows_before_the_first_watermark_correct_nothing() -> None:
    stream = Stream(10, stragglers="retract", lateness=20)
    stream.step(1)
    stream.step(2)
    assert stream.step(watermark=10) == [("a", 0, 2, 0, INSERT)]


def test_windows_of_other_keys_are_left_alone() -> None:
    stream = Stream(10, stragglers="update", lateness=20)
    stream.step((1, "a"), (1, "b"), watermark=10)
    assert stream.step((2, "b")) == [("b", 0, 2, 1)]
    assert stream.step((2, "a"), (3, "b"), watermark=20) == [("a", 0, 2, 1), ("b", 0, 3, 2)]


def test_a_straggler_corrects_every_closed_window_that_contains_it() -> None:
    stream = Stream(10, 5, stragglers="update", lateness=20)
    stream.step(3, 7, watermark=10)
    assert stream.step(4, watermark=10) == [("a", -5, 2, 1), ("a", 0, 3, 1)]


def test_a_row_can_be_on_time_straggler_and_too_late_at_once() -> None:
    stream = Stream(15, 5, stragglers="update", lateness=5)
    stream.step(11, watermark=20)
    assert stream.step(12, watermark=20) == [("a", 5, 2, 1)]
    assert stream.counts == Metrics(rows=1, on_time=1, stragglers=1, too_late=1, corrections=1)


def test_a_window_is_corrected_and_another_one_closed_in_the_same_step() -> None:
    stream = Stream(10, stragglers="retract", lateness=20)
    stream.step(1, 11, watermark=10)
    assert stream.step(2, 12, watermark=20) == [
        ("a", 0, 1, 0, BEFORE),
        ("a", 0, 2, 1, AFTER),
        ("a", 10, 2, 0, INSERT),
    ]


def test_a_correction_is_published_though_the_window_is_evicted_in_the_same_step() -> None:
    stream = Stream(10, stragglers="retract", lateness=5)
    stream.step(1, watermark=10)
    assert stream.step(2, watermark=1_000) == [("a", 0, 1, 0, BEFORE), ("a", 0, 2, 1, AFTER)]
    assert stream.state.rows == 0
    assert stream.deadline is None


def test_revisions_are_evicted_with_their_window() -> None:
    stream = Stream(10, stragglers="update", lateness=20)
    stream.step(1, watermark=10)
    stream.step(2)
    assert [t.num_rows for t in stream.state.tables.values()] == [1, 1]
    assert stream.deadline == 30
    stream.step(watermark=29)
    assert [t.num_rows for t in stream.state.tables.values()] == [1, 1]
    stream.step(watermark=30)
    assert [t.num_rows for t in stream.state.tables.values()] == [0, 0]


def test_a_published_window_is_not_published_again_at_the_end() -> None:
    stream = Stream(10, stragglers="update", lateness=20)
    stream.step(1, 12, watermark=10)
    stream.step(2)
    assert stream.finish() == [("a", 10, 1, 0)]


def test_the_batch_has_no_stragglers() -> None:
    assert Stream(10, stragglers="retract", lateness=20).run(25, 1) == [
        ("a", 0, 1, 0, INSERT),
        ("a", 20, 1, 0, INSERT),
    ]
