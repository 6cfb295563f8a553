"""How far HyperLogLog is off, against the truth.

``python -m tests.sketches.hll_accuracy`` prints the table of ``docs/sketches.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.groups import Groups
from streamops.sketches.core.hyperloglog import HyperLogLog

PRECISIONS = range(10, 17)
# How many seeds each number of distinct items is tried with: as many as the machine bears.
SEEDS = {10**2: 100, 10**3: 100, 10**4: 100, 10**5: 40, 10**6: 16, 10**7: 2}
PARTS = 7
BLOCK = 1 << 20

States = list[pa.Array]


def blocks(distinct: int, seed: int) -> Iterator[npt.NDArray[np.int64]]:
    """Integers, each once; no two seeds have one in common."""
    first = seed * 10**9
    for start in range(0, distinct, BLOCK):
        yield np.arange(first + start, first + min(start + BLOCK, distinct))


def sketched(distinct: int, seed: int, p: int) -> States:
    """A sketch of so many items, fed one block after another."""
    sketch = HyperLogLog("v", p)
    state = sketch.update(Groups(np.empty(0, np.int64), 1), pa.table({"v": pa.array([], "int64")}))
    for items in blocks(distinct, seed):
        one = Groups(np.zeros(len(items), np.int64), 1)
        state = united(p, state, sketch.update(one, pa.table({"v": items})))
    return state


def in_parts(distinct: int, seed: int, p: int) -> States:
    """The same sketch, merged from seven, of which each has some of the items more than once."""
    sketch, whole = HyperLogLog("v", p), None
    for items in blocks(distinct, seed):
        again = np.concatenate([items, items[::3]])
        part = np.random.default_rng(seed).integers(0, PARTS, len(again))
        states = sketch.update(Groups(part, PARTS), pa.table({"v": again}))
        together = sketch.merge(Groups(np.zeros(PARTS, np.int64), 1), states)
        whole = together if whole is None else united(p, whole, together)
    assert whole is not None
    return whole


def united(p: int, *several: States) -> States:
    groups = Groups(np.zeros(len(several), np.int64), 1)
    states = [pa.concat_arrays(pieces) for pieces in zip(*several, strict=True)]
    return HyperLogLog("v", p).merge(groups, states)


@cache
def errors(distinct: int, p: int, seeds: int | None = None) -> tuple[float, ...]:
    """Relative error of each seed: of the first so many, or of all."""
    sketch = HyperLogLog("v", p)
    states = [sketched(distinct, seed, p) for seed in range(seeds or SEEDS[distinct])]
    several = [pa.concat_arrays(pieces) for pieces in zip(*states, strict=True)]
    arguments = np.asarray(sketch.estimate(several).field("estimate"))
    return tuple((arguments / distinct - 1).tolist())


def promised(p: int) -> float:
    """Standard error, as documented."""
    return 1.04 / float(np.sqrt(2**p))


def table() -> str:
    """Root mean square and greatest of the errors, beside what is promised."""
    head = " | ".join(f"10^{len(str(item)) - 1}" for item in SEEDS)
    lines = [f"| p | promised | {head} |", "|---|---|" + "---|" * len(SEEDS)]
    for p in PRECISIONS:
        cells = []
        for distinct in SEEDS:
            found = np.array(errors(distinct, p))
            cells.append(f"{np.sqrt(np.mean(found**2)):.2%} ({np.abs(found).max():.2%})")
        lines.append(f"| {p} | {promised(p):.2%} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
