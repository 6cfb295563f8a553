"""Types of shredded values: their names, and their bytes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamops.erasure.core.values import TYPES, ValueType


@pytest.mark.parametrize("name", [name for name in TYPES if name != "decimal"])
def test_every_type_has_its_position_as_code(name: str) -> None:
    found = ValueType.parse(name)
    assert found is not None
    assert TYPES[found.code - 1] == name
    assert ValueType.of(found.dtype) == found


@pytest.mark.parametrize(
    ("text", "precision", "scale"),
    [("decimal", 10, 0), ("DECIMAL( 38 , 38 )", 38, 38), ("numeric(5)", 5, 0), ("dec(4,1)", 4, 1)],
)
def test_names_of_decimals_are_parsed(text: str, precision: int, scale: int) -> None:
    found = ValueType.parse(text)
    assert found == ValueType.of(pa.decimal128(precision, scale))


@pytest.mark.parametrize(
    "text",
    ["", "text", "array<int>", "int(3)", "decimal(39,0)", "decimal(0,0)", "decimal(3,4)",
     "decimal(1;drop)", "decimal(1"],
)  # fmt: skip
def test_other_names_are_not_types(text: str) -> None:
    assert ValueType.parse(text) is None


@pytest.mark.parametrize(
    "dtype", [pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.duration("us"), pa.null()]
)
def test_other_types_have_no_bytes(dtype: pa.DataType) -> None:
    assert ValueType.of(dtype) is None


def test_large_text_and_other_time_zones_have_the_same_type() -> None:
    assert ValueType.of(pa.large_string()) == ValueType.of(pa.string())
    assert ValueType.of(pa.large_binary()) == ValueType.of(pa.binary())
    paris = pa.timestamp("us", "Europe/Paris")
    assert ValueType.of(paris) == ValueType.of(pa.timestamp("us", "UTC"))
    of = ValueType.of(paris)
    assert of is not None
    assert of.to_bytes(pa.array([1], paris)) == [(1).to_bytes(8, "little")]
