"""Values that a function assigns, yields and sets, and columns of any name."""

from __future__ import annotations

import copy
import datetime as dt
from collections import namedtuple
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from streamops import process
from streamops.errors import FunctionError, SpecError
from streamops.process.core.values import row_type
from streamops.testing import at, replay

TIMED: dict[str, Any] = {"by": "k", "time": "ts", "delay": "0 seconds"}
ROWS = [{"k": "a", "ts": at(number), "n": number} for number in range(1, 4)]


def yielded(operator: Any, script: Any) -> list[Any]:
    """The column `v` of all rows."""
    return [row["v"] for result in replay(operator, script, flush=True) for row in result.rows]


@pytest.mark.parametrize(
    ("declared", "value", "stored"),
    [
        ("float", 0.1, "0.10000000149011612"),
        ("decimal(10,3)", Decimal("0.1"), "Decimal('0.100')"),
        ("double", 2**40, "1099511627776.0"),
        ("array<int>", (1, 2), "[1, 2]"),
        ("array<double>", np.array([1.0, 2.0]), "[1.0, 2.0]"),
        ("array<bigint>", np.array([], np.int64), "[]"),
        ("map<string,array<boolean>>", {"a": np.array([True, False])}, "{'a': [True, False]}"),
        (
            "timestamp_ntz",
            np.datetime64("2026-01-01T00:00:00.000001000"),
            "datetime.datetime(2026, 1, 1, 0, 0, 0, 1)",
        ),
        ("struct<b:int,a:float>", {"a": 0.1, "b": 1}, "{'b': 1, 'a': 0.10000000149011612}"),
        ("double", -0.0, "-0.0"),
        *((declared, value, None) for declared, value in (
            ("int", Decimal("1.5")),
            ("int", True),
            ("string", b"abc"),
            ("binary", "abc"),
            ("timestamp", dt.datetime(2024, 1, 1)),  # noqa: DTZ001
            ("timestamp_ntz", np.datetime64("2026-01-01T00:00:00.000000001")),
            ("date", dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
            ("array<int>", {1, 2}),
            ("struct<a:int>", {}),
            ("map<string,array<int>>", {"a": [1.5]}),
        )),
    ],
)  # fmt: skip
def test_a_state_reads_as_it_is_stored_from_the_assignment_on(
    declared: str, value: Any, stored: str | None
) -> None:
    def assign(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for _ in rows:
            before, state.x = repr(state.x), value
            yield (f"{before} {state.x!r}",)

    operator = process.per_key(assign, state=f"x {declared}", output="v string", **TIMED)
    for script in ([ROWS], [[row] for row in ROWS]):
        if stored is None:
            with pytest.raises(FunctionError, match="VALUE_TYPE"):
                yielded(operator, script)
        else:
            expected = [f"None {stored}", f"{stored} {stored}", f"{stored} {stored}"]
            assert yielded(operator, script) == expected


def test_a_list_that_is_changed_in_place_is_stored_after_each_row() -> None:
    def grow(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for _ in rows:
            total = sum(state.values["x"])
            state.values["x"].append(0.1)
            yield total, state.values["x"]

    operator = process.per_key(
        grow,
        state="values map<string,array<float>>",
        initial={"values": {"x": []}},
        output="v double, xs array<double>",
        **TIMED,
    )
    tenth = 0.10000000149011612
    for script in ([ROWS], [[row] for row in ROWS]):
        results = replay(operator, script, flush=True)
        rows = [row for result in results for row in result.rows]
        assert [row["v"] for row in rows] == [0, tenth, 2 * tenth]
        # What was yielded does not change afterwards.
        assert [len(row["xs"]) for row in rows] == [1, 2, 3]


def test_a_list_at_two_places_of_the_state_becomes_two() -> None:
    def log(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for row in rows:
            state.current.append(row.n)
            if row.n == 1:
                state.history += [state.current, state.current]
            yield (state.history,)
            state.history[-1].append(0)

    operator = process.per_key(
        log,
        state="current array<int>, history array<array<int>>",
        initial={"current": [], "history": []},
        output="v array<array<int>>",
        **TIMED,
    )
    expected = [[[1], [1]], [[1], [1, 0]], [[1], [1, 0, 0]]]
    for script in ([ROWS], [[row] for row in ROWS]):
        assert yielded(operator, script)[1:] == expected[1:]


def test_a_field_that_is_never_null_has_an_initial_value() -> None:
    def count(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for _ in rows:
            state.n += 1
            yield (state.n,)

    given: dict[str, Any] = {"state": "n bigint NOT NULL", "output": "v bigint", **TIMED}
    with pytest.raises(SpecError, match="'n' is declared NOT NULL, and has no initial value"):
        process.per_key(count, **given)
    assert yielded(process.per_key(count, initial={"n": 0}, **given), [ROWS]) == [1, 2, 3]


def test_a_row_of_the_output_may_be_one_object_that_is_used_again() -> None:
    def reuse(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        row: dict[str, Any] = {}
        for read in rows:
            row["v"] = read.n
            yield row

    assert yielded(process.per_key(reuse, output="v bigint", **TIMED), [ROWS]) == [1, 2, 3]


def test_named_tuples_and_dataclasses_are_read_by_name() -> None:
    made = namedtuple("made", "b a")

    def emit(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for row in rows:
            yield made(a=row.n, b=-row.n)

    found = replay(process.per_key(emit, output="a bigint, b bigint", **TIMED), [ROWS], flush=True)
    assert [(row["a"], row["b"]) for result in found for row in result.rows] == [
        (1, -1),
        (2, -2),
        (3, -3),
    ]
    with pytest.raises(FunctionError, match="FUNCTION_RESULT"):
        yielded(process.per_key(emit, output="a bigint, v bigint", **TIMED), [ROWS])


NAMES = ["_1", "_2", "_0", "count", "index", "_fields", "_replace", "_make", "my col", "class", "A", "__len__"]  # fmt: skip


def test_a_column_is_read_under_its_own_name_whatever_it_is() -> None:
    def read(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for row in rows:
            by_name = [row[name] for name in NAMES]
            # Names with two underscores at both ends belong to Python.
            by_attribute = [getattr(row, name) for name in NAMES[:-1]]
            yield (f"{by_name == by_attribute + by_name[-1:]} {by_name} {len(row)}",)

    rows = [{"k": "a", "ts": at(1), **{name: f"value of {name}" for name in NAMES}}]
    for by in ("k", ["k", "_1", "count"]):
        operator = process.per_key(read, output="v string", **{**TIMED, "by": by})
        expected = f"True {[f'value of {name}' for name in NAMES]} {len(NAMES) + 2}"
        assert yielded(operator, [rows]) == [expected]


def test_a_row_has_the_protocol_of_named_tuples() -> None:
    made = row_type(("a", "my col"), "Event")
    row = made(1, "x")
    assert row == (1, "x") == made._make([1, "x"]) == made(a=1, **{"my col": "x"})
    assert row._replace(a=2) == (2, "x")
    assert row._asdict() == {"a": 1, "my col": "x"}
    assert (row._fields, row[0], row[-1], row[:1]) == (("a", "my col"), 1, "x", (1,))
    assert repr(row) == "Event(a=1, my col='x')"
    assert type(copy.copy(row)) is type(copy.deepcopy(row)) is made
    assert copy.deepcopy(row) == row
    with pytest.raises(TypeError):
        made(1)
    with pytest.raises(ValueError, match="b"):
        row._replace(b=1)
    with pytest.raises(KeyError):
        row["b"]


@pytest.mark.parametrize("name", ["from", "None", "__x", "my field", "ﬁne"])
def test_a_field_of_the_state_is_a_name_of_an_attribute(name: str) -> None:
    def nothing(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        yield from ()

    with pytest.raises(SpecError, match="INVALID_PARAMETER"):
        process.per_key(nothing, state={name: "string"}, output="v int", **TIMED)


def test_types_without_values_in_python_are_refused_while_the_plan_is_built() -> None:
    def nothing(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        yield from ()

    for declared in ("map<array<int>,int>", "array<map<struct<a:int>,int>>"):
        for parameter in ("state", "output"):
            given = {"output": "v int", parameter: f"x {declared}"}
            with pytest.raises(SpecError, match="INVALID_SCHEMA"):
                process.per_key(nothing, **given, **TIMED)


@pytest.mark.parametrize("fails", [False, True])
def test_a_timer_that_failed_does_not_bound_the_next_one(fails: bool) -> None:
    def plan(key: Any, rows: Iterator[Any], state: Any, timers: Any) -> Iterator[Any]:
        for row in rows:
            if row.n < 3:
                timers.set(at(6 - row.n))
            yield (f"row {row.n}",)

    def fire(key: Any, time: Any, state: Any, timers: Any) -> Iterator[Any]:
        if fails and time == at(5):
            raise ValueError
        yield (f"timer {time.second}",)

    operator = process.per_key(plan, on_timer=fire, output="v string", errors="route", **TIMED)
    rows = [{"k": "a", "ts": at(second), "n": n} for n, second in ((1, 1), (2, 8), (3, 20))]
    expected = ["row 1", "timer 5", "row 2", "timer 4", "row 3"]
    for script in ([rows], [[row] for row in rows]):
        assert yielded(operator, script) == [v for v in expected if not fails or v != "timer 5"]


def test_rows_that_are_read_again_are_as_they_were() -> None:
    """A function that fails is called once more, row by row."""

    def fail(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for row in rows:
            row.tags.append("read")
            if row.n == 2:
                raise ValueError
            yield (len(row.tags),)

    operator = process.per_key(fail, output="v int", errors="route", **TIMED)
    assert yielded(operator, [[{**row, "tags": ["x"]} for row in ROWS]]) == [2, 2]


def test_output_before_the_first_row_has_no_event_time() -> None:
    def early(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        yield (0,)
        for row in rows:
            yield (row.n,)

    with pytest.raises(FunctionError, match="before it had read a row") as caught:
        yielded(process.per_key(early, output="v bigint", **TIMED), [ROWS])
    assert caught.value.code == "FUNCTION_RESULT"
    assert yielded(process.per_key(early, by="k", output="v bigint"), [ROWS]) == [0, 1, 2, 3]


class Counting(dict[str, int]):
    """A mapping whose code raises KeyError."""

    def items(self) -> Any:
        raise KeyError("of the value")


def test_an_error_of_a_value_is_not_one_of_the_state() -> None:
    """The value is assigned to a field that there is."""

    def assign(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        state.m = Counting(a=1)
        yield from ()

    operator = process.per_key(
        assign, state="m map<string,int>", initial={"m": {}}, output="n int", **TIMED
    )
    with pytest.raises(FunctionError) as failed:
        replay(operator, [[{"k": "a", "ts": at(0)}]], flush=True)
    assert "raised KeyError" in str(failed.value)
