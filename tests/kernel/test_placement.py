"""Which shard rows belong to, and how the tables of shards are merged and split."""

from __future__ import annotations

import pyarrow as pa

from streamops.kernel.core import State
from streamops.kernel.hashing import shard_of, xxhash64
from streamops.kernel.placement import (
    BY_KEY,
    EVERYWHERE,
    GREATEST,
    ByKey,
    Placement,
    key_names,
    redistribute_states,
)

TABLE = pa.table({"key.0": [3, 1, 2, 1], "v": [1, 2, 3, 4]})


def test_the_key_is_named_in_three_ways() -> None:
    identity = {"by": [["b", "int64"]], "columns": ["a", "b"]}
    assert key_names(identity) == ["b"]
    assert key_names({"key": [["k", "int64"]]}) == ["k"]
    assert BY_KEY.key_columns(identity, TABLE) == ["key.0"]
    own = pa.table({"a": [1], "b": [2]})
    assert ByKey(key=key_names).key_columns(identity, own) == ["b"]
    numbered = ByKey(columns=lambda found: found["columns"], key=key_names)
    assert numbered.key_columns(identity, pa.table({"c.0": [1], "c.1": [2]})) == ["c.1"]


def test_rows_go_to_the_shard_of_their_key_in_their_order() -> None:
    parts = BY_KEY.split({}, TABLE, 3)
    shard = shard_of(TABLE, ["key.0"], 3)
    for number, part in enumerate(parts):
        assert part.equals(TABLE.filter(pa.array(shard == number)))
    assert BY_KEY.split({}, TABLE.slice(0, 0), 2) == [TABLE.slice(0, 0)] * 2


def test_a_sorted_table_stays_sorted_by_the_hash() -> None:
    merged = ByKey(is_sorted=True).merge({}, [TABLE, TABLE])
    hashes = xxhash64([merged.column("key.0")])
    assert (hashes[1:] >= hashes[:-1]).all()
    ones = merged.filter(pa.compute.equal(merged.column("key.0"), 1))
    assert ones.column("v").to_pylist() == [2, 4, 2, 4]
    assert len(ByKey(is_sorted=True).merge({}, [TABLE.slice(0, 0)])) == 0


def test_a_column_without_a_limit_stays_null() -> None:
    none = pa.table({"a": pa.nulls(1, pa.int64()), "b": [1]})
    assert GREATEST.merge({}, [none, none]).to_pylist() == [{"a": None, "b": 1}]


def test_shards_with_clocks_of_their_own_get_the_one_furthest_ahead() -> None:
    placement = Placement({"t": BY_KEY}, watermark="greatest")
    states = {0: State(None, {"t": TABLE}), 2: State(7, {"t": TABLE.slice(0, 0)})}
    identity, there = redistribute_states(placement, {"a": 1}, states, 3, 2)
    assert identity == {"a": 1}
    assert [state.watermark for state in there] == [7, 7]
    assert sum(len(state.tables["t"]) for state in there) == 4
    equal = Placement({"t": BY_KEY})
    _, there = redistribute_states(equal, {}, {0: State(5, {"t": TABLE})}, 1, 2)
    assert [state.watermark for state in there] == [5, 5]


def test_a_core_can_redistribute_its_own_tables() -> None:
    placement = Placement(
        {},
        redistribute=lambda identity, tables, before, shards: ({"n": shards}, [tables[0]] * shards),
    )
    identity, there = redistribute_states(placement, {}, {0: State(1, {"t": TABLE})}, 1, 2)
    assert identity == {"n": 2}
    assert [state.tables["t"] for state in there] == [TABLE] * 2


def test_rows_that_every_shard_has_are_one_table_and_copies_of_it() -> None:
    merged = EVERYWHERE.merge({}, [TABLE, TABLE, TABLE])
    assert merged.equals(TABLE)
    assert all(part.equals(TABLE) for part in EVERYWHERE.split({}, merged, 3))
