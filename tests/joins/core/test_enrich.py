"""Enrichment, step by step: eviction, missing values, limits, snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from streamops import joins
from streamops.joins.core.enrich import EnrichCore, EnrichSpec
from streamops.kernel.core import Metrics, State
from streamops.kernel.errors import CapacityError, located
from streamops.testing import at

INSTANT = pa.timestamp("us", tz="UTC")
FACTS = pa.schema([("k", pa.string())])
TABLE = pa.schema(
    [
        ("k", pa.string()),
        ("lsn", pa.int64()),
        ("v", pa.string()),
        ("w", pa.int64()),
        ("ts", INSTANT),
        ("_change_type", pa.string()),
        ("_unavailable", pa.list_(pa.string())),
    ]
)
ARGUMENTS: dict[str, Any] = {
    "by": "k",
    "sequence": "lsn",
    "horizon": 10,
    "time": None,
    "how": "left",
    "max_keys": 10,
    "when_full": "fail",
    "rejected": "route",
    "into": "status",
}


def bound(table: pa.Schema = TABLE, **arguments: Any) -> EnrichSpec:
    parameters = joins.enrich(None, **(ARGUMENTS | arguments)).parameters
    spec: EnrichSpec = parameters.resolve((FACTS, table), carried=(None, None), shards=1)
    return spec


def upsert(key: str | None, lsn: int, v: Any = "v", w: Any = 1, **arguments: Any) -> dict[str, Any]:
    return {
        "k": key,
        "lsn": lsn,
        "v": v,
        "w": w,
        "ts": at(lsn),
        "_change_type": "insert",
        **arguments,
    }


def delete(key: str, lsn: int) -> dict[str, Any]:
    return upsert(key, lsn, None, None, _change_type="delete")


class Played:
    """An enrichment with its state."""

    def __init__(self, table: pa.Schema = TABLE, **arguments: Any) -> None:
        self.spec = bound(table, **arguments)
        self.state = State.empty(EnrichCore().layout(self.spec))
        self.late: list[tuple[Any, ...]] = []
        self.counts = Metrics()

    def packed(self, rows: Sequence[dict[str, Any]]) -> pa.Table:
        table = pa.Table.from_pylist(list(rows), schema=self.spec.right.schema)
        return EnrichCore().pack(self.spec, table, "right")

    def __call__(self, facts: str = "", *changes: dict[str, Any]) -> list[Any]:
        """The value v of each fact, given as a letter; None where there is no row."""
        left = pa.table([pa.array(list(facts), pa.string())], schema=FACTS)
        left = EnrichCore().pack(self.spec, left, "left")
        step = EnrichCore().step(self.spec, self.state, [left, self.packed(changes)], None)
        EnrichCore().check(self.spec, step.state)
        assert EnrichCore().next_deadline(self.spec, step.state) is None
        assert not len(EnrichCore().finish(self.spec, step.state))
        self.state, self.counts = step.state, step.metrics
        rejected = [row["late"] for row in step.late.to_pylist()]
        self.late = [
            (late["side"], late["reason"], late["row"]["right"]["lsn"]) for late in rejected
        ]
        output = step.output.to_pylist()
        assert all((row["status"] == "matched") or row["v"] is None for row in output)
        return [row["v"] if row["status"] == "matched" else None for row in output]

    @property
    def stored(self) -> tuple[int, int]:
        """Keys that something is known of, and whether something was forgotten."""
        return len(self.state.tables["rows"]), len(self.state.tables["evicted"])


def test_a_tombstone_is_evicted_once_it_is_older_than_the_horizon() -> None:
    play = Played(horizon=10)
    play("", delete("a", 5), upsert("z", 15))
    assert play.stored == (2, 0)
    play("", upsert("z", 16))
    assert play.stored == (1, 1)


def test_a_change_that_may_be_older_than_an_evicted_tombstone_is_rejected() -> None:
    play = Played(horizon=10)
    play("", delete("a", 5), upsert("z", 16))
    assert play("abc", upsert("a", 4), upsert("b", 5), upsert("c", 6)) == [None, None, "v"]
    assert sorted(play.late) == [("right", "forgotten", 4), ("right", "forgotten", 5)]
    assert (play.counts.rejected, play.counts.on_time) == (2, 4)


def test_the_highest_sequence_of_evicted_tombstones_is_stored() -> None:
    play = Played(horizon=0)
    play("", delete("a", 5), delete("b", 7))
    assert play.stored == (1, 1)  # b's is the newest change itself
    play("", upsert("z", 8))
    assert play.stored == (1, 1)
    assert play("ab", upsert("a", 7), upsert("b", 8)) == [None, "v"]


def test_the_horizon_can_be_a_duration() -> None:
    play = Played(horizon="10 seconds", time="ts")
    play("", delete("a", 0), upsert("b", 10))
    assert play.stored == (2, 0)
    late = upsert("b", 11) | {"ts": at(10, micros=1)}
    play("", late)
    assert play.stored == (1, 1)
    play("", upsert("c", 12) | {"ts": None})
    assert play.late == [("right", "null_time", 12)]


def test_a_value_that_was_not_sent_is_carried_forward() -> None:
    play = Played()
    play("", upsert("a", 1, "one"))
    assert play("a", upsert("a", 5, None, 2, _unavailable=["v"])) == ["one"]
    # Also of a change that comes too late to count for more; a late delete takes it away.
    assert play("a", upsert("a", 3, "three", 9)) == ["three"]
    assert (play.counts.too_late, play.counts.on_time) == (1, 1)
    assert play("a", delete("a", 4)) == [None]
    assert play.state.tables["rows"].column("is_deleted").to_pylist() == [False]


def test_more_keys_than_max_keys_fail_or_are_rejected() -> None:
    with pytest.raises(CapacityError) as caught, located("joins.enrich"):
        Played(max_keys=2)("", upsert("a", 1), upsert("b", 1), upsert("c", 1))
    assert (caught.value.code, caught.value.where) == ("STATE_FULL", "joins.enrich")
    play = Played(max_keys=2, when_full="reject_new")
    play("", upsert("a", 1), upsert("b", 1))
    assert play("abc", upsert("a", 2, "new"), upsert("c", 3)) == ["new", "v", None]
    assert play.late == [("right", "full", 3)]


def test_rejected_rows_are_only_counted_where_they_are_not_routed() -> None:
    play = Played(rejected="drop")
    assert play("a", upsert(None, 1), upsert("a", 2)) == ["v"]
    assert (play.late, play.counts.rejected) == ([], 1)
    assert "late" not in play.spec.output.names


def test_a_row_that_was_rejected_before_keeps_its_reason() -> None:
    rejected = pa.field("rejected", pa.struct([("reason", pa.string()), ("value", pa.binary())]))
    play = Played(TABLE.append(rejected))
    bad = upsert(None, 1) | {"rejected": {"reason": "unparsable_json", "value": b"{"}}
    play("", bad, upsert(None, 2))
    assert play.late == [("right", "unparsable_json", 1), ("right", "null_key", 2)]


def test_facts_do_not_change_the_state() -> None:
    play = Played()
    play("", upsert("a", 1))
    before = play.state
    assert play("ab") == ["v", None]
    assert play.state is before
    assert play.counts == Metrics(rows=2, on_time=2, results=2)


def test_the_first_step_applies_the_snapshot_before_all_changes() -> None:
    play = Played()
    rows = [upsert("a", 90, "old"), upsert("b", 90, "old"), upsert(None, 90), upsert("c", 1, "x")]
    begun = EnrichCore().begin(play.spec, play.state, play.packed(rows[:2]))
    play.state = EnrichCore().begin(play.spec, begun, play.packed([*rows[2:], upsert("c", 1, "y")]))
    EnrichCore().check(play.spec, play.state)
    assert len(play.state.tables["snapshot"]) == 5
    assert play("abc", upsert("a", 7, "log"), delete("b", 8)) == ["log", None, "y"]
    assert len(play.state.tables["snapshot"]) == 0
    reasons = sorted(reason for _, reason, _ in play.late)
    assert reasons == ["conflict", "null_key"]
    assert play.counts == Metrics(rows=10, rejected=2, on_time=8, results=3)
    assert play("ab") == ["log", None]


def test_a_snapshot_waits_for_the_first_changes_or_facts() -> None:
    play = Played(SNAPPED)
    packed = play.packed([upsert("a", 3, "old", _snapshot=True)])
    play.state = EnrichCore().begin(play.spec, play.state, packed)
    assert play("a") == ["old"]
    assert play("a", upsert("a", 9, "new", _snapshot=True)) == ["new"]
    assert play("a", upsert("a", 1, "log")) == ["log"]


SNAPPED = TABLE.append(pa.field("_snapshot", pa.bool_()))


def test_several_columns_can_be_the_sequence() -> None:
    table = TABLE.append(pa.field("part", pa.binary()))
    play = Played(table, sequence=["lsn", "part"], time="ts", horizon="1 hour")
    first = [
        upsert("a", 5, "b", part=b"b"),
        upsert("a", 5, "a", part=b"a"),
        upsert("a", 6, part=None),
    ]
    assert play("a", *first) == ["b"]
    assert play.late == [("right", "no_sequence", 6)]
    assert play("a", upsert("a", 5, "c", part=b"c")) == ["c"]
    assert "part" not in play.spec.output.names


def test_a_batch_is_joined_with_the_final_table() -> None:
    play = Played()
    facts = pa.table([pa.array(["a", "b"])], schema=FACTS)
    changes = [upsert("a", 2, "two"), upsert("a", 1, "one"), upsert(None, 3)]
    rows = EnrichCore().run(play.spec, [facts, play.packed(changes)]).rows.to_pylist()
    assert [(row["k"], row["v"]) for row in rows] == [("a", "two"), ("b", None), (None, None)]
    assert rows[-1]["late"]["reason"] == "null_key"


def test_columns_may_be_in_another_order_after_a_restart() -> None:
    other = pa.schema([TABLE.field(name) for name in sorted(TABLE.names, reverse=True)])
    spec = bound(other)
    assert spec.identity == bound().identity
    assert EnrichCore().layout(spec) == EnrichCore().layout(bound())
    state, left = State.empty(EnrichCore().layout(spec)), pa.table([pa.array(["a"])], schema=FACTS)
    changes = pa.Table.from_pylist([upsert("a", 1)], schema=other)
    step = EnrichCore().step(spec, state, [left, EnrichCore().pack(spec, changes, "right")], None)
    assert step.output.to_pylist()[0]["v"] == "v"
    assert spec.output.names == ["k", "w", "v", "ts", "status", "late"]


def test_an_inner_join_leaves_out_facts_without_a_row() -> None:
    play = Played(how="inner")
    assert play("zaza", upsert("a", 1)) == ["v", "v"]
    assert (play.counts.rows, play.counts.results) == (5, 2)
