"""Column definitions as text."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops.errors import SpecError
from streamops.kernel.columns import type_name
from streamops.kernel.ddl import parse_schema


def parse(value: Any) -> list[tuple[str, str, bool]]:
    schema = parse_schema(value, parameter="state")
    return [(field.name, type_name(field.type), field.nullable) for field in schema]


def test_names_types_and_nullability() -> None:
    assert parse("a int, `b ``c` STRING not null, d: double") == [
        ("a", "int", True),
        ("b `c", "string", False),
        ("d", "double", True),
    ]
    assert parse("") == []


@pytest.mark.parametrize(
    "dtype",
    [
        *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary"),
        *("date", "timestamp", "timestamp_ntz", "decimal(10,2)", "array<array<int>>"),
        *("map<string,array<bigint>>", "struct<a:int,b:struct<c:string>>"),
    ],
)
def test_every_type_has_the_name_that_spark_gives_it(dtype: str) -> None:
    assert parse({"x": dtype}) == [("x", dtype, True)]
    assert parse(f"x {dtype}") == [("x", dtype, True)]


def test_a_decimal_has_the_defaults_of_spark() -> None:
    assert parse("a decimal, b dec(5)") == [
        ("a", "decimal(10,0)", True),
        ("b", "decimal(5,0)", True),
    ]


def test_an_arrow_schema_is_accepted_without_its_metadata() -> None:
    schema = pa.schema([("a", pa.int32())], metadata={"x": "y"})
    assert parse_schema(schema, parameter="state").metadata is None


@pytest.mark.parametrize(
    "value",
    [
        *(
            "a",
            "a int b int",
            "a int,",
            "a array<int",
            "a map<int>",
            "a decimal(50)",
            "a decimal(2,3)",
        ),
        *("a int not", "a int not b", "1 int", "a ?", "a int, A string", "a decimal(x)", "a foo"),
        *(None, 5, ["a int"], {"a": 5}, {"a": "int int"}),
    ],
    ids=repr,
)
def test_other_text_is_refused_with_an_example(value: Any) -> None:
    with pytest.raises(SpecError) as caught:
        parse(value)
    assert caught.value.code == "INVALID_SCHEMA"
    assert "bigint" in caught.value.fix
