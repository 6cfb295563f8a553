"""Heavy hitters as images of Apache's frequent-items sketch, both ways."""

from __future__ import annotations

from collections import Counter

import datasketches
import numpy as np
import pyarrow as pa
import pytest

from streamops.kernel.errors import SchemaError, SketchFormatError
from streamops.kernel.groups import Groups
from streamops.sketches.core.frequent import Frequent
from tests.sketches.core.test_frequency_mutations import mutated

STRINGS = Frequent("c", pa.string(), counters=20)
LONGS = Frequent("c", pa.int64(), counters=20)
PAIRS = datasketches.PyLongsSerDe()


def groups_of(sketch: Frequent) -> list[pa.Array]:
    """Of nothing, of few items, and of more than there are counters."""
    rng = np.random.default_rng(2)
    ids = np.repeat([1, 2, 3], [30, 2_000, 100])
    values = np.concatenate([rng.integers(0, 9, 30), rng.zipf(1.3, 2_000) % 900, np.arange(100)])
    rows = pa.table({"c": pa.array(values).cast(sketch.type)})
    return sketch.update(Groups(ids, 4), rows)


def test_apache_reads_the_images() -> None:
    states = groups_of(STRINGS)
    for group, image in enumerate(STRINGS.images(states).to_pylist()):
        theirs = datasketches.frequent_strings_sketch.deserialize(image)
        items, offset, count = (state[group].as_py() for state in states)
        assert theirs.total_weight == count
        assert theirs.num_active_items == len(items)
        for item in items:
            assert theirs.get_lower_bound(item["item"]) == item["count"]
            assert theirs.get_upper_bound(item["item"]) == item["count"] + offset
        assert theirs.get_upper_bound("never") == offset
        theirs.update("never", 5)
        assert theirs.get_estimate("never") >= 5
    longs = groups_of(LONGS)
    for group, image in enumerate(LONGS.images(longs).to_pylist()):
        theirs = datasketches.frequent_items_sketch.deserialize(image, PAIRS)
        for item in longs[0][group].as_py():
            assert theirs.get_lower_bound(item["item"]) == item["count"]


@pytest.mark.parametrize("sketch", [STRINGS, LONGS])
def test_written_sketches_are_read_unchanged(sketch: Frequent) -> None:
    states = groups_of(sketch)
    found = sketch.from_images(sketch.images(states))
    assert [entry.to_pylist() for entry in found] == [entry.to_pylist() for entry in states]
    nothing = sketch.from_images(pa.array([], pa.binary()))
    assert [len(entry) for entry in nothing] == [0, 0, 0]


def test_images_of_apache_are_read_and_merged() -> None:
    few, many = (datasketches.frequent_strings_sketch(8) for _ in range(2))
    rng = np.random.default_rng(4)
    truth: Counter[str] = Counter()
    for word in rng.zipf(1.4, 5_000) % 700:
        many.update(f"wörd {word}", 3)
        truth[f"wörd {word}"] += 3
    few.update("", 2)
    empty = datasketches.frequent_strings_sketch(8).serialize()
    images = pa.array([empty, few.serialize(), many.serialize()])
    sketch = Frequent("c", pa.string(), counters=50)
    states = sketch.from_images(images)
    assert states[0][:2].to_pylist() == [[], [{"item": "", "count": 2}]]
    assert states[2].to_pylist() == [0, 2, 15_000]
    queries = list(truth)
    owners = np.full(len(queries), 2)
    lower, upper = sketch.counts_of(states, owners, pa.array(queries))
    expected = np.array([truth[word] for word in queries])
    assert (lower <= expected).all()
    assert (expected <= upper).all()
    assert len(states[0][2]) <= 50
    merged = sketch.merge(Groups(np.zeros(3, np.int64), 1), states)
    assert merged[2].to_pylist() == [15_002]


def test_an_image_whose_error_exceeds_the_bound_is_refused() -> None:
    coarse = datasketches.frequent_strings_sketch(3)
    for number in range(1_000):
        coarse.update(f"w{number % 50}")
    with pytest.raises(SketchFormatError) as caught:
        Frequent("c", pa.string(), counters=400).from_images(pa.array([coarse.serialize()]))
    assert (caught.value.code, caught.value.expected) == (
        "SKETCH_CORRUPT",
        "counts within the bounds of the sketch",
    )


IMAGE = STRINGS.images(groups_of(STRINGS))[1].as_py()


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (b"", "at least eight bytes"),
        (IMAGE[:7], "at least eight bytes"),
        (b"\x03" + IMAGE[1:], "a head of version 1, family 10"),
        (IMAGE[:31], "a head of version 1, family 10"),
        (IMAGE[:33], "a count for each item"),
        (IMAGE[:-1], "items, and nothing else"),
        (IMAGE + b"x", "items, and nothing else"),
        (IMAGE[:-9] + b"\xff\xff" + IMAGE[-7:], "a length for each item"),
        (IMAGE[:-1] + b"\xff", "items in UTF-8"),
        (IMAGE[:16] + b"\x00" + IMAGE[17:], "counts within the bounds of the sketch"),
    ],
)
def test_an_invalid_image_is_refused(broken: bytes, expected: str) -> None:
    with pytest.raises(SketchFormatError) as caught:
        STRINGS.from_images(pa.array([IMAGE, broken]))
    assert (caught.value.code, caught.value.expected) == ("SKETCH_CORRUPT", expected)


def test_longs_fill_an_image() -> None:
    image = LONGS.images(groups_of(LONGS))[1].as_py()
    with pytest.raises(SketchFormatError):
        LONGS.from_images(pa.array([image + b"x"]))


@pytest.mark.parametrize("dtype", [pa.int32(), pa.binary(), pa.float64()])
def test_items_of_other_types_have_no_image(dtype: pa.DataType) -> None:
    sketch = Frequent("c", dtype, counters=9)
    with pytest.raises(SchemaError) as caught:
        sketch.from_images(pa.array([], pa.binary()))
    assert caught.value.code == "SKETCH_UNSUPPORTED"


def test_images_that_were_damaged_are_refused_or_read_as_states() -> None:
    rng = np.random.default_rng(3)
    images = [*STRINGS.images(groups_of(STRINGS)).to_pylist()]
    refused = 0
    for number in range(600):
        blob = mutated(images[number % len(images)], rng)
        try:
            states = STRINGS.from_images(pa.array([blob], pa.binary()))
        except SketchFormatError:
            refused += 1
            continue
        assert STRINGS.payload(STRINGS.revive(STRINGS.payload(states))) is not None
    assert 300 < refused < 600
