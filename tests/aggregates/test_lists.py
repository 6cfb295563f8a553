"""Aggregates that keep values, as a user names them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from streamops.windows.native import NATIVE
from tests.aggregates.samples import SCHEMA, TYPES, bind


@pytest.mark.parametrize(
    ("aggregate", "text"),
    [
        (
            agg.count_distinct("text", at_most=5),
            "count_distinct('text', at_most=5, when_full='fail')",
        ),
        (
            agg.percentile("long", 1, at_most=5, when_full="null"),
            "percentile('long', 1.0, at_most=5, when_full='null')",
        ),
        (
            agg.percentile("long", (0.5, 0), at_most=5),
            "percentile('long', [0.5, 0.0], at_most=5, when_full='fail')",
        ),
        (
            agg.collect_list("text", tie_break="seq", at_most=5, when_full="evict_oldest"),
            "collect_list('text', at_most=5, when_full='evict_oldest', tie_break='seq')",
        ),
        (
            agg.top(3, "text", ranked_by="long", tie_break="seq"),
            "top(3, 'text', ranked_by='long', tie_break='seq')",
        ),
    ],
)
def test_an_aggregate_is_shown_as_it_is_written(aggregate: agg.Aggregate, text: str) -> None:
    assert repr(aggregate) == text
    assert eval(f"agg.{text}") == aggregate


def test_an_aggregate_knows_the_columns_it_reads() -> None:
    assert agg.count_distinct("text", at_most=5).columns == ("text",)
    assert agg.percentile("long", 0.5, at_most=5).columns == ("long",)
    assert agg.collect_list("text", at_most=5, tie_break="seq").columns == ("text", "seq")
    best = agg.top(3, "text", ranked_by="long", tie_break="seq")
    assert best.columns == ("text", "long", "seq")
    assert bind(best).inputs == ("text", "long", "seq")
    assert bind(agg.collect_list("text", at_most=5, tie_break="seq")).inputs == (
        "text",
        "ts",
        "seq",
    )


def test_the_types_of_results_are_those_of_the_columns() -> None:
    assert bind(agg.count_distinct("text", at_most=5)).result == pa.int64()
    assert bind(agg.percentile("money", 0.5, at_most=5)).result == pa.float64()
    assert bind(agg.percentile("money", [0.5], at_most=5)).result == pa.list_(pa.float64())
    for name, dtype in TYPES.items():
        assert bind(agg.collect_list(name, at_most=5, tie_break="seq")).result == pa.list_(dtype)
        best = agg.top(1, name, ranked_by="long", tie_break="seq")
        assert bind(best).result == pa.list_(dtype)


NAMES = "a type with an order: numbers, strings, binary, booleans, dates, timestamps"


@pytest.mark.parametrize(
    ("aggregate", "column", "expected"),
    [
        (
            agg.count_distinct("map", at_most=5),
            "map",
            "a type whose values can be compared: any without",
        ),
        (agg.percentile("text", 0.5, at_most=5), "text", "numbers"),
        (agg.percentile("flag", [0.5], at_most=5), "flag", "numbers"),
        (agg.percentile("instant", [0.5], at_most=5), "instant", "numbers"),
        (agg.collect_list("text", at_most=5, tie_break="list"), "list", "a tie_break column"),
        (
            agg.top(1, "text", ranked_by="struct", tie_break="seq"),
            "struct",
            f"as ranked_by, {NAMES}",
        ),
        (agg.top(1, "text", ranked_by="long", tie_break="map"), "map", "a tie_break column"),
    ],
    ids=str,
)
def test_a_type_that_an_aggregate_does_not_know_is_refused(
    aggregate: agg.Aggregate, column: str, expected: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        bind(aggregate)
    error = caught.value
    assert (error.code, error.where) == ("COLUMN_TYPE", "windows.tumbling")
    assert error.what == f"{aggregate!r} cannot be computed over this type"
    assert error.got.startswith(f"column {column!r} of type ")
    assert error.expected.startswith(expected)
    assert error.fix.startswith(f"cast it: df.withColumn({column!r}, F.col({column!r}).cast(...))")


@pytest.mark.parametrize(
    "dtype",
    [
        pa.list_(pa.map_(pa.string(), pa.int64())),
        pa.struct([("a", pa.map_(pa.string(), pa.int64()))]),
        pa.null(),
    ],
    ids=str,
)
def test_a_map_inside_a_type_is_found(dtype: pa.DataType) -> None:
    with pytest.raises(SchemaError, match="COLUMN_TYPE"):
        agg.count_distinct("v", at_most=5).bind(pa.schema([("v", dtype)]), time="ts")


@pytest.mark.parametrize(
    "aggregate",
    [
        agg.count_distinct("lng", at_most=5),
        agg.collect_list("lng", at_most=5, tie_break="seq"),
        agg.collect_list("long", at_most=5, tie_break="lng"),
        agg.top(1, "long", ranked_by="lng", tie_break="seq"),
    ],
    ids=str,
)
def test_a_column_that_does_not_exist_is_answered_with_the_nearest(aggregate: Any) -> None:
    with pytest.raises(ColumnNotFound) as caught:
        bind(aggregate)
    assert (caught.value.got, caught.value.fix) == ("lng", "did you mean 'long'?")
    assert caught.value.expected == f"one of: {', '.join(SCHEMA.names)}"


@pytest.mark.parametrize("at_most", [0, -1, 2.0, True, None, "3"])
def test_a_bound_is_a_number_of_values(at_most: Any) -> None:
    with pytest.raises(SpecError) as caught:
        agg.count_distinct("text", at_most=at_most)
    assert str(caught.value) == (
        "[PARAMETER_OUT_OF_RANGE] aggregates.count_distinct: `at_most` is not a number of values\n"
        f"  got:       at_most={at_most!r}\n"
        "  expected:  an integer, 1 or more\n"
        "  fix:       at_most=1000 stores up to a thousand values per group"
        "\n  see:       docs/errors.md#parameter_out_of_range"
    )


@pytest.mark.parametrize("k", [0, -1, 2.0, True, None, "text"])
def test_a_top_is_of_a_number_of_rows(k: Any) -> None:
    with pytest.raises(SpecError) as caught:
        agg.top(k, "text", ranked_by="long", tie_break="seq")
    assert (caught.value.code, caught.value.where) == ("PARAMETER_OUT_OF_RANGE", "aggregates.top")
    assert caught.value.got == f"k={k!r}"


@pytest.mark.parametrize(
    ("percentage", "wrong"),
    [
        *((value, value) for value in (-0.1, 1.5, float("nan"))),
        *(([0.5, value], value) for value in (-0.1, 1.5, float("nan"), True, None, "0.5")),
    ],
)
def test_a_percentage_is_a_number_from_0_to_1(percentage: Any, wrong: Any) -> None:
    with pytest.raises(SpecError) as caught:
        agg.percentile("long", percentage, at_most=5)
    assert str(caught.value) == (
        "[PARAMETER_OUT_OF_RANGE] aggregates.percentile: a percentage is out of range\n"
        f"  got:       {wrong!r}\n"
        "  expected:  a number from 0 to 1\n"
        "  fix:       0.5 is the median; one value in a hundred exceeds 0.99"
        "\n  see:       docs/errors.md#parameter_out_of_range"
    )


@pytest.mark.parametrize("percentage", [[], True, None, "0.5"])
def test_a_percentile_needs_a_percentage(percentage: Any) -> None:
    with pytest.raises(SpecError) as caught:
        agg.percentile("long", percentage, at_most=5)
    assert str(caught.value) == (
        "[PARAMETER_MISSING] aggregates.percentile: no percentage is given\n"
        f"  got:       percentage={percentage!r}\n"
        "  expected:  a number from 0 to 1, or a list of at least one\n"
        "  fix:       for example percentile('long', [0.5, 0.99], at_most=...)"
        "\n  see:       docs/errors.md#parameter_missing"
    )


@pytest.mark.parametrize(
    ("make", "allowed"),
    [
        (lambda when: agg.count_distinct("text", at_most=5, when_full=when), "'fail', 'null'"),
        (lambda when: agg.percentile("long", 0.5, at_most=5, when_full=when), "'fail', 'null'"),
        (
            lambda when: agg.collect_list("text", at_most=5, tie_break="seq", when_full=when),
            "'fail', 'null', 'reject_new', 'evict_oldest'",
        ),
    ],
)
def test_a_consequence_is_one_of_the_names(make: Any, allowed: str) -> None:
    with pytest.raises(SpecError) as caught:
        make("reject")
    assert (caught.value.code, caught.value.expected) == ("UNKNOWN_CHOICE", f"one of {allowed}")


@pytest.mark.parametrize(
    ("make", "where", "parameter"),
    [
        (lambda: agg.count_distinct(None, at_most=5), "aggregates.count_distinct", "column"),
        (lambda: agg.percentile(1, 0.5, at_most=5), "aggregates.percentile", "column"),
        (
            lambda: agg.collect_list("v", at_most=5, tie_break=None),
            "aggregates.collect_list",
            "tie_break",
        ),
        (lambda: agg.top(1, "v", ranked_by="n", tie_break=None), "aggregates.top", "tie_break"),
        (lambda: agg.top(1, "v", ranked_by=None, tie_break="n"), "aggregates.top", "ranked_by"),
    ],
)
def test_what_is_not_the_name_of_a_column_is_refused(make: Any, where: str, parameter: str) -> None:
    with pytest.raises(SpecError) as caught:
        make()
    assert (caught.value.code, caught.value.where) == ("PARAMETER_TYPE", where)
    assert caught.value.what == f"`{parameter}` is not a name"


def test_collecting_goes_by_event_time_in_spark_too() -> None:
    with pytest.raises(SpecError, match="PARAMETER_MISSING"):
        agg.collect_list("text", at_most=5, tie_break="seq").to_spark()


@pytest.mark.parametrize(
    "aggregate",
    [
        agg.count_distinct("text", at_most=5),
        agg.percentile("long", 0.5, at_most=5),
        agg.percentile("long", [0.5], at_most=5),
        agg.collect_list("text", at_most=5, tie_break="seq"),
        agg.top(1, "text", ranked_by="long", tie_break="seq"),
    ],
    ids=str,
)
def test_what_spark_would_keep_without_a_bound_is_left_to_the_kernel(
    aggregate: agg.Aggregate,
) -> None:
    item: Any = windows.tumbling("1 hour", time="ts", agg={"n": agg.count(), "v": aggregate})
    spec = item.parameters.resolve((SCHEMA,), carried=(None,), shards=1)
    frame: Any = None  # it is not looked at
    assert NATIVE.limit(frame, spec) is None
