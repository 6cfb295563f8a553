"""Ranges of entries: listed, in blocks, and one by one in plain Python all say the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops.aggregates.core.moments import Variance
from streamops.aggregates.core.picks import ByTime, Extreme
from streamops.aggregates.core.sums import Count, DecimalMean, FloatSum, IntSum, Mean
from streamops.kernel.errors import CapacityError
from streamops.kernel.groups import Groups
from streamops.windows.core import ranges
from streamops.windows.core.entries import estimates, merged, updated
from streamops.windows.core.spec import SlidingSpec

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
    return updated(SPEC, Groups(np.arange(len(rows)), len(rows)), rows)


def shown(states: list[pa.Array]) -> list[dict[str, Any]]:
    """Estimates to compare, of floats twelve digits: a variance is rounded by its way."""
    found = pa.table(estimates(SPEC, states), names=[name for name, *_ in SPEC.aggregates])
    return [
        {k: float(f"{v:.12g}") if isinstance(v, float) else v for k, v in row.items()}
        for row in found.to_pylist()
    ]


def one_by_one(states: list[pa.Array], low: Any, high: Any) -> list[dict[str, Any]]:
    found = []
    for start, end in zip(low.tolist(), high.tolist(), strict=True):
        members = [state.slice(start, end - start) for state in states]
        found += shown(merged(SPEC, Groups(np.zeros(end - start, np.int64), 1), members))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_every_way_gives_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 70))
    states = entries(table(rng, count))
    low = rng.integers(0, count, 50)
    high = np.array([rng.integers(start + 1, count + 1) for start in low])
    wanted = one_by_one(states, low, high)
    assert shown(ranges.listed(SPEC, states, low, high)) == wanted
    assert shown(ranges.in_blocks(SPEC, states, low, high)) == wanted
    assert shown(ranges.over_ranges(SPEC, states, low, high)) == wanted


def test_every_range_of_some_entries_in_blocks() -> None:
    states = entries(table(np.random.default_rng(7), 17))
    pairs = [(low, high) for low in range(17) for high in range(low + 1, 18)]
    low, high = (np.array(each) for each in zip(*pairs, strict=True))
    assert shown(ranges.in_blocks(SPEC, states, low, high)) == one_by_one(states, low, high)


@pytest.mark.parametrize(
    ("length", "way"), [(1, None), (2, "listed"), (8, "listed"), (9, "in_blocks")]
)
def test_long_ranges_that_overlap_are_taken_in_blocks(
    length: int, way: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    for name in ("listed", "in_blocks"):
        monkeypatch.setattr(ranges, name, lambda *_, name=name: taken.append(name))
    low = np.zeros(100, np.int64)
    states = entries(table(np.random.default_rng(1), 100))
    ranges.over_ranges(SPEC, states, low, low + length)
    assert taken == ([] if way is None else [way])


def test_no_ranges_give_no_states() -> None:
    nothing = np.empty(0, np.int64)
    for rows in (0, 3):
        states = entries(table(np.random.default_rng(1), rows))
        assert shown(ranges.over_ranges(SPEC, states, nothing, nothing)) == []


def test_a_sum_overflows_only_where_a_range_does() -> None:
    spec = spec_of(IntSum("n", pa.int64()))
    most = (1 << 63) - 1
    states = [pa.array([1, most - 1, most - 1, 1, 1, most - 1])]
    low = np.array([0, 2])
    for way in (ranges.listed, ranges.in_blocks):
        (sums,) = way(spec, states, low, low + 2)
        assert sums.to_pylist() == [most, most]
        with pytest.raises(CapacityError, match="SUM_OVERFLOW"):
            way(spec, states, low + 1, low + 3)
