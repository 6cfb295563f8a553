"""What a user may say about accounts, and what every mistake is answered with. No Spark."""

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
from streamops.observe.scale import BOUNDS, Scale

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


def counts(*names: str, kind: DataType = COUNT) -> StructType:
    return StructType([StructField(name, kind) for name in names])


ACCOUNT: dict[str, DataType] = {
    "page": TEXT,
    "reason": TEXT,
    "rows": COUNT,
    **{f"{word}_seconds": EXACT for word in ("least", "greatest", "total")},
    "lateness": counts("up_to_1_second", "up_to_1_minute_30_seconds", "any"),
    "saved": counts("with_1_second", "with_1_minute_30_seconds"),
}


class FakeFrame:
    """A frame that is nothing but its columns."""

    def __init__(self, kinds: dict[str, DataType]) -> None:
        self.schema = StructType([StructField(name, kind) for name, kind in kinds.items()])


@pytest.mark.parametrize(
    ("make", "said", "code"),
    [
        (observe.account_late, {"by": 1}, "NOT_A_NAME"),
        (observe.account_late, {"by": ["page", None]}, "NOT_A_NAME"),
        (observe.account_late, {"by": ["reason"]}, "NAME_TAKEN"),
        (observe.account_late, {"by": ["Rows"]}, "NAME_TAKEN"),
        (observe.account_late, {"by": ["page", "Page"]}, "NAME_TAKEN"),
        (observe.account_late, {"by": ["producer"], "producer": "x"}, "NAME_TAKEN"),
        (observe.account_late, {"producer": 1}, "NOT_A_NAME"),
        (observe.account_late, {"bounds": []}, "BOUNDS_OUT_OF_RANGE"),
        (observe.account_late, {"bounds": ["1 hour"] * 2}, "BOUNDS_NOT_ASCENDING"),
        (observe.account_late, {"bounds": ["1 hour", "1 minute"]}, "BOUNDS_NOT_ASCENDING"),
        (
            observe.account_late,
            {"bounds": [f"{n} seconds" for n in range(1, 66)]},
            "BOUNDS_OUT_OF_RANGE",
        ),
        (observe.account_late, {"bounds": ["0 seconds"]}, "DURATION_TOO_SMALL"),
        (observe.account_late, {"bounds": ["1001 microseconds"]}, "DURATION_TOO_FINE"),
        (observe.account_late, {"bounds": ["1 month"]}, "CALENDAR_DURATION"),
        (observe.account_late, {"bounds": None}, "BAD_DURATION"),
        (observe.merge_accounts, {"by": 1}, "NOT_A_NAME"),
        (observe.merge_accounts, {"by": "saved"}, "NAME_TAKEN"),
        (observe.lateness_needed, {"by": 1}, "NOT_A_NAME"),
        (observe.lateness_needed, {"by": "needed"}, "NAME_TAKEN"),
        *(
            (observe.lateness_needed, {"share": share}, "SHARE_OUT_OF_RANGE")
            for share in (0, 1.01, -1, float("nan"), True, "0.9", None)
        ),
    ],
    ids=lambda said: getattr(said, "__name__", repr(said)),  # a function's repr is an address
)
def test_a_parameter_out_of_range_is_refused_before_there_is_a_frame(
    make: Any, said: dict[str, Any], code: str
) -> None:
    with pytest.raises(SpecError) as caught:
        make(**said)
    assert caught.value.code == code
    assert caught.value.where == f"observe.{make.__name__}"


def test_bounds_that_do_not_ascend_are_told() -> None:
    with pytest.raises(SpecError) as caught:
        observe.account_late(bounds=["1 hour", "1 minute"])
    assert str(caught.value) == (
        "[BOUNDS_NOT_ASCENDING] observe.account_late: `bounds` is not a scale\n"
        "  got:       bounds=('1 hour', '1 minute')\n"
        "  expected:  from 1 to 64 durations, each longer than the one before\n"
        '  fix:       leave it out, or write bounds=("1 minute", "10 minutes", "1 hour"), say'
    )


