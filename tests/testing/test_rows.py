from __future__ import annotations

import builtins
import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

from streamops.kernel.errors import RequirementError, SchemaError, SpecError
from streamops.testing import BatchResult, assert_rows, at

NAN = float("nan")
RESULT = BatchResult(0, pa.table({"k": ["a"]}))
ONE, TWO = {"k": "a", "x": 1.0}, {"k": "b", "x": NAN}


def test_rows_are_equal_in_any_order() -> None:
    assert_rows([ONE, TWO], [TWO, ONE])
    assert_rows([], [])


def test_dicts_are_equal_with_any_order_of_columns() -> None:
    assert_rows([{"k": "a", "x": 1}], [{"x": 1, "k": "a"}])


def test_nan_equals_nan_at_any_depth() -> None:
    deep = {"list": [NAN], "struct": {"x": NAN, "in": [{"y": NAN}]}}
    assert_rows([deep], [{"list": [NAN], "struct": {"x": NAN, "in": [{"y": NAN}]}}])


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ([ONE], [ONE, ONE]),
        ([ONE, ONE], [ONE]),
        ([ONE], []),
        ([], [ONE]),
        ([ONE, ONE, TWO], [ONE, TWO, TWO]),
        ([{"k": "a"}], [{"k": "b"}]),
        ([{"k": True}], [{"k": 1}]),  # equal in Python
        ([{"k": {"x": [1, NAN]}}], [{"k": {"x": [1, None]}}]),
        ([{"k": at(0)}], [{"k": at(0).replace(tzinfo=None)}]),
    ],
)
def test_rows_that_differ_fail(actual: Any, expected: Any) -> None:
    with pytest.raises(AssertionError, match="the rows differ"):
        assert_rows(actual, expected)


def differences(actual: Any, expected: Any, **how: Any) -> list[str]:
    """The lines of the failure."""
    with pytest.raises(AssertionError) as caught:
        assert_rows(actual, expected, **how)
    return str(caught.value).splitlines()


def row(k: str, second: int, n: int, mean: float = 0.5) -> dict[str, Any]:
    return {"k": k, "window_start": at(second), "n": n, "mean": mean}


def test_a_failure_names_each_cell_that_differs() -> None:
    actual = [row("b", 0, 1), row("a", 0, 3), row("a", 60, 7, NAN), row("c", 0, 9)]
    expected = [row("a", 0, 4, 0.25), row("a", 60, 8, NAN), row("b", 0, 1), row("d", 0, 5)]
    assert differences(actual, expected) == [
        "the rows differ: 4 rows, 4 expected",
        "  k='a', window_start=2024-01-01 00:00:00+00:00: n is 3, expected 4",
        "  k='a', window_start=2024-01-01 00:00:00+00:00: mean is 0.5, expected 0.25",
        "  k='a', window_start=2024-01-01 00:01:00+00:00: n is 7, expected 8",
        "  not expected: k='c', window_start=2024-01-01 00:00:00+00:00, n=9, mean=0.5",
        "  missing: k='d', window_start=2024-01-01 00:00:00+00:00, n=5, mean=0.5",
    ]


def test_a_failure_names_a_row_by_as_few_columns_as_it_takes() -> None:
    assert differences([row("a", 0, 1), row("b", 0, 1)], [row("a", 0, 2), row("b", 0, 1)]) == [
        "the rows differ: 2 rows, 2 expected",
        "  k='a': n is 1, expected 2",
    ]


def test_a_missing_row_does_not_shift_the_others() -> None:
    rows = [row(k, 0, 1) for k in "abc"]
    first = "window_start=2024-01-01 00:00:00+00:00, n=1, mean=0.5"
    assert differences(rows[1:], rows)[1:] == [f"  missing: k='a', {first}"]
    assert differences([*rows, rows[0]], rows)[1:] == [f"  not expected: k='a', {first}"]


def test_ordered_rows_are_named_by_their_positions() -> None:
    assert_rows([ONE, TWO], [ONE, TWO], ordered=True)
    assert differences([ONE, TWO], [TWO, ONE], ordered=True)[1:] == [
        "  row 1: k is 'a', expected 'b'",
        "  row 1: x is 1.0, expected nan",
        "  row 2: k is 'b', expected 'a'",
        "  row 2: x is nan, expected 1.0",
    ]
    assert differences([ONE], [ONE, TWO], ordered=True)[1:] == ["  missing: k='b', x=nan"]


def test_a_failure_has_at_most_twenty_lines() -> None:
    actual, expected = ([{"k": k, "n": n} for k in range(1_500)] for n in (0, 1))
    *_, last, rest = differences(actual, expected)
    assert (last, rest) == ("  k=19: n is 0, expected 1", "  and 2,880 more differences")


