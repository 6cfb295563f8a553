"""What a stream of Arrow declares is what its buffers have."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.kernel.codec import declared_size, ipc_read, ipc_write

VALUES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=30),
    pa.large_binary(): st.binary(max_size=30),
    pa.list_(pa.int8()): st.lists(st.integers(-9, 9), max_size=4),
    pa.struct([("a", pa.int32()), ("b", pa.string())]): st.builds(
        lambda a, b: {"a": a, "b": b}, st.integers(0, 9), st.text(max_size=3)
    ),
    pa.dictionary(pa.int32(), pa.string()): st.sampled_from(["a", "b", "c" * 40]),
    pa.null(): st.none(),
}


@st.composite
def tables(draw: Any) -> pa.Table:
    types = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    rows = draw(st.integers(0, 40))
    columns = {}
    for number, dtype in enumerate(types):
        value = VALUES[dtype] | st.none()
        columns[str(number)] = pa.array([draw(value) for _ in range(rows)], dtype)
    return pa.table(columns)


@given(tables())
def test_the_size_does_not_depend_on_the_compression(table: pa.Table) -> None:
    sizes = {declared_size(ipc_write(table, compression=c)) for c in (None, "zstd")}
    (size,) = sizes
    buffers = itertools.chain.from_iterable(
        (b for b in chunk.buffers() if b is not None)
        for column in ipc_read(ipc_write(table)).columns
        for chunk in column.chunks
    )
    assert size >= sum(b.size for b in buffers) - 64 * len(table.columns)


@pytest.mark.parametrize("rows", [0, 1, 1_000])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_numbers_have_their_width(rows: int, compression: Any) -> None:
    table = pa.table({"a": pa.array([0] * rows, pa.int64()), "b": pa.array([0] * rows, pa.int16())})
    assert declared_size(ipc_write(table, compression=compression)) == rows * (8 + 2)


@given(st.binary(max_size=40), st.data())
def test_other_bytes_are_an_error(noise: bytes, data: Any) -> None:
    stream = ipc_write(pa.table({"a": [1, 2, None], "b": ["x", "", None]}), compression="zstd")
    at = data.draw(st.integers(0, len(stream)))
    damaged = stream[:at] + noise + stream[at + len(noise) :]
    with contextlib.suppress(ValueError):
        assert declared_size(damaged) >= 0


def test_fields_that_are_not_there() -> None:
    stream = ipc_write(pa.table({"a": [1, 2, 3]}), compression="zstd")
    sizes = set()
    for at in range(0, len(stream), 2):
        with contextlib.suppress(ValueError):
            sizes.add(declared_size(stream[:at] + bytes(2) + stream[at + 2 :]))
    assert {0, 24} <= sizes  # without buffers, or as it is


def test_what_is_no_stream_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"IPC|stream|Unexpected"):
        declared_size(b"\xff" * 12)
