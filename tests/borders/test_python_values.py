"""Values between Python and the library: each is taken exactly or refused, for every division of the rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row

from streamops import process, sourcing
from streamops.erasure import KeyTable
from streamops.errors import SpecError, StreamopsError
from streamops.kernel.versions import pylist
from streamops.testing import at, replay
from tests.borders import cases
from tests.borders.python_values import (
    LEAVES,
    VALUES,
    Level,
    Type,
    WrongError,
    arrow,
    ddl,
    random_type,
    random_value,
    stored,
)
from tests.sourcing.folding import fold_table

TIMED: dict[str, Any] = {"time": "ts", "delay": "0 seconds", "by": "k"}
REFUSED = "refused"
DIVISIONS = [(3,), (1, 1, 1), (2, 1), (1, 2)]


def divided(rows: list[Any], sizes: tuple[int, ...]) -> list[list[Any]]:
    ends = [sum(sizes[:count]) for count in range(len(sizes) + 1)]
    return [rows[start:end] for start, end in pairwise(ends)]


def unless_refused(call: Callable[[], Any], *codes: str) -> Any:
    """The result; that the value was refused, if the error has one of these codes."""
    try:
        return call()
    except StreamopsError as error:
        if error.code not in codes or error.__cause__ is not None:
            raise
        return REFUSED


def rows_of(operator: Any, sizes: tuple[int, ...], rows: Any = None, **options: Any) -> Any:
    """The rows of the output in order, or that a value was refused, and why a division is unfit."""
    script = rows or [
        {"k": "a", "ts": at(number), "n": number, "id": str(number)} for number in range(3)
    ]
    codes = "VALUE_TYPE", "FUNCTION_RESULT", "INVALID_ROWS", "BATCH_TYPE"
    cut = divided(script, sizes)
    results = unless_refused(lambda: replay(operator, cut, flush=True, shards=1, **options), *codes)
    if results == REFUSED:
        return REFUSED
    return [row for result in results for row in result.rows]


def expectation(of: Type, values: list[Any], *, nullable: bool = True) -> Any:
    try:
        found = [stored(of, value) for value in values]
    except WrongError:
        return REFUSED
    return REFUSED if not nullable and None in found else found


def check_state(of: Type, values: list[Any], sizes: tuple[int, ...], rng: random.Random) -> None:
    required = rng.random() < 0.2
    first = random_value(rng, of, 0.0) if required else None

    def assign(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for row in rows:
            before = repr(state.x)
            state.x = values[row.n]
            yield before, repr(state.x)

    expected = expectation(of, values, nullable=not required)
    initial = expectation(of, [first])
    if required and initial in (REFUSED, [None]):
        return
    operator = process.per_key(
        assign,
        state=f"x {ddl(of)}{' NOT NULL' if required else ''}",
        initial={"x": first},
        output="before string, after string",
        **TIMED,
    )
    found = rows_of(operator, sizes)
    if expected != REFUSED:
        read = [repr(value) for value in [*initial, *expected]]
        found = [text for row in found for text in (row["before"], row["after"])]
        expected = [text for at_ in range(3) for text in (read[at_], read[at_ + 1])]
    assert found == expected


def check_changed_lists(of: Type, values: list[Any], sizes: tuple[int, ...], _: Any) -> None:
    """A list of the state that grows, and that a function also yields."""

    def grow(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for row in rows:
            before = repr(state.xs)
            state.xs.append(values[row.n])
            yield before, state.xs

    declared = f"array<{ddl(of)}>"
    operator = process.per_key(
        grow,
        state=f"xs {declared}",
        initial={"xs": []},
        output=f"before string, xs {declared}",
        **TIMED,
    )
    expected, found = expectation(of, values), rows_of(operator, sizes)
    if expected != REFUSED:
        assert [row["before"] for row in found] == [repr(expected[:size]) for size in range(3)]
        assert [len(row["xs"]) for row in found] == [1, 2, 3]
    else:
        assert found == REFUSED


def check_output(of: Type, values: list[Any], sizes: tuple[int, ...], rng: random.Random) -> None:
    required, form = (
        rng.random() < 0.2,
        rng.choice([tuple, list, lambda row: {"x": row[0]}, Row("x")]),
    )

    def emit(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for row in rows:
            yield form((values[row.n],)) if not isinstance(form, Row) else form(values[row.n])

    output = f"x {ddl(of)}{' NOT NULL' if required else ''}"
    found = rows_of(process.per_key(emit, output=output, **TIMED), sizes)
    compare_columns(of, found, expectation(of, values, nullable=not required))


def compare_columns(of: Type, found: Any, expected: Any) -> None:
    if REFUSED in (found, expected):
        assert found == expected
        return
    read = pylist(pa.array(expected, arrow(of)))
    assert [repr(row["x"]) for row in found] == list(map(repr, read))


def check_events(of: Type, values: list[Any], sizes: tuple[int, ...], _: Any) -> None:
    seen: list[str] = []

    def decide(state: Any, command: Any) -> Any:
        seen.append(repr(state.x))
        return [(values[command.n],)]

    def evolve(state: Any, event: Any) -> Any:
        seen.append(repr(event.x))
        return state._replace(x=values[len(seen) // 2 - 1])

    operator = sourcing.decide(
        decide, evolve, command_id="id", state=f"x {ddl(of)}", event=f"x {ddl(of)}", **TIMED
    )
    expected, found = expectation(of, values), rows_of(operator, sizes)
    compare_columns(of, found, expected)
    if expected != REFUSED:
        read = list(map(repr, [None, *expected]))
        assert seen == [text for at_ in range(3) for text in (read[at_], read[at_ + 1])]


def check_fold(of: Type, values: list[Any], sizes: tuple[int, ...], _: Any) -> None:
    seen: list[str] = []

    def evolve(state: Any, event: Any) -> Any:
        seen.append(repr(state.x))
        return state._replace(x=values[event.version - 1])

    operator = sourcing.fold(evolve, by="k", state=f"x {ddl(of)}")
    log = pa.table({"k": ["a"] * 3, "version": [2, 1, 3]})
    expected = expectation(of, values)
    found = unless_refused(lambda: fold_table(operator, log), "VALUE_TYPE")
    if REFUSED in (found, expected):
        assert found == expected
        return
    assert seen == list(map(repr, [None, *expected[:2]]))
    compare_columns(of, pylist(found), expected[2:])


def check_timer(of: Type, values: list[Any], sizes: tuple[int, ...], rng: random.Random) -> None:
    value = rng.choice([rng.choice(VALUES), random_value(rng, ("timestamp",), 0.0)])

    def plan(key: Any, rows: Iterator[Any], state: Any, timers: Any) -> Iterator[Any]:
        for _ in rows:
            timers.set(value)
            pending = repr(timers.pending)
            timers.cancel(value)
            yield (pending,)

    def fire(key: Any, time: Any, state: Any, timers: Any) -> Iterator[Any]:
        yield ("fired",)

    found = rows_of(process.per_key(plan, on_timer=fire, output="x string", **TIMED), sizes)
    expected = expectation(("timestamp",), [value], nullable=False)
    assert (
        found == REFUSED if expected == REFUSED else {row["x"] for row in found} == {repr(expected)}
    )


def check_script(of: Type, values: list[Any], sizes: tuple[int, ...], _: Any) -> None:
    """Rows of the test kit, with a schema."""

    def look(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for row in rows:
            yield (repr(row.x),)

    schema = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("x", arrow(of))])
    rows = [{"k": "a", "ts": at(number), "x": value} for number, value in enumerate(values)]
    expected = expectation(of, values)
    operator = process.per_key(look, output="x string", **TIMED)
    found = rows_of(operator, sizes, rows, schema=schema)
    assert (found if found == REFUSED else [row["x"] for row in found]) == (
        REFUSED if expected == REFUSED else list(map(repr, expected))
    )


Check = Callable[[Type, list[Any], tuple[int, ...], random.Random], None]
CHECKS: dict[str, Check] = {
    "state": check_state,
    "changed lists": check_changed_lists,
    "output": check_output,
    "events": check_events,
    "fold": check_fold,
    "timer": check_timer,
    "script": check_script,
}


@pytest.mark.parametrize("role", CHECKS)
def test_a_value_is_taken_exactly_or_refused(role: str) -> None:
    rng = random.Random(role)
    for number in range(cases(8, 200)):
        of = random_type(rng)
        values = [random_value(rng, of, rng.choice([0.0, 0.0, 0.3])) for _ in range(3)]
        seed = rng.random()
        for sizes in DIVISIONS:
            try:
                CHECKS[role](of, values, sizes, random.Random(seed))
            except Exception as error:
                error.add_note(
                    f"case {number}, {role}: {ddl(of)}, {values!r}, micro-batches {sizes}"
                )
                raise


def test_each_leaf_type_meets_each_value() -> None:
    """As the output of one row, and as a row of a script: all types times all values."""
    pairs = [(of, value) for of in LEAVES for value in VALUES]
    rng = random.Random(1)
    for of, value in rng.sample(pairs, cases(60, len(pairs))):
        try:
            check_output(of, [value] * 3, (3,), rng)
            check_script(of, [value] * 3, (3,), rng)
        except Exception as error:
            error.add_note(f"{ddl(of)}, {value!r}")
            raise


def test_initial_values_are_checked_while_the_plan_is_built() -> None:
    rng = random.Random(2)

    def nothing(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        yield from ()

    for _ in range(cases(200, 2_000)):
        of = random_type(rng)
        value = random_value(rng, of, 0.2)
        parameters = {"state": f"x {ddl(of)}", "initial": {"x": value}}
        found = unless_refused(
            lambda given=parameters: process.per_key(nothing, by="k", output="y int", **given),
            "INVALID_PARAMETER",
        )
        expected = expectation(of, [value])
        assert (found == REFUSED) == (expected == REFUSED), (ddl(of), value)


def test_subjects_are_text_or_integers(tmp_path: Path) -> None:
    table = KeyTable(url=f"sqlite:///{tmp_path}/keys.db")
    texts = ["17", "None", "nan", "17.0", "True", "1", "3", "red", "a", "n", "b'a'", "", "é"]
    table._create(texts)
    rng = random.Random(3)
    chosen = rng.sample(VALUES, cases(25, len(VALUES)))
    for value in [17.0, None, True, Row(subject="a"), *chosen, "a", 17, np.int64(3)]:
        text: str | None = None
        if isinstance(value, str):
            text = str.__str__(value)
        elif type(value) in (int, Level, np.int8, np.int64, np.uint64):
            text = str(int(value)) if -(2**63) <= int(value) < 2**63 else None
        is_subject = text is not None and not any(0xD800 <= ord(c) < 0xE000 for c in text)
        found = unless_refused(
            lambda subject=value: table.erase(["nobody", subject]), "PARAMETER_TYPE"
        )
        assert found == (text in texts if is_subject else REFUSED), value
        texts = [other for other in texts if not is_subject or other != text]
    for wrong in ([pd.NA], None, b"a", [b"a"], 1.0, [["a"]]):
        with pytest.raises(SpecError, match="PARAMETER_TYPE"):
            table.erase(wrong)  # type: ignore[arg-type]
