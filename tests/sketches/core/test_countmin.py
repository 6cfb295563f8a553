"""Count-min, against counting everything and against a table in plain Python."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops.kernel.codec import decode, encode
from streamops.kernel.core import StateFormat
from streamops.kernel.errors import CapacityError, SchemaError, SketchFormatError
from streamops.kernel.groups import Groups
from streamops.sketches.core.countmin import CountMin, cells_of, depth_for, width_for
from streamops.sketches.core.items import items
from streamops.sketches.core.sketch import Sketch
from tests.aggregates.samples import COMPARABLE, LARGEST, TYPES, VALUES, one_group
from tests.oracles import frequency as oracle

SMALL = CountMin("c", pa.int64(), width=10, depth=2)
"""With a table beyond ten items."""


def longs(values: Any) -> pa.Table:
    return pa.table({"c": pa.array(values, pa.int64())})


def merged(sketch: CountMin, *parts: list[pa.Array]) -> list[pa.Array]:
    count = len(parts[0][0])
    groups = Groups(np.tile(np.arange(count), len(parts)), count)
    return sketch.merge(groups, [pa.concat_arrays(entry) for entry in zip(*parts, strict=True)])


def counts_of(
    sketch: CountMin, states: list[pa.Array], requested: Any, group: int = 0
) -> list[tuple[int, int]]:
    column = pa.array(requested, sketch.type)
    lower, upper = sketch.counts_of(states, np.full(len(column), group), column)
    return list(zip(lower.tolist(), upper.tolist(), strict=True))


@pytest.mark.parametrize(
    ("relative_error", "width"), [(0.01, 272), (0.001, 2_719), (0.5, 6), (1e-6, 2_718_282)]
)
def test_the_width_of_a_row_follows_from_the_error(relative_error: float, width: int) -> None:
    assert width_for(relative_error) == width


@pytest.mark.parametrize(
    ("confidence", "depth"), [(0.99, 5), (0.5, 1), (0.001, 1), (0.999, 7), (1 - math.exp(-3), 3)]
)
def test_the_depth_of_a_table_follows_from_the_confidence(confidence: float, depth: int) -> None:
    assert depth_for(confidence) == depth


def test_few_items_are_counted_exactly() -> None:
    states = SMALL.update(one_group(6), longs([1, 2, 1, None, 3, 1]))
    assert counts_of(SMALL, states, [1, 2, 3, 4]) == [(3, 3), (1, 1), (1, 1), (0, 0)]
    assert states[0].null_count == 0
    assert states[2].to_pylist() == [5]


def test_many_items_are_counted_by_the_table() -> None:
    values = np.arange(11).repeat(3)
    states = SMALL.update(one_group(33), longs(values))
    assert states[0].to_pylist() == [None]
    table = oracle.CountMin(10, 2)
    for item in items(pa.array(values))[0].tolist():
        table.add(item, 1)
    assert states[1].to_pylist() == [[*table.rows[0], *table.rows[1]]]
    error = math.floor(33 * math.e / 10)
    requested = items(pa.array(np.arange(20)))[0].tolist()
    expected = [(max(table.count_of(x) - error, 0), table.count_of(x)) for x in requested]
    assert counts_of(SMALL, states, range(20)) == expected


@pytest.mark.parametrize(("width", "depth"), [(1, 1), (10, 3), (2_719, 5), (3 * 10**9, 2)])
def test_cells_are_those_of_plain_python(width: int, depth: int) -> None:
    hashes = np.array([0, 1, -1, LARGEST, -LARGEST - 1])
    found = [cells.tolist() for cells in cells_of(hashes, width, depth)]
    table = oracle.CountMin(0, depth)
    table.width = width
    expected = [table.cells(item) for item in hashes.tolist()]
    assert found == [[row * width + entry[row] for entry in expected] for row in range(depth)]


@pytest.mark.parametrize("cut", [1, 7, 500])
def test_the_order_of_rows_does_not_matter(cut: int) -> None:
    rng = np.random.default_rng(2)
    ids, values = rng.integers(0, 7, 500), rng.integers(0, 14, 500)
    values[ids < 4] %= 10
    whole = SMALL.update(Groups(ids, 7), longs(values))
    assert whole[0].is_null().to_pylist() == [False] * 4 + [True] * 3
    states = SMALL.update(Groups(ids[:0], 7), longs([]))
    for rows in np.array_split(rng.permutation(500), cut):
        states = merged(SMALL, states, SMALL.update(Groups(ids[rows], 7), longs(values[rows])))
    assert [state.equals(stored) for state, stored in zip(states, whole, strict=True)] == [True] * 3
    for group in range(4):
        truth = Counter(values[ids == group].tolist())
        expected = [(truth[x], truth[x]) for x in range(10)]
        assert counts_of(SMALL, states, range(10), group) == expected


def test_a_state_becomes_a_table_with_the_first_item_too_many() -> None:
    ten = SMALL.update(one_group(10), longs(range(10)))
    assert ten[0].null_count == 0
    same = merged(SMALL, ten, ten)
    assert same[0].null_count == 0
    one = SMALL.update(one_group(1), longs([10]))
    table = merged(SMALL, same, one)
    assert table[0].null_count == 1
    assert len(table[1][0]) == SMALL.cells
    assert merged(SMALL, table, table)[1][0].as_py() == [2 * x for x in table[1][0].as_py()]


def test_every_query_has_its_own_state() -> None:
    ids = np.append(np.zeros(20, np.int64), [1, 1, 2])
    states = SMALL.update(Groups(ids, 3), longs([*range(20), 5, 5, 5]))
    requested = pa.array([5, 5, 5, 77, None])
    lower, upper = SMALL.counts_of(states, np.array([2, 0, 1, 1, 0]), requested)
    assert upper[[0, 2, 3, 4]].tolist() == lower[[0, 2, 3, 4]].tolist() == [1, 2, 0, 0]
    assert upper[1] >= 1
    assert lower[1] == max(upper[1] - 5, 0)
    nothing = SMALL.counts_of([state[:0] for state in states], np.empty(0, np.int64), requested[:0])
    assert [entry.tolist() for entry in nothing] == [[], []]


def test_the_estimate_has_the_queried_items_in_their_order() -> None:
    requested = pa.array(["b", "x", "a"])
    sketch = CountMin("c", pa.string(), width=10, depth=2, queries=requested)
    rows = pa.table({"c": ["a", "b", "b", None]})
    states = sketch.update(Groups(np.array([0, 0, 0, 1]), 2), rows)
    found = sketch.estimate(states)
    assert found.type == sketch.result
    assert found.to_pylist() == [
        {
            "items": [{"item": item, "estimate": n, "lower": n, "upper": n} for item, n in counts],
            "relative_error": 0.0,
            "count": count,
        }
        for counts, count in [([("b", 2), ("x", 0), ("a", 1)], 3), ([(x, 0) for x in "bxa"], 0)]
    ]
    lower, upper = sketch.bounds(states)
    assert lower.to_pylist() == upper.to_pylist() == [[2, 0, 1], [0, 0, 0]]


def test_without_a_question_the_estimate_is_the_number_of_items_and_the_error() -> None:
    states = SMALL.update(Groups(np.repeat([0, 1], 20), 2), longs([*range(20), *[1] * 20]))
    assert SMALL.estimate(states).to_pylist() == [
        {"items": [], "relative_error": 0.25, "count": 20},
        {"items": [], "relative_error": 0.0, "count": 20},
    ]
    assert [entry.to_pylist() for entry in SMALL.bounds(states)] == [[[], []]] * 2


@pytest.mark.parametrize("name", COMPARABLE)
def test_items_may_be_of_any_type_that_has_a_hash(name: str) -> None:
    values = pa.array([*VALUES[name], None, VALUES[name][0]], TYPES[name])
    sketch = CountMin("c", TYPES[name], width=100, depth=2, queries=values[:1])
    states = sketch.update(one_group(len(values)), pa.table({"c": values}))
    counts = Counter(items(values.drop_null())[0].tolist())
    (found,) = sketch.estimate(states)[0]["items"].as_py()
    assert found["upper"] == counts[int(items(values)[0][0])] >= 2


def test_weights_multiply_the_counts_of_items() -> None:
    sketch = CountMin("c", pa.int64(), width=10, depth=2, weight="w")
    assert sketch.inputs == ("c", "w")
    rows = longs([1, 2, 1, None, 3]).append_column("w", pa.array([5, None, 1, 9, 0], pa.int32()))
    states = sketch.update(one_group(5), rows)
    assert counts_of(sketch, states, [1, 2, 3]) == [(6, 6), (0, 0), (0, 0)]
    assert states[1].to_pylist() == [[6]]
    many = longs(range(11)).append_column("w", pa.array(range(11)))
    assert sketch.update(one_group(11), many)[0].null_count == 0
    many = longs(range(11)).append_column("w", pa.array(range(1, 12)))
    states = sketch.update(one_group(11), many)
    assert states[0].null_count == 1
    assert sum(states[1][0].as_py()) == 2 * 66


def test_a_negative_weight_is_an_error() -> None:
    sketch = CountMin("c", pa.int64(), width=10, depth=2, weight="w")
    with pytest.raises(SchemaError, match=r"\[CHANGE_STREAM_INPUT\]"):
        sketch.update(one_group(1), longs([1]).append_column("w", [[-1]]))


def test_more_items_than_a_number_can_count_are_an_error() -> None:
    sketch = CountMin("c", pa.int64(), width=10, depth=2, weight="w")
    half = sketch.update(one_group(1), longs([1]).append_column("w", [[LARGEST]]))
    with pytest.raises(CapacityError, match=r"\[NUMERIC_OVERFLOW\]"):
        merged(sketch, half, half)


def test_it_is_a_sketch_with_format_and_parameters() -> None:
    sketch: Sketch = CountMin("c", TYPES["struct"], width=10, depth=2)
    assert sketch.format == StateFormat("frequency", 1)
    dtype = 'struct<"a":double,"b":array<string>>'
    assert sketch.parameters == {"width": 10, "depth": 2, "type": dtype}


# As bytes.


def test_states_round_trip_as_bytes() -> None:
    ids = np.append(np.repeat([1, 3, 4], 30), [0, 0, 5])
    values = np.append(np.tile(np.arange(30), 3), [7, 7, 8])
    states = SMALL.update(Groups(ids, 7), longs(values))
    payloads = SMALL.payload(states)
    assert payloads.type == pa.binary()
    assert [len(entry) for entry in payloads.to_pylist()] == [28, 172, 12, 172, 172, 28, 12]
    found = SMALL.revive(payloads)
    assert all(state.equals(stored) for state, stored in zip(found, states, strict=True))
    assert SMALL.payload([state.slice(2, 3) for state in states]).equals(payloads.slice(2, 3))
    assert SMALL.revive(payloads.slice(2, 3))[1].equals(states[1].slice(2, 3))
    assert [len(state) for state in SMALL.revive(pa.array([], pa.binary()))] == [0, 0, 0]


def payload_of(items: list[int] | None, counts: list[int], count: int) -> bytes:
    numbers = [*(items or []), *counts]
    head = count.to_bytes(8, "little", signed=True)
    size = 0xFFFFFFFF if items is None else len(items)
    texts = b"".join(entry.to_bytes(8, "little", signed=True) for entry in numbers)
    return head + size.to_bytes(4, "little") + texts


SOUND = payload_of([-5, 7], [1, 2], 3)
TABLE = payload_of(None, [5, *[0] * 8, 6, 11, *[0] * 9], 11)


def test_sound_payloads_are_read() -> None:
    largest = payload_of([1, 2], [LARGEST - 1, 1], LARGEST)
    assert SMALL.revive(pa.array([SOUND, TABLE, largest]))[2].to_pylist() == [3, 11, LARGEST]


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (b"", "at least 12 bytes"),
        (SOUND[:11], "at least 12 bytes"),
        (payload_of([*range(11)], [1] * 11, 11), "at most 10 items"),
        (SOUND[:-1], "counts, and nothing else"),
        (SOUND + b"\0", "counts, and nothing else"),
        (TABLE[:-8], "counts, and nothing else"),
        (payload_of([7, -5], [1, 2], 3), "items in order, each of them once"),
        (payload_of([7, 7], [1, 2], 3), "items in order, each of them once"),
        (payload_of([6, 7], [1, 2], 4), "counts that add up"),
        (payload_of([6, 7], [0, 2], 2), "counts that add up"),
        (payload_of([6, 7], [3, -2], 1), "counts that add up"),
        (payload_of([6], [-1], -1), "counts that add up"),
        (payload_of([], [], 1), "counts that add up"),
        (payload_of([5, 6, 7], [LARGEST, LARGEST, 3], 1), "counts that add up"),
        (payload_of(None, [11, *[0] * 9, 10, *[0] * 9], 11), "counts that add up"),
        (payload_of(None, [12, -1, *[0] * 8, 11, *[0] * 9], 11), "counts that add up"),
        (payload_of(None, [10, *[0] * 9, 10, *[0] * 9], 10), "counts that add up"),
    ],
)
def test_an_invalid_payload_is_refused(broken: bytes, expected: str) -> None:
    with pytest.raises(SketchFormatError) as caught:
        SMALL.revive(pa.array([SOUND, TABLE, broken, SOUND]))
    error = caught.value
    assert (error.code, error.expected) == ("SKETCH_CORRUPT", expected)
    assert error.got == "1 of 4 payloads, the first is number 2"
    assert error.where == "sketches, frequency"


def test_states_round_trip_through_the_codec() -> None:
    states = SMALL.update(Groups(np.append(np.zeros(20, np.int64), 1), 3), longs(range(21)))
    layout = StateFormat("test", 1)
    table = pa.table(dict(zip("abc", states, strict=True)))
    stored = decode(encode(layout, {}, 1, {"t": table}), layout, {}, 1)["t"]
    back = [column.combine_chunks() for column in stored.columns]
    again = [entry.to_pylist() for entry in merged(SMALL, back, back)]
    assert again == [entry.to_pylist() for entry in merged(SMALL, states, states)]
