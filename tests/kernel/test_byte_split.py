"""Split numbers into byte streams, and join them again."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streamops.kernel.codec import join_bytes, split_bytes

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int16": (pa.int16(), [1, -2, None, 300]),
    "int64": (pa.int64(), [1, None, -(2**62), 2**40]),
    "double": (pa.float64(), [0.5, -0.0, None, float("inf")]),
    "decimal": (pa.decimal128(20, 2), [Decimal("1.25"), None, Decimal("-7"), Decimal(10**15)]),
    "timestamp": (pa.timestamp("us", tz="UTC"), [0, 1, None, 10**15]),
    "sized": (pa.binary(3), [b"abc", b"def", None, b"ghi"]),
    "byte": (pa.int8(), [1, 2, None, -3]),
    "boolean": (pa.bool_(), [True, None, False, True]),
    "string": (pa.string(), ["a", None, "", "bcd"]),
    "list": (pa.list_(pa.int64()), [[1], None, [], [2, 3]]),
    "struct": (pa.struct([("x", pa.int64())]), [{"x": 1}, None, {"x": None}, {"x": 4}]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None, [], [("b", 2)]]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["a", None, "b", "a"]),
    "null": (pa.null(), [None] * 4),
}
TABLE = pa.table({name: pa.array(values, dtype) for name, (dtype, values) in COLUMNS.items()})
WHOLE = {"byte", "boolean", "string", "list", "struct", "map", "dictionary", "null"}


def test_the_lowest_bytes_of_all_values_come_first() -> None:
    moved = split_bytes(pa.table({"n": pa.array([0x0102, 0x0304, 0x0506], pa.int16())}))
    assert moved.column("n").chunk(0).buffers()[1].to_pybytes()[:6] == bytes([2, 4, 6, 1, 3, 5])


@pytest.mark.parametrize("name", TABLE.column_names)
def test_a_column_survives_splitting_and_joining(name: str) -> None:
    table = TABLE.select([name])
    moved = split_bytes(table)
    moved.validate()
    assert moved.schema == table.schema
    assert moved.equals(table) == (name in WHOLE)
    assert join_bytes(moved).equals(table)


@pytest.mark.parametrize("start", [0, 1, 3, 4])
def test_a_slice_survives_splitting_and_joining(start: int) -> None:
    table = TABLE.slice(start)
    assert join_bytes(split_bytes(table)).equals(table)


def test_splitting_does_not_modify_its_input() -> None:
    table = pa.table({"n": [1, 2, 3]})
    split_bytes(table)
    join_bytes(table)
    assert table.to_pydict() == {"n": [1, 2, 3]}


def test_a_chunked_column_survives_splitting_and_joining() -> None:
    table = pa.table({"n": pa.chunked_array([[1, None], [], [3]])})
    assert join_bytes(split_bytes(table)).equals(table)
