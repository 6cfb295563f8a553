"""Tables with the same rows in another order are found to be the same, and all others are not. Law against a loop over rows."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections import Counter
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from streamops.kernel.hashing import digests
from streamops.state import comparing
from streamops.state.comparing import find_row

NAN = st.just(math.nan)
floats = st.sampled_from([0.0, -0.0, 1.5, math.inf]) | NAN
TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-2, 2),
    pa.float64(): floats,
    pa.string(): st.sampled_from(["", "a", "ab"]),
    pa.binary(): st.sampled_from([b"", b"\0"]),
    pa.bool_(): st.booleans(),
    pa.decimal128(20, 2): st.sampled_from([decimal.Decimal("1.50"), decimal.Decimal("-1.50")]),
    pa.timestamp("us", "UTC"): st.sampled_from(
        [dt.datetime(2024, 1, day, tzinfo=dt.UTC) for day in (1, 2)]
    ),
    pa.uint8(): st.integers(0, 2),
    pa.list_(pa.float64()): st.lists(floats | st.none(), max_size=2),
    pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))]): st.fixed_dictionaries(
        {"x": st.none() | st.integers(0, 1), "y": st.none() | st.lists(st.just("s"), max_size=2)}
    ),
    pa.map_(pa.string(), pa.float64()): st.lists(
        st.tuples(st.sampled_from("ab"), floats), max_size=1
    ),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, pa.Table]:
    """Two tables with the same columns, whose rows are mostly the same ones."""
    types = draw(st.lists(st.sampled_from([*TYPES]), min_size=1, max_size=3))
    row = st.tuples(*(st.none() | TYPES[of] for of in types))
    rows = draw(st.lists(row, max_size=8))
    others = draw(st.permutations(rows))
    if draw(st.booleans()):
        others = [*others[1:], *draw(st.lists(row, max_size=2))]
    schema = pa.schema([(f"c{at}", of) for at, of in enumerate(types)])
    left, right = (_table(of, schema) for of in (rows, others))
    return left.slice(draw(st.integers(0, 1)) and len(left) // 4), right


def _table(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = [pa.array([row[at] for row in rows], of.type) for at, of in enumerate(schema)]
    return pa.table(columns, schema=schema)


def loop(table: pa.Table) -> Counter[str]:
    """The rows, one by one."""
    return Counter(map(repr, table.to_pylist()))


@pytest.mark.laws
@given(both=tables(), collide=st.booleans())
def test_a_difference_is_found_exactly_if_a_loop_over_rows_finds_one(
    both: tuple[pa.Table, pa.Table], collide: bool
) -> None:
    left, right = both

    def few(columns: list[pa.Array]) -> Any:
        """So few digests that rows have the same one."""
        return digests(columns) % 2

    with patch.object(comparing, "digests", few if collide else digests):
        found = find_row(left, right)
    one, other = loop(left), loop(right)
    event(f"different: {one != other}")
    assert bool(found) == (one != other)
    if found:
        row, _, counts = found.rpartition(": ")
        first, second = counts.replace("rows", "row").split(" row and ")
        assert (int(first), int(second)) == (one[row], other[row])
        assert one[row] != other[row]


def test_other_columns_are_a_difference() -> None:
    left = pa.table({"n": pa.array([1], pa.int32())})
    assert "columns" in find_row(left, pa.table({"n": [1]}))
    assert "columns" in find_row(left, left.rename_columns(["m"]))


@pytest.mark.parametrize("at", [0, 70_000, 199_999])
def test_one_row_of_many_is_found_in_any_order(at: int) -> None:
    numbers = np.arange(200_000)
    left = pa.table({"n": numbers, "v": numbers / 7})
    changed = numbers.copy()
    changed[at] += 1_000_000
    right = pa.table({"n": changed, "v": numbers / 7})
    shuffled = right.take(pa.array(np.random.default_rng(1).permutation(len(numbers))))
    for other in (right, shuffled):
        assert f"'n': {at}" in find_row(left, other) or f"'n': {changed[at]}" in find_row(
            left, other
        )
    assert not find_row(left.take(pa.array(numbers[::-1])), left)


@pytest.mark.parametrize(
    ("left", "right", "found"),
    [
        ([1, 1, 2], [2, 2, 1], "{'n': 1}: 2 rows and 1"),
        ([0.0, 1.0], [1.0, -0.0], "0.0"),
        ([[0.0], None], [None, [-0.0]], "0.0"),
        ([math.nan, 1.0], [1.0, math.nan], ""),
        ([{"x": [math.nan]}, {"x": None}], [{"x": None}, {"x": [math.nan]}], ""),
        ([{"x": None}, None], [None, None], "None"),
    ],
)
def test_rows_are_counted_and_floats_compared_by_their_bits(
    left: list[Any], right: list[Any], found: str
) -> None:
    dtype = pa.array([*left, *right]).type
    one, other = (pa.table({"n": pa.array(rows, dtype)}) for rows in (left, right))
    result = find_row(one, other)
    assert found in result
    assert bool(result) == bool(found)
