"""Parameters of operators on event times, and the errors for invalid ones. No Spark."""

from __future__ import annotations

import datetime as dt
import doctest
import importlib
from typing import Any

import pytest
from pyspark.sql.types import (
    DataType,
    DateType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

from streamops import time
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError, WatermarkError
from streamops.kernel.parameters import not_an_instant
from streamops.kernel.versions import has_transform

TIME, TEXT = TimestampType(), StringType()
GUARDED = StructType([StructField(n, TEXT) for n in ("reason", "outcome", "original", "bound")])


class FakeFrame:
    """A frame with a schema and no rows, in a session that ignores the case of names."""

    isStreaming = False

    def __init__(
        self, *columns: tuple[str, DataType], streaming: bool = False, mark: str = ""
    ) -> None:
        self.schema = StructType(
            [
                StructField(
                    name, type_, metadata={"spark.watermarkDelayMs": 0} if name == mark else {}
                )
                for name, type_ in columns
            ]
        )
        self.isStreaming = streaming
        self.sparkSession = self.conf = self

    def _explain_string(self, extended: bool) -> str:
        return "+- ~EventTimeWatermark ts#0: timestamp, 1 minutes"

    def get(self, key: str) -> str:
        assert key == "spark.sql.caseSensitive"
        return "false"


def guard(**changed: Any) -> Any:
    return time.guard(**{"time": "ts", **changed})


def producers(**changed: Any) -> Any:
    arguments = {"producer": "k", "time": "ts", "delay": "10 seconds", "idle": "5 minutes"}
    return time.producers(**arguments | changed)


def correct(**changed: Any) -> Any:
    return time.correct_clock(
        **{"time": "ts", "sent": "sent_at", "received": "received_at", **changed}
    )


@pytest.mark.parametrize(
    ("make", "changed", "code"),
    [
        (guard, {"time": 1}, "PARAMETER_TYPE"),
        (guard, {"arrival": dt.UTC}, "PARAMETER_TYPE"),
        (guard, {"arrival": "ts"}, "DUPLICATE_COLUMN"),
        (guard, {"ahead": "-1 second"}, "INVALID_DURATION"),
        (guard, {"ahead": "1 month"}, "INVALID_DURATION"),
        (guard, {"ahead": None}, "INVALID_DURATION"),
        (guard, {"ahead": "4000000 days"}, "INVALID_DURATION"),
        (guard, {"before": "-1 second"}, "INVALID_DURATION"),
        (guard, {"before": "1 year"}, "INVALID_DURATION"),
        (guard, {"before": dt.date(2020, 1, 1)}, "INVALID_DURATION"),
        (guard, {"before": dt.datetime(2020, 1, 1)}, "INVALID_PARAMETER"),  # noqa: DTZ001
        (guard, {"future": "drop"}, "UNKNOWN_CHOICE"),
        (guard, {"past": None}, "UNKNOWN_CHOICE"),
        (guard, {"unusable": "clamp"}, "UNKNOWN_CHOICE"),
        (correct, {"sent": None}, "PARAMETER_TYPE"),
        (correct, {"sent": "ts"}, "DUPLICATE_COLUMN"),
        (correct, {"received": "sent_at"}, "DUPLICATE_COLUMN"),
        (correct, {"tolerance": "-1 second"}, "INVALID_DURATION"),
        (correct, {"tolerance": None}, "INVALID_DURATION"),
        (correct, {"longest_wait": "1 month"}, "INVALID_DURATION"),
        (correct, {"largest_offset": "-1 day"}, "INVALID_DURATION"),
        (correct, {"otherwise": "now"}, "UNKNOWN_CHOICE"),
        (producers, {"producer": None}, "PARAMETER_TYPE"),
        (producers, {"time": 1}, "PARAMETER_TYPE"),
        (producers, {"producer": "ts"}, "DUPLICATE_COLUMN"),
        (producers, {"arrival": "ts"}, "DUPLICATE_COLUMN"),
        (producers, {"arrival": "k"}, "DUPLICATE_COLUMN"),
        (producers, {"punctuation": "ts"}, "DUPLICATE_COLUMN"),
        (producers, {"punctuation": 1}, "PARAMETER_TYPE"),
        (producers, {"delay": "-1 second"}, "INVALID_DURATION"),
        (producers, {"delay": None}, "INVALID_DURATION"),
        (producers, {"delay": "1 microsecond"}, "INVALID_DURATION"),
        (producers, {"idle": "0 seconds"}, "INVALID_DURATION"),
        (producers, {"idle": "1 month"}, "INVALID_DURATION"),
        (producers, {"idle": None}, "INVALID_DURATION"),
        (producers, {"expected": "a"}, "PARAMETER_TYPE"),
        (producers, {"expected": b"a"}, "PARAMETER_TYPE"),
        (producers, {"expected": {"a", "b"}}, "PARAMETER_TYPE"),
    ],
)
def test_invalid_parameters_are_refused_without_a_frame(
    make: Any, changed: dict[str, Any], code: str
) -> None:
    with pytest.raises(SpecError) as caught:
        make(**changed)
    assert caught.value.code == code
    where = {guard: "guard", correct: "correct_clock", producers: "producers"}[make]
    assert caught.value.where == f"time.{where}"
    assert next(iter(changed)) in str(caught.value)


def test_the_error_for_one_column_in_two_parameters_names_both() -> None:
    with pytest.raises(SpecError) as caught:
        guard(arrival="ts")
    assert str(caught.value) == (
        "[DUPLICATE_COLUMN] time.guard: `time` and `arrival` name the same column\n"
        "  got:       time='ts', arrival='ts'\n"
        "  expected:  different columns\n"
        "  fix:       name the column that holds what `arrival` describes"
        "\n  see:       docs/errors.md#duplicate_column"
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, ""),
        ({"before": "0 seconds"}, ", before='0 seconds'"),
        ({"before": dt.timedelta(days=30)}, ", before='30 days'"),
        ({"before": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)}, ", before='2020-01-01 00:00:00Z'"),
        ({"ahead": "90 seconds"}, ", ahead='1 minute 30 seconds'"),
    ],
)
def test_repr_of_a_guard_shows_its_parameters(arguments: dict[str, Any], text: str) -> None:
    assert repr(guard(**arguments)) == f"time.guard(time='ts'{text})"


