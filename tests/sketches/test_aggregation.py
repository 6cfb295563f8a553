"""A sketch in windows: its estimate, itself as bytes, and rolled up from minute to hour."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import sketches, windows
from streamops.kernel.errors import (
    ColumnNotFound,
    SchemaError,
    SketchFormatError,
    SpecError,
    located,
)
from streamops.sketches import stored as stored_module
from streamops.testing import assert_rows, at, replay
from tests.sketches.linear import count_items, linear_sketch

UTC = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("k", pa.string()), ("ts", UTC), ("v", pa.string())])
WHERE = "windows.tumbling"


def visit(second: int, key: str | None, value: str | None) -> dict[str, Any]:
    return {"ts": at(second), "k": key, "v": value}


SCRIPT = [
    [visit(1, "a", "x"), visit(2, "a", "x"), visit(15, "a", "y"), visit(3, "b", None)],
    [visit(33, "a", "z"), visit(4, None, "x")],
    [visit(70, "a", "z"), visit(40, "b", "x"), visit(5, "a", "q")],
    [visit(150, "b", "q")],
]


def tumbling(size: str, agg: Any, **arguments: Any) -> Any:
    given: dict[str, Any] = {"time": "ts", "by": "k", "delay": "1 minute"} | arguments
    return windows.tumbling(size, agg=agg, **given)


def bound(aggregate: Any, schema: pa.Schema = SCHEMA) -> Any:
    with located(WHERE):
        return aggregate.bind(schema, time="ts")


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_module, "SKETCH_TYPES", {"linear": "tests.sketches.linear"})


def total(cells: Any) -> int:
    assert cells["lower"] == cells["upper"]
    return int(cells["estimate"])


@pytest.mark.parametrize("restart", [False, True])
def test_one_window_has_an_estimate_and_the_sketch(restart: bool) -> None:
    both = {"n": count_items("v"), "s": linear_sketch("v", cells=3)}
    played = replay(
        tumbling("1 minute", both, allowed_lateness="1 hour", stragglers="update"),
        [*SCRIPT, [], [visit(1, "a", "late")]],
        schema=SCHEMA,
        restart=restart,
    )
    rows = [row for batch in played for row in batch.rows if row["window_start"] == at(0)]
    assert {(r["k"], r["revision"]): total(r["n"]) for r in rows} == {
        ("a", 0): 5,
        ("b", 0): 1,
        (None, 0): 1,
        ("a", 1): 6,
    }
    for row in rows:
        stored = sketches.read(row["s"])
        assert stored.estimate() == row["n"]
        assert stored.parameters == {"cells": 3}


def test_minutes_merge_to_the_sketch_of_the_hour() -> None:
    per_minute = replay(
        tumbling("10 seconds", {"s": linear_sketch("v")}, delay="0 seconds"),
        [[row for batch in SCRIPT for row in batch]],
        schema=SCHEMA,
        flush=True,
    )
    minutes = [row for batch in per_minute for row in batch.rows]
    assert len(minutes) > 5
    schema = pa.schema(
        [("k", pa.string()), ("window_start", UTC), ("window_end", UTC), ("s", pa.binary())]
    )
    (per_hour,) = replay(
        tumbling(
            "1 hour",
            {
                "s": sketches.merge("s", like=linear_sketch("v")),
                "n": sketches.merge("s", like=count_items("anything")),
            },
            time="window_start",
        ),
        [[*minutes, {"k": "a", "window_start": at(0), "window_end": at(10), "s": None}]],
        schema=schema,
        flush=True,
    )[-1:]
    (direct,) = replay(
        tumbling("1 hour", {"s": linear_sketch("v"), "n": count_items("v")}),
        [[row for batch in SCRIPT for row in batch]],
        schema=SCHEMA,
        flush=True,
    )[-1:]
    assert_rows(per_hour.rows, direct.rows)


def test_the_repr_of_an_aggregate_is_its_call() -> None:
    assert repr(linear_sketch("v", cells=9)) == "linear_sketch('v', cells=9)"
    merged = sketches.merge("s", like=count_items("v"))
    assert repr(merged) == "merge('s', like=count_items('v', cells=4))"
    assert merged.columns == ("s",)
    assert not merged.native


@pytest.mark.parametrize(
    "aggregate", [linear_sketch("v"), sketches.merge("v", like=count_items("x"))]
)
def test_aggregates_without_a_spark_expression_raise_an_error(aggregate: Any) -> None:
    with pytest.raises(SpecError) as caught:
        aggregate.to_spark()
    assert caught.value.code == "SKETCH_UNSUPPORTED"
    assert caught.value.got == f"{aggregate!r}.to_spark()"
    with pytest.raises(SpecError) as caught:
        tumbling("1 minute", {"n": aggregate}, time=3)
    assert caught.value.code == "PARAMETER_TYPE"


def test_a_change_stream_is_refused_while_the_plan_is_built() -> None:
    changes = SCHEMA.append(pa.field("_change_type", pa.string()))
    with pytest.raises(SchemaError) as caught, located("windows.tumbling"):
        tumbling("1 minute", {"n": count_items("v")}).parameters.resolve(
            (changes,), carried=(None,), shards=1
        )
    assert str(caught.value) == (
        "[CHANGE_STREAM_INPUT] windows.tumbling: count_items('v', cells=4) would count rows "
        "that the change stream retracts\n"
        "  got:       a frame with the column '_change_type'\n"
        "  expected:  rows that are only ever added\n"
        "  fix:       fold the changes to a table and take aggregates.count of it, which is "
        "exact; or make one theta sketch of the inserted rows and one of the retracted rows, and "
        "subtract; or drop '_change_type' where all rows are inserts"
        "\n  see:       docs/errors.md#change_stream_input"
    )
    stored = pa.schema([("ts", UTC), ("s", pa.binary()), ("_change_type", pa.string())])
    with pytest.raises(SchemaError) as caught:
        bound(sketches.merge("s", like=count_items("v")), stored)
    assert caught.value.code == "CHANGE_STREAM_INPUT"
    assert caught.value.what.startswith("merge('s', like=count_items('v', cells=4)) would count")


def test_a_missing_or_unsupported_column_is_refused() -> None:
    with pytest.raises(ColumnNotFound) as missing:
        bound(linear_sketch("w"))
    assert (
        missing.value.what
        == "column 'w', given as `agg: linear_sketch('w', cells=4)`, does not exist"
    )
    with pytest.raises(ColumnNotFound):
        bound(sketches.merge("w", like=linear_sketch("w")))
    with pytest.raises(SchemaError) as caught:
        bound(linear_sketch("m"), pa.schema([("m", pa.map_(pa.string(), pa.int64()))]))
    assert caught.value.code == "TYPE_UNSUPPORTED"
    assert caught.value.where == "windows.tumbling, column 'm'"
    assert caught.value.got == "map<string,bigint>"
    with pytest.raises(SchemaError) as caught:
        bound(sketches.merge("v", like=linear_sketch("v")))
    assert str(caught.value) == (
        "[COLUMN_TYPE] windows.tumbling: merge('v', like=linear_sketch('v', cells=4)) cannot "
        "be computed over this type\n"
        "  got:       column 'v' of type string\n"
        "  expected:  binary: stored sketches\n"
        "  fix:       name the column that has them, or sketch this one instead of merging it"
        "\n  see:       docs/errors.md#column_type"
    )


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: sketches.merge(None, like=linear_sketch("v")), "PARAMETER_TYPE"),  # type: ignore[arg-type]
        (lambda: sketches.merge("s", like="hll"), "PARAMETER_TYPE"),  # type: ignore[arg-type]
        (lambda: sketches.estimate("s", like=None), "PARAMETER_TYPE"),  # type: ignore[arg-type]
        (lambda: sketches.estimate(1, like=linear_sketch("v")), "PARAMETER_TYPE"),  # type: ignore[arg-type]
    ],
)
def test_invalid_columns_and_sketches_are_refused(make: Any, code: str) -> None:
    with pytest.raises(SpecError) as caught:
        make()
    assert caught.value.code == code


def test_bytes_of_another_sketch_fail_with_the_aggregate_and_their_row() -> None:
    rows = [{"ts": at(1), "s": b"nonsense"}]
    merging = tumbling("1 minute", {"s": sketches.merge("s", like=linear_sketch("v"))}, by=())
    with pytest.raises(SketchFormatError) as caught:
        replay(merging, [rows])
    assert caught.value.code == "SKETCH_CORRUPT"
    assert caught.value.where == (
        "windows.tumbling, merge('s', like=linear_sketch('v', cells=4)), sketch 0"
    )
