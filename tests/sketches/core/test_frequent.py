"""Heavy hitters, against counting everything."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops.kernel.codec import decode, encode
from streamops.kernel.core import StateFormat
from streamops.kernel.errors import CapacityError, SchemaError, SketchFormatError
from streamops.kernel.groups import Groups
from streamops.kernel.values import comparable
from streamops.sketches.core.frequent import Frequent, counters_for
from streamops.sketches.core.sketch import Sketch
from tests.aggregates.samples import COMPARABLE, LARGEST, NAN, ORDERED, TYPES, VALUES, one_group
from tests.oracles import frequency as oracle


def texts(*values: Any, **settings: Any) -> tuple[Frequent, list[pa.Array]]:
    """Heavy hitters of strings, in one group."""
    sketch = Frequent("c", pa.string(), **({"counters": 3} | settings))
    return sketch, sketch.update(
        one_group(len(values)), pa.table({"c": pa.array(values, "string")})
    )


def reported(sketch: Frequent, states: list[pa.Array], group: int = 0) -> list[tuple[Any, ...]]:
    found = sketch.estimate(states)
    assert found.type == sketch.result
    return [(item["item"], item["lower"], item["upper"]) for item in found[group]["items"].as_py()]


def merged(sketch: Frequent, *parts: list[pa.Array]) -> list[pa.Array]:
    count = len(parts[0][0])
    groups = Groups(np.tile(np.arange(count), len(parts)), count)
    return sketch.merge(groups, [pa.concat_arrays(entry) for entry in zip(*parts, strict=True)])


def test_items_with_a_counter_each_are_counted_exactly() -> None:
    sketch, states = texts("a", "b", "a", None, "c", "a", "c")
    assert reported(sketch, states) == [("a", 3, 3), ("c", 2, 2), ("b", 1, 1)]
    assert sketch.estimate(states)[0].as_py() | {"items": None} == {
        "items": None,
        "relative_error": 0.0,
        "count": 6,
    }


def test_the_count_of_the_first_item_too_many_is_subtracted_from_all() -> None:
    sketch, states = texts(*"aaaaabbbbcccdde")
    assert reported(sketch, states) == [("a", 3, 5), ("b", 2, 4), ("c", 1, 3)]
    assert sketch.estimate(states)[0]["relative_error"].as_py() == 2 / 15
    assert sketch.estimate(states)[0]["count"].as_py() == 15


def test_items_with_the_subtracted_count_are_all_removed() -> None:
    sketch, states = texts(*"aaabbccdd")
    assert reported(sketch, states) == [("a", 1, 3)]
    _, nothing = texts(*"abcd")
    assert reported(sketch, nothing) == []
    assert [state[0].as_py() for state in nothing] == [[], 1, 4]


def test_merging_adds_counters_and_offsets() -> None:
    sketch, one = texts(*"aaaaabbbbcccdde")
    _, other = texts(*"ddddddaaabbcc")
    both = merged(sketch, one, other)
    # a 3 + 1, b 2, c 1, d 4: what is fourth has 1, and goes.
    assert reported(sketch, both) == [("a", 3, 8), ("d", 3, 8), ("b", 1, 6)]
    assert sketch.estimate(both)[0].as_py() | {"items": None} == {
        "items": None,
        "relative_error": 5 / 28,
        "count": 28,
    }


@pytest.mark.parametrize(
    ("at_least", "expected"),
    [(0.6, []), (0.5, ["a"]), (0.31, ["a"]), (0.3, ["a", "b"]), (0.2, ["a", "b", "c"])],
)
def test_an_item_with_exactly_the_share_is_returned(at_least: float, expected: list[str]) -> None:
    sketch, states = texts(*"aaaaabbbcc", at_least=at_least)
    assert [item for item, *_ in reported(sketch, states)] == expected


@pytest.mark.parametrize("share", range(1, 100))
def test_a_share_that_is_not_binary_loses_no_item(share: int) -> None:
    sketch = Frequent("c", pa.int64(), counters=200, at_least=share / 100)
    rows = pa.table({"c": np.append(np.zeros(share, np.int64), np.arange(1, 101 - share))})
    states = sketch.update(one_group(100), rows)
    assert 0 in [item for item, *_ in reported(sketch, states)]


def test_top_returns_the_most_frequent_and_the_least_of_equal_ones() -> None:
    sketch, states = texts(*"ccabb", top=2)
    assert reported(sketch, states) == [("b", 2, 2), ("c", 2, 2)]
    sketch, states = texts(*"ccabb", top=2, at_least=0.9)
    assert reported(sketch, states) == []


def test_groups_have_counters_of_their_own() -> None:
    sketch = Frequent("c", pa.int64(), counters=2)
    ids = np.array([0, 2, 0, 2, 2, 2, 0])
    states = sketch.update(Groups(ids, 3), pa.table({"c": [1, 1, 1, 2, 2, 3, 9]}))
    assert reported(sketch, states) == [(1, 2, 2), (9, 1, 1)]
    assert reported(sketch, states, 1) == []
    assert reported(sketch, states, 2) == [(2, 1, 2)]
    lower, upper = sketch.bounds(states)
    assert lower.to_pylist() == [[2, 1], [], [1]]
    assert upper.to_pylist() == [[2, 1], [], [2]]


@pytest.mark.parametrize("name", COMPARABLE)
def test_items_of_any_type_are_returned_unchanged(name: str) -> None:
    sketch = Frequent("c", TYPES[name], counters=99)
    values = [*VALUES[name], None, *VALUES[name], VALUES[name][0]]
    states = sketch.update(one_group(len(values)), pa.table({"c": pa.array(values, TYPES[name])}))
    expected = Counter(comparable(value) for value in values if value is not None)
    given = {comparable(v): comparable(pa.scalar(v, TYPES[name]).as_py()) for v in VALUES[name]}
    found = {comparable(item): (lower, upper) for item, lower, upper in reported(sketch, states)}
    assert found == {given[item]: (count, count) for item, count in expected.items()}
    again = merged(sketch, states, states)
    twice = {comparable(item): lower for item, lower, _ in reported(sketch, again)}
    assert twice == {given[item]: 2 * count for item, count in expected.items()}


@pytest.mark.parametrize("dtype", [pa.float32(), pa.float64()])
def test_equal_numbers_are_one_item_with_one_form(dtype: pa.DataType) -> None:
    sketch = Frequent("c", dtype, counters=9)
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    values = pa.array(np.concatenate([odd, [-0.0, 0.0, NAN]]), pa.float64(), from_pandas=False)
    rows = pa.table({"c": values.cast(dtype)})
    states = sketch.update(one_group(5), rows)
    backwards = sketch.update(one_group(5), rows.take([4, 3, 2, 1, 0]))
    assert sketch.payload(states).equals(sketch.payload(backwards))
    assert comparable(reported(sketch, states)) == comparable([(NAN, 3, 3), (0.0, 2, 2)])


def test_weights_multiply_the_counts_of_items() -> None:
    sketch = Frequent("c", pa.string(), counters=2, weight="w")
    rows = pa.table(
        {"c": ["a", "b", "a", None, "c", "d"], "w": pa.array([5, 3, None, 7, 0, 1], pa.int16())}
    )
    assert sketch.inputs == ("c", "w")
    states = sketch.update(one_group(6), rows)
    assert reported(sketch, states) == [("a", 4, 5), ("b", 2, 3)]
    assert sketch.estimate(states)[0]["count"].as_py() == 9


def test_a_negative_weight_is_an_error() -> None:
    sketch = Frequent("c", pa.string(), counters=2, weight="w")
    with pytest.raises(SchemaError) as caught:
        sketch.update(one_group(2), pa.table({"c": ["a", "b"], "w": [1, -2]}))
    assert str(caught.value) == (
        "[CHANGE_STREAM_INPUT] sketches: a sketch cannot forget, but column 'w' has negative weights\n"
        "  got:       weight='w' with a minimum of -2\n"
        "  expected:  weights >= 0\n"
        "  fix:       leave such rows out, or count exactly: aggregates.sum"
        "\n  see:       docs/errors.md#change_stream_input"
    )
    rows = pa.table({"c": pa.array(["a", None]), "w": [1, -2]})
    assert reported(sketch, sketch.update(one_group(2), rows)) == [("a", 1, 1)]


def test_more_items_than_a_number_can_count_are_an_error() -> None:
    sketch = Frequent("c", pa.string(), counters=2, weight="w")
    half = sketch.update(one_group(1), pa.table({"c": ["a"], "w": [LARGEST]}))
    with pytest.raises(CapacityError) as caught:
        merged(sketch, half, half)
    assert str(caught.value) == (
        "[NUMERIC_OVERFLOW] sketches: the number of items counted of 'c' does not fit into its type\n"
        "  got:       a sum of weights out of range\n"
        "  expected:  a value of type bigint\n"
        "  fix:       use smaller weights: a coarser unit, such as kilobytes for bytes"
        "\n  see:       docs/errors.md#numeric_overflow"
    )
    with pytest.raises(CapacityError):
        sketch.update(one_group(2), pa.table({"c": ["a", "b"], "w": [LARGEST, 1]}))


def test_a_single_state_is_copied() -> None:
    sketch = Frequent("c", pa.int64(), counters=2)
    ids = np.array([0, 1, 2, 2])
    states = sketch.update(Groups(ids, 3), pa.table({"c": [5, 6, 7, 8]}))
    mixed = [pa.concat_arrays([state, state.slice(1, 1)]) for state in states]
    found = sketch.merge(Groups(np.array([3, 0, 1, 0]), 4), mixed)
    assert [reported(sketch, found, group) for group in range(4)] == [
        [(6, 2, 2)], [(7, 1, 1), (8, 1, 1)], [], [(5, 1, 1)]
    ]  # fmt: skip


def test_it_is_a_sketch_with_format_and_parameters() -> None:
    sketch: Sketch = Frequent("c", pa.decimal128(6, 2), counters=7)
    assert sketch.format == StateFormat("heavy_hitters", 1)
    assert sketch.parameters == {"counters": 7, "type": "decimal(6,2)"}


@pytest.mark.parametrize(("at_least", "counters"), [(0.01, 400), (0.1, 40), (0.03, 134), (1.0, 4)])
def test_bounds_are_four_times_as_narrow_as_the_share(at_least: float, counters: int) -> None:
    assert counters_for(at_least) == counters


@pytest.mark.thorough
@pytest.mark.parametrize("cut", [1, 7, 1_000])
def test_states_are_those_of_plain_python(cut: int) -> None:
    rng = np.random.default_rng(3)
    ids, values = rng.integers(0, 5, 3_000), rng.zipf(1.3, 3_000) % 50
    weights = rng.integers(0, 4, 3_000)
    sketch = Frequent("c", pa.int64(), counters=6, weight="w")
    expected = [oracle.Frequent(6) for _ in range(5)]
    states = sketch.update(Groups(ids[:0], 5), pa.table({"c": values[:0], "w": weights[:0]}))
    for rows in np.array_split(np.arange(3_000), cut):
        table = pa.table({"c": values[rows], "w": weights[rows]})
        states = merged(sketch, states, sketch.update(Groups(ids[rows], 5), table))
        for group, stored in enumerate(expected):
            mine = rows[(ids[rows] == group) & (weights[rows] > 0)]
            entries = zip(values[mine].tolist(), weights[mine].tolist(), strict=True)
            stored.merged([oracle.Frequent(6).add(entries)])
    for group, stored in enumerate(expected):
        items, offset, count = (state[group].as_py() for state in states)
        assert [(entry["item"], entry["count"]) for entry in items] == sorted(stored.counts.items())
        assert (offset, count) == (stored.offset, stored.count)


def test_an_item_is_looked_up_in_its_own_state() -> None:
    sketch = Frequent("c", pa.string(), counters=2)
    rows = pa.table({"c": ["a", "a", "b", "c", "a", "a", "b"]})
    states = sketch.update(Groups(np.array([0, 0, 0, 0, 2, 2, 2]), 3), rows)
    queries = pa.array(["a", "b", "b", "a", None, "x", "a"])
    lower, upper = sketch.counts_of(states, np.array([0, 0, 2, 1, 0, 0, 2]), queries)
    assert lower.tolist() == [1, 0, 1, 0, 0, 0, 2]
    assert upper.tolist() == [2, 1, 1, 0, 0, 1, 2]


# As bytes.


@pytest.mark.parametrize("name", ORDERED)
def test_states_round_trip_as_bytes(name: str) -> None:
    sketch = Frequent("c", TYPES[name], counters=99)
    values = [*VALUES[name], *VALUES[name][1:]]
    column = pa.array([None, *values], TYPES[name]).slice(1)
    ids = np.arange(len(values)) % 3 * 2
    states = sketch.update(Groups(ids, 6), pa.table({"c": column}))
    payloads = sketch.payload(states)
    assert payloads.type == pa.binary()
    found = sketch.revive(pa.chunked_array([payloads]).slice(1).combine_chunks())
    assert [state.equals(stored.slice(1)) for state, stored in zip(found, states, strict=True)]
    assert comparable([state.to_pylist() for state in found]) == comparable(
        [state.slice(1).to_pylist() for state in states]
    )
    assert sketch.payload([state.slice(2, 3) for state in states]).equals(payloads.slice(2, 3))
    assert [state.type for state in found] == [dtype for _, dtype in sketch.fields]


def test_without_states_there_are_no_bytes() -> None:
    sketch, states = texts()
    assert sketch.revive(sketch.payload(states))[0].to_pylist() == [[]]
    nothing = [state[:0] for state in states]
    assert sketch.payload(nothing).to_pylist() == []
    assert [len(state) for state in sketch.revive(pa.array([], pa.binary()))] == [0, 0, 0]


def payload_of(counts: list[int], items: bytes, *, offset: int = 0, count: int = -1) -> bytes:
    count = sum(counts) if count < 0 else count
    head = count.to_bytes(8, "little", signed=True) + offset.to_bytes(8, "little", signed=True)
    numbers = b"".join(entry.to_bytes(8, "little", signed=True) for entry in counts)
    return head + len(counts).to_bytes(4, "little") + numbers + items


A_AND_B = b"\x01\0\0\0\x01\0\0\0ab"
SOUND = payload_of([1, 2], A_AND_B)


def test_a_sound_payload_is_read() -> None:
    sketch, _ = texts()
    found = sketch.revive(pa.array([SOUND]))
    assert found[0].to_pylist() == [[{"item": "a", "count": 1}, {"item": "b", "count": 2}]]
    largest = payload_of([LARGEST - 1, 1], A_AND_B)
    assert sketch.revive(pa.array([largest]))[2].to_pylist() == [LARGEST]


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (b"", "at least 20 bytes"),
        (SOUND[:19], "at least 20 bytes"),
        (payload_of([1] * 4, b""), "at most 3 items"),
        (SOUND[:30], "a count for each item"),
        (payload_of([0, 2], A_AND_B), "counts within the bounds of the sketch"),
        (payload_of([1, 2], A_AND_B, count=4), "counts within the bounds of the sketch"),
        (payload_of([1, 2], A_AND_B, count=2), "counts within the bounds of the sketch"),
        (payload_of([1, 2], A_AND_B, count=7, offset=-1), "counts within the bounds of the sketch"),
        (payload_of([1, 2], A_AND_B, count=6, offset=1), "counts within the bounds of the sketch"),
        (
            payload_of([1, 2], A_AND_B, count=LARGEST, offset=LARGEST),
            "counts within the bounds of the sketch",
        ),
        (
            payload_of([LARGEST] * 2, A_AND_B, count=LARGEST),
            "counts within the bounds of the sketch",
        ),
        (
            payload_of([LARGEST, LARGEST, 3], b"\x01\0\0\0" * 3 + b"abc", count=1),
            "counts within the bounds of the sketch",
        ),
        (SOUND[:-1], "items, and nothing else"),
        (SOUND + b"c", "items, and nothing else"),
        (SOUND[:40], "items, and nothing else"),
        (payload_of([1, 2], b"\x01\0\0\0\x01\0\0\0ba"), "items in order, each of them once"),
        (payload_of([1, 2], b"\x01\0\0\0\x01\0\0\0aa"), "items in order, each of them once"),
        (payload_of([1, 2], b"\x01\0\0\0\x01\0\0\0a\xff"), "items of type string"),
    ],
)
def test_an_invalid_payload_is_refused(broken: bytes, expected: str) -> None:
    sketch, _ = texts()
    with pytest.raises(SketchFormatError) as caught:
        sketch.revive(pa.array([SOUND, broken, SOUND]))
    error = caught.value
    assert (error.code, error.expected) == ("SKETCH_CORRUPT", expected)
    if "type" not in expected:
        assert error.got == "1 of 3 payloads, the first is number 1"
    assert error.where == "sketches, heavy_hitters"


def test_the_counts_of_a_payload_with_an_offset_are_checked() -> None:
    sketch, _ = texts()
    fine = payload_of([1, 2], A_AND_B, count=7, offset=1)
    assert sketch.revive(pa.array([fine]))[1].to_pylist() == [1]


@pytest.mark.parametrize(
    ("dtype", "item"),
    [
        (pa.bool_(), b"\x02"),
        (pa.decimal128(2, 0), (100).to_bytes(16, "little")),
        (pa.float64(), np.array([-0.0]).tobytes()),
        (pa.float64(), b"\x01" + np.array([NAN]).tobytes()[1:]),
        (pa.float32(), np.array([-0.0], np.float32).tobytes()),
    ],
)
def test_items_that_are_no_values_of_the_type_are_refused(dtype: pa.DataType, item: bytes) -> None:
    with pytest.raises(SketchFormatError):
        Frequent("c", dtype, counters=3).revive(pa.array([payload_of([1], item)]))


def test_states_round_trip_through_the_codec_and_are_updated() -> None:
    sketch, states = texts(*"aaaaabbbbcccdde")
    layout = StateFormat("test", 1)
    table = pa.table(dict(zip("abc", states, strict=True)))
    stored = decode(encode(layout, {}, 1, {"t": table}), layout, {}, 1)["t"]
    back = [column.combine_chunks() for column in stored.columns]
    _, more = texts(*"ddddddaaabbcc")
    assert reported(sketch, merged(sketch, back, more)) == [("a", 3, 8), ("d", 3, 8), ("b", 1, 6)]


def test_instants_before_1970_are_items() -> None:
    values = [dt.datetime(1969, 12, 31, tzinfo=dt.UTC), dt.datetime(1, 1, 1, tzinfo=dt.UTC)]
    sketch = Frequent("c", TYPES["instant"], counters=2)
    states = sketch.update(one_group(2), pa.table({"c": pa.array(values, TYPES["instant"])}))
    assert [item for item, *_ in reported(sketch, states)] == values[::-1]
