"""Heavy hitters and count-min over a million rows, measured against what they promise.

``python -m tests.sketches.frequency_accuracy`` prints the tables of ``docs/sketches.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.groups import Groups, Ints
from streamops.sketches.core.countmin import CountMin, depth_for, width_for
from streamops.sketches.core.frequent import Frequent, counters_for

ROWS = 1_000_000
DISTINCT = 100_000
PARTS = 10


def zipf(exponent: float) -> Ints:
    """Items of which number k is proportional to k ** -exponent, shuffled."""
    rng = np.random.default_rng(int(exponent * 10))
    shares = np.arange(1, DISTINCT + 1) ** -exponent
    drawn = np.searchsorted(np.cumsum(shares) / shares.sum(), rng.random(ROWS))
    return rng.permutation(DISTINCT)[np.minimum(drawn, DISTINCT - 1)]


def uniform() -> Ints:
    return np.random.default_rng(7).integers(0, DISTINCT, ROWS)


def frequent_at_last() -> Ints:
    """Items that come once, and after all of them one that is 1.1 % of the stream."""
    return np.append(np.arange(1, 989_001), np.zeros(11_000, np.int64))


def alternating() -> Ints:
    """Every hundredth row is the same item, all others are new: an item of exactly one percent."""
    return np.where(np.arange(ROWS) % 100 == 0, -1, np.arange(ROWS))


STREAMS: dict[str, Callable[[], Ints]] = {
    "Zipf, s = 0.8": lambda: zipf(0.8),
    "Zipf, s = 1.1": lambda: zipf(1.1),
    "Zipf, s = 1.5": lambda: zipf(1.5),
    "uniform": uniform,
    "all once, then 1.1 % of one": frequent_at_last,
    "1 % of one among new ones": alternating,
}


@dataclass(frozen=True)
class Heavy:
    """What heavy hitters of one percent found.

    ``outside``: items, kept or not, whose true count is not within their bounds.
    """

    above: int
    emitted: int
    missing: int
    least_share: float
    outside: int
    error: int
    promised: int


@dataclass(frozen=True)
class Counted:
    """How far counts were above the truth.

    ``beyond``: the share of items whose count is further above it than promised.
    """

    below: int
    beyond: float
    greatest: int
    mean: float
    promised: int


def folded(sketch: Frequent | CountMin, values: Ints, parts: int = PARTS) -> list[pa.Array]:
    """The state of a stream that came in so many micro-batches."""
    states = sketch.update(Groups(values[:0], 1), pa.table({"c": values[:0]}))
    for part in np.array_split(values, parts):
        fresh = sketch.update(Groups(np.zeros(len(part), np.int64), 1), pa.table({"c": part}))
        both = [pa.concat_arrays(value) for value in zip(states, fresh, strict=True)]
        states = sketch.merge(Groups(np.zeros(2, np.int64), 1), both)
    return states


def heavy(values: Ints, at_least: float = 0.01, parts: int = PARTS) -> Heavy:
    sketch = Frequent("c", pa.int64(), counters_for(at_least), at_least)
    states = folded(sketch, values, parts)
    known, truth = np.unique(values, return_counts=True)
    lower = np.zeros(len(known), np.int64)
    entries = states[0].flatten()
    lower[np.searchsorted(known, np.asarray(entries.field(0)))] = np.asarray(entries.field(1))
    offset = states[1][0].as_py()
    emitted = [value["item"] for value in sketch.estimate(states)[0]["items"].as_py()]
    above = set(known[truth >= at_least * len(values)].tolist())
    shares = dict(zip(known.tolist(), (truth / len(values)).tolist(), strict=True))
    return Heavy(
        above=len(above),
        emitted=len(emitted),
        missing=len(above - set(emitted)),
        least_share=min((shares[item] for item in emitted), default=1.0),
        outside=int(((truth < lower) | (truth > lower + offset)).sum()),
        error=offset,
        promised=len(values) // (sketch.counters + 1),
    )


def counted(
    values: Ints, relative_error: float = 0.001, confidence: float = 0.99, parts: int = PARTS
) -> Counted:
    width, depth = width_for(relative_error), depth_for(confidence)
    sketch = CountMin("c", pa.int64(), width, depth)
    states = folded(sketch, values, parts)
    known, truth = np.unique(values, return_counts=True)
    _, upper = sketch.counts_of(states, np.zeros(len(known), np.int64), pa.array(known))
    above: npt.NDArray[np.int64] = upper - truth
    promised = int(relative_error * len(values))
    return Counted(
        below=int((above < 0).sum()),
        beyond=float((above > promised).mean()),
        greatest=int(above.max()),
        mean=float(above.mean()),
        promised=promised,
    )


def main() -> None:
    """Print both tables."""
    bounds = "outside | least share reported | error | bound"
    print(f"| stream | items of 1 % | reported | missing | {bounds} |")
    print("|---" * 8 + "|")
    for name, stream in STREAMS.items():
        found = heavy(stream())
        print(
            f"| {name} | {found.above} | {found.emitted} | {found.missing} | {found.outside} | "
            f"{found.least_share:.2%} | {found.error:,} | {found.promised:,} |"
        )
    print()
    print("| stream | below the truth | mean above it | greatest | promised | beyond | promised |")
    print("|---|---|---|---|---|---|---|")
    for name, stream in STREAMS.items():
        seen = counted(stream())
        print(
            f"| {name} | {seen.below} | {seen.mean:,.1f} | {seen.greatest:,} | "
            f"{seen.promised:,} | {seen.beyond:.2%} | 1 % |"
        )


if __name__ == "__main__":
    main()
