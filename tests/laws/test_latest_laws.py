"""The newest rows of keys keep the laws of a core, and those of changes."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.changes.core import latest
from streamops.changes.core.spec import TableSpec
from streamops.kernel.codec import decode, encode
from streamops.kernel.contract import State, Step
from streamops.kernel.hashing import shard_of
from streamops.testing import fold
from streamops.testing.laws import rows_of
from streamops.testing.values import comparable
from tests.oracles.latest import LatestOracle
from tests.oracles.windows import Row

pytestmark = pytest.mark.laws

INSTANT = pa.timestamp("us", tz="UTC")
SEQUENCE = pa.struct([("log", pa.int64()), ("offset", pa.int64())])
TOLD = pa.struct([("reason", pa.string())])
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("x", pa.float64()),
        ("n", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("ts", INSTANT),
        ("seq", SEQUENCE),
        ("_change_type", pa.string()),
        ("_snapshot", pa.bool_()),
        ("_unavailable", pa.list_(pa.string())),
        ("_tombstone", pa.bool_()),
        ("rejected", TOLD),
    ]
)
VALUES = ("n", "tags", "map")
FOREVER = 10**12


@dataclass(frozen=True)
class Case:
    """A history of micro-batches."""

    spec: TableSpec
    batches: tuple[pa.Table, ...]
    oracle: Callable[[], LatestOracle]
    seed: int

    @property
    def rows(self) -> pa.Table:
        """All rows, below one another."""
        return pa.concat_tables(self.batches).combine_chunks()


def change(dice: random.Random, by: tuple[str, ...], seq: int, odd: bool) -> Row:
    """A change whose content is given by its key and place, so that there is no conflict."""
    key, number = dice.choice(["a", "b", "ä"]), dice.choice([0.0, -0.0, 1.5])
    snapshot = dice.random() < 0.15
    named = (key, number + 0.0)[: len(by)]
    fixed = random.Random(f"{named}{seq}{snapshot}")
    row: Row = {"k": key, "x": number, "n": fixed.choice([1, 1, 2, None])}
    row |= {
        "tags": fixed.choice([None, ["t"], ["t", None]]),
        "map": fixed.choice([None, [("a", 1)]]),
    }
    row |= {"ts": 1_000 * seq, "seq": {"log": seq // 4, "offset": seq % 4}, "_tombstone": None}
    words = ["insert", "update_postimage", "update_postimage", "delete"]
    row |= {"_change_type": fixed.choice(words), "_snapshot": snapshot, "rejected": None}
    if snapshot:
        row["_change_type"] = "insert"
    lacks = fixed.choice([[], [], ["n"], ["tags", "map"], ["n", "tags", "map", "k", "ghost"]])
    row["_unavailable"] = lacks
    for name in set(lacks) & set(VALUES):
        row[name] = None
    if odd:
        row |= dice.choice(
            [
                {"_change_type": None},
                {"_change_type": "update_preimage"},
                {"_change_type": "upsert"},
                {"k": None},
                {"seq": None},
                {"_tombstone": True, "_change_type": None, "seq": None},
                {"rejected": {"reason": "own"}},
                {"ts": None},
                {"n": 77, "_unavailable": None},  # another content: a conflict, perhaps
            ]
        )
    return row


@st.composite
def histories(draw: st.DrawFn, *, odd: int = 0) -> Case:
    """Few keys, many changes, out of order and again."""
    by = draw(st.sampled_from([("k",), ("k", "x")]))
    publish = draw(st.sampled_from(["every change", "last"]))
    snapshots = draw(st.sampled_from(["below_log", "by_sequence"]))
    time = "ts" if draw(st.booleans()) else None
    dice = random.Random(draw(st.integers(0, 2**32)))
    count = draw(st.sampled_from([0, 3, 8, 20]))
    late = draw(st.sampled_from([0, 3, 12]))
    rows = [
        change(dice, by, max(0, number - dice.randrange(late + 1)), dice.randrange(8) < odd)
        for number in range(count)
    ]
    kept = [name for name in SCHEMA.names if name not in {"seq", *by} and name[0] != "_"]
    values = tuple(name for name in kept if name not in {"rejected", "ts"})
    if time is None:
        values = (*values, "ts")
        rows = [
            {**row, "seq": row["seq"] and 4 * row["seq"]["log"] + row["seq"]["offset"]}
            for row in rows
        ]
    whole = pa.field("seq", pa.int64())
    schema = SCHEMA if time else SCHEMA.set(SCHEMA.names.index("seq"), whole)
    if "x" not in by:
        for row in rows:
            row["x"] = None if row["n"] is None else float(row["n"])
    # No change comes later than that, so that nothing of importance is forgotten.
    horizon = draw(st.sampled_from([late * (1 if time is None else 1_000), FOREVER]))
    if horizon != FOREVER and snapshots == "below_log":
        # Of a delete that is forgotten a snapshot does not know that it loses against it.
        rows = [
            {**row, **({"_change_type": "insert"} if row["_change_type"] == "delete" else {})}
            for row in rows
        ]
    borders = sorted(dice.randrange(count + 1) for _ in range(dice.randrange(5)))
    pairs = zip([0, *borders], [*borders, count], strict=True)
    batches = tuple(table_of(rows[start:end], schema) for start, end in pairs)
    spec = TableSpec(
        "laws", by, ("seq",), time, horizon, values, schema, publish, snapshots, 100, "fail"
    )
    oracle = LatestOracle(by, values, publish, snapshots, time)
    return Case(spec, batches, oracle.fresh, draw(st.integers(0, 2**16)))


def table_of(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """Rows with their instants as microseconds."""
    columns = []
    for each in schema:
        kind = pa.int64() if each.type == INSTANT else each.type
        columns.append(pa.array([row[each.name] for row in rows], kind).cast(each.type))
    return pa.table(columns, schema=schema)


def play(
    spec: TableSpec,
    batches: Sequence[pa.Table],
    between: Callable[[State], State] = lambda state: state,
) -> list[Step]:
    """The steps, each with the invariants of the core."""
    state, steps = latest.empty(spec), []
    for batch in batches:
        step = latest.step(spec, between(state), latest.pack(spec, batch), None)
        state = step.state
        latest.check(spec, state)
        assert step.emitted.schema == step.late.schema == spec.output
        assert {n: t.schema for n, t in state.tables.items()} == dict(latest.layout(spec))
        steps.append(step)
    return steps


def changes_of(step: Step) -> list[Row]:
    """The changes that were told, in their order."""
    rows = [row for row in rows_of(step.emitted) if row["rejected"] is None]
    return [{n: v for n, v in row.items() if n != "rejected"} for row in rows]


def reasons(step: Step) -> Counter[str]:
    told = (row["rejected"] for row in rows_of(step.emitted))
    return Counter(each["reason"] for each in told if each is not None)


def table(spec: TableSpec, steps: Sequence[Step]) -> list[Any]:
    """What the steps fold to, without revisions."""
    folded = fold((row for step in steps for row in changes_of(step)), key=spec.by)
    return sorted(comparable({n: v for n, v in r.items() if n != "revision"}) for r in folded)


def by_key(spec: TableSpec, rows: Sequence[Row]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for row in rows:
        found.setdefault(comparable([row[n] for n in spec.by]), []).append(comparable(row))
    return found


def cut(rows: pa.Table, dice: random.Random) -> list[pa.Table]:
    borders = sorted(dice.randrange(len(rows) + 1) for _ in range(dice.randrange(6)))
    pairs = zip([0, *borders], [*borders, len(rows)], strict=True)
    return [rows.slice(begin, end - begin) for begin, end in pairs]


@given(case=histories(odd=2))
def test_every_step_is_what_the_oracle_says(case: Case) -> None:
    oracle = case.oracle()
    for step, batch in zip(play(case.spec, case.batches), case.batches, strict=True):
        expected = oracle.step(rows_of(batch))
        assert by_key(case.spec, changes_of(step)) == by_key(case.spec, expected.emitted)
        assert reasons(step) == Counter(expected.rejected)
        counts = step.counts
        assert (counts.rows, counts.rejected) == (len(batch), len(expected.rejected))
        assert (counts.stale, counts.duplicates, counts.ignored) == (
            expected.stale,
            expected.duplicates,
            expected.ignored,
        )
        words = Counter(row["_change_type"] for row in expected.emitted)
        assert (counts.results, counts.corrections, counts.deletes) == (
            words["insert"],
            words["update_postimage"],
            words["delete"],
        )


@given(case=histories(odd=1))
def test_what_is_published_folds(case: Case) -> None:
    table(case.spec, play(case.spec, case.batches))


@given(case=histories())
def test_the_table_depends_neither_on_cuts_nor_on_arrival_nor_on_duplicates(case: Case) -> None:
    spec = dataclasses.replace(case.spec, horizon=FOREVER)
    dice, whole = random.Random(case.seed), case.rows
    expected = table(spec, play(spec, case.batches))
    for _ in range(3):
        order = [*range(len(whole)), *dice.choices(range(len(whole)), k=min(4, len(whole)))]
        dice.shuffle(order)
        again = whole.take(pa.array(order, pa.int64()))
        assert table(spec, play(spec, cut(again, dice))) == expected
    batch = latest.run(spec, latest.pack(spec, whole))
    assert table(spec, [Step(latest.empty(spec), batch, batch)]) == expected


@given(case=histories(odd=2))
def test_the_order_within_a_micro_batch_does_not_matter(case: Case) -> None:
    rng = np.random.default_rng(case.seed)
    shuffled = [batch.take(pa.array(rng.permutation(len(batch)))) for batch in case.batches]
    for one, other in zip(play(case.spec, case.batches), play(case.spec, shuffled), strict=True):
        assert by_key(case.spec, changes_of(one)) == by_key(case.spec, changes_of(other))
        assert one.counts == other.counts
        for name, rows in one.state.tables.items():
            theirs = rows_of(other.state.tables[name])
            assert sorted(map(comparable, rows_of(rows))) == sorted(map(comparable, theirs))


@given(case=histories(odd=2))
def test_a_restart_changes_nothing(case: Case) -> None:
    known = latest.STATE, case.spec.identity, 3

    def restarted(state: State) -> State:
        return State(state.watermark, decode(encode(*known, state.tables), *known, where="laws"))

    pairs = zip(
        play(case.spec, case.batches), play(case.spec, case.batches, restarted), strict=True
    )
    for one, other in pairs:
        assert comparable(rows_of(one.emitted)) == comparable(rows_of(other.emitted))
        assert one.counts == other.counts


@given(case=histories(odd=1))
def test_keys_may_be_spread_over_any_number_of_shards(case: Case) -> None:
    whole = [by_key(case.spec, changes_of(step)) for step in play(case.spec, case.batches)]
    together: list[dict[Any, list[Any]]] = [{} for _ in case.batches]
    for shard in range(3):
        mine = [b.filter(pa.array(shard_of(b, case.spec.by, 3) == shard)) for b in case.batches]
        for found, step in zip(together, play(case.spec, mine), strict=True):
            found |= by_key(case.spec, changes_of(step))
    assert together == whole


@given(case=histories(odd=2))
def test_no_row_is_lost_uncounted_and_state_has_one_entry_for_each_key(case: Case) -> None:
    keys = set()
    for step, batch in zip(play(case.spec, case.batches), case.batches, strict=True):
        assert sum(reasons(step).values()) == step.counts.rejected
        keys |= {comparable([row[n] for n in case.spec.by]) for row in rows_of(batch)}
        assert step.state.tables["rows"].num_rows <= len(keys)
