"""What a pattern reads from the frame, and which columns its results come from."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streamops import patterns

SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("price", pa.float64()),
        ("seats", pa.int64()),
    ]
)


def settings(**given: Any) -> Any:
    defaults: dict[str, Any] = {
        "define": {"low": "price < 1", "high": patterns.previous("price") < "price"},
        "measures": {
            "first": patterns.first("low", "ts"),
            "prices": patterns.collect_list("high", "price"),
            "mean": patterns.mean("high", "price"),
            "rows": patterns.count("low"),
            "seats": patterns.mean("low", "seats"),
        },
    }
    operator = patterns.match(
        "low high+",
        time="ts",
        by="user",
        within="1 minute",
        delay="0 seconds",
        **(defaults | given),
    )
    return operator.parameters


def test_spark_evaluates_what_is_no_column_once() -> None:
    found = settings().missing_texts(SCHEMA.names)
    assert [*found.values()] == ["price < 1"]
    again = settings(define={"low": "price < 1", "high": "price < 1"})
    assert again.missing_texts(SCHEMA.names) == found
    assert settings(define={"low": "user", "high": "price"}).missing_texts(SCHEMA.names) == {}


def test_conditions_are_read_from_the_columns_that_spark_adds() -> None:
    (name,) = settings().missing_texts(SCHEMA.names)
    spec = settings().resolve(
        (SCHEMA.append(pa.field(name, pa.bool_())),), carried=(None,), shards=1
    )
    assert name in spec.inputs[0].schema.names
    assert spec.origins == {
        "user": (0, "user"),
        "first": (0, "ts"),
        "prices": (0, "price"),
        "mean": (0, "price"),
    }


def test_values_that_are_aggregated_are_compared() -> None:
    assert settings(tie_break="price").reads == (("user", "price", "price", "seats"),)


def test_only_conditions_over_the_first_row_store_values_of_earlier_rows() -> None:
    both = (patterns.previous("price", 3) < "price") & (patterns.initial("price") > "seats")
    spec = settings(define={"low": patterns.previous("seats") < 3, "high": both})
    assert [name for name, _ in spec.anchored] == ["high"]
    assert spec.earlier == (("price", 3),)
    assert settings().anchored == settings().earlier == ()
