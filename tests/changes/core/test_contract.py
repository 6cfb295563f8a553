"""The contract of the cores of changes: batches, the end of a stream, unusual columns."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import changes
from streamops.changelog.change_types import CHANGE_TYPE
from streamops.kernel.core import State
from streamops.testing import at, fold, replay

PLAIN = pa.schema([("k", pa.string()), ("v", pa.int64()), ("lsn", pa.int64())])
WORD = pa.field(CHANGE_TYPE, pa.string())
OWN = pa.struct([("reason", pa.string())])


def overwriting(**settings: Any) -> Any:
    return changes.apply("k", **({"sequence": "lsn", "horizon": 100} | settings))


def histories(**settings: Any) -> Any:
    return overwriting(history="intervals", **settings)


@pytest.mark.parametrize("make", [overwriting, histories])
def test_a_batch_is_one_step_and_nothing_is_pending(make: Any) -> None:
    transform = make().options(shards=1)
    core, spec = transform.core, transform.parameters.resolve((PLAIN,), carried=(None,), shards=1)
    rows = pa.table({"k": ["a", "a", "b"], "v": [1, 2, 3], "lsn": [2, 1, 1]}, schema=PLAIN)
    step = core.step(spec, State.empty(core.layout(spec)), [core.pack(spec, rows)])
    assert core.run(spec, [core.pack(spec, rows)]).rows.equals(step.output)
    assert len(step.output) == (2 if make is overwriting else 3)
    core.check(spec, step.state)
    assert len(core.finish(spec, step.state)) == 0
    assert core.next_deadline(spec, step.state) is None
    assert spec.event_time is None
    assert spec.origins == {"k": (0, "k"), "v": (0, "v")}
    again = core.step(spec, step.state, [core.pack(spec, rows.slice(0, 0))])
    assert len(again.output) == 0
    core.check(spec, again.state)


@pytest.mark.parametrize("make", [overwriting, histories])
def test_rows_without_a_change_type_are_upserts_and_tombstones_are_ignored(make: Any) -> None:
    schema = PLAIN.append(pa.field("_tombstone", pa.bool_()))
    rows = [
        {"k": "a", "v": 1, "lsn": 1, "_tombstone": None},
        {"k": "a", "v": None, "lsn": 2, "_tombstone": True},
    ]
    (only,) = replay(make(), [rows], schema=schema)
    assert [(row["v"], row[CHANGE_TYPE]) for row in only.rows] == [(1, "insert")]


@pytest.mark.parametrize("make", [overwriting, histories])
def test_columns_named_like_the_parts_of_deltas_sequence_are_values(make: Any) -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64()), ("version", pa.int64())])
    schema = schema.append(pa.field("position", pa.int32()))
    schema = schema.append(pa.field("ts", pa.timestamp("us", "UTC"))).append(WORD)
    rows = [
        {"k": "a", "v": 1, "version": 1, "position": 1, CHANGE_TYPE: "insert"},
        {"k": "a", "v": None, "version": 2, "position": 1, CHANGE_TYPE: "delete"},
        {"k": "a", "v": 1, "version": 2, "position": 9, CHANGE_TYPE: "insert"},
    ]
    rows = [{**row, "ts": at(0)} for row in rows]
    made = make(sequence=["version", "position"], horizon="1 day", time="ts")
    types = [
        [row[CHANGE_TYPE] for row in result.rows] for result in replay(made, [rows], schema=schema)
    ]
    assert types == [["insert"] if make is overwriting else ["insert", "insert"]]


def zeros() -> list[list[list[dict[str, Any]]]]:
    """Two equal maps and a different one, all with one sequence: in every order and cut."""
    rows = [{"k": "a", "lsn": 1, "m": {"x": number}} for number in (0.0, 2.0, -0.0)]
    found = []
    for one, two, three in itertools.permutations(rows):
        found += [[[one, two, three]], [[one, two], [three]], [[one], [two, three]]]
        found += [[[one], [two], [three]]]
    return found


@pytest.mark.parametrize("make", [overwriting, histories])
@pytest.mark.parametrize("script", zeros(), ids=repr)
def test_the_greatest_of_maps_in_conflict_is_effective(make: Any, script: Any) -> None:
    schema = pa.schema([("k", pa.string()), ("lsn", pa.int64())])
    schema = schema.append(pa.field("m", pa.map_(pa.string(), pa.float64())))
    results = replay(make(), script, schema=schema)
    key = ["k"] if make is overwriting else ["k", "valid_from"]
    assert [row["m"] for row in fold(results, key=key)] == [{"x": 2.0}]
    assert sum(result.counts.results for result in results) == 1


@pytest.mark.parametrize("make", [overwriting, histories])
def test_a_longer_horizon_restores_no_evicted_key(make: Any) -> None:
    schema = PLAIN.append(pa.field("ts", pa.timestamp("us", "UTC"))).append(WORD)

    def packed(core: Any, spec: Any, *rows: dict[str, Any]) -> pa.Table:
        return core.pack(spec, pa.Table.from_pylist([{"v": 1, **row} for row in rows], schema))

    def bound(horizon: str) -> tuple[Any, Any]:
        made = make(horizon=horizon, time="ts")
        return made.core, made.parameters.resolve((schema,), carried=(None,), shards=1)

    core, short = bound("10 seconds")
    delete = {"k": "a", "lsn": 5, "ts": at(5), CHANGE_TYPE: "delete"}
    newer = {"k": "b", "lsn": 30, "ts": at(30), CHANGE_TYPE: "insert"}
    state = core.step(
        short, State.empty(core.layout(short)), [packed(core, short, delete, newer)]
    ).state
    assert len(state.tables["evicted"]) == 1
    core, long = bound("1 day")
    late = {"k": "a", "lsn": 4, "ts": at(4), CHANGE_TYPE: "insert"}
    step = core.step(long, state, [packed(core, long, late)])
    assert [row["rejected"]["reason"] for row in step.output.to_pylist()] == ["forgotten"]
    # A change above all evicted sequences is accepted.
    late = {"k": "a", "lsn": 4, "ts": at(6), CHANGE_TYPE: "insert"}
    step = core.step(long, state, [packed(core, long, late)])
    assert [row["rejected"] for row in step.output.to_pylist()] == [None]


@pytest.mark.parametrize("make", [overwriting, histories])
@pytest.mark.parametrize("snapshots", ["below_log", "by_sequence"])
def test_a_row_of_a_later_snapshot_restores_no_evicted_key(make: Any, snapshots: str) -> None:
    schema = PLAIN.append(pa.field("_changed_at", pa.timestamp("us", "UTC"))).append(WORD)
    schema = schema.append(pa.field("_snapshot", pa.bool_()))

    def row(key: str, lsn: int, seconds: int, word: str, snapshot: bool = False) -> dict[str, Any]:
        columns = {CHANGE_TYPE: word, "_snapshot": snapshot, "_changed_at": at(seconds)}
        return {"k": key, "lsn": lsn, "v": lsn, **columns}

    script = [
        [row("a", 40, 0, "insert")],
        [row("a", 100, 1, "delete")],
        [row("b", 101, 20, "insert")],
        [row("a", 0, 15, "insert", True), row("c", 101, 15, "insert", True)],
    ]
    made = make(horizon="10 seconds", time="_changed_at", snapshots=snapshots).options(shards=1)
    rows = replay(made, script, schema=schema)[-1].rows
    assert [row["rejected"]["reason"] for row in rows if row["rejected"]] == ["forgotten"]
    assert [row["k"] for row in rows if not row["rejected"]] == ["c"]


@pytest.mark.parametrize("make", [overwriting, histories])
def test_changes_of_one_sequence_are_rejected_together(make: Any) -> None:
    schema = PLAIN.append(pa.field("_changed_at", pa.timestamp("us", "UTC"))).append(WORD)

    def row(key: str, lsn: int, seconds: int, v: int, word: str = "insert") -> dict[str, Any]:
        return {"k": key, "lsn": lsn, "v": v, "_changed_at": at(seconds), CHANGE_TYPE: word}

    script = [
        [row("a", 9, 0, 0, "delete"), row("b", 10, 30, 0)],
        [row("c", 5, 20, 1), row("c", 5, 0, 1), row("c", 5, 0, 2)],
    ]
    made = make(horizon="10 seconds", time="_changed_at").options(shards=1)
    for order in itertools.permutations(script[1]):
        result = replay(made, [script[0], [*order]], schema=schema)[1]
        good = [row["v"] for row in result.rows if row["rejected"] is None]
        bad = [row["rejected"]["reason"] for row in result.rows if row["rejected"] is not None]
        assert (good[-1:], set(bad)) == ([2], {"conflict"})


@pytest.mark.parametrize("make", [overwriting, histories])
def test_a_row_that_was_rejected_before_has_its_first_reason(make: Any) -> None:
    schema = PLAIN.append(pa.field("rejected", OWN))
    rows = [
        {"k": "a", "v": 1, "lsn": 1, "rejected": None},
        {"k": None, "v": 2, "lsn": 2, "rejected": {"reason": "no_json"}},
        {"k": None, "v": 3, "lsn": 3, "rejected": None},
    ]
    (only,) = replay(make(), [rows], schema=schema)
    reasons = [row["rejected"]["reason"] for row in only.rows if row["rejected"] is not None]
    assert sorted(reasons) == ["no_json", "null_key"]


def test_a_sequence_may_have_several_columns() -> None:
    schema = PLAIN.append(pa.field("position", pa.int64()))
    rows = [
        {"k": "a", "v": 1, "lsn": 1, "position": 2},
        {"k": "a", "v": 2, "lsn": 1, "position": 1},
        {"k": "a", "v": 3, "lsn": 1, "position": None},
        {"k": "b", "v": 4, "lsn": 0, "position": 9},
    ]
    settings = {"sequence": ["lsn", "position"], "time": "ts", "horizon": "1 hour"}
    timed = schema.append(pa.field("ts", pa.timestamp("us", "UTC")))
    at = pa.scalar(0, pa.timestamp("us", "UTC")).as_py()
    (only,) = replay(overwriting(**settings), [[{**row, "ts": at} for row in rows]], schema=timed)
    good = [(row["k"], row["v"]) for row in only.rows if row["rejected"] is None]
    assert sorted(good) == [("a", 1), ("b", 4)]
    assert [row["rejected"]["row"]["v"] for row in only.rows if row["rejected"]] == [3]


def test_a_table_of_keys_alone_never_changes() -> None:
    schema = pa.schema([("k", pa.string()), ("lsn", pa.int64())])
    rows = [{"k": "a", "lsn": 1}, {"k": "a", "lsn": 2}]
    results = replay(overwriting(), [rows[:1], rows[1:]], schema=schema)
    assert [len(result.rows) for result in results] == [1, 0]


def test_aggregates_of_changes_have_no_event_time() -> None:
    transform = changes.aggregate(by="k", agg={"n": agg.count()})
    spec = transform.parameters.resolve(
        (PLAIN.append(pa.field(CHANGE_TYPE, pa.string())),), carried=(None,), shards=1
    )
    assert spec.event_time is None