def test_pytest_shows_the_line_of_the_test_and_not_the_test_kit() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_rows([ONE], [TWO])
    assert {str(entry.path) for entry in caught.traceback.filter(caught)} == {__file__}


@pytest.mark.parametrize("expected", [[{"k": "a"}], [{"k": "a", "x": 1.0, "y": None}]])
def test_every_column_must_be_named(expected: Any) -> None:
    for sides in ((expected, [ONE]), ([ONE], expected)):
        with pytest.raises(AssertionError, match="the columns differ"):
            assert_rows(*sides)
    with pytest.raises(AssertionError, match="the columns differ"):
        assert_rows([*expected, ONE], [*expected, ONE])


TABLE = pa.table({"k": ["a"], "n": pa.array([1], pa.int64())})


def test_types_of_tables_are_compared() -> None:
    assert_rows(TABLE, TABLE.cast(pa.schema([("k", pa.large_string()), ("n", pa.int64())])))
    narrow = TABLE.cast(pa.schema([("k", pa.string()), ("n", pa.int32())]))
    with pytest.raises(AssertionError, match=r"the columns differ(.|\n)*IntegerType"):
        assert_rows(TABLE, narrow)
    assert_rows(narrow, [{"k": "a", "n": 1}])


def test_nullability_does_not_matter() -> None:
    schema = pa.schema([pa.field("k", pa.string(), nullable=False), ("n", pa.int64())])
    assert_rows(TABLE, TABLE.cast(schema))


@pytest.mark.parametrize(
    "duplicates",
    [
        pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["n", "n"]),
        [Row("n", "n")(1, 2)],
    ],
    ids=["table", "Row"],
)
def test_two_columns_of_one_name_are_refused(duplicates: Any) -> None:
    sides: tuple[Any, Any]
    for sides in ((duplicates, duplicates), (duplicates, []), ([], duplicates)):
        with pytest.raises(SchemaError) as caught:
            assert_rows(*sides)
        assert caught.value.code == "DUPLICATE_COLUMN"


@pytest.mark.parametrize(
    ("given", "got"),
    [
        (None, "a NoneType"),
        ({"k": "a"}, "a dict"),
        ("rows", "a str"),
        ([("k", "a")], "a list with a tuple"),
        (RESULT, "a BatchResult"),
        ([RESULT], "a list with a BatchResult"),
    ],
)
def test_values_that_are_not_rows_are_refused(given: Any, got: str) -> None:
    for sides in ((given, [{"k": "a"}]), ([{"k": "a"}], given)):
        with pytest.raises(SpecError) as caught:
            assert_rows(*sides)
        assert (caught.value.code, caught.value.got) == ("INVALID_ROWS", got)
        assert "result.rows" in caught.value.fix


def test_the_error_for_a_missing_chispa_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("chispa"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(RequirementError, match=r"streamops\[testing\]") as caught:
        assert_rows([], [])
    assert caught.value.code == "PACKAGE_MISSING"


def test_frames_are_equal_to_frames_and_to_lists(spark: SparkSession) -> None:
    rows = [("a", NAN, {"x": 1.0}, at(1)), ("b", 0.0, None, at(2))]
    names = ["k", "v", "m", "ts"]
    types = "k string, v double, m map<string, double>, ts timestamp"
    frame = spark.createDataFrame(rows, types)
    assert_rows(frame, spark.createDataFrame(rows[::-1], types))
    assert_rows(frame, [dict(zip(names, row, strict=True)) for row in rows])
    assert_rows(frame.collect(), frame)
    assert_rows(frame, frame.toArrow())
    with pytest.raises(AssertionError, match="the rows differ"):
        assert_rows(frame, frame.limit(1))
    with pytest.raises(AssertionError, match="the columns differ"):
        assert_rows(frame, frame.withColumn("v", frame.v.cast("float")))
    with pytest.raises(AssertionError, match="the columns differ"):
        assert_rows(frame, [{"k": "a"}])


def test_frames_with_two_columns_of_one_name_are_refused(spark: SparkSession) -> None:
    """Chispa compares rows as dicts, which keep the last of two columns with the same name."""
    one, other = (
        spark.range(1).selectExpr(f"{first} AS x", "2 AS x") for first in (1, 999)
    )  # the first columns differ
    with pytest.raises(SchemaError) as caught:
        assert_rows(one, other)
    assert caught.value.code == "DUPLICATE_COLUMN"


def test_instants_are_compared_and_not_local_times(spark: SparkSession) -> None:
    hours = [dt.datetime(2024, 10, 27, hour, 30, tzinfo=dt.UTC) for hour in (0, 1)]
    one, other = (spark.createDataFrame([(hour,)], "ts timestamp") for hour in hours)
    assert_rows(one, [{"ts": hours[0]}])
    with pytest.raises(AssertionError, match="the rows differ"):
        assert_rows(one, other)
