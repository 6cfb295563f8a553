"""Functions per key: rows, state, timers, exceptions, and what is refused."""

from __future__ import annotations

import datetime as dt
import functools
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from streamops import aggregates as agg
from streamops import process, windows
from streamops.errors import CapacityError, FunctionError, SchemaError, SpecError, StateFormatError
from streamops.kernel.adapting import may_change
from streamops.kernel.codec import changed_parameters
from streamops.kernel.core import State
from streamops.kernel.errors import located
from streamops.process.core.per_key import PerKeyCore
from streamops.testing import Replay, at, replay
from tests.process.functions import bursts, quotients, sums, window_totals

SECOND = dt.timedelta(seconds=1)
TS = pa.timestamp("us", tz="UTC")
TIMED: dict[str, Any] = {"time": "ts", "delay": "10 seconds"}


def named(value: object) -> str:
    """The representation of a parameter without addresses, which differ between processes."""
    return re.sub(" at 0x[0-9a-f]+", "", repr(value))


def event(k: str | None, second: float, v: int | None = 1, **more: Any) -> dict[str, Any]:
    return {"k": k, "ts": at(second), "v": v, **more}


def emitted(
    operator: Any, batches: Any, *names: str, **options: Any
) -> list[list[tuple[Any, ...]]]:
    """The rows of each result, in order of time."""
    results = replay(operator, batches, **options)
    return [
        [tuple(row[name] for name in names) for row in sorted(result.rows, key=order)]
        for result in results
    ]


def order(row: dict[str, Any]) -> Any:
    return row.get("ts", 0), str(row.get("k"))


def spec_of(operator: Any, schema: pa.Schema | None = None) -> Any:
    known = schema or pa.schema([("k", pa.string()), ("ts", TS), ("v", pa.int64())])
    return operator.parameters.resolve((known,), carried=(None,), shards=1)


# -- rows


def test_rows_are_processed_in_event_time_order_once_the_watermark_has_reached_them() -> None:
    script = [[event("a", 5, 1), event("a", 2, 10)], [event("a", 3, 100), event("a", 14)], []]
    found = emitted(sums(**TIMED), script, "ts", "n", "total")
    # The watermark is 4 seconds in the last result: rows at 2 and 3, not at 5 and 14.
    assert found == [[], [], [(at(2), 1, 10), (at(3), 2, 110)]]


def test_a_row_exactly_at_the_watermark_is_processed_and_one_microsecond_later_waits() -> None:
    rows = [event("a", 10), event("b", 10), event("c", 20)]
    rows[1]["ts"] = at(10, 1)
    assert emitted(sums(**TIMED), [rows], "k") == [[], [("a",)]]


def test_rows_are_processed_as_they_arrive_without_an_event_time() -> None:
    found = emitted(sums(), [[event("a", 5, 1), event("a", 2, 10)], [event("a", 1, 100)]], "total")
    assert found == [[(1,), (11,)], [(111,)]]


def test_a_null_key_is_a_key_and_so_are_no_columns() -> None:
    rows = [[event(None, 1, 1), event("a", 2, 2), event(None, 3, 4)]]
    assert emitted(sums(), rows, "k", "total") == [[(None, 1), (None, 5), ("a", 2)]]
    assert emitted(sums(by=[]), rows, "total") == [[(1,), (3,), (7,)]]


