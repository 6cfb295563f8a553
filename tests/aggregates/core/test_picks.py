"""Least, greatest, first and last values against plain Python."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops.kernel.values import comparable
from streamops.testing.laws import to_rows
from tests.aggregates.samples import (
    INFINITY,
    NAN,
    ORDERED,
    SCHEMA,
    TYPES,
    VALUES,
    bind,
    column,
    one_group,
    over,
    over_parts,
)
from tests.oracles.windows import ranked


@pytest.mark.parametrize("name", ORDERED)
def test_the_least_and_the_greatest_value_are_found_among_nulls(name: str) -> None:
    values = VALUES[name]
    for given in (values, values[::-1], [None, *values, None]):
        assert comparable(over(agg.min(name), given)) == comparable(min(values, key=ranked))
        assert comparable(over(agg.max(name), given)) == comparable(max(values, key=ranked))
    for function, pick in (agg.min, min), (agg.max, max):
        parts = over_parts(function(name), values[:1], [], [None], values[1:])
        assert comparable(parts) == comparable(pick(values, key=ranked))


@pytest.mark.parametrize("name", ORDERED)
def test_an_extreme_has_the_type_of_its_column_and_is_null_without_values(name: str) -> None:
    for function in (agg.min, agg.max):
        assert bind(function(name)).result == TYPES[name]
        assert over(function(name), []) is None
        assert over(function(name), [None, None]) is None


@pytest.mark.parametrize("name", ["float", "double"])
def test_nan_is_greater_than_any_number(name: str) -> None:
    assert math.isnan(over(agg.max(name), [INFINITY, NAN, 1.0]))
    assert over(agg.min(name), [NAN, INFINITY]) == INFINITY
    assert math.isnan(over(agg.min(name), [NAN]))
    assert math.isnan(over(agg.max(name), [-NAN, 1.0]))
    assert over(agg.min(name), [-NAN, 1.0]) == 1.0


def test_text_is_ordered_by_its_bytes() -> None:
    assert over(agg.min("text"), ["a", "B", "ä"]) == "B"
    assert over(agg.max("text"), ["\U0001f600", "\uffff"]) == "\U0001f600"
    assert over(agg.max("raw"), [b"\x7f", b"\x80", b"\xff\x00"]) == b"\xff\x00"


def picked(aggregate: agg.Aggregate, *rows: tuple[Any, Any, Any]) -> Any:
    """The aggregate of ``text`` over rows of (time, tie, value)."""
    times, ties, values = zip(*rows, strict=True)
    table = column("text", values)
    table = table.set_column(0, "ts", pa.array(times, pa.int64()).cast(SCHEMA[0].type))
    table = table.set_column(1, "seq", pa.array(ties, pa.int64()))
    summary = bind(aggregate)
    return summary.estimate(summary.update(one_group(len(rows)), table))[0].as_py()


FIRST, LAST = agg.first("text", tie_break="seq"), agg.last("text", tie_break="seq")


def test_first_and_last_go_by_event_time_not_by_arrival() -> None:
    rows = (5, 0, "middle"), (-3, 0, "early"), (7, 0, "late"), (6, 0, "later")
    assert picked(FIRST, *rows) == "early"
    assert picked(LAST, *rows) == "late"


def test_rows_of_one_instant_are_decided_by_the_tie_break() -> None:
    rows = (5, 2, "two"), (5, 1, "one"), (5, 3, "three")
    assert picked(FIRST, *rows) == "one"
    assert picked(LAST, *rows) == "three"


def test_a_tie_break_that_is_null_is_below_every_other() -> None:
    rows = (5, 2, "two"), (5, None, "none"), (5, -(2**63), "least")
    assert picked(FIRST, *rows) == "none"
    assert picked(LAST, *rows) == "two"


def test_the_value_of_the_first_or_last_row_may_be_null() -> None:
    rows = (1, 0, None), (2, 0, "middle"), (3, 0, None)
    assert picked(FIRST, *rows) is None
    assert picked(LAST, *rows) is None


def test_rows_without_a_time_are_neither_first_nor_last() -> None:
    assert picked(FIRST, (None, 0, "nowhere"), (5, 1, "here")) == "here"
    assert picked(LAST, (5, 1, "here"), (None, 9, "nowhere")) == "here"
    assert picked(LAST, (None, 9, "nowhere")) is None


@pytest.mark.parametrize("name", TYPES)
def test_values_of_every_type_can_be_first_and_last(name: str) -> None:
    values = [*VALUES[name], None]
    table = column(name, values)
    for function, expected in (agg.first, values[0]), (agg.last, None):
        summary = bind(function(name, tie_break="seq"))
        states = summary.update(one_group(len(values)), table)
        text = to_rows(pa.table({"found": summary.estimate(states)}))
        wanted = to_rows(pa.table({"found": pa.array([expected], TYPES[name])}))
        assert comparable(text) == comparable(wanted)
        assert summary.result == TYPES[name]
        merged = summary.merge(one_group(2), [pa.concat_arrays([s, s]) for s in states])
        assert comparable(to_rows(pa.table({"found": summary.estimate(merged)}))) == comparable(
            wanted
        )


@pytest.mark.parametrize("name", ORDERED)
def test_a_tie_break_may_be_of_any_ordered_type(name: str) -> None:
    ties = [None, *VALUES[name]]
    table = column(name, ties).set_column(
        0, "ts", pa.array([0] * len(ties), pa.int64()).cast(SCHEMA[0].type)
    )
    for function, pick in (agg.first, min), (agg.last, max):
        summary = bind(function("seq", tie_break=name))
        states = summary.update(one_group(len(ties)), table)
        expected = pick(range(len(ties)), key=lambda i: ranked(ties[i]))
        found = summary.estimate(states)[0].as_py()
        assert comparable(ties[found]) == comparable(ties[expected])
