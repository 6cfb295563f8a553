"""Parameters of running aggregates, and what is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError, located
from streamops.spark.operator import Operator
from tests.sketches.linear import count_items
from tests.windows.running_operators import running_count

SCHEMA = pa.schema(
    [("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("m", pa.map_(pa.int8(), pa.int8()))]
)


def count(column: str = "k", **parameters: Any) -> Any:
    return running_count(column, **parameters)


def refused(**parameters: Any) -> SpecError:
    with pytest.raises(SpecError) as caught:
        count(**parameters)
    return caught.value


def test_the_repr_shows_what_was_written() -> None:
    transform = count(by="k", max_keys=5, when_full="reject_new").options(shards=4)
    assert isinstance(transform, Operator)
    assert repr(transform) == (
        "windows.running(agg={'n': count_items('k', cells=4)}, by=('k',), max_keys=5, "
        "when_full='reject_new').options(shards=4)"
    )


def test_it_is_resolved_against_the_schema_of_its_input() -> None:
    spec = count(by="k", changes="retract").parameters.resolve((SCHEMA,), carried=(None,), shards=8)
    assert spec.output.names == ["k", "n", "revision", "_change_type"]
    assert spec.limit == 125_000
    assert (spec.origins, spec.event_time) == ({"k": (0, "k")}, None)
    name, state = "count_items('k', cells=4)", "counts list<item: int64>"
    assert spec.identity == {
        "by": [["k", "string"]],
        "time": None,
        "agg": [["n", name, state, "linear 1", "cells=4", "k string"]],
        "changes": "retract",
    }


def test_only_the_columns_that_are_needed_are_read() -> None:
    spec = windows.running(by="k", agg={"n": agg.count()}).parameters.resolve(
        (SCHEMA,), carried=(None,), shards=1
    )
    assert spec.input.names == ["k"]


@pytest.mark.parametrize(
    ("parameters", "code", "got"),
    [
        ({"changes": "route"}, "UNKNOWN_CHOICE", "changes='route'"),
        ({"when_full": "null"}, "UNKNOWN_CHOICE", "when_full='null'"),
        ({"max_keys": 0}, "PARAMETER_OUT_OF_RANGE", "max_keys=0"),
        ({"max_keys": True}, "PARAMETER_OUT_OF_RANGE", "max_keys=True"),
        ({"max_keys": 16.0}, "PARAMETER_OUT_OF_RANGE", "max_keys=16.0"),
        ({"by": 3}, "PARAMETER_TYPE", "3 of type int"),
        ({"into": None}, "PARAMETER_TYPE", "None of type NoneType"),
        ({"by": "N"}, "NAME_TAKEN", "by=['N'], agg=['n']"),
        ({"into": "Revision"}, "NAME_TAKEN", "by=[], agg=['Revision']"),
        ({"by": "_change_type"}, "NAME_TAKEN", "by=['_change_type'], agg=['n']"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters: Any, code: str, got: str) -> None:
    error = refused(**parameters)
    assert (error.code, error.got) == (code, got)
    assert error.where == "windows.running"


@pytest.mark.parametrize("parameter", ["size", "time", "delay", "stragglers", "allowed_lateness"])
def test_parameters_of_windows_are_unknown(parameter: str) -> None:
    with pytest.raises(TypeError, match=f"no parameter `{parameter}`"):
        count(**{parameter: "1 hour"})


@pytest.mark.parametrize(
    ("aggregates", "code"),
    [
        ({}, "PARAMETER_MISSING"),
        (agg.count(), "NOT_AN_AGGREGATE"),
        ({"n": "count"}, "NOT_AN_AGGREGATE"),
    ],
)
def test_aggregates_are_named_and_at_least_one(aggregates: Any, code: str) -> None:
    with pytest.raises(SpecError) as caught:
        windows.running(by="k", agg=aggregates)
    assert (caught.value.code, caught.value.where) == (code, "windows.running")


@pytest.mark.parametrize(
    "aggregate",
    [
        agg.first("v", tie_break="s"),
        agg.last("v", tie_break="s"),
        agg.collect_list("v", at_most=3, tie_break="s"),
    ],
    ids=repr,
)
def test_aggregates_that_order_rows_by_event_time_are_refused_with_a_remedy(aggregate: Any) -> None:
    schema = pa.schema([("v", pa.int64()), ("s", pa.int64())])
    with pytest.raises(SpecError) as caught, located("windows.running"):
        windows.running(agg={"x": aggregate}).parameters.resolve(
            (schema,), carried=(None,), shards=1
        )
    assert (caught.value.code, caught.value.where) == ("PARAMETER_MISSING", "windows.running")
    assert caught.value.got == f"agg: {aggregate!r}"
    assert "aggregates.top(1, 'v', ranked_by=" in caught.value.fix


def test_an_error_message_names_the_remedy() -> None:
    assert str(refused(by=["k", "k"])) == (
        "[DUPLICATE_COLUMN] windows.running: `by` names a column twice\n"
        "  got:       by=['k', 'k']\n"
        "  expected:  one column or several, each once\n"
        "  fix:       leave the second one out: by=['k']\n"
        "  see:       docs/errors.md#duplicate_column"
    )


def test_columns_that_do_not_exist_or_cannot_be_keys_are_refused() -> None:
    with pytest.raises(ColumnNotFound) as missing, located("windows.running"):
        count(by="key").parameters.resolve((SCHEMA,), carried=(None,), shards=8)
    assert missing.value.what == "column 'key', given as `by`, does not exist"
    with pytest.raises(ColumnNotFound) as missing, located("windows.running"):
        windows.running(agg={"n": agg.sum("x")}).parameters.resolve(
            (SCHEMA,), carried=(None,), shards=8
        )
    assert missing.value.what == "column 'x', given as `agg: sum('x')`, does not exist"
    with pytest.raises(SchemaError) as caught, located("windows.running"):
        count(by="m").parameters.resolve((SCHEMA,), carried=(None,), shards=8)
    assert (caught.value.code, caught.value.where) == (
        "TYPE_UNSUPPORTED",
        "windows.running, key 'm'",
    )
    assert caught.value.got == "map<tinyint,tinyint>"


@pytest.mark.parametrize(
    ("aggregate", "code"),
    [(count_items("k"), "CHANGE_STREAM_INPUT"), (agg.count(), "CHANGE_STREAM_INPUT")],
    ids=repr,
)
def test_a_change_stream_is_refused(aggregate: Any, code: str) -> None:
    changes = SCHEMA.append(pa.field("_change_type", pa.string()))
    with pytest.raises(SchemaError) as caught, located("windows.running"):
        windows.running(by="k", agg={"n": aggregate}).parameters.resolve(
            (changes,), carried=(None,), shards=8
        )
    assert (caught.value.code, caught.value.where) == (code, "windows.running")
