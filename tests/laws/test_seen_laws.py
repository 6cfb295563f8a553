"""What was seen before keeps the laws of a step without a watermark, and never forgets too early."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.kernel.core import State
from streamops.kernel.hashing import shard_of
from streamops.kernel.values import comparable
from streamops.sketches.core import seen
from streamops.sketches.core.seen import FULL, SEEN, SeenCore, SeenSpec
from streamops.sketches.core.seen_state import RECENT, read_filters
from streamops.testing.laws import to_rows
from streamops.testing.laws.cores import MemorySegments
from tests.laws import playing
from tests.laws.strategies import NUMBERS, TEXTS, YEAR_1, YEAR_9999_ENDS
from tests.oracles.seen import SeenOracle
from tests.oracles.windows import Row, key_of
from tests.sketches.seen_specs import change, seen_spec

pytestmark = pytest.mark.laws

INSTANT = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("word", pa.string()),
        ("ts", INSTANT),
        ("x", pa.float64()),
        ("id", pa.int64()),
        ("map", pa.map_(pa.string(), pa.int64())),
    ]
)
ODD = [None, YEAR_1, YEAR_1 - 1, YEAR_9999_ENDS, YEAR_9999_ENDS + 1]


@dataclass(frozen=True)
class Case:
    """A history of micro-batches."""

    spec: SeenSpec
    batches: tuple[pa.Table, ...]
    oracle: Callable[[], SeenOracle]
    seed: int

    @property
    def rows(self) -> pa.Table:
        """All rows, below one another."""
        return pa.concat_tables([SCHEMA.empty_table(), *self.batches]).combine_chunks()


@st.composite
def histories(draw: st.DrawFn, *, in_order: bool = False) -> Case:
    """Few identities, that come again soon, late, and after they were forgotten."""
    horizon = draw(st.sampled_from([100, 100, 1_000, 7, 1, None]))
    generations = min(draw(st.sampled_from([1, 2, 4, 9])), horizon or 9)
    by = draw(st.sampled_from([("n",), ("n",), ("n", "word"), ("x", "word")]))
    time = None if horizon is None and draw(st.booleans()) else "ts"
    dice = random.Random(draw(st.integers(0, 2**32)))
    odd = 0 if in_order else draw(st.sampled_from([0, 0, 1]))
    now, number, batches = draw(st.sampled_from([10**15, 0, -(10**9)])), 0, []
    for _ in range(draw(st.sampled_from([8, 4, 1]))):
        rows = []
        for _ in range(dice.choice([0, 3, 8, 12])):
            now += dice.choice([0, 0, 0, 1, 1, 3, 3, 10, 10, 40, 200])
            late = 0 if in_order else dice.choice([0, 0, 0, 0, 1, 7, 60, 130, 2_000])
            row: Row = {"n": dice.choice([0, 1, 1, 2, 7, 7, 2**40, None if odd else 5])}
            row |= {"word": dice.choice(TEXTS), "ts": now - late, "x": dice.choice(NUMBERS)}
            row |= {"id": number, "map": dice.choice([None, [("a", 1)]])}
            if dice.randrange(15) < odd:
                row["ts"] = dice.choice(ODD)
            rows.append(row)
            number += 1
        batches.append(table_of(rows))
    # So large that a false positive is all but impossible.
    spec = seen_spec(
        SCHEMA, by=by, time=time, horizon=horizon, generations=generations, capacity=2_000
    )
    oracle = SeenOracle(by, time, horizon, generations)
    return Case(spec, tuple(batches), oracle.fresh, draw(st.integers(0, 2**16)))


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Rows with their instants as microseconds."""
    dtypes = [pa.int64() if f.type == INSTANT else f.type for f in SCHEMA]
    columns = [
        pa.array([row[f.name] for row in rows], dtype).cast(f.type)
        for f, dtype in zip(SCHEMA, dtypes, strict=True)
    ]
    return pa.table(columns, schema=SCHEMA)


