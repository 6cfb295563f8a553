"""What a user may say about duplicates, and what every mistake is answered with."""

from __future__ import annotations

import doctest
import importlib
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, LongType, MapType, StringType, StructField, StructType
from pyspark.sql.types import TimestampType as Timestamp

from streamops import sketches
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError, WatermarkError
from streamops.kernel.versions import has_transform

COLUMNS: list[tuple[str, DataType]] = [
    ("order_id", LongType()), ("ts", Timestamp()), ("tags", MapType(StringType(), LongType()))
]  # fmt: skip


class FakeFrame:
    """A frame that is nothing but its columns."""

    isStreaming = False

    def __init__(self, *dtypes: tuple[str, DataType], mark: str = "") -> None:
        emitted = {"spark.watermarkDelayMs": 0}
        self.schema = StructType(
            [StructField(n, dtype, metadata=emitted if n == mark else {}) for n, dtype in dtypes]
        )
        self.isStreaming = bool(mark)
        self.sparkSession = self.conf = self

    def _explain_string(self, extended: bool) -> str:
        return "+- ~EventTimeWatermark ts#0: timestamp, 1 minutes"

    def get(self, key: str) -> str:
        assert key == "spark.sql.caseSensitive"
        return "false"


def seen(**changed: Any) -> Any:
    arguments = {"identity": "order_id", "capacity": 1_000, "time": "ts", "horizon": "30 days"}
    return sketches.seen(**(arguments | changed))


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"identity": 1}, "PARAMETER_TYPE"),
        ({"identity": ["order_id", None]}, "PARAMETER_TYPE"),
        ({"identity": []}, "PARAMETER_MISSING"),
        ({"identity": ["a", "a"]}, "DUPLICATE_COLUMN"),
        ({"capacity": 0}, "PARAMETER_OUT_OF_RANGE"),
        ({"capacity": 1e6}, "PARAMETER_OUT_OF_RANGE"),
        ({"capacity": True}, "PARAMETER_OUT_OF_RANGE"),
        ({"false_positive_rate": 0}, "PARAMETER_OUT_OF_RANGE"),
        ({"false_positive_rate": 0.51}, "PARAMETER_OUT_OF_RANGE"),
        ({"false_positive_rate": 1e-10}, "PARAMETER_OUT_OF_RANGE"),
        ({"false_positive_rate": float("nan")}, "PARAMETER_OUT_OF_RANGE"),
        ({"false_positive_rate": "1 %"}, "PARAMETER_OUT_OF_RANGE"),
        ({"time": 7}, "PARAMETER_TYPE"),
        ({"time": None}, "PARAMETER_MISSING"),
        ({"horizon": "0 seconds"}, "INVALID_DURATION"),
        ({"horizon": "1 month"}, "INVALID_DURATION"),
        ({"horizon": "soon"}, "INVALID_DURATION"),
        ({"generations": 0}, "PARAMETER_OUT_OF_RANGE"),
        ({"generations": 65}, "PARAMETER_OUT_OF_RANGE"),
        ({"generations": 4.0}, "PARAMETER_OUT_OF_RANGE"),
        ({"again": "route"}, "UNKNOWN_CHOICE"),
        ({"when_full": "null"}, "UNKNOWN_CHOICE"),
    ],
    ids=repr,
)
def test_invalid_parameters_are_refused_where_they_are_given(
    changed: dict[str, Any], code: str
) -> None:
    with pytest.raises(SpecError) as caught:
        seen(**changed)
    assert (caught.value.code, caught.value.where) == (code, "sketches.seen")


