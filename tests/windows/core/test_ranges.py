"""Windows over entries: listed, in blocks, and one by one in plain Python all say the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops import aggregates as agg_functions
from streamops.aggregates.core.picks import ByTime, Extreme
from streamops.aggregates.core.sums import Count, DecimalMean, FloatSum, IntSum, Mean, Variance
from streamops.kernel.errors import CapacityError
from streamops.kernel.groups import Groups
from streamops.windows.core import ranges
from streamops.windows.core.sliding_spec import SlidingSpec
from streamops.windows.core.state_rows import estimates, merge_states, update_states

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
        aggregates=tuple((f"a{i}", "", each) for i, each in enumerate(summaries)),
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
    words = np.array(["a", "b", "c", "dd"])[rng.integers(0, 4, count)]
    cents = pa.array(rng.integers(-999, 999, count)).cast(pa.decimal128(19, 0))
    return pa.table(
        [
            pa.array(rng.integers(0, 5, count)).cast(INSTANT),
            pa.array(rng.permutation(count), mask=holes),
            pa.array(rng.integers(-40, 40, count) / 4, mask=holes),
            pa.array(words, mask=~holes),
            cents.cast(pa.decimal128(21, 2)).cast(PRICE),
            pa.array(rng.permutation(count)),
        ],
        schema=SCHEMA,
    )


def entries(rows: pa.Table) -> list[pa.Array]:
    """The states of rows that are an entry each."""
    return update_states(SPEC, Groups(np.arange(len(rows)), len(rows)), rows)


def shown(states: list[pa.Array]) -> list[dict[str, Any]]:
    """Estimates to compare, of floats twelve digits: a variance is rounded by its way."""
    found = pa.table(estimates(SPEC, states), names=[name for name, *_ in SPEC.aggregates])
    return [
        {k: float(f"{v:.12g}") if isinstance(v, float) else v for k, v in row.items()}
        for row in found.to_pylist()
    ]


def ordered(rng: np.random.Generator, count: int, spread: int) -> ranges.Ordered:
    """Moments of some keys, around 1970."""
    keys = rng.integers(0, 4, count)
    times = rng.integers(-spread, spread, count)
    pairs = np.unique(np.stack([keys, times], axis=1), axis=0)
    return ranges.Ordered(entries(table(rng, len(pairs))), pairs[:, 0], pairs[:, 1])


def oldest(size: int, moments: ranges.Ordered, last: Any) -> Any:
    """The first entry of each window, looked for one by one."""
    found = []
    for row in last:
        inside = moments.codes == moments.codes[row]
        inside &= moments.times > moments.times[row] - size
        found.append(np.flatnonzero(inside)[0])
    return np.array(found)


def one_by_one(moments: ranges.Ordered, low: Any, last: Any) -> list[dict[str, Any]]:
    found = []
    for start, end in zip(low.tolist(), last.tolist(), strict=True):
        members = [state.slice(start, end - start + 1) for state in moments.states]
        found += shown(merge_states(SPEC, Groups(np.zeros(end - start + 1, np.int64), 1), members))
    return found


SIZES = [1, 3, 700, 1_024, 5_000, 123_456, 10**7]


@pytest.mark.thorough
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", range(4))
def test_every_way_gives_the_same(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    moments = ordered(rng, int(rng.integers(1, 300)), max(size * int(rng.integers(1, 9)) // 4, 40))
    spec = replace(SPEC, size=size)
    last = rng.integers(0, len(moments.times), 25)
    low = oldest(size, moments, last)
    wanted = one_by_one(moments, low, last)
    assert shown(ranges.listed(spec, moments, low, last)) == wanted
    assert shown(ranges.in_blocks(spec, moments, low, last)) == wanted
    assert shown(ranges.over_windows(spec, moments, low, last)) == wanted


@pytest.mark.parametrize("size", [40, 2_000, 123_456])
def test_the_same_entries_give_the_same_bits_whatever_else_is_in_the_table(size: int) -> None:
    rng = np.random.default_rng(size)
    spec = replace(spec_of(FloatSum("x")), size=size)
    times = np.unique(rng.integers(-2 * size, 2 * size, 400))
    count = len(times)
    sums = np.exp(rng.normal(0, 20, count))  # the order of adding them up can be seen
    last = np.arange(count // 2, count)
    low = np.searchsorted(times, times[last] - size + 1)
    alone = ranges.Ordered([pa.array(sums)], np.zeros(count, np.int64), times)
    (wanted,) = ranges.over_windows(spec, alone, low, last)
    more = int(rng.integers(1, 50))
    lead = np.arange(more)
    among = ranges.Ordered(
        [pa.array(np.concatenate([np.ones(more), sums, np.ones(more)]))],
        np.repeat([0, 1, 2], [more, count, more]),
        np.concatenate([lead, times, lead]),
    )
    (found,) = ranges.over_windows(spec, among, low + more, last + more)
    assert found.equals(wanted)
    each = zip(last.tolist(), low.tolist(), wanted.to_pylist(), strict=True)
    for row, start, value in [*each][::5]:
        own = ranges.Ordered(
            [pa.array(sums[start : row + 1])], np.zeros(row - start + 1), times[start : row + 1]
        )
        first, end = np.array([0]), np.array([row - start])
        assert ranges.over_windows(spec, own, first, end)[0].to_pylist() == [value]


@pytest.mark.parametrize(
    ("counts", "ways"),
    [
        ([1], ["listed"]),
        ([2, 16], ["listed"]),
        ([17, 40], ["in_blocks"]),
        ([16, 17], ["listed", "in_blocks"]),
    ],
)
def test_windows_of_many_entries_are_taken_in_blocks(
    counts: list[int], ways: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    for name in ("listed", "in_blocks"):
        real = getattr(ranges, name)
        monkeypatch.setattr(
            ranges, name, lambda *said, name=name, real=real: taken.append(name) or real(*said)
        )
    moments = ranges.Ordered(
        entries(table(np.random.default_rng(1), 50)), np.zeros(50, np.int64), np.arange(50)
    )
    low = np.zeros(len(counts), np.int64)
    last = np.array(counts) - 1
    found = ranges.over_windows(replace(SPEC, size=50), moments, low, last)
    assert shown(found) == one_by_one(moments, low, last)
    assert taken == ways


def test_no_windows_give_no_states() -> None:
    nothing = np.empty(0, np.int64)
    for count in (0, 3):
        states = entries(table(np.random.default_rng(1), count))
        moments = ranges.Ordered(states, np.zeros(count, np.int64), np.arange(count))
        assert shown(ranges.over_windows(SPEC, moments, nothing, nothing)) == []


def test_a_sum_overflows_only_where_a_window_does() -> None:
    spec = replace(spec_of(IntSum("n", pa.int64())), size=2)
    most = (1 << 63) - 1
    states = [pa.array([1, most - 1, most - 1, 1, 1, most - 1])]
    moments = ranges.Ordered(states, np.zeros(6, np.int64), np.arange(6))
    last = np.array([1, 3])
    for way in (ranges.listed, ranges.in_blocks):
        (sums,) = way(spec, moments, last - 1, last)
        assert sums.to_pylist() == [most, most]
        with pytest.raises(CapacityError, match="SUM_OVERFLOW"):
            way(spec, moments, last, last + 1)