def test_a_key_that_the_account_has_by_itself_is_told() -> None:
    with pytest.raises(SpecError) as caught:
        observe.account_late(by=["page", "reason"])
    assert str(caught.value) == (
        "[NAME_TAKEN] observe.account_late: a name stands for two columns of the result: reason\n"
        "  got:       by=('page', 'reason')\n"
        "  expected:  names unlike one another and unlike reason, rows, least_seconds, "
        "greatest_seconds, total_seconds, lateness, saved\n"
        "  fix:       leave it out where it is in the result by itself, "
        "or rename the key column before"
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
    kinds = {name: kind for name, kind in (LATE | changed).items() if kind is not None}
    with pytest.raises(SchemaError) as caught:
        observe.account_late()(FakeFrame(kinds))
    assert str(caught.value) == (
        "[NOT_LATE_ROWS] observe.account_late: the frame does not hold late rows\n"
        f"  got:       {', '.join(f'{n} {k.simpleString()}' for n, k in kinds.items())}\n"
        "  expected:  reason, lateness (interval day to second), watermark (timestamp), "
        "row (struct)\n"
        "  fix:       _, late = split_side_output(batch), and account for `late`"
    )


@pytest.mark.parametrize(
    ("said", "role", "fix"),
    [
        ({"by": "pag"}, "by", "did you mean 'page'?"),
        ({"by": ["page", "row"]}, "by", "name one of: page, window_end"),
        ({"producer": "devices"}, "producer", "did you mean 'device'?"),
    ],
)
def test_a_column_that_does_not_exist_is_refused_with_the_nearest_name(
    said: dict[str, Any], role: str, fix: str
) -> None:
    with pytest.raises(ColumnNotFound) as caught:
        observe.account_late(**said)(FakeFrame(LATE))
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
        {"saved": counts("with_1_second", "with_1_minute_30_seconds", kind=TEXT)},
        {"saved": counts("with_1_second", "with_2_minutes")},
    ],
    ids=repr,
)
@pytest.mark.parametrize("make", [observe.merge_accounts, observe.lateness_needed])
def test_a_frame_that_is_no_account_is_refused(make: Any, changed: dict[str, Any]) -> None:
    kinds = {name: kind for name, kind in (ACCOUNT | changed).items() if kind is not None}
    with pytest.raises(SchemaError) as caught:
        make()(FakeFrame(kinds))
    assert str(caught.value) == (
        f"[NOT_AN_ACCOUNT] observe.{make.__name__}: the frame is not an account of late rows\n"
        f"  got:       {', '.join(f'{n} {k.simpleString()}' for n, k in kinds.items())}\n"
        "  expected:  rows, least_seconds, greatest_seconds, total_seconds, lateness, saved, "
        "as observe.account_late makes them\n"
        "  fix:       late.transform(observe.account_late(...)) first; accounts of different "
        "scales cannot be merged"
    )


@pytest.mark.parametrize("make", [observe.merge_accounts, observe.lateness_needed])
def test_a_column_that_is_no_key_of_an_account_is_refused(make: Any) -> None:
    with pytest.raises(ColumnNotFound) as caught:
        make(by="reasons")(FakeFrame(ACCOUNT))
    assert caught.value.fix == "did you mean 'reason'?"
    assert caught.value.where == f"observe.{make.__name__}"


def test_accounts_are_shown_as_they_are_written() -> None:
    hour = dt.timedelta(hours=1)
    assert repr(observe.account_late(by="page", bounds=[hour])) == (
        "observe.account_late(by=('page',), producer=None, bounds=('1 hour',))"
    )
    assert repr(observe.account_late(bounds="90 seconds")).endswith(
        "bounds=('1 minute 30 seconds',))"
    )
    assert repr(observe.merge_accounts()) == "observe.merge_accounts(by=())"
    assert repr(observe.lateness_needed(share=1, by=["a"])) == (
        "observe.lateness_needed(share=1, by=('a',))"
    )


def test_a_scale_is_known_again_by_the_names_of_its_columns() -> None:
    scale = Scale.of(BOUNDS, where="")
    for struct in ("lateness", "saved"):
        assert Scale.told_by(counts(*scale.names(struct)), struct) == scale
    assert scale.names("lateness")[0] == "up_to_1_second"
    assert scale.names("lateness")[-2:] == ["up_to_28_days", "any"]
    assert scale.names("saved")[4] == "with_1_minute"
    assert all(b <= 4 * a for a, b in pairwise(scale.bounds))


def test_the_examples_of_the_docstrings_are_right() -> None:
    module = importlib.import_module("streamops.observe.accounts")
    failed, tried = doctest.testmod(module)
    assert tried >= 3
    assert failed == 0
