"""Errors of resampling, which are raised while the plan is built, and the columns of its result."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import windows
from streamops.kernel.errors import StreamopsError
from streamops.windows.core.resample import ResampleCore, ResampleSpec

TS = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("ts", TS),
        ("n", pa.int64()),
        ("price", pa.decimal128(38, 2)),
        ("state", pa.struct([("a", pa.list_(pa.int32()))])),
        ("other", pa.string()),
    ]
)
SETTINGS: dict[str, Any] = {
    "every": "1 minute",
    "time": "ts",
    "by": "k",
    "values": {"n": "previous"},
    "max_gap": "1 hour",
    "delay": "1 second",
}


def resolve(**settings: Any) -> ResampleSpec:
    made: Any = windows.resample(**SETTINGS | settings)
    spec: ResampleSpec = made.parameters.resolve((SCHEMA,), carried=(None,), shards=1)
    return spec


@pytest.mark.parametrize(
    ("settings", "code", "text"),
    [
        ({"values": {}}, "PARAMETER_MISSING", "at least one column"),
        ({"values": "n"}, "PARAMETER_TYPE", "a mapping of columns to 'previous'"),
        ({"values": {"n": "nearest"}}, "UNKNOWN_CHOICE", "values['n']"),
        ({"values": {"n": "ffill"}}, "UNKNOWN_CHOICE", "'previous'"),
        ({"values": {"n": windows.lag("n")}}, "UNKNOWN_CHOICE", "values['n']"),
        ({"values": {1: "linear"}}, "PARAMETER_TYPE", "values"),
        ({"every": "0 seconds"}, "INVALID_DURATION", "every"),
        ({"every": "1 month"}, "INVALID_DURATION", "every"),
        ({"max_gap": "0 seconds"}, "INVALID_DURATION", "max_gap"),
        ({"every": "1 second", "max_gap": "10000 seconds"}, "PARAMETER_OUT_OF_RANGE", "10,001"),
        ({"stragglers": "update"}, "UNKNOWN_CHOICE", "'drop', 'route'"),
        ({"tie_break": ["n", "n"]}, "DUPLICATE_COLUMN", "tie_break"),
        ({"values": {"k": "previous"}}, "NAME_TAKEN", "k"),
        ({"values": {"TS": "previous"}}, "NAME_TAKEN", "TS"),
        ({"values": {"observed_at": "previous"}}, "NAME_TAKEN", "observed_at"),
        ({"values": {"m": "linear"}}, "COLUMN_NOT_FOUND", "values"),
        ({"tie_break": "m"}, "COLUMN_NOT_FOUND", "tie_break"),
        ({"time": "n", "values": {"price": "null"}}, "COLUMN_TYPE", "'n'"),
        ({"values": {"state": "linear"}}, "COLUMN_TYPE", "linear cannot compute"),
    ],
)
def test_wrong_parameters_are_refused(settings: dict[str, Any], code: str, text: str) -> None:
    with pytest.raises(StreamopsError) as caught:
        resolve(**settings)
    assert text in str(caught.value)
    assert caught.value.code == code


def test_ten_thousand_instants_after_a_row_are_accepted() -> None:
    assert resolve(every="1 second", max_gap="9999 seconds").max_gap == 9_999_000_000


def test_only_interpolated_columns_have_another_type() -> None:
    spec = resolve(values={"n": "linear", "price": "linear", "state": "previous", "other": "null"})
    double = pa.float64()
    assert [(f.name, f.type) for f in spec.output] == [
        *(("k", pa.string()), ("ts", TS), ("n", double), ("price", double)),
        *(("state", SCHEMA.field("state").type), ("other", pa.string()), ("observed_at", TS)),
    ]


def test_columns_that_are_not_read_are_stored_with_no_row_and_returned_with_late_ones() -> None:
    assert resolve().input.names == ["k", "ts", "n"]
    routed = resolve(stragglers="route")
    assert routed.input.names == SCHEMA.names
    assert routed.stored == resolve().input


@pytest.mark.parametrize(
    ("method", "held_back"), [("previous", 0), ("null", 0), ("linear", 60_001_000)]
)
def test_only_interpolation_waits_for_the_row_after(method: str, held_back: int) -> None:
    spec = resolve(values={"n": method}, max_gap="60000001 microseconds")
    assert spec.held_back == held_back


def test_a_decimal_and_a_large_integer_are_interpolated_as_doubles() -> None:
    spec, core = (
        resolve(values={"n": "linear", "price": "linear"}, every="1 second"),
        ResampleCore(),
    )
    rows = pa.table(
        {
            "k": ["a", "a"],
            "ts": pa.array([0, 2_000_000], pa.int64()).cast(TS),
            "n": [2**63 - 1, -(2**63)],
            "price": pa.array(["0.30", "0.10"]).cast(SCHEMA.field("price").type),
        }
    )
    found = core.run(spec, [core.pack(spec, rows)]).output
    assert found.column("n").to_pylist()[:3] == [2.0**63, 0.0, -(2.0**63)]
    assert found.column("price").to_pylist()[:3] == [0.3, 0.2, 0.1]


def test_a_frame_without_rows_has_none() -> None:
    spec, core = resolve(values={"n": "linear"}), ResampleCore()
    assert not len(core.run(spec, core.no_rows(spec)).output)
