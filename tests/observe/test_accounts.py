"""Parameters of accounts, and the errors for invalid ones. No Spark."""

from __future__ import annotations

import datetime as dt
import doctest
import importlib
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql.types import (
    DataType,
    DayTimeIntervalType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streamops import observe
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from streamops.observe.accounts import BOUNDS, Scale

TEXT, TIME, SPAN, COUNT = StringType(), TimestampType(), DayTimeIntervalType(), LongType()
EXACT = DecimalType(38, 6)
LATE: dict[str, DataType] = {
    "page": TEXT,
    "window_end": TIME,
    "reason": TEXT,
    "lateness": SPAN,
    "watermark": TIME,
    "row": StructType([StructField("device", TEXT)]),
}


def counts(*names: str, data_type: DataType = COUNT) -> StructType:
    return StructType([StructField(name, data_type) for name in names])


ACCOUNT: dict[str, DataType] = {
    "page": TEXT,
    "reason": TEXT,
    "rows": COUNT,
    **{f"{name}_seconds": EXACT for name in ("least", "greatest", "total")},
    "lateness": counts("up_to_1_second", "up_to_1_minute_30_seconds", "any"),
    "saved": counts("with_1_second", "with_1_minute_30_seconds"),
}


class FakeFrame:
    """A frame with a schema and no rows."""

    def __init__(self, types: dict[str, DataType]) -> None:
        self.schema = StructType([StructField(name, type_) for name, type_ in types.items()])


@pytest.mark.parametrize(
    ("make", "arguments", "code"),
    [
        (observe.account_late, {"by": 1}, "PARAMETER_TYPE"),
        (observe.account_late, {"by": ["page", None]}, "PARAMETER_TYPE"),
        (observe.account_late, {"by": ["reason"]}, "NAME_TAKEN"),
        (observe.account_late, {"by": ["Rows"]}, "NAME_TAKEN"),
        (observe.account_late, {"by": ["page", "Page"]}, "NAME_TAKEN"),
        (observe.account_late, {"by": ["producer"], "producer": "x"}, "NAME_TAKEN"),
        (observe.account_late, {"producer": 1}, "PARAMETER_TYPE"),
        (observe.account_late, {"bounds": []}, "PARAMETER_OUT_OF_RANGE"),
        (observe.account_late, {"bounds": ["1 hour"] * 2}, "INVALID_PARAMETER"),
        (observe.account_late, {"bounds": ["1 hour", "1 minute"]}, "INVALID_PARAMETER"),
        (
            observe.account_late,
            {"bounds": [f"{n} seconds" for n in range(1, 66)]},
            "PARAMETER_OUT_OF_RANGE",
        ),
        (observe.account_late, {"bounds": ["0 seconds"]}, "INVALID_DURATION"),
        (observe.account_late, {"bounds": ["1001 microseconds"]}, "INVALID_DURATION"),
        (observe.account_late, {"bounds": ["1 month"]}, "INVALID_DURATION"),
        (observe.account_late, {"bounds": None}, "INVALID_DURATION"),
        (observe.merge_accounts, {"by": 1}, "PARAMETER_TYPE"),
        (observe.merge_accounts, {"by": "saved"}, "NAME_TAKEN"),
        (observe.lateness_needed, {"by": 1}, "PARAMETER_TYPE"),
        (observe.lateness_needed, {"by": "needed"}, "NAME_TAKEN"),
        *(
            (observe.lateness_needed, {"share": share}, "PARAMETER_OUT_OF_RANGE")
            for share in (0, 1.01, -1, float("nan"), True, "0.9", None)
        ),
    ],
    ids=lambda value: getattr(value, "__name__", repr(value)),  # a function's repr is an address
)
def test_invalid_parameters_are_refused_without_a_frame(
    make: Any, arguments: dict[str, Any], code: str
) -> None:
    with pytest.raises(SpecError) as caught:
        make(**arguments)
    assert caught.value.code == code
    assert caught.value.where == f"observe.{make.__name__}"


def test_the_error_for_bounds_shows_what_is_expected() -> None:
    with pytest.raises(SpecError) as caught:
        observe.account_late(bounds=["1 hour", "1 minute"])
    assert str(caught.value) == (
        "[INVALID_PARAMETER] observe.account_late: `bounds` is not a scale\n"
        "  got:       bounds=('1 hour', '1 minute')\n"
        "  expected:  from 1 to 64 durations, each longer than the previous one\n"
        '  fix:       use the default, or durations such as ("1 minute", "10 minutes", "1 hour")'
        "\n  see:       docs/errors.md#invalid_parameter"
    )


def test_the_error_for_a_key_that_an_account_has_lists_its_columns() -> None:
    with pytest.raises(SpecError) as caught:
        observe.account_late(by=["page", "reason"])
    assert str(caught.value) == (
        "[NAME_TAKEN] observe.account_late: two columns of the result have the same name: reason\n"
        "  got:       by=('page', 'reason')\n"
        "  expected:  names that differ from each other and from reason, rows, least_seconds, "
        "greatest_seconds, total_seconds, lateness, saved\n"
        "  fix:       remove it if the result has such a column anyway, or rename the key column"
        "\n  see:       docs/errors.md#name_taken"
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"lateness": None},
        {"lateness": TEXT},
        {"watermark": None},
        {"watermark": COUNT},
        {"row": TEXT},
        {"reason": None},
        {"window_end": TEXT},
    ],
    ids=repr,
)
def test_a_frame_without_late_rows_is_refused(changed: dict[str, Any]) -> None:
    types = {name: type_ for name, type_ in (LATE | changed).items() if type_ is not None}
    with pytest.raises(SchemaError) as caught:
        observe.account_late()(FakeFrame(types))
    assert str(caught.value) == (
        "[FRAME_TYPE] observe.account_late: the frame does not have late rows\n"
        f"  got:       {', '.join(f'{n} {k.simpleString()}' for n, k in types.items())}\n"
        "  expected:  reason, lateness (interval day to second), watermark (timestamp), "
        "row (struct)\n"
        "  fix:       _, late = split_side_output(batch), and transform `late`"
        "\n  see:       docs/errors.md#frame_type"
    )


