"""Which rows of a table are like wanted ones, however it is found out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.sinks.core.net import having, is_among, is_like

TYPES = [pa.int8(), pa.int32(), pa.int64(), pa.string(), pa.timestamp("us", "UTC"), pa.float64()]
NEAR = st.integers(0, 9)
"""Numbers of a small span, which are looked up."""
FAR = st.sampled_from([-128, 0, 127])


@given(data=st.data(), dtype=st.sampled_from(TYPES), numbers=st.sampled_from([NEAR, FAR]))
def test_rows_are_found_by_their_values(data: st.DataObject, dtype: Any, numbers: Any) -> None:
    values = numbers | st.none() if data.draw(st.booleans()) else numbers
    tables = []
    for size in (20, 5):
        pairs = data.draw(st.lists(st.tuples(values, NEAR), max_size=size))
        columns = [pa.array([a for a, _ in pairs], pa.int64()).cast(dtype), [b for _, b in pairs]]
        tables.append(pa.table({"a": columns[0], "b": pa.array(columns[1], pa.int64())}))
    rows, wanted = tables
    for names in (["a"], ["a", "b"]):
        found = is_like(rows, wanted, names)
        assert found.tolist() == is_among(rows, wanted, names).tolist()
        expected = {tuple(row[n] for n in names) for row in wanted.to_pylist()}
        assert found.tolist() == [tuple(r[n] for n in names) in expected for r in rows.to_pylist()]
        assert having(rows, wanted, names).num_rows == found.sum()


@pytest.mark.parametrize("dtype", [pa.int8(), pa.int64()])
def test_the_lowest_and_the_highest_integers(dtype: pa.DataType) -> None:
    limit = 2 ** (dtype.bit_width - 1)
    rows = pa.table({"a": pa.array([-limit, -1, 0, limit - 1], dtype)})
    wanted = pa.table({"a": pa.array([limit - 1, -limit], dtype)})
    assert is_like(rows, wanted, ["a"]).tolist() == [True, False, False, True]
    assert is_like(rows, wanted.slice(0, 1), ["a"]).tolist() == [False, False, False, True]
    assert not is_like(rows, wanted.slice(0, 0), ["a"]).any()
