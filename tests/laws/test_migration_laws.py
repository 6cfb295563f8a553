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
from streamops import changes, joins, sketches, windows
from streamops.kernel import segments
from streamops.spark.operator import Operator
from streamops.spark.step import Stored
from streamops.state.mapping import Migration
from streamops.state.shards import (
    StoredShard,
    decode_shards,
    encode_shards,
    find_difference,
    migrate_shards,
    read_header,
)
from streamops.testing import Replay
from streamops.testing.replaying import MemoryStore
from tests.laws.test_changed_aggregates_laws import batches, restart, segments_of
from tests.state.histories import batches_for

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
    "hopping, retracted": lambda **of: windows.hopping("20 seconds", "10 seconds", **{**R, **of}),
    "cumulative": lambda **of: windows.cumulative("40 seconds", every="10 seconds", **of, **D),
    "session": lambda **of: windows.session("8 seconds", **of, **D),
    "session, retracted": lambda **of: windows.session("8 seconds", **{**R, **of}),
    "sliding": lambda **of: windows.sliding("15 seconds", **of, **D),
    "running": lambda *, time, by, agg: windows.running(by=by, agg=agg),
}


def migrate(query: Replay, new: Replay, rename: Mapping[str, str]) -> None:
    """Continue in another replay, from the state of this one."""
    new._next, new._current, new._batches = query._next, query._current, query._batches
    for before, after in zip(query._stages, new._stages, strict=True):
        rows = [
            StoredShard(shard, Stored(*row), 9, 0, dict(before.stores[shard]))
            for shard, row in before.stored.items()
        ]
        after.stored, after.stores = {}, {shard: MemoryStore() for shard in range(after.count)}
        if not rows:
            continue
        identity = read_header(rows[0]).identity
        unused = Migration(after.run_step, rename).unused(
            identity
        )  # by the parameters that are drawn
        used = {old: new for old, new in rename.items() if old not in unused}
        read, moved = migrate_shards(rows, Migration(after.run_step, used))
        written = encode_shards(moved, dict.fromkeys(range(after.count), 0))
        assert not find_difference(decode_shards(written), read)
        after.stored = {row.shard: row.stored.row for row in written}


def named(name: str, rename: Mapping[str, str]) -> str:
    return rename.get(name, name)