@pytest.mark.parametrize(
    ("arguments", "role", "fix"),
    [
        ({"by": "pag"}, "by", "did you mean 'page'?"),
        ({"by": ["page", "row"]}, "by", "name one of: page, window_end"),
        ({"producer": "devices"}, "producer", "did you mean 'device'?"),
    ],
)
def test_the_error_for_a_missing_column_suggests_the_nearest_name(
    arguments: dict[str, Any], role: str, fix: str
) -> None:
    with pytest.raises(ColumnNotFound) as caught:
        observe.account_late(**arguments)(FakeFrame(LATE))
    assert caught.value.where == "observe.account_late"
    assert f"given as `{role}`, does not exist" in caught.value.what
    assert caught.value.fix == fix


@pytest.mark.parametrize(
    "changed",
    [
        {"rows": IntegerType()},
        {"rows": None},
        {"total_seconds": DecimalType(38, 3)},
        {"lateness": None},
        {"lateness": COUNT},
        {"lateness": counts("up_to_1_second", "any")},
        {"lateness": counts("up_to_1_second", "up_to_1_minute_30_seconds")},
        {"lateness": counts("up_to_90_seconds", "any"), "saved": counts("with_90_seconds")},
        {"lateness": counts("any"), "saved": counts()},
        {"lateness": counts("x", "any"), "saved": counts("x")},
        {"saved": counts("with_1_second", "with_1_minute_30_seconds", data_type=TEXT)},
        {"saved": counts("with_1_second", "with_2_minutes")},
    ],
    ids=repr,
)
@pytest.mark.parametrize("make", [observe.merge_accounts, observe.lateness_needed])
def test_a_frame_that_is_not_an_account_is_refused(make: Any, changed: dict[str, Any]) -> None:
    types = {name: type_ for name, type_ in (ACCOUNT | changed).items() if type_ is not None}
    with pytest.raises(SchemaError) as caught:
        make()(FakeFrame(types))
    assert str(caught.value) == (
        f"[FRAME_TYPE] observe.{make.__name__}: the frame is not an account of late rows\n"
        f"  got:       {', '.join(f'{n} {k.simpleString()}' for n, k in types.items())}\n"
        "  expected:  rows, least_seconds, greatest_seconds, total_seconds, lateness, saved, "
        "as in the result of observe.account_late\n"
        "  fix:       late.transform(observe.account_late(...)) first; accounts with different "
        "scales cannot be merged"
        "\n  see:       docs/errors.md#frame_type"
    )


@pytest.mark.parametrize("make", [observe.merge_accounts, observe.lateness_needed])
def test_a_column_that_is_not_a_key_of_the_account_is_refused(make: Any) -> None:
    with pytest.raises(ColumnNotFound) as caught:
        make(by="reasons")(FakeFrame(ACCOUNT))
    assert caught.value.fix == "did you mean 'reason'?"
    assert caught.value.where == f"observe.{make.__name__}"


def test_repr_shows_the_parameters() -> None:
    hour = dt.timedelta(hours=1)
    assert repr(observe.account_late(by="page", bounds=[hour])) == (
        "observe.account_late(by=('page',), bounds=('1 hour',))"
    )
    assert repr(observe.account_late(bounds="90 seconds")).endswith(
        "bounds=('1 minute 30 seconds',))"
    )
    assert repr(observe.merge_accounts()) == "observe.merge_accounts()"
    assert repr(observe.lateness_needed(share=1, by=["a"])) == (
        "observe.lateness_needed(share=1, by=('a',))"
    )


def test_a_scale_can_be_read_from_the_names_of_its_columns() -> None:
    scale = Scale.parse(BOUNDS)
    for struct in ("lateness", "saved"):
        assert Scale.read(counts(*scale.names(struct)), struct) == scale
    assert scale.names("lateness")[0] == "up_to_1_second"
    assert scale.names("lateness")[-2:] == ["up_to_28_days", "any"]
    assert scale.names("saved")[4] == "with_1_minute"
    assert all(b <= 4 * a for a, b in pairwise(scale.bounds))


def test_docstring_examples_run() -> None:
    module = importlib.import_module("streamops.observe.accounts")
    failed, tried = doctest.testmod(module)
    assert tried >= 3
    assert failed == 0
