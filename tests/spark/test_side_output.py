"""A frame without side output cannot be split."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, StringType, StructField, StructType, TimestampType

import streamops
from streamops import split_side_output
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from streamops.spark.side_output import _key_columns

TEXT, TIME = StringType(), TimestampType()


def struct(names: str) -> StructType:
    return StructType([StructField(name, TEXT) for name in names.split()])


LATE = struct("side reason lateness watermark window row")


class FakeFrame(DataFrame):
    """A frame that has columns and nothing else."""

    schema = StructType()

    def __new__(cls, **_: Any) -> FakeFrame:
        return object.__new__(cls)

    def __init__(self, **types: Any) -> None:
        self.schema = StructType([StructField(name, dtype) for name, dtype in types.items()])


@pytest.mark.parametrize(
    "columns",
    [
        {"k": TEXT, "window_end": TIME},
        {"late": BooleanType(), "window_end": TIME},
        {"late": struct("reason"), "window_end": TIME},
        {"late": struct("side reason lateness watermark left")},
        {"ts": TIME},
        {"ts": TIME, "guarded": TEXT},
        {"ts": TIME, "guarded": struct("reason")},
        {"rejected": struct("row")},
    ],
    ids=lambda columns: ", ".join(columns),
)
def test_a_frame_without_side_output_is_refused(columns: dict[str, Any]) -> None:
    with pytest.raises(SchemaError) as caught:
        split_side_output(FakeFrame(**columns))
    assert str(caught.value) == (
        "[FRAME_TYPE] split_side_output: the frame has no column that tags side output\n"
        f"  got:       columns {', '.join(columns)}\n"
        "  expected:  'late, rejected or guarded', as an operator adds it\n"
        "  fix:       set stragglers='route', too_late='route' or rejected='route' in the operator, "
        "or apply time.guard first, and keep the column"
        "\n  see:       docs/errors.md#frame_type"
    )


@pytest.mark.parametrize("tag", ["late", "guard", 5])
def test_a_tag_that_the_frame_does_not_have_is_refused(tag: Any) -> None:
    frame = FakeFrame(ts=TIME, guarded=struct("reason outcome original bound"))
    with pytest.raises(SchemaError, match="FRAME_TYPE") as caught:
        split_side_output(frame, tag=tag)
    assert caught.value.expected == f"{tag!r}, as an operator adds it"


@pytest.mark.parametrize("value", ["results", None])
def test_a_value_that_is_not_a_frame_is_refused(value: Any) -> None:
    with pytest.raises(SpecError, match="NOT_A_FRAME"):
        split_side_output(value)


@pytest.mark.parametrize(
    ("names", "time", "keys"),
    [
        ("k ts v late", None, ""),
        ("k ts v late", "ts", "k ts"),
        ("k window_start window_end v late", None, "k window_start window_end"),
        ("k match_start match_end v late", None, "k match_start match_end"),
    ],
)
def test_late_rows_keep_the_columns_up_to_the_event_time(
    names: str, time: str | None, keys: str
) -> None:
    assert _key_columns(names.split(), time) == keys.split()


def test_an_event_time_that_the_frame_does_not_have_is_refused() -> None:
    frame = FakeFrame(k=TEXT, ts=TIME, late=LATE)
    with pytest.raises(ColumnNotFound) as caught:
        split_side_output(frame, time="tss")
    assert (caught.value.where, caught.value.fix) == ("split_side_output", "did you mean 'ts'?")
    with pytest.raises(SpecError, match="PARAMETER_TYPE"):
        split_side_output(frame, time=5)  # type: ignore[arg-type]


def test_the_function_is_offered_at_the_top() -> None:
    assert "split_side_output" in streamops.__all__
