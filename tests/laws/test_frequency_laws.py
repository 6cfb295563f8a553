"""Heavy hitters and count-min keep the laws of a summary, and what they promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.kernel.groups import Groups
from streamops.sketches.core.countmin import CountMin
from streamops.sketches.core.frequent import Frequent
from streamops.sketches.core.items import is_flat, items
from streamops.sketches.core.sketch import Sketch
from streamops.testing import laws
from tests.aggregates.samples import COMPARABLE, TYPES, VALUES
from tests.oracles import frequency as oracle

pytestmark = pytest.mark.laws

# These hold of heavy hitters even where items were thrown away.
ALWAYS = [
    law for law in laws.SUMMARY if "associative" not in law.__name__ and "whole" not in law.__name__
]


@st.composite
def members(draw: st.DrawFn, sketch_of: Callable[[str, pa.DataType], Sketch]) -> laws.SummaryCase:
    """Rows of few distinct values and nulls, in groups of which some are empty."""
    name = draw(st.sampled_from(COMPARABLE))
    count = draw(st.integers(0, 12))

    def some(strategy: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(strategy, min_size=count, max_size=count))

    weights = some(st.sampled_from([1, 1, 2, 5, 0, None]))
    values = some(st.sampled_from([None, *VALUES[name], *VALUES[name]]))
    rows = pa.table({"c": pa.array(values, TYPES[name]), "w": pa.array(weights, pa.int64())})
    groups = Groups(np.array(some(st.integers(0, 3)), np.int64), 4)
    return laws.SummaryCase(
        sketch_of("c", TYPES[name]), rows, groups, 0.0, draw(st.integers(0, 2**16))
    )


def plenty(column: str, dtype: pa.DataType) -> Sketch:
    return Frequent(column, dtype, counters=7, weight="w")


def few(column: str, dtype: pa.DataType) -> Sketch:
    return Frequent(column, dtype, counters=2, at_least=0.4, top=2, weight="w")


def tables(column: str, dtype: pa.DataType) -> Sketch:
    return CountMin(column, dtype, width=2, depth=3, weight="w")  # with room for three items


@pytest.mark.parametrize("sketch_of", [plenty, tables])
@given(data=st.data())
def test_every_law_is_kept_while_all_items_find_room_and_in_tables_always(
    sketch_of: Any, data: st.DataObject
) -> None:
    laws.check_laws(data.draw(members(sketch_of)), laws.SUMMARY)


@given(data=st.data())
def test_heavy_hitters_keep_these_laws_whatever_was_thrown_away(data: st.DataObject) -> None:
    laws.check_laws(data.draw(members(few)), ALWAYS)


@pytest.mark.parametrize("sketch_of", [plenty, few, tables])
@given(data=st.data())
def test_states_are_the_same_after_they_were_bytes(sketch_of: Any, data: st.DataObject) -> None:
    case = data.draw(members(sketch_of))
    sketch: Any = case.summary
    if isinstance(sketch, Frequent) and not is_flat(sketch.type):
        return
    states = sketch.update(case.groups, case.rows)
    payloads = sketch.payload(states)
    again = sketch.revive(payloads)
    assert sketch.payload(again).equals(payloads)
    assert [state.type for state in again] == [state.type for state in states]


@dataclass(frozen=True)
class Cut:
    """A stream, dealt out to states that are merged two by two."""

    items: list[tuple[int, int]]
    parts: list[list[tuple[int, int]]]
    pairs: list[tuple[int, int]]


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    seed = draw(st.integers(0, 2**32))
    rng = np.random.default_rng(seed)
    count = draw(st.integers(0, 60))
    values = rng.zipf(draw(st.sampled_from([1.2, 1.7, 3.0])), count) % 20
    stream = list(zip(values.tolist(), rng.integers(1, 4, count).tolist(), strict=True))
    dealt = rng.integers(0, draw(st.integers(1, 6)), count)
    parts = [[stream[i] for i in np.flatnonzero(dealt == entry)] for entry in range(6)]
    pairs, left = [], list(range(6))
    while len(left) > 1:
        one, other = (left.pop(int(rng.integers(len(left)))) for _ in range(2))
        pairs.append((one, other))
        left.append(one)
    return Cut(stream, parts, pairs)


@given(cut=cuts(), counters=st.integers(1, 8), share=st.sampled_from([0.05, 0.13, 0.3, 0.5, 1.0]))
def test_however_a_stream_is_cut_bounds_hold_and_no_item_of_the_share_is_missing(
    cut: Cut, counters: int, share: float
) -> None:
    sketch = Frequent("c", pa.int64(), counters, weight="w")
    states, plain = {}, {}
    for number, part in enumerate(cut.parts):
        columns = [pa.array([row[i] for row in part], pa.int64()) for i in range(2)]
        rows = pa.table(columns, names=["c", "w"])
        states[number] = sketch.update(Groups(np.zeros(len(part), np.int64), 1), rows)
        plain[number] = oracle.Frequent(counters).add(part)
    last = 0
    for one, other in cut.pairs:
        pair = [pa.concat_arrays(entry) for entry in zip(states[one], states[other], strict=True)]
        states[one] = sketch.merge(Groups(np.zeros(2, np.int64), 1), pair)
        plain[one].merged([plain[other]])
        last = one
    truth: Counter[int] = Counter()
    for item, weight in cut.items:
        truth[item] += weight
    stored, offset, count = (state[0].as_py() for state in states[last])
    assert {entry["item"]: entry["count"] for entry in stored} == plain[last].counts
    assert (offset, count) == (plain[last].offset, sum(truth.values()))
    assert offset * (counters + 1) <= count - sum(entry["count"] for entry in stored)
    lower = {entry["item"]: entry["count"] for entry in stored}
    for item, true in truth.items():
        assert lower.get(item, 0) <= true <= lower.get(item, 0) + offset
    if counters + 1 <= 1 / share:
        return
    telling = Frequent("c", pa.int64(), counters, at_least=share)
    reported = telling.estimate(states[last])[0]["items"].as_py()
    frequent = {item for item, true in truth.items() if true >= share * count}
    assert frequent <= {entry["item"] for entry in reported}
    assert all(entry["upper"] >= share * count for entry in reported)


@given(cut=cuts(), width=st.integers(1, 9), depth=st.integers(1, 4))
def test_however_a_stream_is_cut_no_count_is_below_the_truth(
    cut: Cut, width: int, depth: int
) -> None:
    sketch = CountMin("c", pa.int64(), width, depth, weight="w")
    truth: Counter[int] = Counter()
    states = []
    for part in cut.parts:
        columns = [pa.array([row[i] for row in part], pa.int64()) for i in range(2)]
        rows = pa.table(columns, names=["c", "w"])
        states.append(sketch.update(Groups(np.zeros(len(part), np.int64), 1), rows))
        for item, weight in part:
            truth[item] += weight
    together = [pa.concat_arrays(entry) for entry in zip(*states, strict=True)]
    merged = sketch.merge(Groups(np.zeros(6, np.int64), 1), together)
    hashes, _ = items(pa.array(range(25)))
    _, upper = sketch.counts_of(merged, np.zeros(25, np.int64), pa.array(range(25)))
    table = oracle.CountMin(width, depth)
    for item, weight in truth.items():
        table.add(int(hashes[item]), weight)
    exact = len(truth) <= sketch.most_items
    for item, found in enumerate(upper.tolist()):
        assert found >= truth[item]
        assert found == (truth[item] if exact else table.count_of(int(hashes[item])))
