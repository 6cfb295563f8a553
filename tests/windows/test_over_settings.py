"""Errors of functions of other rows: while the plan is built, or at the first row that does not fit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import windows
from streamops.kernel.errors import CapacityError, StreamopsError
from streamops.kernel.operator import Core
from streamops.windows.core.over import OverCore

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("n", pa.int64()),
        ("price", pa.decimal128(38, 2)),
    ]
)
SETTINGS: dict[str, Any] = {"time": "ts", "by": "k", "within": "1 minute", "delay": "1 second"}


def resolve(**settings: Any) -> Any:
    made: Any = windows.over(**SETTINGS | {"values": {"r": windows.lag("n")}} | settings)
    return made.parameters.resolve((SCHEMA,), carried=(None,), shards=1)


@pytest.mark.parametrize(
    ("settings", "code", "text"),
    [
        ({"values": {}}, "PARAMETER_MISSING", "at least one named function"),
        ({"values": windows.lag("n")}, "PARAMETER_TYPE", "is not a function of other rows"),
        ({"values": {"r": "lag"}}, "PARAMETER_TYPE", "'r' is not a function of other rows"),
        ({"within": "0 seconds"}, "INVALID_DURATION", "within"),
        ({"stragglers": "update"}, "UNKNOWN_CHOICE", "'drop', 'route'"),
        ({"tie_break": ["n", "n"]}, "DUPLICATE_COLUMN", "tie_break"),
        ({"values": {"late": windows.lag("n")}}, "NAME_TAKEN", "late"),
        ({"values": {"N": windows.lag("n")}}, "NAME_TAKEN", "N"),
        ({"values": {"r": windows.lag("m")}}, "COLUMN_NOT_FOUND", "values: lag('m')"),
        ({"tie_break": "m"}, "COLUMN_NOT_FOUND", "tie_break"),
        ({"time": "n"}, "COLUMN_TYPE", "'n'"),
        (
            {"values": {"r": windows.rate("k")}},
            "COLUMN_TYPE",
            "rate cannot compute with column 'k'",
        ),
    ],
)
def test_wrong_parameters_are_refused(settings: dict[str, Any], code: str, text: str) -> None:
    with pytest.raises(StreamopsError) as caught:
        resolve(**settings)
    assert text in str(caught.value)
    assert caught.value.code == code


@pytest.mark.parametrize("offset", [0, -1, 1.0, True, "1"])
def test_an_offset_is_a_number_of_rows(offset: Any) -> None:
    with pytest.raises(StreamopsError, match="`offset` is not a number of rows"):
        windows.lead("n", offset)


@pytest.mark.parametrize("duration", ["0 seconds", "1 month", -1])
def test_a_half_life_is_a_positive_duration(duration: Any) -> None:
    with pytest.raises(StreamopsError, match="half_life"):
        windows.ewma("n", half_life=duration)


@pytest.mark.parametrize(
    ("column", "values", "dtype"),
    [("n", [-(2**63), 2**63 - 1], "bigint"), ("price", ["-" + "9" * 36, "9" * 36], "decimal")],
)
@pytest.mark.parametrize("function", [windows.difference, windows.rate])
def test_a_difference_that_does_not_fit_fails(
    function: Any, column: str, values: list[Any], dtype: str
) -> None:
    spec, core = resolve(values={"r": function(column)}), OverCore()
    rows = pa.table(
        {
            "k": ["a", "a"],
            "ts": pa.array([1, 2], pa.int64()).cast(SCHEMA.field("ts").type),
            **{name: pa.nulls(2, SCHEMA.field(name).type) for name in ("n", "price")},
            column: pa.array(values).cast(SCHEMA.field(column).type),
        }
    )
    with pytest.raises(CapacityError, match=dtype) as caught:
        core.run(spec, [core.pack(spec, rows)])
    assert caught.value.code == "NUMERIC_OVERFLOW"


def test_a_frame_without_rows_has_none() -> None:
    spec, core = resolve(values={"r": windows.ewma("n", half_life="1 second")}), OverCore()
    assert isinstance(core, Core)
    assert not len(core.run(spec, core.no_rows(spec)).output)
