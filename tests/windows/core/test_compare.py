"""Comparisons with the previous period, one sentence each. Times are microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streamops.kernel.calendar import CalendarPeriod
from streamops.kernel.codec import decode, encode
from streamops.kernel.core import Metrics, State
from streamops.kernel.errors import CapacityError, ChangeStreamError, located
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.testing.laws import to_rows
from streamops.windows.core.compare import CompareCore
from streamops.windows.core.compare_spec import CompareSpec, difference_type

INSERT, BEFORE, AFTER, DELETE = "insert", "update_preimage", "update_postimage", "delete"
UTC = pa.timestamp("us", tz="UTC")
NAN, INFINITY = float("nan"), float("inf")


class Stream:
    """Windows of 10 µs, compared with those of 10 µs before. ``step`` returns the output.

    A row is (start, value), and (start, value, revision), and so on: key, change, end.
    """

    def __init__(
        self,
        period: int | CalendarPeriod = 10,
        *,
        by: Sequence[str] = ("k",),
        dtype: pa.DataType | None = None,
        stragglers: Any = "drop",
        too_late: Any = "drop",
        revised: Any = "never",
        lateness: int = 0,
        periods: int = 1,
        threshold: float = 3.5,
        min_periods: int | None = None,
    ) -> None:
        fields = [("k", pa.string()), ("window_start", UTC), ("window_end", UTC)]
        fields += [("v", dtype or pa.int64())]
        fields += [("revision", pa.int32())] if revised != "never" else []
        fields += [("_change_type", pa.string())] if revised == "changes" else []
        self.spec = CompareSpec(
            by=tuple(by),
            operator="windows.compare",
            input=pa.schema(fields),
            delay=0,
            allowed_lateness=lateness,
            stragglers=stragglers,
            too_late=too_late,
            period=period.unit if isinstance(period, CalendarPeriod) else period,
            zone=period.zone if isinstance(period, CalendarPeriod) else None,
            values=("v",),
            revised=revised,
            periods=periods,
            threshold=threshold,
            min_periods=min_periods,
        )
        self.state: State = State.empty(CompareCore().layout(self.spec))
        self.counts = Metrics()
        self.late: list[dict[str, Any]] = []

    def table(self, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
        named = []
        for row in rows:
            start, value, revision, key, change, end = (
                *row, *(None, None, 0, "a", INSERT, ...)[len(row) :]
            )  # fmt: skip
            over = end if end is not ... else None if start is None else start + 10
            named.append(
                {"k": key, "window_start": start, "window_end": over, "v": value}
                | {"revision": revision, "_change_type": change}
            )
        columns = [
            pa.array([row[f.name] for row in named], pa.int64() if f.type == UTC else f.type)
            for f in self.spec.input
        ]
        return pa.table([c.cast(f.type) for c, f in zip(columns, self.spec.input, strict=True)],
                        schema=self.spec.input)  # fmt: skip

    def step(self, *rows: tuple[Any, ...], watermark: int | None = None) -> list[tuple[Any, ...]]:
        """One micro-batch."""
        packed = CompareCore().pack(self.spec, self.table(rows))
        step = CompareCore().step(self.spec, self.state, [packed], watermark)
        CompareCore().check(self.spec, step.state)
        self.state, self.counts, self.late = step.state, step.metrics, to_rows(step.late)
        return as_tuples(step.output)

    def run(self, *rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """The batch result, late rows left out."""
        return as_tuples(
            CompareCore().run(self.spec, [CompareCore().pack(self.spec, self.table(rows))]).rows
        )

    @property
    def deadline(self) -> int | None:
        """The next deadline."""
        return CompareCore().next_deadline(self.spec, self.state)


def as_tuples(emitted: pa.Table) -> list[tuple[Any, ...]]:
    """(start, value, previous, change, rate) and the columns of corrections; the key only if not "a"."""
    rows = [row for row in to_rows(emitted) if row.get("late") is None]
    rows.sort(key=lambda row: (row["window_start"], row["window_end"]))  # stable
    hidden = ("k", "window_end", "late")
    return [tuple(v for name, v in row.items() if name not in hidden) for row in rows]


def test_an_empty_batch_emits_and_stores_nothing() -> None:
    stream = Stream()
    assert stream.step() == []
    assert (stream.state.rows, stream.deadline, stream.counts) == (0, None, Metrics())
    assert stream.run() == []


def test_a_window_is_compared_with_that_of_the_previous_period() -> None:
    rows = [(0, 4), (10, 6), (20, 3), (40, 3)]
    wanted = [
        (0, 4, None, None, None),
        (10, 6, 4, 2, 0.5),
        (20, 3, 6, -3, -0.5),
        (40, 3, None, None, None),
    ]
    assert Stream().run(*rows) == wanted
    assert Stream().run(*rows[::-1]) == wanted
    assert Stream(20).run(*rows)[2:] == [(20, 3, 4, -1, -0.25), (40, 3, 3, 0, 0.0)]


def test_keys_are_compared_with_themselves() -> None:
    rows = [(0, 1, 0, "a"), (10, 2, 0, "b"), (0, 3, 0, None), (10, 4, 0, None)]
    assert sorted(Stream().run(*rows), key=str) == [
        (0, 1, None, None, None),
        (0, 3, None, None, None),
        (10, 2, None, None, None),
        (10, 4, 3, 1, 1 / 3),
    ]
    alone = Stream(by=()).run((0, 1, 0, "a"), (10, 2, 0, "b"))
    assert alone == [(0, 1, None, None, None), (10, 2, 1, 1, 1.0)]


def test_the_same_window_has_the_same_end_too() -> None:
    day = Stream(20).run((0, 1), (0, 5, 0, "a", INSERT, 20), (20, 3), (20, 4, 0, "a", INSERT, 40))
    assert day[2:] == [(20, 3, 1, 2, 2.0), (20, 4, 5, -1, -0.2)]


def test_a_comparison_is_published_when_its_window_ends_and_once() -> None:
    stream = Stream()
    assert stream.step((0, 4), (10, 6), watermark=9) == []
    assert stream.deadline == 10
    assert stream.step(watermark=10) == [(0, 4, None, None, None)]
    assert (stream.state.rows, stream.deadline) == (2, 20)
    assert stream.step(watermark=19) == []
    # The window of 0 is evicted after that of 10 was compared with it.
    assert stream.step(watermark=20) == [(10, 6, 4, 2, 0.5)]
    assert (stream.state.rows, stream.deadline) == (1, 30)
    assert stream.step(watermark=30) == []
    assert (stream.state.rows, stream.deadline) == (0, None)


def test_finish_publishes_open_windows() -> None:
    stream = Stream()
    stream.step((0, 4), (10, 6), watermark=10)
    assert as_tuples(CompareCore().finish(stream.spec, stream.state)) == [(10, 6, 4, 2, 0.5)]


def test_results_that_arrive_with_the_watermark_of_their_end_are_compared_at_once() -> None:
    stream = Stream()
    assert stream.step((0, 4), watermark=10) == [(0, 4, None, None, None)]
    assert stream.step((10, 5), watermark=20) == [(10, 5, 4, 1, 0.25)]
    assert stream.counts == Metrics(rows=1, on_time=1, results=1)


def test_a_window_that_arrives_after_its_end_is_late() -> None:
    stream = Stream(lateness=10)
    stream.step((20, 1), watermark=20)
    assert stream.step((0, 7), (10, 8), (20, 1), watermark=30) == [(20, 1, None, None, None)]
    assert stream.counts == Metrics(rows=3, on_time=1, stragglers=1, too_late=1, results=1)
    assert stream.late == []


def test_a_late_window_is_routed() -> None:
    stream = Stream(stragglers="route", lateness=10)
    stream.step(watermark=20)
    assert stream.step((0, 7), (10, 8)) == []
    late = [(r["window_start"], r["late"]["reason"], r["late"]["lateness"]) for r in stream.late]
    assert late == [(0, "too_late", 10), (10, "straggler", 0)]
    assert stream.late[0]["late"]["row"]["v"] == 7
    assert stream.late[0]["v"] is stream.late[0]["previous_v"] is None


def test_invalid_windows_are_rejected_with_a_reason() -> None:
    rows: list[tuple[Any, ...]] = [
        (0, 1, 0, "a", INSERT, None),
        (0, 2, 0, "a", INSERT, MAX_INSTANT + 1),
        (MIN_INSTANT - 11, 3, 0, "a", INSERT, MIN_INSTANT - 1),
        (None, 4, 0, "a", INSERT, 10),
        (10, 5, 0, "a", INSERT, 10),
        (MIN_INSTANT - 1, 6, 0, "a", INSERT, 10),
        (0, 7, None),
        (0, 8, 0, "a", None),
        (0, 9, 0, "a", "upsert"),
        (0, 10),
    ]
    stream = Stream(stragglers="retract", too_late="route", revised="changes")
    assert stream.step(*rows, watermark=10) == [(0, 10, None, None, None, 0, INSERT)]
    assert stream.counts == Metrics(rows=10, rejected=9, on_time=1, results=1)
    late = sorted((row["late"]["row"]["v"], row["late"]["reason"]) for row in stream.late)
    assert [reason for _, reason in late] == [
        "null_time",
        *["time_out_of_range"] * 2,
        *["bad_window"] * 3,
        *["bad_change"] * 3,
    ]
    assert {row["window_start"] for row in stream.late} == {None}
    silent = Stream()
    assert silent.step(*rows[:6]) == []
    assert (silent.counts, silent.late) == (Metrics(rows=6, rejected=6), [])


def test_a_straggler_changes_its_own_comparison_and_the_next_one() -> None:
    stream = Stream(stragglers="retract", lateness=100)
    stream.step((10, 6), (20, 3), watermark=30)
    assert stream.step((0, 4), (5, 5)) == [
        (0, 4, None, None, None, 1, INSERT),
        (5, 5, None, None, None, 1, INSERT),
        (10, 6, None, None, None, 0, BEFORE),
        (10, 6, 4, 2, 0.5, 1, AFTER),
    ]
    assert stream.counts == Metrics(rows=2, stragglers=2, results=2, corrections=1)
    update = Stream(stragglers="update", lateness=100)
    update.step((10, 6), (20, 3), watermark=30)
    assert update.step((0, 4)) == [(0, 4, None, None, None, 1), (10, 6, 4, 2, 0.5, 1)]


def test_a_comparison_that_was_not_published_yet_is_not_corrected() -> None:
    stream = Stream(stragglers="retract", lateness=100)
    stream.step((10, 6), watermark=15)
    assert stream.step((0, 4)) == [(0, 4, None, None, None, 1, INSERT)]
    assert stream.step(watermark=20) == [(10, 6, 4, 2, 0.5, 0, INSERT)]


def test_a_window_that_arrives_again_changes_nothing() -> None:
    stream = Stream(stragglers="retract", lateness=100)
    stream.step((0, 4), (0, 4), (10, 6), watermark=20)
    assert stream.counts == Metrics(rows=3, on_time=3, results=2)
    assert stream.step((0, 4)) == []
    assert stream.state.rows == 2
    nan = Stream(dtype=pa.float64())
    assert nan.run((0, NAN), (0, NAN), (10, -0.0), (10, 0.0))[1][1] == 0.0


def test_revisions_of_a_window_correct_two_comparisons() -> None:
    stream = Stream(stragglers="update", revised="upserts", lateness=100)
    assert stream.step((0, 4), (10, 6), watermark=20) == [
        (0, 4, None, None, None, 0),
        (10, 6, 4, 2, 0.5, 0),
    ]
    assert stream.step((0, 3, 1)) == [(0, 3, None, None, None, 1), (10, 6, 3, 3, 1.0, 1)]
    # An older revision changes nothing, in any position; the highest of a batch counts.
    assert stream.step((0, 4, 0), (0, 2, 3), (0, 9, 2)) == [
        (0, 2, None, None, None, 2),
        (10, 6, 2, 4, 2.0, 2),
    ]
    assert stream.step((0, 2, 4)) == []  # the same value
    assert stream.step((10, 2, 1), (0, 1, 5)) == [
        (0, 1, None, None, None, 3),
        (10, 2, 1, 1, 1.0, 3),
    ]


@pytest.mark.parametrize("dtype", [pa.float32(), pa.float64()], ids=str)
def test_zeros_have_no_sign_so_that_preimages_equal_published_values(dtype: pa.DataType) -> None:
    stream = Stream(dtype=dtype, stragglers="retract", revised="upserts", lateness=100)
    rows = stream.step((0, -0.0), (10, 2.0), watermark=20)
    rows += stream.step((0, 0.0, 1))  # equal, so nothing is published
    rows += stream.step((0, -0.0, 2), (10, 1.0, 1))
    assert [repr(row[1:5]) for row in rows] == [
        "(0.0, None, None, None)",
        "(2.0, 0.0, 2.0, None)",
        "(2.0, 0.0, 2.0, None)",
        "(1.0, 0.0, 1.0, None)",
    ]


def test_a_change_stream_in_is_a_change_stream_out() -> None:
    stream = Stream(stragglers="retract", revised="changes", lateness=100)
    stream.step((0, 4), (10, 6), watermark=20)
    assert stream.step((0, 4, 0, "a", BEFORE), (0, 3, 1, "a", AFTER)) == [
        (0, 4, None, None, None, 0, BEFORE),
        (0, 3, None, None, None, 1, AFTER),
        (10, 6, 4, 2, 0.5, 0, BEFORE),
        (10, 6, 3, 3, 1.0, 1, AFTER),
    ]
    assert stream.counts == Metrics(rows=2, stragglers=2, corrections=2)


def test_a_delete_removes_a_comparison_and_the_previous_values_of_the_next_one() -> None:
    stream = Stream(stragglers="retract", revised="changes", lateness=100)
    stream.step((0, 4), (10, 6), (20, 1), watermark=20)
    assert stream.step((0, 4, 0, "a", DELETE)) == [
        (0, 4, None, None, None, 0, DELETE),
        (10, 6, 4, 2, 0.5, 0, BEFORE),
        (10, 6, None, None, None, 1, AFTER),
    ]
    assert stream.counts == Metrics(rows=1, stragglers=1, corrections=1)
    assert stream.step((0, 4, 0), (20, 1, 0, "a", DELETE)) == []  # older than the delete
    # It arrives again, and continues its revisions.
    assert stream.step((0, 5, 1)) == [
        (0, 5, None, None, None, 1, INSERT),
        (10, 6, None, None, None, 1, BEFORE),
        (10, 6, 5, 1, 0.2, 2, AFTER),
    ]
    assert stream.counts == Metrics(rows=1, stragglers=1, corrections=2)
    assert stream.step(watermark=30) == []  # that of 20 was deleted before it was published
    assert stream.step((20, 9, 1)) == [(20, 9, 6, 3, 0.5, 1, INSERT)]
    assert stream.counts == Metrics(rows=1, stragglers=1, results=1)
    # Kept until no comparison can change: 10 + 10 + 100.
    assert (stream.state.rows, stream.deadline) == (3, 120)
    stream.step(watermark=120)
    assert stream.state.rows == 2


def test_a_window_deleted_before_it_is_published_is_only_evicted() -> None:
    stream = Stream(stragglers="retract", revised="changes")
    stream.step((0, 4, 0, "a", DELETE), watermark=5)
    assert stream.deadline == 20
    assert stream.step(watermark=19) == []
    assert stream.state.rows == 1
    stream.step(watermark=20)
    assert stream.state.rows == 0


@pytest.mark.parametrize("rest", [[(0, 5)], [(0, 5), (0, 4)]])
def test_two_rows_of_a_window_that_differ_are_an_error(rest: list[tuple[Any, ...]]) -> None:
    message = (
        "[INSERTED_TWICE] windows.compare: two different rows have the same key, window and "
        "revision\n"
        "  got:       values [4] and [5] of {'k': 'a'}, window of 1970-01-01 00:00:00Z\n"
        "  expected:  one row per key and window, or a higher revision in the later row\n"
        "  fix:       name all key columns of the preceding window in `by`; if results are corrected, "
        "keep the columns revision and _change_type"
        "\n  see:       docs/errors.md#inserted_twice"
    )
    stream = Stream()
    stream.step((0, 4), (10, 4))
    with pytest.raises(ChangeStreamError) as caught, located("windows.compare"):
        stream.step(*rest)
    assert str(caught.value) == message
    with pytest.raises(ChangeStreamError, match="INSERTED_TWICE"):
        Stream().run((0, 4), *rest)
    stream = Stream(stragglers="update", revised="upserts", lateness=100)
    stream.step((0, 4, 1), (0, 3, 0))
    with pytest.raises(ChangeStreamError, match="INSERTED_TWICE"):
        stream.step((0, 5, 1))


@pytest.mark.parametrize(
    "rows",
    [
        [(0, 4, 0), (0, 5, 0), (0, 6, 1)],
        [(0, 6, 1), (0, 4, 0), (0, 5, 0)],
        [(0, 4, 0), (0, 5, 0), (0, 5, 0, "a", DELETE)],
    ],
)
def test_a_conflict_is_detected_though_both_rows_are_superseded_in_the_same_step(
    rows: list[tuple[Any, ...]],
) -> None:
    arguments: dict[str, Any] = {"stragglers": "retract", "revised": "changes", "lateness": 100}
    with pytest.raises(ChangeStreamError, match=r"values \[4\] and \[5\] of {'k': 'a'}"):
        Stream(**arguments).step(*rows)
    stream = Stream(**arguments)
    stream.step(rows[0])
    if rows[0][1] == 4:  # also if one of them was stored
        with pytest.raises(ChangeStreamError, match="INSERTED_TWICE"):
            stream.step(*rows[1:])
    else:  # windows older than the newest stored one are evicted
        stream.step(rows[1])
        assert stream.step(rows[2]) == []


@pytest.mark.parametrize(
    ("dtype", "now", "before", "change", "rate"),
    [
        (pa.int64(), 6, 4, 2, 0.5),
        (pa.int8(), 127, -128, 255, 255 / -128),
        (pa.int64(), 3, 0, 3, None),
        (pa.int64(), None, 4, None, None),
        (pa.int64(), 4, None, None, None),
        (pa.float32(), 1.5, 0.5, 1.0, 2.0),
        (pa.float64(), -5.0, -10.0, 5.0, -0.5),
        (pa.float64(), 1.0, 0.0, 1.0, None),
        (pa.float64(), NAN, 1.0, NAN, NAN),
        (pa.float64(), 1.0, NAN, NAN, NAN),
        (pa.float64(), INFINITY, 1.0, INFINITY, INFINITY),
        (pa.float64(), INFINITY, INFINITY, NAN, NAN),
        (pa.float64(), 1.0, INFINITY, -INFINITY, NAN),
        (pa.decimal128(4, 2), Decimal("99.50"), Decimal("-99.50"), Decimal("199.00"), -2.0),
        (pa.decimal128(38, 0), Decimal(3), Decimal(2), Decimal(1), 0.5),
    ],
)
def test_the_change_is_the_difference_and_the_rate_its_share_of_the_previous_value(
    dtype: pa.DataType, now: Any, before: Any, change: Any, rate: Any
) -> None:
    stream = Stream(dtype=dtype)
    _, row = stream.run((0, before), (10, now))
    assert repr(row) == repr((10, now, before, change, rate))
    assert stream.spec.output.field("change_v").type == difference_type(dtype)
    assert stream.spec.output.field("previous_v").type == dtype


@pytest.mark.parametrize(
    ("dtype", "now", "before", "type_name"),
    [
        (pa.int64(), 2**62, -(2**62) - 1, "bigint"),
        (pa.decimal128(38, 0), Decimal(10**38 - 1), Decimal(-1), "decimal(38,0)"),
    ],
)
def test_a_change_that_does_not_fit_is_an_error(
    dtype: pa.DataType, now: Any, before: Any, type_name: str
) -> None:
    with pytest.raises(CapacityError) as caught, located("windows.compare"):
        Stream(dtype=dtype).run((0, 1), (10, 2), (20, before), (30, now), (40, before), (10**6, 5))
    assert str(caught.value) == (
        "[NUMERIC_OVERFLOW] windows.compare: a change does not fit into its type\n"
        f"  got:       {now} after {before} in 'v' of {{'k': 'a'}}, "
        "window of 1970-01-01 00:00:00.000030Z\n"
        f"  expected:  changes that fit into {type_name}\n"
        "  fix:       cast 'v' in the input: integers to decimal(20,0); or to double, which rounds"
        "\n  see:       docs/errors.md#numeric_overflow"
    )
    with pytest.raises(CapacityError, match=r"in 'v' of \{\}, window of 1970"):
        Stream(dtype=dtype, by=()).run((0, before), (10, now))


HOUR = 3_600_000_000
NOON = 1_364_724_000_000_000  # 31 March 2013 in Berlin: the clock was put forward in the night


def test_the_same_hour_of_the_day_before_may_be_23_hours_ago() -> None:
    day = Stream(CalendarPeriod("day", "Europe/Berlin"))
    hours = [(NOON - n * HOUR, n, 0, "a", INSERT, NOON - n * HOUR + HOUR) for n in (24, 23, 0)]
    assert [row[2] for row in day.run(*hours)] == [None, None, 23]
    day.step(*hours[:2], watermark=NOON - 22 * HOUR)
    assert day.state.rows == 2
    # Both are stored exactly until the hour that is compared with them is over.
    assert day.step(hours[2], watermark=NOON + HOUR - 1) == []
    assert day.state.rows == 2
    assert [row[2] for row in day.step(watermark=NOON + HOUR)] == [23]
    assert day.state.rows == 1


def test_of_many_windows_only_those_near_their_end_are_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queries: list[int] = []
    over = CalendarPeriod.over

    def count(period: CalendarPeriod, start: Any, end: Any) -> Any:
        queries.append(len(start))
        return over(period, start, end)

    monkeypatch.setattr(CalendarPeriod, "over", count)
    stream = Stream(CalendarPeriod("month", "Europe/Berlin"), stragglers="retract", lateness=HOUR)
    begin, now = NOON + 24 * HOUR, NOON + 624 * HOUR
    hours = [(at, 1, 0, "a", INSERT, at + HOUR) for at in range(begin, now, HOUR)]
    packed = CompareCore().pack(stream.spec, stream.table(hours))
    state = (
        CompareCore()
        .step(stream.spec, State.empty(CompareCore().layout(stream.spec)), [packed], now)
        .state
    )
    first = CompareCore().next_deadline(stream.spec, state)
    # The same hour on 1 May, and the one that is allowed.
    assert first == begin + (30 * 24 + 1 + 1) * HOUR
    assert 0 < sum(queries) < 150, "of 600 windows, only those of a few days may be queried"
    state = CompareCore().step(stream.spec, state, [packed.slice(0, 0)], first - 1).state
    assert (state.rows, CompareCore().next_deadline(stream.spec, state)) == (600, first)
    state = CompareCore().step(stream.spec, state, [packed.slice(0, 0)], first).state
    assert (state.rows, CompareCore().next_deadline(stream.spec, state)) == (599, first + HOUR)


def test_a_restart_reads_what_was_written() -> None:
    stream = Stream(stragglers="retract", revised="changes", lateness=100)
    stream.step((0, 4), (10, 6, 2), (20, 0, 0, "a", DELETE), watermark=15)
    known = CompareCore.STATE, stream.spec.identity, 3
    tables = decode(encode(*known, stream.state.tables), *known)
    assert {n: t.schema for n, t in tables.items()} == dict(CompareCore().layout(stream.spec))
    assert to_rows(tables["windows"]) == to_rows(stream.state.tables["windows"])
    assert [row["revision"] for row in to_rows(tables["windows"])] == [0, -1, -1]
