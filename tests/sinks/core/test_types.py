"""Types of columns in the targets of sinks, and text of entries."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops.kernel.errors import SinkError
from streamops.sinks.core import sql
from streamops.sinks.core.delta_log import from_integers, to_integers
from streamops.sinks.core.ledger import Delivery, Entry, fenced
from streamops.sinks.core.net import having
from streamops.sinks.core.stored_types import stored_type
from streamops.sinks.postgres_table import Found

sa = pytest.importorskip("sqlalchemy")
types = pytest.importorskip("streamops.sinks.core.sqlalchemy_target")
dialects = pytest.importorskip("sqlalchemy.dialects")

ENTRY = Entry("query", 1, "run", 0, rows=2, digest=7, former=("a former query",))


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (pa.large_binary(), "bytea"),
        (pa.time64("us"), "time without time zone"),
        (pa.duration("us"), "interval"),
        (pa.list_(pa.large_string()), "text[]"),
    ],
)
def test_postgres_types(dtype: pa.DataType, expected: str) -> None:
    assert sql.accepted_types(dtype)[0] == expected
    assert sql.accepts(expected, dtype)


def found(base: str, *, has_length: bool = False, is_deterministic: bool = True) -> Found:
    return Found(
        dtype=base,
        base=base,
        type_class="b",
        has_length=has_length,
        is_deterministic=is_deterministic,
        is_not_null=False,
        is_required=False,
        computed=None,
    )


@pytest.mark.parametrize(
    ("column", "compare", "is_checked"),
    [
        (found("text"), "values", False),
        (found("text", is_deterministic=False), "text", False),
        (found("character varying", has_length=True), "values", True),
        (found("character", has_length=True), "values", True),
        (found("character"), "text", True),
        (found("uuid[]"), "values", True),
        (found("json"), "text", False),
        (found("jsonb"), "text", True),
        (found("extensions.citext"), "text", False),
    ],
)
def test_postgres_text_is_compared_and_checked_where_its_type_needs_it(
    column: Found, compare: str, is_checked: bool
) -> None:
    text = pa.list_(pa.string()) if column.base.endswith("[]") else pa.string()
    fitting = column.fit(pa.field("a", text), is_json=False)
    assert (fitting.compare, fitting.is_checked) == (compare, is_checked)


def test_postgres_types_without_a_conversion_are_refused() -> None:
    with pytest.raises(SinkError, match="TARGET_TYPE"):
        found("bit", has_length=True).fit(pa.field("a", pa.string()), is_json=False)


def test_postgres_nested_columns_are_compared_as_jsonb() -> None:
    fitting = found("json").fit(pa.field("a", pa.string()), is_json=True)
    match, *_ = sql.Match.of({"a": fitting, "b": sql.Column(dtype="bigint")}, [set()])
    assert not fitting.is_checked
    assert 'CAST(t."a" AS pg_catalog.jsonb)' in match.on


def test_delta_types() -> None:
    assert stored_type(pa.large_binary()) == pa.binary()


def test_sqlalchemy_types_of_databases_with_types_of_their_own() -> None:
    local, instant = (types.column_type(pa.timestamp("us", zone)) for zone in (None, "UTC"))
    mysql, mssql = dialects.mysql.dialect(), dialects.mssql.dialect()
    for dtype in (local, instant):
        assert dtype.compile(dialect=mysql) == "DATETIME(6)"
        assert dtype.compile(dialect=mssql) == "DATETIME2(6)"


@pytest.mark.parametrize(
    ("found", "dtype", "dialect", "expected"),
    [
        (sa.Numeric(5, 0), pa.int16(), "oracle", True),
        (sa.Numeric(4, 0), pa.int16(), "oracle", False),
        (sa.Numeric(), pa.int64(), "oracle", True),
        (sa.Numeric(), pa.int64(), "sqlite", False),
        (dialects.mysql.TINYINT(), pa.int8(), "mysql", True),
        (dialects.mysql.TINYINT(), pa.int16(), "mysql", False),
        (sa.Text(), pa.int16(), "mysql", False),
        (sa.Text(), pa.null(), "mysql", True),
    ],
    ids=str,
)
def test_sqlalchemy_columns_that_exist(
    found: Any, dtype: pa.DataType, dialect: str, expected: bool
) -> None:
    assert types.accepts(found, dtype, dialect) is expected


def test_rows_are_found_by_floats_and_by_nested_values() -> None:
    rows = pa.table({"x": [0.0, 1.5, float("nan")], "m": [{"a": 1}, {"a": 2}, {"a": 3}]})
    wanted = pa.table({"x": [-0.0, float("nan")], "m": [{"a": 1}, {"a": 4}]})
    assert having(rows, wanted, ["x", "m"]).column("m").to_pylist() == [{"a": 1}]


def test_an_entry_of_which_a_number_is_missing_is_none() -> None:
    numbers = dict(enumerate(to_integers(ENTRY)))
    assert from_integers(numbers.get) == ENTRY
    del numbers[2]
    assert from_integers(numbers.get) is None


def test_who_fences_is_named_where_it_is_known() -> None:
    delivery = Delivery("query", "run 0", 1, rows=0, digest=0, is_first=False)
    assert "run run of query query" in str(fenced(ENTRY, delivery))
    for unknown in (None, Entry("query", 1, "run 0", 0, rows=0, digest=0)):
        assert "has not committed" in str(fenced(unknown, delivery))
