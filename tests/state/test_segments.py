"""Shards with segments, decoded, redistributed and encoded again, without a state store."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import sketches, windows
from streamops.errors import CheckpointError, StateFormatError
from streamops.kernel.codec import ipc_read, ipc_write, read_stored
from streamops.kernel.hashing import shard_of
from streamops.kernel.segments import INDEX, UNMERGED
from streamops.sketches.core.seen_state import RECENT
from streamops.spark.packing import pack_rows
from streamops.spark.step import ShardStep, Stored
from streamops.state.reading import _rows_by_key
from streamops.state.shards import (
    StoredShard,
    convert,
    decode_shards,
    encode_shards,
    find_difference,
    redistribute,
)
from streamops.testing import Replay, at
from streamops.testing.laws import to_rows
from streamops.testing.replaying import MemoryStore
from tests.laws.test_changed_aggregates_laws import restart
from tests.spark.test_step import SCHEMA, shard_step

EMPTY = Stored(0, None, None, 0, "")
"""In place of a shard that has no state yet."""
KEYS = [f"key {number}" for number in range(12)]
PLAIN: dict[str, Any] = {"stragglers": "drop", "allowed_lateness": "0 seconds"}


def step_of(shards: int, limit: int = 2) -> ShardStep:
    return dataclasses.replace(shard_step(shards=shards, **PLAIN), segment_rows=limit)


def rows_of(shard: int, shards: int, second: int) -> pa.Table:
    """One row of each key of a shard."""
    keys = pa.array(KEYS)
    keys = keys.filter(pa.array(shard_of(pa.table({"k": keys}), ["k"], shards) == shard))
    times = pa.array([second * 1_000_000] * len(keys), pa.int64()).cast(SCHEMA.field("ts").type)
    return pa.table([keys, pa.array([1] * len(keys), pa.int64()), times], schema=SCHEMA)


def run(
    step: ShardStep, stored: Any, store: MemoryStore, rows: pa.Table, mark: int
) -> tuple[Any, Any]:
    packs = [ipc_write(pack_rows(step.core, step.spec, "left", rows))]
    after, frame = step(stored, packs, mark, store=store)
    cells = [ipc_read(cell) for cell in frame["emitted"] if cell is not None]
    return after or stored, [row for cell in cells for row in to_rows(cell)]


def shards(count: int, limit: int = 2) -> list[StoredShard]:
    """Every key has three rows in the window from 100 to 110, and one in the next one."""
    found = []
    for shard in range(count):
        step, store, stored = step_of(count, limit), MemoryStore(), None
        for second in (101, 102, 103, 115):
            stored, _ = run(step, stored, store, rows_of(shard, count, second), 0)
        found.append(StoredShard(shard, Stored(*stored), 9, 0, dict(store)))
    return found


def close(rows: Sequence[StoredShard]) -> list[Any]:
    """The results of all windows."""
    found = []
    for of in rows:
        step, store = step_of(len(rows)), MemoryStore(of.segments)
        empty = rows_of(of.shard, len(rows), 0).slice(0, 0)
        _, results = run(step, dataclasses.astuple(of.stored), store, empty, 200_000)
        found += [(row["k"], row["window_start"], row["n"]) for row in results]
        assert not store
    return sorted(found)


def test_rows_of_segments_are_read_into_a_table() -> None:
    rows = shards(2)
    assert all(of.segments for of in rows)
    state = decode_shards(rows)
    assert state.is_current
    assert state.format.version == 1
    assert convert(state) is state
    tables = [of.tables for of in state.states.values()]
    assert [sorted(of) for of in tables] == [[UNMERGED, "panes"]] * 2
    assert state.entries == sum(of.stored.entries for of in rows)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_windows_continue_on_another_number_of_shards(count: int) -> None:
    before = decode_shards(shards(2))
    after = redistribute(before, count)
    assert not find_difference(after, before)
    rows = encode_shards(after, dict.fromkeys(range(count), 0))
    assert not any(of.segments for of in rows)
    assert not find_difference(decode_shards(rows), after)
    assert close(rows) == close(shards(2, limit=1_000)) == close(shards(2))
    assert len(close(rows)) == 2 * len(KEYS)


def test_a_small_shard_beside_one_with_segments_is_no_contradiction() -> None:
    rows = [shards(2)[0], shards(2, limit=1_000)[1]]
    state = decode_shards(rows)
    found = encode_shards(state, {0: 0, 1: 0})
    frames = [read_stored(of.stored.frame) for of in found]
    assert [bool({INDEX, UNMERGED} & frame.tables().keys()) for frame in frames] == [True, False]
    assert close(found) == close(rows)


def test_a_segment_that_is_missing_or_left_over_is_a_contradiction() -> None:
    row, other = shards(2)
    (first, *_) = row.segments
    missing = {number: blob for number, blob in row.segments.items() if number != first}
    for segments in (missing, row.segments | {99: row.segments[first]}):
        changed = dataclasses.replace(row, segments=segments)
        with pytest.raises(CheckpointError) as refused:
            decode_shards([changed, other])
        assert refused.value.code == "CHECKPOINT_INCONSISTENT"


@pytest.mark.parametrize("count", [2, 4], ids=["of another shard", "of another operator"])
def test_a_segment_that_the_index_does_not_name_is_refused(count: int) -> None:
    row, other = shards(2)
    (first, *_) = row.segments
    blob = next(iter(shards(count)[1].segments.values()))
    changed = dataclasses.replace(row, segments={**row.segments, first: blob})
    with pytest.raises(StateFormatError, match="segment of the index") as refused:
        decode_shards([changed, other])
    assert refused.value.code == "STATE_CORRUPT"
    with pytest.raises(StateFormatError, match="segment of the index"):
        close([changed, other])


def test_a_damaged_segment_is_refused() -> None:
    row, other = shards(2)
    (first, *_) = row.segments
    changed = dataclasses.replace(row, segments={**row.segments, first: "AAAA"})
    with pytest.raises(StateFormatError) as refused:
        decode_shards([changed, other])
    assert (refused.value.code, f"segment {first}" in refused.value.where) == (
        "STATE_CORRUPT",
        True,
    )


def seen_step(shards: int, limit: int) -> ShardStep:
    schema = pa.schema([("k", pa.string())])
    operator = sketches.seen("k", capacity=60, false_positive_rate=1e-9)
    spec = operator.parameters.resolve((schema,), carried=(None,), shards=shards)
    return ShardStep(operator.name, operator.core, spec, shards, segment_rows=limit)


def new_keys(rows: list[StoredShard], keys: Sequence[str], limit: int) -> list[str]:
    """Which of the keys were not seen before; the shards are changed in place."""
    found, count = [], len(rows)
    for number, of in enumerate(rows):
        step, store = seen_step(count, limit), MemoryStore(of.segments)
        table = pa.table({"k": pa.array(keys)})
        table = table.filter(pa.array(shard_of(table, ["k"], count) == of.shard))
        stored = None if of.stored is EMPTY else dataclasses.astuple(of.stored)
        packs = [ipc_write(pack_rows(step.core, step.spec, "left", table))]
        after, frame = step(stored, packs, store=store)
        cells = [ipc_read(cell) for cell in frame["emitted"] if cell is not None]
        found += [row["k"] for cell in cells for row in to_rows(cell)]
        if after is not None:
            rows[number] = dataclasses.replace(of, stored=Stored(*after), segments=dict(store))
    return sorted(found)


@pytest.mark.parametrize("count", [1, 2, 6])
def test_filters_continue_on_another_number_of_shards(count: int) -> None:
    rows = [StoredShard(shard, EMPTY, None, 0) for shard in range(2)]
    for number in range(4):
        batch = KEYS[3 * number : 3 * number + 3]
        assert new_keys(rows, [*batch, *KEYS[: 3 * number]], limit=3) == sorted(batch)
    assert all(of.segments for of in rows)
    before = decode_shards(rows)
    assert any(RECENT in of.tables for of in before.states.values())
    written = encode_shards(redistribute(before, count), dict.fromkeys(range(count), 0))
    assert not any(of.segments for of in written)
    assert new_keys(written, [*KEYS, "another"], limit=3) == ["another"]
    assert new_keys(written, [*KEYS, "another", "last"], limit=1_000) == ["last"]
    assert not any(of.segments for of in written)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_shards_in_some_of_which_an_aggregate_is_unknown_are_redistributed(count: int) -> None:
    common: dict[str, Any] = {"time": "ts", "by": "k", "delay": "5 seconds"}
    before = windows.tumbling("1 hour", **common, agg={"n": agg.count()})
    after = windows.tumbling("1 hour", **common, agg={"n": agg.count(), "v": agg.sum("v")})
    keys = pa.table({"k": pa.array(KEYS)})
    shard = shard_of(keys, ["k"], 2).tolist()
    old, new = (KEYS[shard.index(number)] for number in range(2))
    query = Replay(before, SCHEMA, shards=2)
    query.run([[{"k": old, "v": 1, "ts": at(1)}]])
    restart(query, after)
    query.run([[{"k": new, "v": 2, "ts": at(2)}]])
    (stage,) = query._stages
    rows = [StoredShard(number, Stored(*row), 9, 0) for number, row in stage.stored.items()]
    columns = [read_stored(of.stored.frame).tables()["panes"].column_names for of in rows]
    assert [len(of) for of in columns] == [5, 4]
    state = decode_shards(rows)
    written = encode_shards(redistribute(state, count), dict.fromkeys(range(count), 0))
    assert not find_difference(decode_shards(written), state)
    following = Replay(after, SCHEMA, shards=count)
    following._stages[0].stored = {of.shard: of.stored.row for of in written}
    found = {row["k"]: (row["n"], row["v"]) for row in following.flush().rows}
    assert found == {old: (1, None), new: (1, 2)}
    read = [
        _rows_by_key(frame, frame.tables(), 0, None)
        for frame in (read_stored(of.stored.frame) for of in rows)
    ]
    assert len({str(of.schema) for of in read}) == 1
    sums = {row["k"]: row["panes"][0]["v.sum"] for of in read for row in of.to_pylist()}
    assert sums == {old: None, new: 2}
