"""Rows sorted by the hash of the key and the time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streamops.joins.core.side_state import SortedIndex, equal_keys, expand

FAR = 2**61


def index(*rows: tuple[int, int]) -> SortedIndex:
    hashes, times = np.array(rows, np.int64).reshape(-1, 2).T
    return SortedIndex(hashes, times)


def spans(index_: SortedIndex, hash_: int, since: int, until: int) -> tuple[int, int]:
    starts, ends = index_.spans(*(np.array([item]) for item in (hash_, since, until)))
    return int(starts[0]), int(ends[0])


def test_a_span_includes_both_ends() -> None:
    rows = index((1, 5), (1, 6), (1, 6), (1, 7), (2, 6))
    assert spans(rows, 1, 6, 7) == (1, 4)
    assert spans(rows, 1, 6, 6) == (1, 3)
    assert spans(rows, 2, 0, 9) == (4, 5)


def test_a_hash_without_rows_has_an_empty_span_between_its_neighbours() -> None:
    rows = index((1, 5), (3, 5))
    assert [spans(rows, hash_, 0, 9) for hash_ in (0, 2, 4)] == [(0, 0), (1, 1), (2, 2)]


def test_in_an_empty_index_every_span_is_empty() -> None:
    assert spans(index(), 1, 0, 9) == (0, 0)


@pytest.mark.parametrize("far", [FAR, 10])
def test_extreme_hashes_and_times_are_supported(far: int) -> None:
    rows = index((-far, -far), (-far, far), (far, -far), (far, far))
    assert spans(rows, far, -far, far) == (2, 4)
    assert spans(rows, -far, 0, far) == (1, 2)


def test_merged_rows_are_sorted_and_stored_rows_precede_equal_ones() -> None:
    merged, order = index((1, 5), (2, 1), (2, 3)).merge(index((0, 9), (2, 1), (2, 2), (7, 0)))
    assert merged.hashes.tolist() == [0, 1, 2, 2, 2, 2, 7]
    assert merged.times.tolist() == [9, 5, 1, 1, 2, 3, 0]
    assert order.tolist() == [3, 0, 1, 4, 5, 2, 6]


def test_merging_gives_the_same_as_sorting() -> None:
    rng = np.random.default_rng(7)
    one, other = (
        rows[np.lexsort((rows[:, 1], rows[:, 0]))]
        for rows in (rng.integers(-3, 3, (40, 2)), rng.integers(-3, 3, (25, 2)))
    )
    merged, order = SortedIndex(*one.T).merge(SortedIndex(*other.T))
    both = np.concatenate([one, other])
    sequence = np.lexsort((both[:, 1], both[:, 0]))
    assert order.tolist() == sequence.tolist()
    assert merged.times.tolist() == both[sequence, 1].tolist()


def test_spans_are_expanded_to_positions() -> None:
    which, positions = expand(np.array([3, 0, 5]), np.array([5, 0, 6]))
    assert (which.tolist(), positions.tolist()) == ([0, 0, 2], [3, 4, 5])


NAN = float("nan")
PAIRS = pa.struct([("x", pa.int64())])


@pytest.mark.parametrize(
    ("dtype", "one", "other", "same"),
    [
        (pa.int64(), 1, 1, True),
        (pa.int64(), 1, 2, False),
        (pa.int64(), None, None, False),
        (pa.float64(), NAN, NAN, True),
        (pa.float64(), -0.0, 0.0, True),
        (pa.float64(), None, None, False),
        (pa.string(), "a", "A", False),
        (pa.null(), None, None, False),
        (PAIRS, {"x": 1}, {"x": 1}, True),
        (PAIRS, {"x": None}, {"x": None}, True),
        (PAIRS, None, None, False),
        (pa.list_(pa.int64()), [1, 2], [1, 2], True),
        (pa.list_(pa.int64()), [1, 2], [1], False),
    ],
)
def test_keys_are_equal_as_in_spark(
    dtype: pa.DataType, one: object, other: object, same: bool
) -> None:
    left, right = pa.array([one], dtype), pa.array([other], dtype)
    assert equal_keys([left], [right], 1).tolist() == [same]
