"""Aggregates of a change stream: emitted changes, and state."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import changes
from streamops.changes.core.aggregate import AggregateCore, AggregateSpec
from streamops.kernel.core import Metrics, State, Step
from streamops.kernel.errors import CapacityError, located

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("_change_type", pa.string())])
PLUS, MINUS = "insert", "delete"

Change = tuple[str | None, Any, str]


def spec_of(
    schema: pa.Schema = SCHEMA, *, by: Any = "k", rejected: Any = "drop", **requested: Any
) -> AggregateSpec:
    settings = changes.aggregate(by=by, agg=requested, rejected=rejected).parameters
    return settings.resolve((schema,), carried=(None,), shards=1)


def play(spec: AggregateSpec, *batches: Sequence[Change], schema: pa.Schema = SCHEMA) -> list[Step]:
    state, steps = State.empty(AggregateCore().layout(spec)), []
    for batch in batches:
        columns = [pa.array([row[at] for row in batch], f.type) for at, f in enumerate(schema)]
        rows = pa.table(columns, schema=schema)
        steps.append(AggregateCore().step(spec, state, [AggregateCore().pack(spec, rows)]))
        state = steps[-1].state
        AggregateCore().check(spec, state)
    return steps


def emitted(step: Step) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in step.output.to_pylist()]


def test_a_group_is_inserted_updated_and_deleted_with_its_rows() -> None:
    steps = play(
        spec_of(n=agg.count(), total=agg.sum("v")),
        [("a", 5, PLUS), ("a", 7, PLUS), (None, 1, PLUS)],
        [("a", 5, "update_preimage"), ("a", 6, "update_postimage")],
        [("a", 6, MINUS), ("a", 7, MINUS), (None, 1, MINUS), (None, 2, PLUS)],
    )
    assert [emitted(step) for step in steps] == [
        [("a", 2, 12, PLUS), (None, 1, 1, PLUS)],
        [("a", 2, 12, "update_preimage"), ("a", 2, 13, "update_postimage")],
        [
            ("a", 2, 13, MINUS),
            (None, 1, 1, "update_preimage"),
            (None, 1, 2, "update_postimage"),
        ],
    ]
    assert steps[2].metrics == Metrics(rows=4, results=0, corrections=1)
    assert steps[2].state.rows == 1


def test_changes_that_change_no_aggregate_emit_nothing() -> None:
    spec = spec_of(most=agg.max("v"))
    steps = play(
        spec,
        [("a", 5, PLUS), ("a", 9, PLUS)],
        [("a", 5, MINUS), ("a", 3, PLUS)],
        [("a", 9, MINUS), ("a", 9, PLUS)],
    )
    assert [len(step.output) for step in steps] == [1, 0, 0]


def test_the_maximum_is_the_next_value_after_a_delete() -> None:
    spec = spec_of(most=agg.max("v"), best=agg.top(2, "v", ranked_by="v", tie_break="v"))
    steps = play(
        spec,
        [("a", 9, PLUS), ("a", 9, PLUS), ("a", 4, PLUS)],
        [("a", 9, MINUS)],
        [("a", 9, MINUS)],
    )
    assert [emitted(step)[-1] for step in steps] == [
        ("a", 9, [9, 9], PLUS),
        ("a", 9, [9, 4], "update_postimage"),
        ("a", 4, [4], "update_postimage"),
    ]
    assert len(steps[0].state.tables["rows"]) == 2  # equal rows are one, with a weight


@pytest.mark.parametrize("requested", [agg.count(), agg.sum("v"), agg.min("v")], ids=repr)
def test_a_delete_ahead_of_its_insert_cancels_it(requested: Any) -> None:
    steps = play(spec_of(x=requested), [("a", None, MINUS)], [("a", None, PLUS)], [("a", 3, PLUS)])
    assert [step.state.rows > 0 for step in steps] == [True, False, True]
    assert [len(step.output) for step in steps] == [0, 0, 1]


def test_no_count_is_below_0_while_a_delete_is_ahead_of_its_insert() -> None:
    spec = spec_of(n=agg.count(), there=agg.count("v"), total=agg.sum("v"))
    steps = play(
        spec,
        [("a", None, PLUS), ("a", None, PLUS), ("a", 5, MINUS)],
        [("a", 7, PLUS)],
        [("a", 5, PLUS)],
    )
    assert [emitted(step)[-1][1:4] for step in steps] == [(1, 0, None), (2, 0, None), (3, 1, 7)]


@pytest.mark.parametrize(
    "requested",
    [agg.variance("v"), agg.stddev("v"), agg.top(3, "v", ranked_by="r", tie_break="r")],
    ids=repr,
)
def test_aggregates_do_not_depend_on_the_order_of_changes(requested: Any) -> None:
    schema = pa.schema([("v", pa.float64()), ("r", pa.int64()), SCHEMA.field("_change_type")])
    spec = spec_of(schema, by=(), x=requested)
    rows = [(v, 1, PLUS) for v in (1e9 + 0.1, 1e9 - 1.3, 0.1, 0.7, -5e8, 1e9 + 0.7, 0.3)]
    retraction = [(2e9, 1, MINUS)]
    ways = [[rows, [], []], [rows[::-1], [], []], [rows[4:], rows[:4], []]]
    ways += [
        [[*rows[2:], (2e9, 1, PLUS)], retraction, rows[:2]],
        [retraction, rows[3:], [(2e9, 1, PLUS), *rows[:3]]],
    ]
    last = [
        emitted([step for step in play(spec, *way, schema=schema) if len(step.output)][-1])[-1]
        for way in ways
    ]
    assert len({repr(row[0]) for row in last}) == 1


def test_rows_of_unknown_change_types_are_counted_and_ignored() -> None:
    (step,) = play(spec_of(n=agg.count()), [("a", 1, "upsert"), ("b", 1, PLUS), ("b", 1, "")])
    assert emitted(step) == [("b", 1, PLUS)]
    assert step.metrics == Metrics(rows=3, rejected=2, results=1)
    assert step.state.rows == 1


@pytest.mark.parametrize("requested", [agg.sum("v"), agg.max("v")], ids=repr)
def test_a_row_of_an_unknown_change_type_is_routed_whole(requested: Any) -> None:
    schema = pa.schema([("note", pa.map_(pa.string(), pa.int64())), *SCHEMA])
    batch = [
        ([("n", 1)], "a", 1, "upsert"),
        (None, "b", 2, PLUS),
        (None, None, None, None),
        ([("n", 1)], "a", 1, "upsert"),
    ]
    spec = spec_of(schema, rejected="route", x=requested)
    (step,) = play(spec, batch, schema=schema)
    last = "_change_type"
    upsert = {"note": [("n", 1)], "k": "a", "v": 1, last: "upsert"}
    nothing = {"note": None, "k": None, "v": None, last: None}
    assert emitted(step) == [
        ("b", 2, PLUS, None),
        *(
            (None, None, None, {"reason": "unknown_operation", "row": row})
            for row in (upsert, nothing, upsert)
        ),
    ]
    assert step.metrics == Metrics(rows=4, rejected=3, results=1)
    assert len(step.state.tables["groups"]) == 1


@pytest.mark.parametrize("aside", ["rejected", "late"])
def test_a_row_that_an_earlier_operator_rejected_has_its_reason(aside: str) -> None:
    dtype = pa.struct([("value", pa.string()), ("reason", pa.string())])
    schema = pa.schema([*SCHEMA, (aside, dtype)])
    batch = [
        (None, None, None, {"value": "{", "reason": "unparsable_json"}),
        ("a", 1, "upsert", None),
        (None, None, None, {"value": "?", "reason": None}),
        ("a", 1, PLUS, None),
    ]
    (step,) = play(spec_of(schema, rejected="route", n=agg.count()), batch, schema=schema)
    rows = [item for *_, item in emitted(step) if item is not None]
    assert [row["reason"] for row in rows] == [
        "unparsable_json",
        *("unknown_operation", "unknown_operation"),
    ]
    assert rows[0]["row"][aside] == {"value": "{", "reason": "unparsable_json"}
    assert emitted(step)[0] == ("a", 1, PLUS, None)


@pytest.mark.parametrize(
    "dtype", [pa.string(), pa.struct([("reason", pa.int64())]), pa.struct([("why", pa.string())])]
)
def test_a_column_named_rejected_without_a_reason_is_a_value(dtype: pa.DataType) -> None:
    schema = pa.schema([*SCHEMA, ("rejected", dtype)])
    (step,) = play(
        spec_of(schema, rejected="route", n=agg.count()), [("a", 1, "?", None)], schema=schema
    )
    assert emitted(step)[0][-1]["reason"] == "unknown_operation"


def test_a_micro_batch_of_rejected_rows_alone_leaves_no_group() -> None:
    spec = spec_of(rejected="route", by=(), n=agg.count())
    steps = play(spec, [("a", 1, "?")], [("a", 1, PLUS)], [])
    assert [step.state.rows for step in steps] == [0, 1, 1]
    assert [len(step.output) for step in steps] == [1, 1, 0]
    assert steps[0].metrics == Metrics(rows=1, rejected=1)


def test_a_batch_routes_rejected_rows() -> None:
    spec = spec_of(rejected="route", n=agg.count())
    rows = pa.table({"k": ["a", "a"], "v": [1, 1], "_change_type": [PLUS, "?"]}, schema=SCHEMA)
    good, bad = AggregateCore().run(spec, [AggregateCore().pack(spec, rows)]).rows.to_pylist()
    assert (good["n"], bad["rejected"]["row"]["_change_type"]) == (1, "?")


def test_what_happens_to_rejected_rows_may_change_from_step_to_step() -> None:
    requested: dict[str, Any] = {"n": agg.count(), "most": agg.max("v")}
    dropping, routing = spec_of(**requested), spec_of(rejected="route", **requested)
    assert dropping.identity == routing.identity
    assert AggregateCore().layout(dropping) == AggregateCore().layout(routing)


def test_retractions_from_sums_of_doubles_are_exact() -> None:
    schema = SCHEMA.set(1, pa.field("v", pa.float64()))
    spec = spec_of(schema, total=agg.sum("v"), mean=agg.mean("v"))
    steps = play(
        spec,
        [("a", 0.1, PLUS), ("a", 1e300, PLUS), ("a", float("nan"), PLUS), ("a", None, PLUS)],
        [("a", 1e300, MINUS), ("a", float("nan"), MINUS)],
        [("a", 0.1, MINUS)],
        schema=schema,
    )
    assert emitted(steps[1])[-1] == ("a", 0.1, 0.1, "update_postimage")
    assert emitted(steps[2])[-1] == ("a", None, None, "update_postimage")
    assert steps[2].state.tables["groups"].to_pylist() == [
        {"key.0": "a", "rows": 1}
        | {f"agg.{i}.from": 0 for i in (0, 1)}
        | {f"agg.{i}.digits": [] for i in (0, 1)}
        | {f"agg.{i}.{n}": 0 for i in (0, 1) for n in ("count", "nan", "above", "below")}
    ]


def test_decimals_are_exact_and_typed_as_without_deletes() -> None:
    schema = SCHEMA.set(1, pa.field("v", pa.decimal128(5, 2)))
    spec = spec_of(schema, total=agg.sum("v"), mean=agg.mean("v"))
    cents = [Decimal("1.10"), Decimal("2.25"), Decimal("-999.99")]
    steps = play(
        spec,
        [("a", cent, PLUS) for cent in cents],
        [("a", cents[2], MINUS)],
        [("a", cent, MINUS) for cent in cents[:2]],
        schema=schema,
    )
    assert emitted(steps[1])[-1] == ("a", Decimal("3.35"), Decimal("1.675000"), "update_postimage")
    assert steps[1].output.schema.field("total").type == pa.decimal128(15, 2)
    assert steps[2].state.rows == 0


def test_a_sum_may_be_out_of_range_within_a_micro_batch() -> None:
    spec = spec_of(total=agg.sum("v"), mean=agg.mean("v"))
    largest = 2**63 - 1
    ahead = [("a", largest, PLUS), ("a", largest, PLUS), ("a", largest, MINUS), ("a", 0, PLUS)]
    assert emitted(play(spec, ahead)[0])[0][1] == largest
    with pytest.raises(CapacityError) as caught, located("changes.aggregate"):
        play(spec, ahead[:2])
    assert str(caught.value) == (
        "[NUMERIC_OVERFLOW] changes.aggregate: the sum of 'v' does not fit into its type\n"
        "  got:       a sum out of range\n"
        "  expected:  a value of type bigint, or a day-time interval\n"
        "  fix:       cast the column to a wider type first: decimal(38,0) for integers; double, which rounds"
        "\n  see:       docs/errors.md#numeric_overflow"
    )


def test_a_decimal_sum_out_of_range_is_an_error() -> None:
    schema = SCHEMA.set(1, pa.field("v", pa.decimal128(38, 0)))
    with pytest.raises(CapacityError, match=r"expected:  a value of type decimal\(38,0\)"):
        play(
            spec_of(schema, total=agg.sum("v")),
            [("a", Decimal(9 * 10**37), PLUS)] * 2,
            schema=schema,
        )


def test_without_keys_there_is_one_group_until_it_has_no_rows() -> None:
    spec = spec_of(by=(), n=agg.count(), most=agg.max("k"))
    steps = play(spec, [("a", 1, PLUS), ("b", 1, PLUS)], [("b", 1, MINUS)], [("a", 1, MINUS)])
    assert [emitted(step)[-1] for step in steps] == [
        (2, "b", PLUS),
        (1, "a", "update_postimage"),
        (1, "a", MINUS),
    ]
    assert steps[-1].state.rows == 0


def test_the_batch_result_is_one_step_and_nothing_is_pending() -> None:
    spec = spec_of(n=agg.count())
    rows = pa.table({"k": ["a", "a"], "v": [1, 1], "_change_type": [PLUS, MINUS]}, schema=SCHEMA)
    assert AggregateCore().run(spec, [AggregateCore().pack(spec, rows)]).rows.to_pylist() == []
    assert len(AggregateCore().finish(spec, State.empty(AggregateCore().layout(spec)))) == 0
    assert AggregateCore().next_deadline(spec, State.empty(AggregateCore().layout(spec))) is None


def test_a_restart_may_find_the_columns_of_the_frame_in_another_order() -> None:
    fields = [SCHEMA.field("k"), pa.field("x", pa.int64()), pa.field("y", pa.int64())]
    one = pa.schema([*fields, SCHEMA.field("_change_type")])
    other = pa.schema([*fields[::-1], SCHEMA.field("_change_type")])
    requested = {"mx": agg.max("x"), "my": agg.max("y")}
    before, after = spec_of(one, **requested), spec_of(other, **requested)
    assert before.identity == after.identity
    (step,) = play(before, [("a", 1, 100, PLUS)], schema=one)
    more = pa.table([[50], [2], ["a"], [PLUS]], schema=other)
    step = AggregateCore().step(after, step.state, [AggregateCore().pack(after, more)])
    assert emitted(step) == [("a", 1, 100, "update_preimage"), ("a", 2, 100, "update_postimage")]


def test_columns_may_have_the_names_of_state_columns() -> None:
    schema = pa.schema(
        [("key.0", pa.string()), ("weight", pa.int64()), ("_change_type", pa.string())]
    )
    spec = spec_of(schema, by="key.0", bad=agg.max("weight"), changes=agg.sum("weight"))
    (step,) = play(spec, [("a", 5, PLUS), ("a", 7, PLUS)], schema=schema)
    assert emitted(step) == [("a", 7, 12, PLUS)]


def test_a_state_is_not_changed_by_the_step_after_it() -> None:
    spec = spec_of(n=agg.count(), least=agg.min("v"))
    (step,) = play(spec, [("a", 5, PLUS)])
    before = {name: table.to_pylist() for name, table in step.state.tables.items()}
    rows = pa.table({"k": ["a"], "v": [5], "_change_type": [MINUS]}, schema=SCHEMA)
    AggregateCore().step(spec, State(None, step.state.tables), [AggregateCore().pack(spec, rows)])
    assert {name: table.to_pylist() for name, table in step.state.tables.items()} == before


def test_sums_of_day_time_intervals_are_intervals() -> None:
    schema = SCHEMA.set(1, pa.field("v", pa.duration("us")))
    hours = [np.timedelta64(h, "h").astype("timedelta64[us]") for h in (5, 30)]
    spec = spec_of(schema, total=agg.sum("v"))
    steps = play(spec, [("a", hour, PLUS) for hour in hours], schema=schema)
    assert steps[0].output.column("total").cast(pa.int64()).to_pylist() == [35 * 3_600_000_000]


def test_recomputed_aggregates_read_the_rows_that_remain() -> None:
    requested = {"spread": agg.variance("v"), "middle": agg.percentile("v", 0.5, at_most=10)}
    steps = play(
        spec_of(**requested),
        [("a", value, PLUS) for value in (2, 4, 4, 9)],
        [("a", 9, MINUS), ("a", 4, MINUS)],
        [("a", 2, MINUS)],
    )
    assert [emitted(step)[-1][1:3] for step in steps] == [
        (pytest.approx(8.916666666666666), 4.0),
        (2.0, 3.0),
        (None, 4.0),
    ]
    assert emitted(steps[2])[0] == (*emitted(steps[1])[-1][:3], "update_preimage")
