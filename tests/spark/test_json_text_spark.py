"""Values as JSON: what Spark's ``to_json`` would change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from streamops.errors import SchemaError, SinkError
from streamops.spark.json_columns import refuse_invalid_text, to_checked_json, to_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def to_text(frame: DataFrame) -> list[str | None]:
    rows = frame.select(to_checked_json(F.col("v"), frame.schema["v"].dataType))
    table = rows.toArrow().rename_columns(["v"])
    refuse_invalid_text(table, ["v"])
    return table.column("v").to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("map(2, 1, 1, 2)", '{"1":2,"2":1}'),
        ("map(X'00ff', map(DATE'2026-01-01', true))", '{"AP8=":{"2026-01-01":true}}'),
        ("map(array(1, 2), 'x')", '{"[1,2]":"x"}'),
        ("map(named_struct('d', DATE'2026-01-01'), 1)", '{"{\\"d\\":\\"2026-01-01\\"}":1}'),
        ("array(map('a', CAST(NULL AS INT)), NULL)", '[{"a":null},null]'),
        ("named_struct('a', map(1, 2), 'A', NULL)", '{"a":{"1":2},"A":null}'),
        ("CAST(NULL AS map<int, int>)", None),
        ("""array(parse_json('{"b":1.5,"a":null}'))""", '[{"a":null,"b":1.5}]'),
    ],
)
def test_maps_have_their_keys_as_text(
    spark: SparkSession, value: str, expected: str | None
) -> None:
    assert to_text(spark.range(1).selectExpr(f"{value} AS v")) == [expected]


@pytest.mark.parametrize(
    "value",
    [
        "named_struct('a', {})",
        "array('a', NULL, {})",
        "map('a', {})",
        "map({}, 'a')",
        "array(named_struct('a', map(1, array({}))))",
    ],
)
def test_text_that_is_not_utf_8_is_refused(spark: SparkSession, value: str) -> None:
    invalid = spark.range(1).selectExpr(
        f"{value.format('CAST(X' + repr('61ff') + ' AS STRING)')} AS v"
    )
    with pytest.raises(SinkError, match="TARGET_REFUSED"):
        to_text(invalid)
    (text,) = invalid.select(to_json(F.col("v"), invalid.schema["v"].dataType)).first() or ()
    assert "a\ufffd" in text
    assert None not in to_text(spark.range(1).selectExpr(f"{value.format(repr('ok'))} AS v"))


def test_two_fields_of_one_name_are_refused(spark: SparkSession) -> None:
    twice = spark.range(1).selectExpr("array(named_struct('a', 1, 'a', 2)) AS v")
    with pytest.raises(SchemaError, match="DUPLICATE_COLUMN"):
        to_text(twice)
