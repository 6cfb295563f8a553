"""Names and types of Spark columns, without a session."""

from __future__ import annotations

import doctest
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from streamops.environment import requirements
from streamops.kernel.errors import SchemaError, SpecError, located
from streamops.kernel.parameters import require_name
from streamops.kernel.versions import has_transform
from streamops.spark import columns
from streamops.spark.columns import arrow_schema, refuse_collated, type_name

LOWER = StringType("UTF8_LCASE") if has_transform() else StringType()


class FakeFrame:
    """A frame that is nothing but its columns, of a session that knows one setting."""

    def __init__(self, case_sensitive: str = "false", **types: Any) -> None:
        self.schema = StructType([StructField(name, dtype) for name, dtype in types.items()])
        self.sparkSession = self.conf = self
        self.case_sensitive = case_sensitive

    def get(self, key: str) -> str:
        assert key == "spark.sql.caseSensitive"
        return self.case_sensitive


def struct(**types: Any) -> StructType:
    return StructType([StructField(name, dtype) for name, dtype in types.items()])


@pytest.mark.skipif(not has_transform(), reason="collations are of Spark 4")
@pytest.mark.parametrize(
    "dtype",
    [
        LOWER,
        ArrayType(LOWER),
        MapType(LOWER, IntegerType()),
        MapType(IntegerType(), LOWER),
        struct(inner=struct(text=LOWER)),
    ],
    ids=lambda dtype: dtype.simpleString(),
)
def test_a_collation_is_found_at_any_depth(dtype: Any) -> None:
    with pytest.raises(SchemaError) as caught:
        refuse_collated(FakeFrame(k=dtype), ["k"])
    assert caught.value.code == "TYPE_UNSUPPORTED"
    refuse_collated(FakeFrame(k=dtype), ["other"])


def test_a_field_is_not_a_collation_because_of_its_name() -> None:
    dtype = struct(collate_id=IntegerType(), text=StringType())
    refuse_collated(FakeFrame(k=dtype), ["k"])


def test_names_that_differ_only_in_case_are_one_name_to_spark() -> None:
    with pytest.raises(SchemaError) as caught:
        arrow_schema(FakeFrame(x=IntegerType(), X=IntegerType()))
    assert (caught.value.code, caught.value.got) == ("DUPLICATE_COLUMN", "X, x")


def test_names_that_differ_only_in_case_are_distinct_if_spark_is_case_sensitive() -> None:
    frame = FakeFrame("true", x=IntegerType(), X=IntegerType())
    assert arrow_schema(frame).names == ["x", "X"]


@pytest.mark.parametrize("value", [None, 1, ["ts"], b"ts"])
def test_what_is_not_text_is_not_a_name(value: Any) -> None:
    with pytest.raises(SpecError) as caught, located("windows.tumbling"):
        require_name(value, parameter="time")
    assert str(caught.value) == (
        "[PARAMETER_TYPE] windows.tumbling: `time` is not a name\n"
        f"  got:       {value!r} of type {type(value).__name__}\n"
        "  expected:  text\n"
        '  fix:       write the name in quotes, such as "ts", and not F.col("ts")'
        "\n  see:       docs/errors.md#parameter_type"
    )


@pytest.mark.parametrize(
    ("dtype", "word"),
    [
        (pa.int64(), "bigint"),
        (pa.list_(pa.float64()), "array<double>"),
        (pa.timestamp("us"), "timestamp_ntz"),
        (pa.timestamp("us", "UTC"), "timestamp"),
        (pa.map_(pa.string(), pa.int8()), "map<string,tinyint>"),
        (pa.uint64(), "uint64"),
    ],
    ids=str,
)
def test_types_have_the_names_of_spark(dtype: pa.DataType, word: str) -> None:
    assert type_name(dtype) == word


@pytest.mark.parametrize("module", [columns, requirements])
def test_the_examples_in_the_docstrings_are_true(module: Any) -> None:
    outcome = doctest.testmod(module)
    assert outcome.failed == 0
    assert outcome.attempted > 0