play = partial(playing.annotate, SeenCore())


def by_id(tables: Sequence[pa.Table]) -> dict[int, Any]:
    """The decision for each row; every row is emitted once."""
    rows = [row for table in tables for row in to_rows(table)]
    found = {row["id"]: comparable(row) for row in rows}
    assert len(found) == len(rows)
    return found


def multiset(spec: SeenSpec, rows: Sequence[Row], arguments: Sequence[str]) -> Counter[Any]:
    """Verdicts by identity and event time: which of several equal ones is first is not asked."""
    where = [
        (
            comparable(key_of(row, spec.parameters.by)),
            row["ts"] if spec.parameters.time else 0,
        )
        for row in rows
    ]
    return Counter(zip(where, arguments, strict=True))


def cut(rows: pa.Table, dice: random.Random) -> list[pa.Table]:
    """The rows in the same order in other pieces."""
    borders = sorted(dice.randrange(len(rows) + 1) for _ in range(dice.randrange(6)))
    pairs = zip([0, *borders], [*borders, len(rows)], strict=True)
    return [rows.slice(begin, end - begin) for begin, end in pairs]


@given(case=histories())
def test_every_row_is_what_the_oracle_reports(case: Case) -> None:
    oracle = case.oracle()
    for batch, out in zip(case.batches, play(case.spec, case.batches)[0], strict=True):
        rows, got = to_rows(batch), to_rows(out)
        arguments = [row.pop(SEEN) for row in got]
        assert not any(row.pop(FULL) for row in got)
        assert comparable(got) == comparable(rows)  # the same rows, in the same order
        assert multiset(case.spec, rows, arguments) == multiset(case.spec, rows, oracle.judge(rows))


@given(case=histories(in_order=True))
def test_the_stream_is_the_batch_however_it_is_cut(case: Case) -> None:
    dice, whole = random.Random(case.seed), case.rows
    batch = SeenCore().run(case.spec, [SeenCore().pack(case.spec, whole)]).rows
    for batches in (case.batches, cut(whole, dice), cut(whole, dice)):
        out = pa.concat_tables(play(case.spec, batches)[0])
        pairs = ((to_rows(t), t.column(SEEN).to_pylist()) for t in (batch, out))
        one, other = (multiset(case.spec, *pair) for pair in pairs)
        assert one == other


@given(case=histories())
def test_the_batch_is_what_the_oracle_reports(case: Case) -> None:
    rows = to_rows(case.rows)
    batch = SeenCore().run(case.spec, [SeenCore().pack(case.spec, case.rows)]).rows
    arguments = batch.column(SEEN).to_pylist()
    assert "too_old" not in arguments
    assert multiset(case.spec, rows, arguments) == multiset(
        case.spec, rows, case.oracle().judge(rows)
    )


@given(case=histories())
def test_the_order_within_a_micro_batch_does_not_matter(case: Case) -> None:
    rng = np.random.default_rng(case.seed)
    shuffled = [batch.take(pa.array(rng.permutation(len(batch)))) for batch in case.batches]
    one, other = play(case.spec, case.batches), play(case.spec, shuffled)
    assert by_id(one[0]) == by_id(other[0])
    for left, right in zip(one[1], other[1], strict=True):
        assert (left.watermark, left.tables) == (right.watermark, right.tables)


@given(case=histories())
def test_a_restart_and_packs_change_nothing(case: Case) -> None:
    restarted = playing.restart(SeenCore(), case.spec)
    in_packs = []
    for batch in case.batches:
        half = len(batch) // 2
        packs = [SeenCore().pack(case.spec, batch[:half]), SeenCore().pack(case.spec, batch[half:])]
        in_packs.append(pa.concat_tables(packs).combine_chunks())
    assert by_id(play(case.spec, case.batches)[0]) == by_id(play(case.spec, in_packs, restarted)[0])


