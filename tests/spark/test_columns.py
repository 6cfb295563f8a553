"""Names and types at the border to Spark, without Spark."""

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

from streamops.kernel.errors import SchemaError, SpecError
from streamops.spark import columns, requirements
from streamops.spark.columns import arrow_schema, refuse_collated, require_name, type_name

LOWER = StringType("UTF8_LCASE")


class FakeFrame:
    """A frame that is nothing but its columns, of a session that knows one setting."""

    def __init__(self, case_sensitive: str = "false", **kinds: Any) -> None:
        self.schema = StructType([StructField(name, kind) for name, kind in kinds.items()])
        self.sparkSession = self.conf = self
        self.case_sensitive = case_sensitive

    def get(self, key: str) -> str:
        assert key == "spark.sql.caseSensitive"
        return self.case_sensitive


def struct(**kinds: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


@pytest.mark.parametrize(
    "kind",
    [
        LOWER,
        ArrayType(LOWER),
        MapType(LOWER, IntegerType()),
        MapType(IntegerType(), LOWER),
        struct(inner=struct(text=LOWER)),
    ],
    ids=lambda kind: kind.simpleString(),
)
def test_a_collation_is_found_at_any_depth(kind: Any) -> None:
    with pytest.raises(SchemaError) as caught:
        refuse_collated(FakeFrame(k=kind), ["k"], where="windows.tumbling")
    assert caught.value.code == "COLLATED_COLUMN"
    refuse_collated(FakeFrame(k=kind), ["other"], where="windows.tumbling")


def test_a_field_is_not_a_collation_because_of_its_name() -> None:
    kind = struct(collate_id=IntegerType(), text=StringType())
    refuse_collated(FakeFrame(k=kind), ["k"], where="windows.tumbling")


def test_names_that_differ_only_in_case_are_one_name_to_spark() -> None:
    with pytest.raises(SchemaError) as caught:
        arrow_schema(FakeFrame(x=IntegerType(), X=IntegerType()), where="windows.tumbling")
    assert (caught.value.code, caught.value.got) == ("DUPLICATE_COLUMN", "X, x")


def test_names_that_differ_only_in_case_are_two_where_spark_is_told_so() -> None:
    frame = FakeFrame("true", x=IntegerType(), X=IntegerType())
    assert arrow_schema(frame, where="windows.tumbling").names == ["x", "X"]


@pytest.mark.parametrize("value", [None, 1, ["ts"], b"ts"])
def test_what_is_not_text_is_not_a_name(value: Any) -> None:
    with pytest.raises(SpecError) as caught:
        require_name(value, parameter="time", where="windows.tumbling")
    assert str(caught.value) == (
        "[NOT_A_NAME] windows.tumbling: `time` is not a name\n"
        f"  got:       {value!r} of type {type(value).__name__}\n"
        "  expected:  text\n"
        '  fix:       write the name in quotes, such as "ts", and not F.col("ts")'
    )


@pytest.mark.parametrize(
    ("kind", "word"),
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
def test_types_are_named_as_spark_names_them_where_it_does(kind: pa.DataType, word: str) -> None:
    assert type_name(kind) == word


@pytest.mark.parametrize("module", [columns, requirements])
def test_the_examples_in_the_docstrings_are_true(module: Any) -> None:
    outcome = doctest.testmod(module)
    assert outcome.failed == 0
    assert outcome.attempted > 0