@pytest.mark.parametrize(
    ("transform", "column", "role", "near"),
    [
        (guard(), "ts", "time", "TS"),
        (guard(time="TS", arrival="arived"), "arived", "arrival", "arrived"),
        (correct(time="TS", sent="arived"), "arived", "sent", "arrived"),
        (correct(time="TS", sent="arrived", received="x"), "x", "received", None),
        (producers(producer="Arrived", time="TS"), "Arrived", "producer", "arrived"),
        (producers(producer="arrived", time="ts"), "ts", "time", "TS"),
        (producers(producer="arrived", time="TS", arrival="x"), "x", "arrival", None),
    ],
    ids=repr,
)
def test_the_error_for_a_missing_column_suggests_the_nearest_name(
    transform: Any, column: str, role: str, near: str | None
) -> None:
    with pytest.raises(ColumnNotFound) as caught:
        transform(FakeFrame(("TS", TIME), ("arrived", TIME)))
    assert caught.value.where == transform.name
    assert f"column {column!r}, given as `{role}`, does not exist" in str(caught.value)
    assert (f"did you mean {near!r}?" if near else "name one of: TS, arrived") in caught.value.fix


@pytest.mark.parametrize(
    ("transform", "columns", "expected"),
    [
        (guard(), [("ts", LongType())], "timestamp, or string"),
        (guard(), [("ts", DateType())], "timestamp, or string"),
        (guard(), [("ts", TimestampNTZType())], "timestamp, or string"),
        (guard(arrival="at"), [("ts", TEXT), ("at", TEXT)], "timestamp"),
        (correct(), [("ts", TEXT)], "timestamp"),
        (producers(), [("k", TEXT), ("ts", TEXT)], "timestamp"),
        (producers(), [("k", TEXT), ("ts", TimestampNTZType())], "timestamp"),
        (producers(arrival="at"), [("k", TEXT), ("ts", TIME), ("at", TEXT)], "timestamp"),
    ],
)
def test_a_column_of_the_wrong_type_is_refused(
    transform: Any, columns: list[Any], expected: str
) -> None:
    name, type_ = columns[-1]
    role = "arrival" if name == "at" else "time"
    with pytest.raises(SchemaError) as caught:
        transform(FakeFrame(*columns))
    assert str(caught.value) == (
        f"[COLUMN_TYPE] {transform.name}: column {name!r} cannot be used as `{role}`\n"
        f"  got:       {name!r} of type {type_.simpleString()}\n"
        f"  expected:  {expected}\n"
        f"  fix:       {not_an_instant(type_.simpleString()).fix.format(column=name)}"
        "\n  see:       docs/errors.md#column_type"
    )


@pytest.mark.parametrize(
    ("transform", "taken"),
    [(guard(), "Guarded"), (correct(), "corrected_time"), (correct(), "CLOCK_QUALITY")],
)
def test_a_frame_that_has_a_column_of_the_result_is_refused(transform: Any, taken: str) -> None:
    columns = [(name, TIME) for name in ("ts", "sent_at", "received_at")]
    with pytest.raises(SchemaError) as caught:
        transform(FakeFrame(*columns, (taken, TEXT)))
    assert caught.value.code == "NAME_TAKEN"
    assert caught.value.fix == f"df.withColumnRenamed({taken!r}, ...) before this operator"