@given(case=histories(in_order=True))
def test_identities_may_be_spread_over_any_number_of_shards(case: Case) -> None:
    together: dict[int, Any] = {}
    spec = change(case.spec, shards=3)
    for shard in range(3):
        mine = [
            b.filter(pa.array(shard_of(b, spec.parameters.by, 3) == shard)) for b in case.batches
        ]
        together |= by_id(play(spec, mine)[0])
    assert together == by_id(play(case.spec, case.batches)[0])


@given(case=histories(), when_full=st.sampled_from(["flag", "evict_oldest"]))
def test_nothing_seen_is_ever_taken_for_new(case: Case, when_full: str) -> None:
    """Far too small a filter tells too much to have been seen, and never too little."""
    if case.spec.parameters.horizon is None:
        when_full = "flag"
    spec = change(case.spec, capacity=2, false_positive_rate=0.5, when_full=when_full)
    oracle = case.oracle()
    for batch, out in zip(case.batches, play(spec, case.batches)[0], strict=True):
        arguments = to_rows(out)
        assert oracle.forgotten(to_rows(batch), [row[SEEN] for row in arguments]) == []
        if when_full == "evict_oldest" and any(row[FULL] for row in arguments):
            oracle.first.clear()  # forgotten early, which the output shows


@given(case=histories())
def test_state_has_one_filter_for_each_cell_of_the_horizon(case: Case) -> None:
    for state in play(case.spec, case.batches)[1]:
        cells = state.tables["generations"].column("cell").to_pylist()
        assert len(set(cells)) == len(cells) <= case.spec.parameters.generations + 1


@given(case=histories(), limit=st.integers(0, 9), rate=st.sampled_from([None, 0.5, 0.01]))
def test_filters_contain_the_same_in_segments(case: Case, limit: int, rate: float | None) -> None:
    """Also those that are so small that they take new items for old ones."""
    spec, dice = case.spec, random.Random(case.seed)
    if rate is not None:
        spec = change(spec, capacity=9, false_positive_rate=rate, when_full="flag")
    outputs, plain = play(spec, case.batches)
    expected = [State.empty(SeenCore().layout(spec)), *plain]
    stored, number = MemorySegments(limit), count()

    def reopen(state: State) -> State:
        way = dice.randrange(4)
        opened = stored.reopen(state, put_back=way == 0, is_retained=way == 1)
        same = expected[next(number)]
        assert filters(spec, opened) == filters(spec, same)
        assert opened.watermark == same.watermark
        return opened

    found, states = play(spec, case.batches, reopen)
    assert by_id(found) == by_id(outputs)
    if states:
        # The state tools place them on other shards.
        tables = stored.reopen(states[-1], put_back=True).tables
        placed = [
            SeenCore().placement.redistribute(spec.identity, {0: of}, 1, 3)
            for of in (tables, plain[-1].tables)
        ]
        assert placed[0] == placed[1]


def filters(spec: SeenSpec, state: State) -> list[Any]:
    """What is stored in the filters of a state."""
    generations, older = read_filters(spec.shape, state)
    assert not older
    return [(of.cell, of.items, of.bits.tolist()) for of in generations]


def test_a_large_filter_is_written_again_when_it_has_enough_new_items() -> None:
    """Until then, a step writes the new items only."""
    spec = seen_spec(SCHEMA, by=("n",), time=None, capacity=40)
    stored, state = MemorySegments(limit=3), State.empty(SeenCore().layout(spec))
    numbers, recent = [], []
    for n in range(6):
        rows = table_of([dict.fromkeys(SCHEMA.names, None) | {"n": n, "id": n}])
        opened = stored.reopen(state)
        state, _ = seen.annotate(spec, opened, [SeenCore().pack(spec, rows)])
        assert state.segments is not None
        numbers.append([of.number for of in state.segments.index])
        recent.append(len(state.tables[RECENT]) if RECENT in state.tables else 0)
    assert numbers == [[1], [1], [1], [1], [2], [2]]
    assert recent == [0, 1, 2, 3, 0, 1]
