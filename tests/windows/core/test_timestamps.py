"""Merging windows entry by entry, in blocks, and in plain Python gives the same results."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops import aggregates as agg_functions
from streamops.aggregates.core.functions import (
    ByTime,
    Count,
    DecimalMean,
    Extreme,
    FloatSum,
    IntSum,
    Mean,
    Variance,
)
from streamops.kernel.errors import CapacityError
from streamops.kernel.groups import Groups
from streamops.windows.core import sliding as core
from streamops.windows.core.sliding_spec import SlidingSpec
from streamops.windows.core.tables import estimate_values, merge_states, update_states

INSTANT = pa.timestamp("us", tz="UTC")
PRICE = pa.decimal128(6, 2)
SCHEMA = pa.schema(
    [
        ("t", INSTANT),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("w", pa.string()),
        ("p", PRICE),
        ("s", pa.int64()),
    ]
)
SUMMARIES: list[Any] = [
    Count(None),
    Count("n"),
    IntSum("n", pa.int64()),
    FloatSum("x"),
    Mean("x"),
    DecimalMean("p", pa.decimal128(16, 2), pa.decimal128(10, 6)),
    Extreme("x", pa.float64(), greatest=False),
    Extreme("w", pa.string(), greatest=True),
    Variance("n", root=False),
    ByTime("w", "t", "s", pa.string(), INSTANT, pa.int64(), latest=False),
    ByTime("w", "t", "s", pa.string(), INSTANT, pa.int64(), latest=True),
]


def spec_of(*summaries: Any) -> SlidingSpec:
    return SlidingSpec(
        operator="windows.sliding",
        agg=(("n", agg_functions.count()),),
        by=(),
        time="t",
        aggregates=tuple((f"a{i}", "", summary) for i, summary in enumerate(summaries)),
        input=SCHEMA,
        delay=0,
        allowed_lateness=0,
        stragglers="drop",
        too_late="drop",
        early="never",
        size=1,
    )


SPEC = spec_of(*SUMMARIES)


def table(rng: np.random.Generator, count: int) -> pa.Table:
    holes = rng.random(count) < 0.2
    texts = np.array(["a", "b", "c", "dd"])[rng.integers(0, 4, count)]
    cents = pa.array(rng.integers(-999, 999, count)).cast(pa.decimal128(19, 0))
    return pa.table(
        [
            pa.array(rng.integers(0, 5, count)).cast(INSTANT),
            pa.array(rng.permutation(count), mask=holes),
            pa.array(rng.integers(-40, 40, count) / 4, mask=holes),
            pa.array(texts, mask=~holes),
            cents.cast(pa.decimal128(21, 2)).cast(PRICE),
            pa.array(rng.permutation(count)),
        ],
        schema=SCHEMA,
    )


def entries(rows: pa.Table) -> list[pa.Array]:
    """One state per row."""
    return update_states(SPEC, Groups(np.arange(len(rows)), len(rows)), rows)


def estimates_of(states: list[pa.Array]) -> list[dict[str, Any]]:
    """Estimates, floats rounded to twelve digits: the rounding of a variance depends on the order."""
    found = pa.table(estimate_values(SPEC, states), names=[name for name, *_ in SPEC.aggregates])
    return [
        {k: float(f"{v:.12g}") if isinstance(v, float) else v for k, v in row.items()}
        for row in found.to_pylist()
    ]


def ordered(rng: np.random.Generator, count: int, spread: int) -> core.Ordered:
    """Timestamps of some keys around 1970."""
    keys = rng.integers(0, 4, count)
    times = rng.integers(-spread, spread, count)
    pairs = np.unique(np.stack([keys, times], axis=1), axis=0)
    return core.Ordered(entries(table(rng, len(pairs))), pairs[:, 0], pairs[:, 1])


def oldest(size: int, stored: core.Ordered, last: Any) -> Any:
    """The first entry of each window, found by comparing all entries."""
    found = []
    for row in last:
        inside = stored.codes == stored.codes[row]
        inside &= stored.times > stored.times[row] - size
        found.append(np.flatnonzero(inside)[0])
    return np.array(found)


def one_by_one(stored: core.Ordered, low: Any, last: Any) -> list[dict[str, Any]]:
    found = []
    for start, end in zip(low.tolist(), last.tolist(), strict=True):
        members = [state.slice(start, end - start + 1) for state in stored.states]
        found += estimates_of(
            merge_states(SPEC, Groups(np.zeros(end - start + 1, np.int64), 1), members)
        )
    return found


SIZES = [1, 3, 700, 1_024, 5_000, 123_456, 10**7]


@pytest.mark.thorough
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", range(4))
def test_merging_entries_and_merging_blocks_give_the_same(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    stored = ordered(rng, int(rng.integers(1, 300)), max(size * int(rng.integers(1, 9)) // 4, 40))
    last = rng.integers(0, len(stored.times), 25)
    low = oldest(size, stored, last)
    wanted = one_by_one(stored, low, last)
    assert estimates_of(core.merge_entries(SPEC, stored, low, last)) == wanted
    assert estimates_of(core.merge_blocks(SPEC, stored, low, last, size)) == wanted
    assert estimates_of(core.merge_windows(SPEC, stored, low, last, size)) == wanted


@pytest.mark.parametrize("size", [40, 2_000, 123_456])
def test_the_same_entries_give_the_same_bits_whatever_else_is_in_the_table(size: int) -> None:
    rng = np.random.default_rng(size)
    spec = spec_of(FloatSum("x"))
    times = np.unique(rng.integers(-2 * size, 2 * size, 400))
    count = len(times)
    sums = np.exp(rng.normal(0, 20, count))  # their sum depends on the order of addition
    last = np.arange(count // 2, count)
    low = np.searchsorted(times, times[last] - size + 1)
    alone = core.Ordered([pa.array(sums)], np.zeros(count, np.int64), times)
    (wanted,) = core.merge_windows(spec, alone, low, last, size)
    more = int(rng.integers(1, 50))
    lead = np.arange(more)
    among = core.Ordered(
        [pa.array(np.concatenate([np.ones(more), sums, np.ones(more)]))],
        np.repeat([0, 1, 2], [more, count, more]),
        np.concatenate([lead, times, lead]),
    )
    (found,) = core.merge_windows(spec, among, low + more, last + more, size)
    assert found.equals(wanted)
    windows = zip(last.tolist(), low.tolist(), wanted.to_pylist(), strict=True)
    for row, start, value in [*windows][::5]:
        own = core.Ordered(
            [pa.array(sums[start : row + 1])], np.zeros(row - start + 1), times[start : row + 1]
        )
        first, end = np.array([0]), np.array([row - start])
        assert core.merge_windows(spec, own, first, end, size)[0].to_pylist() == [value]


@pytest.mark.parametrize(
    ("counts", "ways"),
    [
        ([1], ["merge_entries"]),
        ([2, 16], ["merge_entries"]),
        ([17, 40], ["merge_blocks"]),
        ([16, 17], ["merge_entries", "merge_blocks"]),
    ],
)
def test_windows_of_many_entries_are_merged_in_blocks(
    counts: list[int], ways: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    for name in ("merge_entries", "merge_blocks"):
        real = getattr(core, name)
        monkeypatch.setattr(
            core, name, lambda *args, name=name, real=real: taken.append(name) or real(*args)
        )
    stored = core.Ordered(
        entries(table(np.random.default_rng(1), 50)), np.zeros(50, np.int64), np.arange(50)
    )
    low = np.zeros(len(counts), np.int64)
    last = np.array(counts) - 1
    found = core.merge_windows(SPEC, stored, low, last, 50)
    assert estimates_of(found) == one_by_one(stored, low, last)
    assert taken == ways


def test_no_windows_give_no_states() -> None:
    nothing = np.empty(0, np.int64)
    for count in (0, 3):
        states = entries(table(np.random.default_rng(1), count))
        stored = core.Ordered(states, np.zeros(count, np.int64), np.arange(count))
        assert estimates_of(core.merge_windows(SPEC, stored, nothing, nothing, 1)) == []


def test_a_sum_overflows_only_where_a_window_does() -> None:
    spec = spec_of(IntSum("n", pa.int64()))
    most = (1 << 63) - 1
    states = [pa.array([1, most - 1, most - 1, 1, 1, most - 1])]
    stored = core.Ordered(states, np.zeros(6, np.int64), np.arange(6))
    last = np.array([1, 3])
    for way in (core.merge_entries, partial(core.merge_blocks, size=2)):
        (sums,) = way(spec, stored, last - 1, last)
        assert sums.to_pylist() == [most, most]
        with pytest.raises(CapacityError, match="NUMERIC_OVERFLOW"):
            way(spec, stored, last, last + 1)