def test_a_frame_with_two_columns_of_the_same_name_is_refused() -> None:
    with pytest.raises(SchemaError, match="DUPLICATE_COLUMN"):
        guard()(FakeFrame(("ts", TIME), ("k", TEXT), ("K", TEXT)))


def test_a_guard_after_the_watermark_is_refused() -> None:
    with pytest.raises(WatermarkError) as caught:
        guard()(FakeFrame(("ts", TIME), streaming=True, mark="ts"))
    assert str(caught.value) == (
        "[WATERMARK_TOO_EARLY] time.guard: the watermark is defined before the guard, so future "
        "event times advance it\n"
        "  got:       a frame with a watermark on 'ts'\n"
        "  expected:  a frame without a watermark\n"
        "  fix:       apply the guard first, then withWatermark('ts', ...) or delay=..."
        "\n  see:       docs/errors.md#watermark_too_early"
    )


def test_producers_after_another_watermark_are_refused() -> None:
    with pytest.raises(WatermarkError) as caught:
        producers()(FakeFrame(("k", TEXT), ("ts", TIME), streaming=True, mark="ts"))
    assert str(caught.value) == (
        "[WATERMARK_TWICE] time.producers: the frame already has a watermark, and Spark "
        "does not allow a second one\n"
        "  got:       a frame with a watermark on 'ts'\n"
        "  expected:  a frame without a watermark: this operator defines one on 'ts'\n"
        "  fix:       remove withWatermark('ts', ...); apply this operator before all operators "
        "with a delay"
        "\n  see:       docs/errors.md#watermark_twice"
    )


@pytest.mark.parametrize(
    ("producer_type", "text"),
    [
        (MapType(TEXT, TEXT), "map<string,string>"),
        (StructType([StructField("m", MapType(TEXT, LongType()))]), "map<string,bigint>"),
    ],
    ids=str,
)
def test_a_producer_of_a_type_without_equality_is_refused(
    producer_type: DataType, text: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        producers()(FakeFrame(("k", producer_type), ("ts", TIME)))
    assert caught.value.code == "TYPE_UNSUPPORTED"
    assert caught.value.where == "time.producers, producer 'k'"
    assert caught.value.got == text


@pytest.mark.skipif(not has_transform(), reason="Spark 4")
def test_a_producer_with_a_collation_is_refused() -> None:
    with pytest.raises(SchemaError, match="TYPE_UNSUPPORTED"):
        producers()(FakeFrame(("k", StringType("UTF8_LCASE")), ("ts", TIME)))


def test_columns_that_producers_does_not_read_may_have_any_type() -> None:
    frame = FakeFrame(("k", TEXT), ("ts", TIME), ("months", YearMonthIntervalType()))
    assert producers()(frame) is frame


@pytest.mark.parametrize("expected", [[1], ["a", 1.5], [["a"]]])
def test_expected_producers_must_have_the_type_of_the_column(expected: list[Any]) -> None:
    with pytest.raises(SchemaError) as caught:
        producers(expected=expected)(FakeFrame(("k", TEXT), ("ts", TIME)))
    assert str(caught.value) == (
        "[VALUE_TYPE] time.producers: a value of `expected` does not have the type of "
        "the column of producers\n"
        f"  got:       expected={expected!r}, 'k' of type string\n"
        "  expected:  values of 'k'\n"
        "  fix:       use values of the column 'k'"
        "\n  see:       docs/errors.md#value_type"
    )


def test_a_single_expected_producer_is_not_a_list() -> None:
    with pytest.raises(SpecError) as caught:
        producers(expected="a")
    assert str(caught.value) == (
        "[PARAMETER_TYPE] time.producers: `expected` is not a list of producers\n"
        "  got:       expected='a'\n"
        "  expected:  a list of values of the column 'k'\n"
        "  fix:       expected=['a']"
        "\n  see:       docs/errors.md#parameter_type"
    )


def test_repr_of_producers_shows_its_parameters() -> None:
    assert repr(producers(expected=["a"], arrival="at")) == (
        "time.producers(producer='k', time='ts', delay='10 seconds', idle='5 minutes', "
        "arrival='at', expected=('a',))"
    )


@pytest.mark.parametrize("module", ["guard", "correct_clock", "producers"])
def test_docstring_examples_run(module: str) -> None:
    outcome = doctest.testmod(importlib.import_module(f"streamops.time.{module}"))
    assert outcome.attempted >= 2
    assert outcome.failed == 0
