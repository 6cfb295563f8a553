"""Running aggregates: their output, and the limit of keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops.kernel.columns import concat
from streamops.kernel.core import Metrics, State, Step
from streamops.kernel.errors import CapacityError, located
from streamops.windows.core.running import RunningCore, RunningSpec

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


def spec_of(*, by: tuple[str, ...] = ("k",), shards: int = 1, **changed: Any) -> RunningSpec:
    given: dict[str, Any] = {"changes": "update", "max_keys": 100, "when_full": "fail"}
    most = (("most", agg.max("v")),)
    spec = RunningSpec(operator="windows.running", by=by, agg=most, **(given | changed))
    return spec.resolve((SCHEMA,), carried=(None,), shards=shards)


def play(spec: RunningSpec, *batches: Sequence[tuple[str | None, int | None]]) -> list[Step]:
    state, steps = State.empty(RunningCore().layout(spec)), []
    for batch in batches:
        # As two tasks pack them.
        halves = [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
        tables = [
            pa.table([pa.array([row[i] for row in half], f.type) for i, f in enumerate(SCHEMA)],
                     schema=SCHEMA)
            for half in halves
        ]  # fmt: skip
        packed = concat([RunningCore().pack(spec, table) for table in tables])
        steps.append(RunningCore().step(spec, state, [packed], None))
        state = steps[-1].state
        RunningCore().check(spec, state)
    return steps


def test_an_operator_that_needs_no_column_reads_one() -> None:
    # Spark passes rows without columns as a table without rows.
    spec = RunningSpec(
        operator="windows.running",
        by=(),
        agg=(("n", agg.count()),),
        changes="update",
        max_keys=1,
        when_full="fail",
    )
    assert spec.resolve((SCHEMA,), carried=(None,), shards=1).inputs[0].schema.names == ["k"]


def emitted(step: Step) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in step.output.to_pylist()), key=str)


def test_a_value_is_emitted_when_it_changes_and_only_then() -> None:
    steps = play(
        spec_of(),
        [("a", 1), ("b", None), ("a", 3)],
        [("a", 2), ("b", None)],
        [],
        [("a", 7), ("b", 7), (None, 0)],
    )
    assert [emitted(step) for step in steps] == [
        [("a", 3, 0), ("b", None, 0)],
        [],
        [],
        [("a", 7, 1), ("b", 7, 1), (None, 0, 0)],
    ]
    assert steps[3].metrics == Metrics(rows=3, results=1, corrections=2)
    assert steps[1].metrics == Metrics(rows=2)
    assert steps[3].state.rows == 3


def test_a_change_stream_retracts_what_was_emitted() -> None:
    steps = play(spec_of(changes="retract"), [("a", 1)], [("a", 1)], [("a", 4), ("a", 2)])
    assert [emitted(step) for step in steps] == [
        [("a", 1, 0, "insert")],
        [],
        [("a", 1, 0, "update_preimage"), ("a", 4, 1, "update_postimage")],
    ]
    changes = steps[2].output.column("_change_type").to_pylist()
    assert changes == ["update_preimage", "update_postimage"]


def test_without_keys_there_is_one_value() -> None:
    spec = spec_of(by=())
    assert emitted(play(spec, [("a", 1)], [("b", 5)])[1]) == [(5, 1)]
    everything = RunningCore().pack(spec, pa.table({"k": ["a", "b"], "v": [1, 5]}, schema=SCHEMA))
    assert RunningCore().run(spec, [everything]).rows.to_pylist() == [{"most": 5, "revision": 0}]
    assert RunningCore().run(spec, [everything[:0]]).rows.to_pylist() == []
    assert len(RunningCore().finish(spec, State.empty(RunningCore().layout(spec)))) == 0
    assert RunningCore().next_deadline(spec, State.empty(RunningCore().layout(spec))) is None


def test_too_many_keys_fail_the_query_or_are_ignored() -> None:
    some = [(key, 1) for key in "abc"]
    with pytest.raises(CapacityError) as caught, located("windows.running"):
        play(spec_of(max_keys=2), some[:2], some)
    assert str(caught.value) == (
        "[STATE_FULL] windows.running: there are more keys than `max_keys`\n"
        "  got:       3 keys in one shard\n"
        "  expected:  at most 2 there: max_keys, divided by shards\n"
        "  fix:       raise max_keys, which a checkpoint survives; or leave further keys out: "
        "when_full='reject_new'"
        "\n  see:       docs/errors.md#state_full"
    )
    spec = spec_of(max_keys=2, when_full="reject_new")
    steps = play(spec, some[:1], [*some, ("a", 5), ("c", 9), ("b", 8)], [("c", 9), ("a", 6)])
    stored_items = {key for step in steps for key, *_ in emitted(step)}
    assert len(stored_items) == 2
    assert "a" in stored_items
    ignored = ({"b", "c"} - stored_items).pop()
    assert steps[1].metrics == Metrics(rows=6, rejected=2, results=1, corrections=1)
    assert steps[2].metrics.rejected == (1 if ignored == "c" else 0)
    assert steps[2].state.rows == 2


def test_the_stored_keys_do_not_depend_on_the_order_of_rows() -> None:
    spec = spec_of(max_keys=3, when_full="reject_new")
    rows = [(key, 1) for key in "abcdefgh"]
    one, other = (play(spec, order)[0] for order in (rows, rows[::-1]))
    assert emitted(one) == emitted(other)
    assert len(emitted(one)) == 3


def test_the_keys_of_a_shard_are_its_part_of_all() -> None:
    assert spec_of(max_keys=10, shards=4).limit == 3
    assert spec_of(max_keys=1, shards=8).limit == 1


def test_a_lower_limit_than_there_are_keys_stops_new_ones_only() -> None:
    before = play(spec_of(), [("a", 1), ("b", 1)])[0].state
    spec = spec_of(max_keys=1, when_full="reject_new")
    rows = pa.table({"k": ["a", "c"], "v": [2, 2]}, schema=SCHEMA)
    after = RunningCore().step(
        spec, State(None, before.tables), [RunningCore().pack(spec, rows)], None
    )
    assert emitted(after) == [("a", 2, 1)]
    assert after.metrics == Metrics(rows=2, rejected=1, corrections=1)
    assert after.state.rows == 2
