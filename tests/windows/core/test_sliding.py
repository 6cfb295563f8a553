"""Sliding windows, one sentence each. Times are microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg_functions
from streamops.aggregates.core.functions import ByTime, Count, Extreme
from streamops.kernel.aggregation import Summary
from streamops.kernel.codec import decode, encode
from streamops.kernel.core import Metrics, State
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.kernel.values import comparable
from streamops.testing.laws import to_rows
from streamops.windows.core.sliding import SlidingCore
from streamops.windows.core.sliding_spec import SlidingSpec
from tests.windows.core import test_keys
from tests.windows.core.play import COUNT, SCHEMA, SUM, table

INSERT, BEFORE, AFTER = "insert", "update_preimage", "update_postimage"
MORNING = 1_700_000_000_000_000


class Stream:
    """Sliding windows over small integers. ``step`` returns the output as sorted tuples."""

    def __init__(
        self,
        size: int,
        *,
        by: Sequence[str] = ("k",),
        agg: dict[str, Summary] | None = None,
        stragglers: Any = "drop",
        too_late: Any = "drop",
        lateness: int = 0,
        early: Any = "never",
    ) -> None:
        self.spec = SlidingSpec(
            operator="windows.sliding",
            agg=(("n", agg_functions.count()),),
            by=tuple(by),
            time="t",
            aggregates=tuple((name, name, summary) for name, summary in (agg or COUNT).items()),
            input=SCHEMA,
            delay=0,
            allowed_lateness=lateness,
            stragglers=stragglers,
            too_late=too_late,
            early=early,
            size=size,
        )
        self.state: State = State.empty(SlidingCore().layout(self.spec))
        self.counts = Metrics()
        self.late: list[dict[str, Any]] = []

    def step(
        self, *rows: tuple[Any, ...] | int | None, watermark: int | None = None
    ) -> list[tuple[Any, ...]]:
        """One micro-batch: rows of (time, key, value), or a time alone."""
        packed = SlidingCore().pack(self.spec, given(rows))
        step = SlidingCore().step(self.spec, self.state, [packed], watermark)
        SlidingCore().check(self.spec, step.state)
        self.state, self.counts, self.late = step.state, step.metrics, to_rows(step.late)
        return as_tuples(step.output)

    def run(self, *rows: tuple[Any, ...] | int | None) -> list[tuple[Any, ...]]:
        """The batch result, late rows left out."""
        return as_tuples(
            SlidingCore().run(self.spec, [SlidingCore().pack(self.spec, given(rows))]).rows
        )

    @property
    def stored(self) -> list[int]:
        """Rows of the tables of the state."""
        return [table.num_rows for table in self.state.tables.values()]

    @property
    def deadline(self) -> int | None:
        """The next deadline."""
        return SlidingCore().next_deadline(self.spec, self.state)


def given(rows: Sequence[tuple[Any, ...] | int | None]) -> pa.Table:
    return table([row if isinstance(row, tuple) else (row,) for row in rows])


def as_tuples(emitted: pa.Table) -> list[tuple[Any, ...]]:
    """Result rows in their order per key and time, as tuples."""
    rows = [row for row in to_rows(emitted) if row.get("late") is None]
    rows.sort(key=lambda row: (row.get("k") or "", row["t"]))  # stable
    return [tuple(v for name, v in row.items() if name != "late") for row in rows]


def test_an_empty_batch_emits_and_stores_nothing() -> None:
    stream = Stream(10)
    assert stream.step() == []
    assert stream.state.rows == 0
    assert stream.counts == Metrics()
    assert stream.deadline is None
    assert stream.run() == []


def test_each_result_covers_events_of_its_key_less_than_the_size_older() -> None:
    stream = Stream(10, agg=SUM)
    rows = [(1, "a", 1), (5, "a", 2), (5, "b", 100), (10, "a", 4), (11, "a", 8), (30, "a", 16)]
    wanted = [("a", 1, 1), ("a", 5, 3), ("a", 10, 7), ("a", 11, 14), ("a", 30, 16), ("b", 5, 100)]
    assert stream.run(*rows) == wanted
    assert stream.run(*rows[::-1]) == wanted


def test_an_event_exactly_the_size_older_is_outside() -> None:
    assert Stream(10).run(0, 10) == [("a", 0, 1), ("a", 10, 1)]
    assert Stream(10).run(1, 10) == [("a", 1, 1), ("a", 10, 2)]


def test_a_size_of_a_microsecond_sees_its_own_instant_only() -> None:
    stream = Stream(1)
    assert stream.run(4, 5, 5) == [("a", 4, 1), ("a", 5, 2)]
    assert stream.step(4, 5, watermark=4) == [("a", 4, 1)]
    assert (stream.stored, stream.deadline) == ([1], 5)


def test_events_of_one_instant_have_one_result() -> None:
    stream = Stream(10)
    assert stream.step(5, 5, 7) == []
    assert stream.stored == [2]
    assert stream.step((5, "b"), 5, watermark=7) == [("a", 5, 3), ("a", 7, 4), ("b", 5, 1)]
    assert stream.counts == Metrics(rows=2, on_time=2, results=3)


def test_without_keys_all_rows_are_one_group() -> None:
    assert Stream(10, by=()).run((1, "a"), (2, "b")) == [(1, 1), (2, 2)]


def test_times_before_1970_are_times_like_any_other() -> None:
    assert Stream(10).run(-12, -3, 3, 7) == [
        ("a", -12, 1),
        ("a", -3, 2),
        ("a", 3, 2),
        ("a", 7, 2),
    ]


def test_a_window_may_reach_over_the_whole_calendar() -> None:
    stream = Stream(MAX_INSTANT - MIN_INSTANT)
    assert stream.run(MIN_INSTANT, 0, (3, "b"), MAX_INSTANT) == [
        ("a", MIN_INSTANT, 1),
        ("a", 0, 2),
        ("a", MAX_INSTANT, 2),
        ("b", 3, 1),
    ]


def test_a_result_is_published_once_the_watermark_has_reached_its_event() -> None:
    stream = Stream(10)
    assert stream.step(5, 6, watermark=4) == []
    assert stream.deadline == 5
    assert stream.step(watermark=5) == [("a", 5, 1)]
    assert stream.deadline == 6
    assert stream.step(watermark=6) == [("a", 6, 2)]
    assert stream.step(watermark=7) == []


def test_a_row_is_compared_with_the_watermark_of_the_batch_before() -> None:
    stream = Stream(10)
    assert stream.step(5, watermark=30) == [("a", 5, 1)]
    assert stream.counts == Metrics(rows=1, on_time=1, results=1)
    assert stream.step(30, 31, watermark=40) == [("a", 31, 1)]
    assert stream.counts == Metrics(rows=2, on_time=1, too_late=1, results=1)


def test_a_watermark_never_goes_back() -> None:
    stream = Stream(10)
    stream.step(watermark=20)
    stream.step(watermark=5)
    assert stream.state.watermark == 20
    stream.step(15)
    assert stream.counts.too_late == 1


def test_a_timestamp_is_evicted_when_its_last_window_is_published() -> None:
    stream = Stream(10)
    stream.step(5, watermark=5)
    assert stream.deadline == 14
    stream.step(watermark=13)
    assert stream.stored == [1]
    assert stream.step(14, watermark=14) == [("a", 14, 2)]
    assert stream.stored == [1]
    assert stream.deadline == 23


def test_with_corrections_a_timestamp_is_stored_for_the_allowed_lateness_longer() -> None:
    stream = Stream(10, stragglers="update", lateness=20)
    stream.step(5, watermark=5)
    assert stream.deadline == 34
    stream.step(watermark=33)
    assert stream.step(14) == [("a", 14, 2, 1)]
    assert stream.stored == [2, 1]
    stream.step(watermark=34)
    assert stream.stored == [
        1,
        0,
    ]  # the result at 14 cannot change any more, and 5 is in no later window


def test_a_straggler_changes_the_results_of_its_key_less_than_the_size_later() -> None:
    stream = Stream(10, stragglers="retract", lateness=100)
    stream.step(10, 14, 19, 20, (15, "b"), watermark=20)
    assert stream.step(10) == [
        ("a", 10, 1, 0, BEFORE),
        ("a", 10, 2, 1, AFTER),
        ("a", 14, 2, 0, BEFORE),
        ("a", 14, 3, 1, AFTER),
        ("a", 19, 3, 0, BEFORE),
        ("a", 19, 4, 1, AFTER),
    ]
    assert stream.counts == Metrics(rows=1, stragglers=1, corrections=3)


def test_a_straggler_between_events_has_a_result_with_revision_one() -> None:
    stream = Stream(10, stragglers="retract", lateness=100)
    stream.step(10, 25, watermark=30)
    assert stream.step(12) == [("a", 12, 2, 1, INSERT)]
    assert stream.counts == Metrics(rows=1, stragglers=1, results=1)
    assert stream.step(12) == [("a", 12, 2, 1, BEFORE), ("a", 12, 3, 2, AFTER)]


def test_a_straggler_can_be_the_first_event_of_a_key() -> None:
    stream = Stream(10, stragglers="update", lateness=100)
    stream.step((10, "b"), watermark=10)
    assert stream.step((5, "a"), (5, "c")) == [("a", 5, 1, 1), ("c", 5, 1, 1)]


def test_corrections_and_results_on_time_come_in_the_same_step() -> None:
    stream = Stream(10, stragglers="retract", lateness=100)
    stream.step(10, 15, watermark=12)
    assert stream.step(8, 16, watermark=16) == [
        ("a", 8, 1, 1, INSERT),
        ("a", 10, 1, 0, BEFORE),
        ("a", 10, 2, 1, AFTER),
        ("a", 15, 3, 0, INSERT),
        ("a", 16, 4, 0, INSERT),
    ]
    assert stream.counts == Metrics(rows=2, on_time=1, stragglers=1, results=3, corrections=1)


def test_a_straggler_that_changes_no_value_corrects_nothing() -> None:
    largest: dict[str, Summary] = {"top": Extreme("v", pa.int64(), greatest=True)}
    stream = Stream(10, stragglers="retract", lateness=100, agg=largest)
    stream.step((10, "a", 7), watermark=12)
    assert stream.step((10, "a", 5)) == []
    assert stream.counts == Metrics(rows=1, stragglers=1)
    assert stream.stored == [1, 0]


def test_a_value_that_becomes_null_or_not_null_is_corrected() -> None:
    last: dict[str, Summary] = {
        "last": ByTime("v", "t", "v", pa.int64(), SCHEMA.field("t").type, pa.int64(), latest=True)
    }
    stream = Stream(10, stragglers="update", lateness=100, agg=last)
    stream.step((10, "a", 1), (11, "a", None), watermark=12)
    assert stream.step((10, "a", 2)) == [("a", 10, 2, 1)]


@pytest.mark.parametrize(("time", "accepted"), [(10, False), (11, True), (30, True)])
def test_a_row_exactly_at_the_allowed_lateness_is_too_late(time: int, accepted: bool) -> None:
    stream = Stream(10, stragglers="update", lateness=20)
    stream.step(watermark=30)
    assert stream.step(time) == ([("a", time, 1, 1)] if accepted else [])
    assert stream.counts == Metrics(
        rows=1, stragglers=int(accepted), too_late=int(not accepted), results=int(accepted)
    )


def test_the_oldest_result_that_can_change_has_all_its_events() -> None:
    stream = Stream(10, stragglers="update", lateness=20)
    stream.step(2, 11, watermark=30)
    assert stream.step(11) == [("a", 11, 3, 1)]
    stream.step(watermark=31)
    assert stream.stored == [1, 0]


def test_a_correction_is_published_though_all_state_is_evicted_in_the_same_step() -> None:
    stream = Stream(10, stragglers="retract", lateness=5)
    stream.step(10, watermark=10)
    assert stream.step(10, watermark=1_000) == [("a", 10, 1, 0, BEFORE), ("a", 10, 2, 1, AFTER)]
    assert stream.stored == [0, 0]
    assert stream.deadline is None


def test_revisions_are_evicted_after_the_last_change_of_their_result() -> None:
    stream = Stream(10, stragglers="update", lateness=20)
    stream.step(1, watermark=10)
    stream.step(2)
    assert (stream.stored, stream.deadline) == ([2, 1], 22)
    stream.step(watermark=22)
    assert (stream.stored, stream.deadline) == ([2, 0], 30)


def test_the_end_of_the_stream_publishes_what_is_not_on_time_and_nothing_twice() -> None:
    stream = Stream(10, stragglers="update", lateness=20)
    stream.step(1, 12, watermark=10)
    stream.step(2)
    assert as_tuples(SlidingCore().finish(stream.spec, stream.state)) == [("a", 12, 1, 0)]


def test_late_rows_are_delivered_with_the_time_of_the_result_they_missed() -> None:
    stream = Stream(10, stragglers="route", lateness=20)
    stream.step(watermark=30)
    assert stream.step(20, (9, "b", 5), None, MAX_INSTANT + 1, 31) == []
    late = [
        (r["k"], r["t"], r["n"], r["late"]["reason"], r["late"]["lateness"]) for r in stream.late
    ]
    assert late == [
        ("a", None, None, "null_time", None),
        ("a", None, None, "time_out_of_range", None),
        ("a", 20, None, "straggler", 10),
        ("b", 9, None, "too_late", 21),
    ]
    assert [row["late"]["watermark"] for row in stream.late] == [None, None, 30, 30]
    assert stream.late[3]["late"]["row"] == {"t": 9, "k": "b", "v": 5}
    assert stream.counts == Metrics(rows=5, rejected=2, on_time=1, stragglers=1, too_late=1)


def test_with_corrections_only_rows_that_are_too_late_are_routed() -> None:
    stream = Stream(10, stragglers="retract", too_late="route", lateness=20)
    stream.step(watermark=30)
    assert stream.step(20, 9, None) == [("a", 20, 1, 1, INSERT)]
    assert [row["late"]["reason"] for row in stream.late] == ["null_time", "too_late"]
    assert all(row["revision"] is row["_change_type"] is None for row in stream.late)


def test_rejected_rows_are_counted_if_rows_are_not_routed() -> None:
    stream = Stream(10)
    assert stream.step(None, 5, watermark=5) == [("a", 5, 1)]
    assert stream.counts == Metrics(rows=2, rejected=1, on_time=1, results=1)
    assert stream.late == []


def test_a_batch_routes_rejected_rows_only() -> None:
    stream = Stream(10, stragglers="route")
    rows = to_rows(
        SlidingCore().run(stream.spec, [SlidingCore().pack(stream.spec, given([25, 1, None]))]).rows
    )
    assert [row["late"] and row["late"]["reason"] for row in rows] == [None, None, "null_time"]


def test_the_output_has_the_event_time_under_its_own_name() -> None:
    assert Stream(10).spec.output.names == ["k", "t", "n"]
    assert Stream(10).spec.event_time == "t"
    assert Stream(10).spec.origins == {"t": (0, "t"), "k": (0, "k")}
    spec = Stream(10, stragglers="retract", too_late="route", lateness=1).spec
    assert spec.output.names == ["k", "t", "n", "revision", "_change_type", "late"]


def test_many_events_of_one_window_are_merged_in_blocks() -> None:
    count = 2_000
    rows = [(MORNING + number, "ab"[number % 2], 1) for number in range(count)]
    found = Stream(800).run(*rows)
    assert found == sorted(("ab"[n % 2], MORNING + n, min(n // 2 + 1, 400)) for n in range(count))


@pytest.mark.laws
@pytest.mark.parametrize("stragglers", ["drop", "route", "update", "retract"])
def test_state_does_not_grow_while_keys_change(stragglers: str) -> None:
    stream = Stream(10, stragglers=stragglers, lateness=30)
    rows = []
    for number in range(1_000):
        now = 10 * number
        stream.step((now, f"{number}"), (now + 3, f"{number}"), (now - 8, "old"), watermark=now)
        rows.append(stream.state.rows)
    assert max(rows[750:]) <= 1.1 * max(rows[250:500])
    assert min(rows[250:]) > 0


@pytest.mark.parametrize("dtype", test_keys.KEYS, ids=str)
def test_keys_of_every_type_meet_again_after_a_restart(dtype: pa.DataType) -> None:
    given_, values = test_keys.spec_of(dtype), test_keys.KEYS[dtype]
    spec = SlidingSpec(
        operator="windows.sliding",
        agg=(("n", agg_functions.count()),),
        by=("k",),
        time="t",
        aggregates=(("n", "count()", Count(None)), given_.aggregates[1]),
        input=given_.input,
        delay=0,
        allowed_lateness=100,
        stragglers="retract",
        too_late="drop",
        early="never",
        size=10,
    )
    first = SlidingCore().step(
        spec, State.empty(SlidingCore().layout(spec)), [test_keys.rows(given_, values, 5)], 10
    )
    assert len(first.output) == len(values)
    again = test_keys.rows(given_, values[::-1] * 2, 5)
    second = SlidingCore().step(spec, restarted(spec, first.state), [again], 11)
    third = SlidingCore().step(spec, restarted(spec, second.state), [again], 11)
    corrected = [r for r in to_rows(third.output) if r["_change_type"] == "update_postimage"]
    assert [(r["n"], r["revision"]) for r in corrected] == [(5, 2)] * len(values)
    keys = [comparable(row["k"]) for row in to_rows(test_keys.rows(given_, values, 0))]
    assert sorted(keys) == sorted(comparable(row["k"]) for row in corrected)
    assert all(comparable(row["k"]) == comparable(row["same"]) for row in corrected)
    SlidingCore().check(spec, restarted(spec, third.state))


def restarted(spec: SlidingSpec, state: State) -> State:
    known = SlidingCore.STATE, spec.identity, 1
    return State(state.watermark, decode(encode(*known, state.tables), *known))


# Early results.


def early(size: int, **arguments: Any) -> Stream:
    return Stream(size, early="every batch", **arguments)


def test_a_result_is_published_in_every_step_that_changes_it_and_once_more_on_time() -> None:
    stream = early(10)
    assert stream.step(5) == [("a", 5, 1, 0, "early")]
    assert stream.step(3, 20) == [
        ("a", 3, 1, 0, "early"),
        ("a", 5, 2, 1, "early"),
        ("a", 20, 1, 0, "early"),
    ]
    assert stream.counts == Metrics(rows=2, on_time=2, results=2, corrections=1)
    assert stream.step(watermark=5) == [("a", 3, 1, 1, "on_time"), ("a", 5, 2, 2, "on_time")]
    assert stream.counts == Metrics(corrections=2)
    assert stream.step(5, watermark=6) == []
    assert stream.step(6, 7, watermark=6) == [("a", 7, 3, 0, "early")]
    assert stream.counts == Metrics(rows=2, on_time=1, too_late=1, results=1)


def test_a_result_that_arrives_with_its_watermark_is_published_once() -> None:
    stream = early(10)
    assert stream.step(5, watermark=5) == [("a", 5, 1, 0, "on_time")]
    assert stream.stored == [1, 0]


def test_a_straggler_changes_results_that_are_on_time_and_others_that_are_early() -> None:
    stream = early(10, stragglers="retract", lateness=50)
    stream.step(5)
    stream.step(12, watermark=8)
    assert stream.step(4) == [
        ("a", 4, 1, 1, "late", INSERT),
        ("a", 5, 1, 1, "on_time", BEFORE),
        ("a", 5, 2, 2, "late", AFTER),
        ("a", 12, 2, 0, "early", BEFORE),
        ("a", 12, 3, 1, "early", AFTER),
    ]
    assert stream.step(3, watermark=12)[1:] == [
        ("a", 4, 1, 1, "late", BEFORE),
        ("a", 4, 2, 2, "late", AFTER),
        ("a", 5, 2, 2, "late", BEFORE),
        ("a", 5, 3, 3, "late", AFTER),
        ("a", 12, 3, 1, "early", BEFORE),
        ("a", 12, 4, 2, "on_time", AFTER),
    ]


def test_at_the_end_early_results_are_on_time_and_a_batch_has_none() -> None:
    stream = early(10, stragglers="update", lateness=50)
    stream.step(5)
    assert as_tuples(SlidingCore().finish(stream.spec, stream.state)) == [("a", 5, 1, 1, "on_time")]
    assert stream.run(5, 9) == [("a", 5, 1, 0, "on_time"), ("a", 9, 2, 0, "on_time")]


def test_revisions_are_evicted_with_their_result() -> None:
    stream = early(10)
    stream.step(5)
    stream.step(5)
    assert stream.stored == [1, 1]
    stream.step(watermark=5)
    assert stream.stored == [1, 0]
    assert stream.deadline == 14
