"""Aggregates as a user names them."""

from __future__ import annotations

from typing import Any

import pytest

from streamops import aggregates as agg
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from tests.aggregates.samples import SCHEMA, bind


@pytest.mark.parametrize(
    ("aggregate", "text"),
    [
        (agg.count(), "count()"),
        (agg.count("long"), "count('long')"),
        (agg.stddev("double"), "stddev('double')"),
        (agg.first("text", tie_break="seq"), "first('text', tie_break='seq')"),
    ],
)
def test_an_aggregate_is_shown_as_it_is_written(aggregate: agg.Aggregate, text: str) -> None:
    assert repr(aggregate) == text


def test_an_aggregate_knows_the_columns_it_reads() -> None:
    assert agg.count().columns == ()
    assert agg.sum("long").columns == ("long",)
    assert agg.last("text", tie_break="seq").columns == ("text", "seq")


def test_a_summary_reads_the_event_time_only_where_it_goes_by_it() -> None:
    assert bind(agg.count()).inputs == ()
    assert bind(agg.count("long")).inputs == ("long",)
    assert bind(agg.sum("long")).inputs == ("long",)
    assert bind(agg.mean("money")).inputs == ("money",)
    assert bind(agg.mean("long")).inputs == ("long",)
    assert bind(agg.variance("long")).inputs == ("long",)
    assert bind(agg.max("text")).inputs == ("text",)
    assert bind(agg.first("text", tie_break="seq")).inputs == ("text", "ts", "seq")


@pytest.mark.parametrize(
    "aggregate",
    [
        *(agg.sum(name) for name in ("flag", "text", "raw", "date", "instant", "list", "map")),
        *(agg.mean(name) for name in ("flag", "text", "date", "span", "struct")),
        *(agg.variance(name) for name in ("flag", "span", "instant")),
        *(agg.min(name) for name in ("list", "map", "struct")),
        *(agg.max(name) for name in ("list", "map", "struct")),
        agg.first("text", tie_break="list"),
        agg.last("text", tie_break="map"),
    ],
    ids=str,
)
def test_a_type_that_an_aggregate_does_not_know_is_refused(aggregate: agg.Aggregate) -> None:
    with pytest.raises(SchemaError) as caught:
        bind(aggregate)
    assert caught.value.code == "COLUMN_TYPE"
    assert caught.value.where == "windows.tumbling"


@pytest.mark.parametrize("aggregate", [agg.sum("lng"), agg.last("text", tie_break="lng")], ids=str)
def test_a_column_that_does_not_exist_is_answered_with_the_nearest(aggregate: Any) -> None:
    with pytest.raises(ColumnNotFound) as caught:
        bind(aggregate)
    assert (caught.value.got, caught.value.fix) == ("lng", "did you mean 'long'?")
    assert caught.value.expected == f"one of: {', '.join(SCHEMA.names)}"


@pytest.mark.parametrize(
    ("make", "where", "parameter"),
    [
        (lambda: agg.count(1), "aggregates.count", "column"),
        (lambda: agg.sum(None), "aggregates.sum", "column"),
        (lambda: agg.max(["v"]), "aggregates.max", "column"),
        (lambda: agg.first(1, tie_break="seq"), "aggregates.first", "column"),
        (lambda: agg.last("v", tie_break=None), "aggregates.last", "tie_break"),
    ],
)
def test_what_is_not_the_name_of_a_column_is_refused(make: Any, where: str, parameter: str) -> None:
    with pytest.raises(SpecError) as caught:
        make()
    assert (caught.value.code, caught.value.where) == ("PARAMETER_TYPE", where)
    assert caught.value.what == f"`{parameter}` is not a name"


@pytest.mark.parametrize(
    ("aggregate", "got"),
    [
        (agg.sum("list"), "column 'list' of type array<bigint>"),
        (agg.min("map"), "column 'map' of type map<string,bigint>"),
    ],
    ids=str,
)
def test_a_type_is_named_in_sparks_names(aggregate: agg.Aggregate, got: str) -> None:
    with pytest.raises(SchemaError) as caught:
        bind(aggregate)
    assert caught.value.got == got


def test_what_goes_by_event_time_needs_one_in_spark_too() -> None:
    with pytest.raises(SpecError) as caught:
        agg.first("text", tie_break="seq").to_spark()
    assert str(caught.value) == (
        "[PARAMETER_MISSING] aggregates.first: first('text', tie_break='seq') orders rows by event time\n"
        "  got:       to_spark()\n"
        "  expected:  to_spark(time=...)\n"
        '  fix:       name the event-time column: to_spark(time="ts")'
        "\n  see:       docs/errors.md#parameter_missing"
    )


@pytest.mark.parametrize(
    ("name", "other"), [("avg", "mean"), ("approx_distinct", "approx_count_distinct")]
)
def test_the_name_of_another_library_suggests_the_aggregate(name: str, other: str) -> None:
    with pytest.raises(
        AttributeError, match=rf"has no attribute '{name}'. Did you mean: {other}\?"
    ):
        getattr(agg, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'unknown'$"):
        _ = agg.unknown  # type: ignore[attr-defined]
