"""A migrated state continues as if the query had the new names and types from the beginning, and was started again.

The reference has the new names, types and number of shards in all micro-batches, and the other aggregates after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel import segments
from streamops.spark.operator import Operator
from streamops.spark.step import Stored
from streamops.state.mapping import Migration
from streamops.state.shards import (
    StoredShard,
    decode_shards,
    encode_shards,
    find_difference,
    read_header,
    redistribute,
)
from streamops.testing import Replay
from streamops.testing.replaying import MemoryStore
from tests.laws.test_changed_aggregates_laws import batches, restart, segments_of

pytestmark = pytest.mark.laws

Rows = list[dict[str, Any]]
COLUMNS = {"k": pa.int32(), "v": pa.int64(), "ts": pa.timestamp("us", "UTC")}
RENAMED = {
    "k": "user",
    "v": "amount",
    "ts": "instant",
    "n": "rows",
    "total": "sum",
    "newest": "last",
}
KEYS = {"a": 1, "b": -7, "c": 40_000, "d": 2**31 - 1}
AGGREGATES: dict[str, Callable[[str], Any]] = {
    "n": lambda v: agg.count(),
    "total": lambda v: agg.sum(v),
    "newest": lambda v: agg.last(v, tie_break=v),
    "sketch": lambda v: agg.approx_count_distinct(v, p=6),
    "distinct": lambda v: agg.count_distinct(v, at_most=100),
    "top": lambda v: agg.top(2, v, ranked_by=v, tie_break=v),
}
D: dict[str, Any] = {"delay": "5 seconds"}
R: dict[str, Any] = {**D, "allowed_lateness": "30 seconds", "stragglers": "retract"}
OPERATORS: dict[str, Callable[..., Operator]] = {
    "tumbling": lambda **of: windows.tumbling("10 seconds", **of, **D),
    "hopping, retracted": lambda **of: windows.hopping("20 seconds", "10 seconds", **of, **R),
    "cumulative": lambda **of: windows.cumulative("40 seconds", every="10 seconds", **of, **D),
    "session": lambda **of: windows.session("8 seconds", **of, **D),
    "session, retracted": lambda **of: windows.session("8 seconds", **of, **R),
    "sliding": lambda **of: windows.sliding("15 seconds", **of, **D),
    "running": lambda *, time, by, agg: windows.running(by=by, agg=agg),
}


def migrate(query: Replay, new: Replay, rename: Mapping[str, str]) -> None:
    """Continue in another replay, from the state of this one."""
    (before,), (after,) = query._stages, new._stages
    new._next, new._current, new._batches = query._next, query._current, query._batches
    rows = [
        StoredShard(shard, Stored(*row), 9, 0, dict(before.stores[shard]))
        for shard, row in before.stored.items()
    ]
    after.stored, after.stores = {}, {shard: MemoryStore() for shard in range(after.count)}
    if not rows:
        return
    migration = Migration(after.run_step, rename)
    identity = read_header(rows[0]).identity
    read = decode_shards(rows, migration)
    moved = redistribute(read, after.count, moves=migration.moves(identity))
    written = encode_shards(moved, dict.fromkeys(range(after.count), 0))
    assert not find_difference(decode_shards(written), read)
    after.stored = {row.shard: row.stored.row for row in written}


def named(name: str, rename: Mapping[str, str]) -> str:
    return rename.get(name, name)


def build(name: str, chosen: list[str], rename: Mapping[str, str]) -> Operator:
    value = named("v", rename)
    if name == "running":  # without event time
        chosen = [of for of in chosen if of != "newest"] or ["n"]
    return OPERATORS[name](
        time=named("ts", rename),
        by=named("k", rename),
        agg={named(of, rename): AGGREGATES[of](value) for of in chosen},
    )


names = st.lists(st.sampled_from([*AGGREGATES]), min_size=1, max_size=4, unique=True)


@pytest.mark.parametrize("name", OPERATORS)
@given(
    history=batches(),
    before=names,
    after=names,
    renamed=st.sets(st.sampled_from([*RENAMED])),
    wider=st.booleans(),
    shards=st.sampled_from([2, 3]),
    change=st.integers(1, 7),
    few=st.booleans(),
    earlier=st.booleans(),
)
def test_a_migrated_query_continues_as_if_it_had_been_the_new_one(
    name: str,
    history: list[Rows],
    before: list[str],
    after: list[str],
    renamed: set[str],
    wider: bool,
    shards: int,
    change: int,
    few: bool,
    earlier: bool,
) -> None:
    rename = {old: RENAMED[old] for old in sorted(renamed)}
    old_rows = [[{**of, "k": KEYS[of["k"]]} for of in batch] for batch in history]
    new_rows = [
        [{named(n, rename): v for n, v in of.items()} for of in batch] for batch in old_rows
    ]
    old_schema = pa.schema([*COLUMNS.items()])
    types = COLUMNS | ({"k": pa.int64()} if wider else {})
    new_schema = pa.schema([(named(n, rename), of) for n, of in types.items()])
    change = min(change, len(history) - 1)
    event(f"renamed {len(rename)}, wider {wider}, shards {shards}")
    with segments_of(1 if few else segments.LIMIT):
        query = Replay(build(name, before, {}), old_schema, shards=2)
        reference = Replay(build(name, before, rename), new_schema, shards=2)
        for number in range(change):
            if earlier and number == 1:  # so that segments have other aggregates than the shard
                restart(query, build(name, after, {}))
                restart(reference, build(name, after, rename))
            query.run([old_rows[number]])
            reference.run([new_rows[number]])
        new = Replay(build(name, after, rename), new_schema, shards=shards)
        migrate(query, new, rename)
        restart(reference, build(name, after, rename))
        for batch in new_rows[change:]:
            found, expected = new.run([batch]), reference.run([batch])
            assert [in_order(of.rows) for of in found] == [in_order(of.rows) for of in expected]
        assert in_order(new.flush().rows) == in_order(reference.flush().rows)


def in_order(rows: Rows) -> list[str]:
    return sorted(map(repr, rows))
