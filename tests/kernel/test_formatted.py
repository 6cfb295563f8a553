"""Each value of each type has a text, and different values have different ones."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from streamops.kernel.formatted import format_row, format_rows, format_value
from tests.extreme_values import EXTREMES, column


@pytest.mark.parametrize("name", EXTREMES)
def test_values_at_the_limits_of_their_types_have_texts_of_their_own(name: str) -> None:
    values = column(name)
    texts = [format_value(value) for value in values]
    assert len({*texts}) == len(values)
    # Inside of other types, too.
    lists = pa.ListArray.from_arrays(np.arange(len(values) + 1, dtype=np.int32), values)
    assert [format_value(value) for value in lists] == [f"[{text}]" for text in texts]
    table = pa.table({"v": pa.StructArray.from_arrays([values], ["f"])})
    assert [format_row(table, row) for row in range(len(table))] == [
        f"{{'v': {{'f': {text}}}}}" for text in texts
    ]


def test_what_python_has_is_formatted_as_python_formats_it() -> None:
    rows = pa.table({"k": [1, None], "v": [{"a": ["x"]}, None], "m": [Decimal("1.50"), None]})
    assert format_rows(rows) == str(rows.to_pylist())


def test_what_python_does_not_have_is_formatted_exactly() -> None:
    def formatted(number: int, dtype: pa.DataType) -> str:
        whole = pa.scalar(number, pa.int32() if dtype == pa.date32() else pa.int64())
        return format_value(whole.cast(dtype))

    assert formatted(253_402_318_799_999_999, pa.timestamp("us")) == "10000-01-01T04:59:59.999999"
    # In New York it is still the year 9999, and Python computes the time in UTC first.
    new_york = pa.timestamp("us", "America/New_York")
    assert formatted(253_402_318_799_999_999, new_york) == "10000-01-01T04:59:59.999999Z"
    assert formatted(-(2**63), pa.timestamp("us")) == "-9223372036854775808 us"
    assert formatted(-719_163, pa.date32()) == "0000-12-31"
    assert formatted(86_400_000_000, pa.time64("us")) == "86400000000 us"
    assert formatted(1, pa.timestamp("us", "GMT+08:00")) == "1970-01-01T00:00:00.000001Z"
    assert format_value(pa.array([b"\xff"]).view(pa.string())[0]) == "b'\\xff'"