def build(
    name: str, chosen: list[str], rename: Mapping[str, str], lateness: str | None = None
) -> Operator:
    value = named("v", rename)
    if name == "running":  # without event time
        chosen = [of for of in chosen if of != "newest"] or ["n"]
    return OPERATORS[name](
        time=named("ts", rename),
        by=named("k", rename),
        agg={named(of, rename): AGGREGATES[of](value) for of in chosen},
        **({"allowed_lateness": lateness} if lateness and "retracted" in name else {}),
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
    lateness=st.sampled_from([None, "10 seconds", "60 seconds"]),
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
    lateness: str | None,
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
        new = Replay(build(name, after, rename, lateness), new_schema, shards=shards)
        migrate(query, new, rename)
        restart(reference, build(name, after, rename, lateness))
        for batch in new_rows[change:]:
            found, expected = new.run([batch]), reference.run([batch])
            assert [in_order(of.rows) for of in found] == [in_order(of.rows) for of in expected]
        assert in_order(new.flush().rows) == in_order(reference.flush().rows)


C: dict[str, Any] = {"delay": "10 seconds"}
INT, INSTANT = pa.int32(), COLUMNS["ts"]
EVENT = {"k": INT, "ts": INSTANT, "v": pa.int64()}
VERSION = {"k": INT, "since": INSTANT, "seq": pa.int64(), "w": pa.string()}
UPSERT = {"k": INT, "lsn": pa.int64(), "w": pa.string()}
CHANGE = {"_change_type": pa.string(), "id": pa.int64(), "k": INT, "v": pa.int64()}
OTHER = {"_change_type": pa.string(), "rid": pa.int64(), "k": INT}
WINDOW = {"k": INT, "window_start": INSTANT, "window_end": INSTANT, "n": pa.int64()}
To = Callable[[str], str]
OTHERS: dict[str, tuple[Callable[[To], Operator], tuple[dict[str, pa.DataType], ...]]] = {
    "over": (
        lambda to: windows.over(
            values={"before": windows.lag(to("v"))},
            by=to("k"),
            time=to("ts"),
            within="20 seconds",
            **C,
        ),
        (EVENT,),
    ),
    "resample": (
        lambda to: windows.resample(
            "3 seconds",
            values={to("v"): "linear"},
            by=to("k"),
            time=to("ts"),
            max_gap="20 seconds",
            **C,
        ),
        (EVENT,),
    ),
    "compare": (
        lambda to: windows.compare("20 seconds", values=to("n"), by=to("k"), **C),
        (WINDOW,),
    ),
    "interval": (
        lambda to: joins.interval(
            None,
            "-5 seconds",
            "5 seconds",
            by=to("k"),
            time=(to("ts"), to("since")),
            how="full",
            **C,
        ),
        (EVENT, VERSION),
    ),
    "asof": (
        lambda to: joins.asof(
            None, by=to("k"), time=to("ts"), version=to("since"), sequence=to("seq"), **C
        ),
        (EVENT, VERSION),
    ),
    "enrich": (
        lambda to: joins.enrich(None, by=to("k"), sequence=to("lsn"), horizon=1_000),
        (EVENT, UPSERT),
    ),
    "tables": (lambda to: joins.tables(None, by=to("k"), how="left"), (CHANGE, OTHER)),
    "timeline": (
        lambda to: joins.timeline(
            None, by=to("k"), user=to("rid"), key=to("id"), ranked_by=to("v"), cap=2
        ),
        (CHANGE, OTHER),
    ),
    "normalize": (
        lambda to: changes.normalize(to("k"), sequence=to("lsn"), horizon=1_000),
        (UPSERT,),
    ),
    "apply": (
        lambda to: changes.apply(to("k"), sequence=to("lsn"), horizon=1_000, history="intervals"),
        (UPSERT,),
    ),
    "aggregate": (
        lambda to: changes.aggregate(
            by=to("k"), agg={to("n"): agg.count(), "total": agg.sum(to("v"))}
        ),
        (CHANGE,),
    ),
    "seen": (
        lambda to: sketches.seen(to("k"), capacity=10_000, false_positive_rate=1e-9),
        (EVENT,),
    ),
}
NEW_NAMES = {
    "k": "user",
    "ts": "instant",
    "v": "amount",
    "since": "as_of",
    "seq": "a_number",
    "w": "name",
    "lsn": "zz",
    "id": "post",
    "rid": "reader",
    "n": "rows",
}


@pytest.mark.parametrize("name", OTHERS)
@given(
    renamed=st.sets(st.sampled_from([*NEW_NAMES])),
    wider=st.booleans(),
    shards=st.sampled_from([2, 3]),
    change=st.integers(1, 3),
)
def test_so_do_other_operators(
    name: str, renamed: set[str], wider: bool, shards: int, change: int
) -> None:
    build, columns = OTHERS[name]
    wider &= name != "seen"  # its filters have hashes of narrow integers
    used = {column for of in columns for column in of} & renamed
    rename = {old: NEW_NAMES[old] for old in sorted(used)}
    old_schemas = tuple(pa.schema([*of.items()]) for of in columns)
    wide = {"k": pa.int64()} if wider else {}
    new_schemas = tuple(
        pa.schema([(named(n, rename), wide.get(n, dtype)) for n, dtype in of.items()])
        for of in columns
    )
    texts = tuple(
        pa.schema([(n, pa.string() if n == "k" else t) for n, t in of.items()]) for of in columns
    )
    old_rows = [tuple(map(with_numbers, of)) for of in batches_for(texts, 4)]
    new_rows = [
        tuple([{named(n, rename): v for n, v in row.items()} for row in side] for side in of)
        for of in old_rows
    ]
    query = Replay(build(lambda column: column), old_schemas, shards=2)
    operator = build(lambda column: named(column, rename))
    reference = Replay(operator, new_schemas, shards=shards)
    new = Replay(operator, new_schemas, shards=shards)
    old_batches, new_batches = (
        rows if len(columns) > 1 else [side for (side,) in rows] for rows in (old_rows, new_rows)
    )
    query.run(old_batches[:change])
    reference.run(new_batches[:change])
    migrate(query, new, rename)
    for batch in new_batches[change:]:
        found, expected = new.run([batch]), reference.run([batch])
        assert [in_order(of.rows) for of in found] == [in_order(of.rows) for of in expected]
    assert in_order(new.flush().rows) == in_order(reference.flush().rows)


def with_numbers(rows: Rows) -> Rows:
    """With a number as the key, or null."""
    return [
        {**row, "k": None if row["k"] is None else int(row["k"].removeprefix("key-"))}
        for row in rows
    ]


def in_order(rows: Rows) -> list[str]:
    return sorted(map(repr, rows))