def test_the_error_of_a_large_filter_names_the_number_of_shards() -> None:
    with pytest.raises(SpecError) as caught:
        seen(capacity=10**9)(FakeFrame(*COLUMNS))
    assert (caught.value.code, caught.value.where) == ("PARAMETER_OUT_OF_RANGE", "sketches.seen")
    number = int(caught.value.fix.removeprefix(".options(shards=").removesuffix(") or more"))
    schema = pa.schema([("order_id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
    large = seen(capacity=10**9).parameters
    assert large.resolve((schema,), carried=(None,), shards=number).shards == number


@pytest.mark.parametrize(
    ("columns", "changed", "dtype", "code"),
    [
        (COLUMNS[1:], {}, ColumnNotFound, "COLUMN_NOT_FOUND"),
        (COLUMNS, {"identity": ["order_id", "Order_id"]}, ColumnNotFound, "COLUMN_NOT_FOUND"),
        (COLUMNS[:1], {}, ColumnNotFound, "COLUMN_NOT_FOUND"),
        ([*COLUMNS[:1], ("ts", StringType())], {}, SchemaError, "COLUMN_TYPE"),
        ([*COLUMNS, ("Seen", LongType())], {}, SchemaError, "NAME_TAKEN"),
        ([*COLUMNS, ("seen_full", LongType())], {}, SchemaError, "NAME_TAKEN"),
        (COLUMNS, {"identity": "tags"}, SchemaError, "TYPE_UNSUPPORTED"),
        ([*COLUMNS, ("_change_type", StringType())], {}, SchemaError, "CHANGE_STREAM_INPUT"),
        ([*COLUMNS, COLUMNS[0]], {}, SchemaError, "DUPLICATE_COLUMN"),
        *(
            # Collations are of Spark 4.
            ([("order_id", StringType("UTF8_LCASE")), COLUMNS[1]], {}, SchemaError, code)
            for code in ["TYPE_UNSUPPORTED"] * has_transform()
        ),
    ],
)
def test_an_unsupported_frame_is_refused(
    columns: Any, changed: dict[str, Any], dtype: type[SchemaError], code: str
) -> None:
    with pytest.raises(dtype) as caught:
        seen(**changed)(FakeFrame(*columns))
    assert caught.value.code == code


def test_the_error_of_an_identity_without_a_hash_names_the_type_of_spark() -> None:
    with pytest.raises(SchemaError) as caught:
        seen(identity="tags")(FakeFrame(*COLUMNS))
    assert (caught.value.got, caught.value.where) == (
        "map<string,bigint>", "sketches.seen, column 'tags'"
    )  # fmt: skip


def test_a_frame_with_a_watermark_is_refused_with_a_fix() -> None:
    with pytest.raises(WatermarkError) as caught:
        seen()(FakeFrame(*COLUMNS, mark="ts"))
    error = caught.value
    assert (error.code, error.got) == (
        "WATERMARK_TOO_EARLY", "a frame with a watermark on 'ts'"
    )  # fmt: skip
    assert "after it" in error.fix


def test_parameters_that_may_change_at_a_restart_are_not_in_the_identity() -> None:
    schema = pa.schema([("order_id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])

    def identity(**changed: Any) -> Any:
        parameters = seen(**changed).parameters
        return parameters.resolve((schema,), carried=(None,), shards=8).identity

    for changed in ({"when_full": "flag"}, {"again": "flag"}):
        assert identity(**changed) == identity()
    for changed in (
        {"capacity": 999}, {"false_positive_rate": 0.01}, {"horizon": "1 day"}, {"generations": 3},
        {"identity": "ts"}, {"horizon": None}, {"horizon": None, "time": None},
    ):  # fmt: skip
        assert identity(**changed) != identity()


def test_its_repr_has_the_parameters_that_are_not_the_defaults() -> None:
    assert repr(seen(horizon=None, again="flag").options(shards=3, name="orders")) == (
        "sketches.seen(identity=('order_id',), capacity=1000, time='ts', again='flag')"
        ".options(name='orders', shards=3)"
    )


@pytest.mark.parametrize("name", ["seen", "bloom"])
def test_the_examples_in_the_docstrings_run(name: str) -> None:
    module = importlib.import_module(f"streamops.sketches.{name}")
    assert doctest.testmod(module).failed == 0