def test_equal_times_are_ordered_by_order_by_and_then_by_all_other_columns() -> None:
    def first(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for row in rows:
            state.text = (state.text or "") + row.v
            yield (state.text,)

    rows = [
        {"k": "a", "ts": at(0), "v": v, "seq": seq}
        for v, seq in (("c", 2), ("d", 1), ("a", 2), ("b", 2))
    ]
    made = {"by": "k", "state": "text string", "output": "text string", **TIMED}
    for script in (rows, rows[::-1]):
        for order_by, expected in (("seq", "dabc"), ((), "dabc"), ("v", "abcd")):
            operator = process.per_key(first, order_by=order_by, **made)
            *_, last = emitted(operator, [script], "text", flush=True)
            assert last[-1] == (expected,)


def test_rows_are_named_tuples_with_instants_in_utc_and_dicts_for_maps() -> None:
    seen: list[Any] = []

    def look(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for row in rows:
            seen.append((key, row))
            yield (1,)

    table = pa.table(
        {
            "k": ["a"],
            "_id": [7],
            "my col": [1.5],
            "ts": pa.array([at(1)], TS),
            "tags": pa.array([{"x": 1}], pa.map_(pa.string(), pa.int64())),
            "none": pa.array([None], TS),
        }
    )
    replay(process.per_key(look, by="k", output="n int"), [table])
    ((key, row),) = seen
    assert key == ("a",)
    assert key.k == "a"
    assert (row._id, getattr(row, "my col"), row.ts, row.tags, row.none) == (
        7,
        1.5,
        at(1),
        {"x": 1},
        None,
    )
    assert row.ts.utcoffset() == dt.timedelta(0)


def test_late_rows_are_counted_or_routed() -> None:
    script = [[event("a", 30)], [], [event("a", 20), event("a", 21)], [event("a", 60)]]
    for stragglers, late in (("drop", []), ("route", [("a", at(20), "too_late", 20)])):
        results = replay(sums(stragglers=stragglers, **TIMED), script)
        rows = [
            (row["k"], row["ts"], row["reason"], row["watermark"] - at(0))
            for result in results
            for row in result.late_rows
        ]
        assert rows == [(*row[:3], row[3] * SECOND) for row in late]
        assert [result.counts.too_late for result in results if result.counts] == [0, 0, 1, 0, 0]


def test_rows_without_a_usable_time_are_rejected() -> None:
    times = pa.array([None, 1 << 61, 0], pa.int64()).cast(TS)
    other = pa.array([0, 0, -(1 << 61)], pa.int64()).cast(TS)
    table = pa.table({"k": ["a", "a", "a"], "ts": times, "v": [1, 2, 3], "other": other})
    (result, *_) = replay(sums(stragglers="route", **TIMED), [table])
    reasons = ["null_time", "time_out_of_range", "timestamp_out_of_range"]
    assert result.late.column("reason").to_pylist() == reasons
    assert result.counts is not None
    assert (result.counts.rows, result.counts.rejected) == (3, 3)


def test_a_date_that_python_does_not_have_is_an_error_that_names_the_column() -> None:
    table = pa.table(
        {"k": ["a"], "v": [1], "day": pa.array([1 << 30], pa.int32()).cast(pa.date32())}
    )
    with pytest.raises(FunctionError, match="'day'") as caught:
        replay(sums(), [table])
    assert caught.value.code == "VALUE_TYPE"


# -- state


def test_a_state_that_equals_the_initial_one_is_not_stored() -> None:
    def toggle(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for _ in rows:
            state.is_on = not state.is_on
            yield (state.is_on,)

    operator = process.per_key(
        toggle, by="k", state="is_on boolean", initial={"is_on": False}, output="is_on boolean"
    )
    results = replay(operator, [[event("a", 1), event("b", 1)], [event("a", 2)], [event("a", 3)]])
    assert [result.state_rows for result in results] == [2, 1, 2]


def test_keys_do_not_share_an_initial_list() -> None:
    script = [[event("a", 1, 5), event("b", 2, 10)], [event("c", 300, 1)]]
    (_, _, last) = emitted(bursts(), script, "k", "burst")
    assert [row for row in last if row[1]] == [("a", [5]), ("b", [10])]


def test_a_field_that_is_not_declared_cannot_be_assigned() -> None:
    def misspell(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for _ in rows:
            state.cuont = 1
            yield (1,)

    operator = process.per_key(misspell, by="k", state="count int", output="n int")
    with pytest.raises(FunctionError, match="AttributeError"):
        replay(operator, [[event("a", 1)]])


def grown(state: str, **more: Any) -> Any:
    return spec_of(sums(state=state, **more))


def test_a_field_that_may_be_null_can_be_added_to_a_stored_state() -> None:
    spec = spec_of(sums())
    rows = pa.table({"k": ["a"], "ts": pa.array([at(1)], TS), "v": [5]})
    before = PerKeyCore().step(spec, State.empty(PerKeyCore().layout(spec)), [rows], None).state

    def add_name(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for _ in rows:
            state.total += 1
            yield state.n, len(state.name or "")
            state.name = "abc"

    wider = spec_of(
        process.per_key(
            add_name,
            by="k",
            state="n bigint, name string, total bigint",
            output="n bigint, size bigint",
            initial=dict(spec.initial),
        )
    )
    changed = changed_parameters(spec.identity, wider.identity)
    assert may_change("process.per_key", changed, spec.identity, wider.identity) == changed
    step = PerKeyCore().step(wider, before, [rows], None)
    assert step.output.to_pylist() == [{"k": "a", "n": 1, "size": 0}]
    assert step.state.tables["keys"].to_pylist() == [
        {"key.0": "a", "state.n": 1, "state.name": "abc", "state.total": 6}
    ]
    refused = {
        "n bigint": "'total'",
        "n bigint, total string": "'total'",
        "n bigint, total bigint, more int NOT NULL": "'more'",
    }
    for state, name in refused.items():
        with pytest.raises(StateFormatError, match=name) as caught:
            PerKeyCore().step(
                grown(state, initial={"more": 0} if "more" in state else {}), before, [rows], None
            )
        assert caught.value.code == "STATE_PARAMETERS"


def test_timers_of_a_stored_state_need_the_function() -> None:
    spec = spec_of(bursts())
    rows = pa.table({"k": ["a"], "ts": pa.array([at(1)], TS), "v": [1]})
    start = State.empty(PerKeyCore().layout(spec))
    mark = int(at(2).timestamp()) * 1_000_000
    state = PerKeyCore().step(spec, start, [PerKeyCore().pack(spec, rows)], mark).state
    without = spec_of(sums(state="n int, values array<bigint>", initial={}, **TIMED))
    with pytest.raises(StateFormatError, match="on_timer"), located("process.per_key"):
        PerKeyCore().step(without, state, [PerKeyCore().pack(without, rows.slice(1))], mark)


def test_a_column_of_the_frame_may_be_added_while_rows_wait() -> None:
    narrow = spec_of(sums(**TIMED))
    rows = pa.table({"k": ["a"], "ts": pa.array([at(1)], TS), "v": [5]})
    start = State.empty(PerKeyCore().layout(narrow))
    state = PerKeyCore().step(narrow, start, [PerKeyCore().pack(narrow, rows)], None).state
    schema = pa.schema([*rows.schema, ("new", pa.string())])
    wide = spec_of(sums(**TIMED), schema)
    assert PerKeyCore().finish(wide, state).to_pylist() == [
        {"k": "a", "ts": at(1), "n": 1, "total": 5}
    ]


def test_more_keys_than_max_keys_fail() -> None:
    operator = sums(max_keys=2).options(shards=1)
    with pytest.raises(CapacityError, match="STATE_FULL"):
        replay(operator, [[event("a", 1), event("b", 1)], [event("c", 1)]])


# -- timers


def script_of(function: Any, on_timer: Any, rows: list[dict[str, Any]], **options: Any) -> Any:
    operator = process.per_key(
        function,
        on_timer=on_timer,
        by="k",
        state="log string",
        initial={"log": ""},
        output="what string",
        time="ts",
        delay="0 seconds",
    )
    found = emitted(operator, [rows], "ts", "what", flush=True, **options)
    return [row for batch in found for row in batch]


def ring(key: Any, time: dt.datetime, state: Any, timers: process.Timers) -> Iterator[Any]:
    yield (f"timer {(time - at(0)).total_seconds():g}",)


def test_a_timer_fires_after_the_rows_at_its_instant_and_before_later_ones() -> None:
    def set_timer(key: Any, rows: Iterator[Any], state: Any, timers: Any) -> Iterator[Any]:
        for row in rows:
            if row.v:
                timers.set(row.ts + 10 * SECOND)
            yield (f"row {row.v}",)

    rows = [event("a", 0, 1), event("a", 10, 0), event("a", 11, 0)]
    rows[2]["ts"] = at(10, 1)
    expected = [(at(0), "row 1"), (at(10), "row 0"), (at(10), "timer 10"), (at(10, 1), "row 0")]
    assert script_of(set_timer, ring, rows) == expected
    assert script_of(set_timer, ring, [*rows, event("a", 99, 0)])[:4] == expected


def test_a_timer_in_the_past_fires_before_the_next_row_with_the_time_of_the_last() -> None:
    def set_timer(key: Any, rows: Iterator[Any], state: Any, timers: Any) -> Iterator[Any]:
        for row in rows:
            yield (f"row {row.v}",)
            timers.set(at(-5))

    rows = [event("a", 0, 1), event("a", 0, 2)]
    assert script_of(set_timer, ring, rows) == [
        (at(0), "row 1"),
        (at(0), "timer -5"),
        (at(0), "row 2"),
        (at(0), "timer -5"),
    ]


def test_timers_are_a_set_and_can_be_cancelled() -> None:
    def plan(key: Any, rows: Iterator[Any], state: Any, timers: Any) -> Iterator[Any]:
        for _ in rows:
            for second in (30, 20, 30, 10):
                timers.set(at(second))
            timers.cancel(at(20))
            timers.cancel(at(25))
            yield (str([(time - at(0)).seconds for time in timers.pending]),)

    rows = [event("a", 0)]
    assert [what for _, what in script_of(plan, ring, rows)] == [
        "[10, 30]",
        "timer 10",
        "timer 30",
    ]


def test_timers_before_1970_fire_in_order() -> None:
    def plan(key: Any, rows: Iterator[Any], state: Any, timers: Any) -> Iterator[Any]:
        for row in rows:
            timers.set(row.ts + SECOND)
            yield ("row",)

    old = dt.datetime(1950, 1, 1, tzinfo=dt.UTC)
    rows = [{"k": "a", "ts": old, "v": 1}]
    assert [time for time, _ in script_of(plan, ring, rows)] == [old, old + SECOND]


def test_timers_without_end_and_timers_that_are_not_later_are_errors() -> None:
    def plan(key: Any, rows: Iterator[Any], state: Any, timers: Any) -> Iterator[Any]:
        for row in rows:
            timers.set(row.ts)
            yield ("row",)

    def again(after: dt.timedelta) -> Any:
        def fire(key: Any, time: Any, state: Any, timers: Any) -> Iterator[Any]:
            timers.set(time + after)
            return
            yield

        return fire

    for after, what in ((SECOND, "without end"), (0 * SECOND, "not later")):
        with pytest.raises(FunctionError, match=what) as caught:
            script_of(plan, again(after), [event("a", 0)])
        assert caught.value.code == "FUNCTION_RESULT"


@pytest.mark.parametrize("time", [dt.datetime(2024, 1, 1), 5, None])  # noqa: DTZ001
def test_a_timer_needs_an_instant(time: Any) -> None:
    def plan(key: Any, rows: Iterator[Any], state: Any, timers: Any) -> Iterator[Any]:
        for _ in rows:
            timers.set(time)
            yield ("row",)

    with pytest.raises(FunctionError, match="not an instant") as caught:
        script_of(plan, ring, [event("a", 0)])
    assert caught.value.code == "FUNCTION_RESULT"


def test_a_timer_fires_on_a_shard_without_rows_and_after_a_restart() -> None:
    script = [[event("a", 0, 5)], [event("b", 30, 1)], []]
    found = emitted(bursts(), script, "k", "event", restart=True, shards=5)
    assert found == [[], [], [("a", "five"), ("a", "idle")]]


# -- exceptions


def test_an_exception_fails_the_query_with_the_hash_of_the_key_and_no_value() -> None:
    secret = "alice@example.org"

    def leak(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for _ in rows:
            raise KeyError(secret)
            yield

    operator = process.per_key(leak, by="k", output="n int")
    with pytest.raises(FunctionError) as caught:
        replay(operator, [[event(secret, 1)]])
    text = str(caught.value)
    assert secret not in text
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert "KeyError at " in text
    assert "in leak" in text
    assert "hash " in text


def test_a_failing_row_has_no_effect_and_is_routed_with_its_message() -> None:
    rows = [event("a", n, v) for n, v in enumerate((2, 0, 3))] + [event("b", 1, 6)]
    *_, last = replay(quotients(**TIMED), [rows], flush=True)
    assert sorted((r["k"], r["n"], r["quotient"]) for r in last.rows) == [
        ("a", 1, 30),
        ("a", 2, 20),
        ("b", 1, 10),
    ]
    (result, *_) = replay(quotients(), [rows])
    assert [(r["reason"], r["row"]["v"]) for r in result.late_rows] == [
        ("ZeroDivisionError: integer division or modulo by zero", 0)
    ]
    assert result.counts is not None
    assert (result.counts.results, result.counts.failed) == (3, 1)


def test_failing_rows_are_the_same_for_every_division_into_micro_batches() -> None:
    rows = [event("a", n, v) for n, v in enumerate((1, 0, 2, 0, 0, 3, 6, 0))]
    found = []
    for size in (1, 2, 3, 8):
        script = [rows[at_ : at_ + size] for at_ in range(0, 8, size)]
        results = replay(quotients(time="ts", delay="0 seconds"), [*script, [event("z", 99)]])
        late = [row["row"]["v"] for r in results for row in r.late_rows]
        found.append((sorted(r["n"] for x in results for r in x.rows if r["k"] == "a"), late))
    assert found == 4 * [([1, 2, 3, 4], [0, 0, 0, 0])]


def test_a_failing_timer_is_routed_without_a_row_and_does_not_fire_again() -> None:
    def plan(key: Any, rows: Iterator[Any], state: Any, timers: Any) -> Iterator[Any]:
        for row in rows:
            timers.set(row.ts + SECOND)
            yield ("row",)

    def fail(key: Any, time: Any, state: Any, timers: Any) -> Iterator[Any]:
        yield ("lost",)
        raise ValueError("no")

    operator = process.per_key(
        plan,
        on_timer=fail,
        by="k",
        output="what string",
        errors="route",
        time="ts",
        delay="0 seconds",
    )
    results = replay(operator, [[event("a", 1)], [event("b", 50)], []])
    late = [row for result in results for row in result.late_rows]
    assert [(row["k"], row["ts"], row["reason"], row["row"]) for row in late] == [
        ("a", at(2), "ValueError: no", None)
    ]
    assert [row["what"] for result in results for row in result.rows] == ["row", "row"]


def one_column(value: Any, output: str = "n int") -> Any:
    def make(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for _ in rows:
            yield value

    return process.per_key(make, by="k", output=output)


@pytest.mark.parametrize(
    ("value", "output", "code"),
    [
        (1, "n int", "FUNCTION_RESULT"),
        ("x", "n int", "FUNCTION_RESULT"),
        (None, "n int", "FUNCTION_RESULT"),
        ((1, 2), "n int", "FUNCTION_RESULT"),
        ({"m": 1}, "n int", "FUNCTION_RESULT"),
        (("x",), "n int", "VALUE_TYPE"),
        ((1 << 40,), "n int", "VALUE_TYPE"),
        ((1.5,), "n int", "VALUE_TYPE"),
        ((None,), "n int NOT NULL", "FUNCTION_RESULT"),
    ],
)
def test_rows_that_are_not_rows_of_the_output_are_errors(
    value: Any, output: str, code: str
) -> None:
    with pytest.raises(FunctionError) as caught:
        replay(one_column(value, output), [[event("a", 1)]])
    assert caught.value.code == code
    assert caught.value.where == "process.per_key"
    assert caught.value.__cause__ is None


def test_a_dict_may_leave_out_columns_and_rows_may_be_of_both_types() -> None:
    def make(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for _ in rows:
            yield {"b": 2}
            yield (1, 3)
            yield [4, 5]

    operator = process.per_key(make, by="k", output="a int, b int")
    assert emitted(operator, [[event("x", 1)]], "a", "b") == [[(None, 2), (1, 3), (4, 5)]]


def test_a_function_that_does_not_read_all_rows_is_an_error() -> None:
    def stop(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for _ in rows:
            yield (1,)
            return

    operator = process.per_key(stop, by="k", output="n int")
    replay(operator, [[event("a", 1)]])
    with pytest.raises(FunctionError, match="FUNCTION_RESULT"):
        replay(operator, [[event("a", 1), event("a", 2)]])


# -- chains


def test_it_follows_a_window_and_precedes_one() -> None:
    count = {"n": agg.count()}
    chain = [
        windows.tumbling("10 seconds", by="k", agg=count, **TIMED),
        window_totals(),
        windows.tumbling("20 seconds", time="window_end", by="k", agg={"most": agg.max("total")}),
    ]
    rows = [event("a", second) for second in range(0, 60, 2)]
    results = replay(chain, [rows[:10], rows[10:20], rows[20:], [event("a", 300)]])
    found = [(row["window_end"], row["most"]) for result in results for row in result.rows]
    assert sorted(found) == [(at(20), 5), (at(40), 15), (at(60), 25), (at(80), 30)]


def test_revised_results_are_refused() -> None:
    revising = windows.tumbling(
        "10 seconds",
        by="k",
        agg={"n": agg.count()},
        stragglers="update",
        allowed_lateness="1 minute",
        **TIMED,
    )
    query = Replay(revising, pa.schema([("k", pa.string()), ("ts", TS), ("v", pa.int64())]))
    assert query is not None
    assert not window_totals().spec.inputs[0].accepts_revisions


# -- refused while the plan is built


def no_yield(key: Any, rows: Iterator[Any], state: Any) -> list[Any]:
    return [(1,) for _ in rows]


def two(key: Any, rows: Iterator[Any]) -> Iterator[Any]:
    yield (1,)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"function": None}, "PARAMETER_TYPE"),
        ({"function": no_yield}, "PARAMETER_TYPE"),
        ({"function": two}, "PARAMETER_TYPE"),
        ({"on_timer": ring}, "PARAMETER_MISSING"),
        ({"on_timer": ring, **TIMED}, "PARAMETER_TYPE"),
        ({"delay": "1 second"}, "PARAMETER_MISSING"),
        ({"order_by": "v"}, "PARAMETER_MISSING"),
        ({"stragglers": "route"}, "PARAMETER_MISSING"),
        ({"stragglers": "update", **TIMED}, "UNKNOWN_CHOICE"),
        ({"errors": "ignore"}, "UNKNOWN_CHOICE"),
        ({"state": "n blob"}, "INVALID_SCHEMA"),
        ({"state": 5}, "INVALID_SCHEMA"),
        ({"state": "`my field` int"}, "INVALID_PARAMETER"),
        ({"initial": {"m": 0}}, "INVALID_PARAMETER"),
        ({"initial": {"n": "zero"}}, "INVALID_PARAMETER"),
        ({"initial": [0]}, "INVALID_PARAMETER"),
        ({"output": ""}, "PARAMETER_MISSING"),
        ({"output": "k int"}, "NAME_TAKEN"),
        ({"output": "ts int", **TIMED}, "NAME_TAKEN"),
        ({"output": "late int"}, "NAME_TAKEN"),
        ({"output": "revision int"}, "NAME_TAKEN"),
        ({"max_keys": 0}, "PARAMETER_OUT_OF_RANGE"),
        ({"time": 5}, "PARAMETER_TYPE"),
        ({"by": 5}, "PARAMETER_TYPE"),
        ({"delay": "1 month", "time": "ts"}, "INVALID_DURATION"),
    ],
    ids=named,
)
def test_contradictions_are_refused(changed: dict[str, Any], code: str) -> None:
    def count(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for _ in rows:
            yield (1,)

    given = {"function": count, "by": "k", "state": "n int", "output": "m int", **changed}
    with pytest.raises(SpecError) as caught:
        process.per_key(given.pop("function"), **given)
    assert caught.value.code == code
    assert caught.value.where == "process.per_key"


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"by": "K"}, "COLUMN_NOT_FOUND"),
        ({"time": "v", "delay": "0 seconds"}, "COLUMN_TYPE"),
        ({"order_by": "w", **TIMED}, "COLUMN_NOT_FOUND"),
        ({"by": "m"}, "TYPE_UNSUPPORTED"),
    ],
    ids=repr,
)
def test_columns_are_checked(changed: dict[str, Any], code: str) -> None:
    tags = pa.map_(pa.string(), pa.string())
    schema = pa.schema([("k", pa.string()), ("ts", TS), ("v", pa.int64()), ("m", tags)])
    with pytest.raises(SchemaError) as caught:
        spec_of(sums(**changed), schema)
    assert caught.value.code == code


class Counter:
    """A function with parameters of its own."""

    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for _ in rows:
            yield (self.by,)

    def method(self, key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        yield from self(key, rows, state)


def scaled(key: Any, rows: Iterator[Any], state: Any, *, by: int) -> Iterator[Any]:
    for _ in rows:
        yield (by,)


@pytest.mark.parametrize(
    "function", [Counter(3), Counter(3).method, functools.partial(scaled, by=3)], ids=named
)
def test_objects_methods_and_partial_functions_are_functions(function: Any) -> None:
    operator = process.per_key(function, by="k", output="n int")
    assert emitted(operator, [[event("a", 1)]], "n") == [[(3,)]]


def test_the_columns_may_be_spark_types_arrow_types_or_text() -> None:
    wanted = [("n", pa.int32()), ("s", pa.string())]
    for output in (
        "n int, s string",
        {"n": "int", "s": "string"},
        pa.schema(wanted),
        StructType([StructField("n", IntegerType()), StructField("s", StringType())]),
    ):
        spec = process.per_key(scaled_to_nothing, by="k", output=output).parameters
        assert [(field.name, field.type) for field in spec.result] == wanted


def scaled_to_nothing(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
    for _ in rows:
        yield 1, "x"


def test_the_representation_names_the_function() -> None:
    assert repr(sums()) == (
        "process.per_key(function=add_up, by=('k',), output='n bigint, total bigint', "
        "state='n bigint, total bigint', initial={'n': 0, 'total': 0})"
    )
