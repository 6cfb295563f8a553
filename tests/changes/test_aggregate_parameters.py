"""Parameters of ``changes.aggregate``, and errors while the plan is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import changes
from streamops.changes.core.aggregate import AggregateSpec
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError, StreamopsError
from streamops.testing import fold, replay

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int64()),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("_change_type", pa.string()),
    ]
)


def bound(schema: pa.Schema = SCHEMA, *, shards: int = 1, **settings: Any) -> AggregateSpec:
    given: dict[str, Any] = {"by": "k", "agg": {"rows": agg.count()}} | settings
    spec: AggregateSpec = changes.aggregate(**given).parameters.resolve(
        (schema,), carried=(None,), shards=shards
    )
    return spec


@pytest.mark.parametrize(
    ("error", "code", "act"),
    [
        (SpecError, "PARAMETER_MISSING", lambda: bound(agg={})),
        (SpecError, "NOT_AN_AGGREGATE", lambda: bound(agg={"n": "count"})),
        (SpecError, "NOT_AN_AGGREGATE", lambda: bound(agg=agg.count())),
        (SpecError, "PARAMETER_TYPE", lambda: bound(by=3)),
        (SpecError, "NAME_TAKEN", lambda: bound(agg={"K": agg.count()})),
        (SpecError, "NAME_TAKEN", lambda: bound(agg={"_change_type": agg.count()})),
        (SpecError, "NAME_TAKEN", lambda: bound(agg={"Rejected": agg.count()}, rejected="route")),
        (SpecError, "UNKNOWN_CHOICE", lambda: bound(rejected="fail")),
        (SpecError, "PARAMETER_MISSING", lambda: bound(agg={"x": agg.last("n", tie_break="n")})),
        (
            SpecError,
            "PARAMETER_MISSING",
            lambda: bound(agg={"x": agg.collect_list("n", at_most=3, tie_break="n")}),
        ),
        (ColumnNotFound, "COLUMN_NOT_FOUND", lambda: bound(by="q")),
        (ColumnNotFound, "COLUMN_NOT_FOUND", lambda: bound(agg={"x": agg.sum("q")})),
        (SchemaError, "COLUMN_TYPE", lambda: bound(agg={"x": agg.sum("k")})),
        (SchemaError, "TYPE_UNSUPPORTED", lambda: bound(by="m")),
        (SchemaError, "FRAME_TYPE", lambda: bound(SCHEMA.remove(3))),
        (
            SchemaError,
            "FRAME_TYPE",
            lambda: bound(SCHEMA.set(3, pa.field("_change_type", pa.int64()))),
        ),
    ],
)
def test_wrong_parameters_and_frames_are_refused_with_a_code(
    error: type[StreamopsError], code: str, act: Callable[[], object]
) -> None:
    with pytest.raises(error) as caught:
        act()
    assert caught.value.code == code


@pytest.mark.parametrize(
    "sketch",
    [
        agg.approx_count_distinct("n"),
        agg.approx_count_distinct_theta("n"),
        agg.approx_percentile("n", [0.5]),
        agg.count_min("n", of=[1]),
        agg.approx_top_k("n", at_least=0.1),
    ],
    ids=lambda item: type(item).__name__,
)
def test_a_sketch_is_refused_and_the_error_names_alternatives(sketch: Any) -> None:
    with pytest.raises(SchemaError) as caught:
        bound(agg={"x": sketch})
    assert caught.value.code == "CHANGE_STREAM_INPUT"
    assert "exact" in caught.value.fix
    assert "theta sketch" in caught.value.fix


def test_only_columns_that_are_read_are_shuffled_and_the_result_has_types() -> None:
    spec = bound(agg={"rows": agg.count(), "most": agg.max("n"), "mean": agg.mean("n")})
    assert spec.input.names == ["k", "n", "_change_type"]
    assert spec.output == pa.schema(
        [
            ("k", pa.string()),
            ("rows", pa.int64()),
            ("most", pa.int64()),
            ("mean", pa.float64()),
            ("_change_type", pa.string()),
        ]
    )
    assert spec.origins == {"k": (0, "k"), "most": (0, "n")}


def test_all_columns_are_shuffled_if_rejected_rows_are_routed() -> None:
    spec = bound(rejected="route")
    assert spec.input == SCHEMA
    assert spec.output == pa.schema(
        [
            ("k", pa.string()),
            ("rows", pa.int64()),
            ("_change_type", pa.string()),
            ("rejected", pa.struct([("reason", pa.string()), ("row", pa.struct(list(SCHEMA)))])),
        ]
    )
    assert "rejected" in bound(agg={"rejected": agg.count()}).output.names


def test_the_repr_shows_what_happens_to_rejected_rows() -> None:
    text = repr(changes.aggregate(by="k", agg={"n": agg.count()}, rejected="route"))
    assert "rejected='route'" in text


def test_equal_parameters_have_the_same_identity() -> None:
    assert bound().identity == bound(shards=3).identity
    assert bound().identity != bound(by=()).identity
    assert bound().identity != bound(agg={"rows": agg.count("n")}).identity


def test_a_column_of_another_type_is_another_identity() -> None:
    """The mean of either type is a double, but the states differ."""
    double = SCHEMA.set(1, pa.field("n", pa.float64()))
    for aggregate in (agg.mean("n"), agg.variance("n")):
        one, other = (bound(schema, agg={"x": aggregate}).identity for schema in (SCHEMA, double))
        assert one != other


def test_a_replay_over_shards_with_restarts_folds_to_the_aggregates() -> None:
    totals = changes.aggregate(by="k", agg={"rows": agg.count(), "least": agg.min("n")}).options(
        shards=3
    )
    row = {"m": None}
    script = [
        [{**row, "k": k, "n": n, "_change_type": "insert"} for k, n in zip("abcab", range(5), strict=True)],
        [{**row, "k": "a", "n": 0, "_change_type": "delete"}, {**row, "k": "c", "n": 2, "_change_type": "delete"}],
        [{**row, "k": "b", "n": 1, "_change_type": "oops"}],
    ]  # fmt: skip
    results = replay(totals, script, schema=SCHEMA, restart=True)
    assert sorted(map(str, fold(results, key="k"))) == [
        str({"k": "a", "rows": 1, "least": 3}),
        str({"k": "b", "rows": 2, "least": 1}),
    ]
    assert results[2].counts.rejected == 1
    assert [result.state_rows for result in results] == [8, 5, 5]


def test_rows_that_normalize_rejected_are_routed_with_their_reason() -> None:
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("lsn", pa.int64())])
    upserts = changes.normalize("id", sequence="lsn", horizon=10)
    script = [[{"id": 1, "city": "Ulm", "lsn": 1}, {"id": None, "city": "Rom", "lsn": 2}]]
    (first,) = replay(upserts, script, schema=schema)
    totals = changes.aggregate(by="city", agg={"n": agg.count()}, rejected="route")
    (second,) = replay(totals, [first.rows], schema=first.table.schema, restart=True)
    (bad,) = [row["rejected"] for row in second.rows if row["rejected"] is not None]
    assert bad["reason"] == "null_key"
    assert bad["row"]["rejected"]["row"] == {"id": None, "city": "Rom", "lsn": 2}
    assert [row["city"] for row in second.rows if row["rejected"] is None] == ["Ulm"]
    assert second.counts.rejected == 1
