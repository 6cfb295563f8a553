"""How far HyperLogLog is off, against the truth.

``python -m tests.sketches.hll_accuracy`` prints the tables of ``docs/sketches.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from datasketch import HyperLogLogPlusPlus

from streamops.kernel.groups import Groups
from streamops.sketches.core.hyperloglog import HyperLogLog, estimates, highest

PRECISIONS = range(4, 17)
# How many seeds each number of distinct items is tried with: as many as the machine bears.
SEEDS = {0: 2, 1: 100, 10: 100, 10**2: 100, 10**3: 100, 10**4: 100, 10**5: 40, 10**6: 16, 10**7: 2}
PARTS = 7
BLOCK = 1 << 20

States = list[pa.Array]


def blocks(distinct: int, seed: int) -> Iterator[npt.NDArray[np.int64]]:
    """Integers, each once; no two seeds have one in common."""
    first = seed * 10**9
    for start in range(0, max(distinct, 1), BLOCK):
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
    return tuple(((arguments - distinct) / max(distinct, 1)).tolist())


def promised(p: int) -> float:
    """Standard error, as documented."""
    return 1.04 / float(np.sqrt(2**p))


def table() -> str:
    """Root mean square and greatest of the errors, beside what is promised."""
    head = " | ".join(f"10^{len(str(item)) - 1}" if item >= 100 else str(item) for item in SEEDS)
    lines = [f"| p | stated | {head} |", "|---|---|" + "---|" * len(SEEDS)]
    for p in PRECISIONS:
        cells = []
        for distinct in SEEDS:
            found = np.array(errors(distinct, p))
            cells.append(f"{np.sqrt(np.mean(found**2)):.2%} ({np.abs(found).max():.2%})")
        lines.append(f"| {p} | {promised(p):.2%} | {' | '.join(cells)} |")
    return "\n".join(lines)


def simulated(distinct: int, p: int, count: int) -> npt.NDArray[np.uint8]:
    """Registers of dense sketches of so many items, drawn from their distribution."""
    rng = np.random.default_rng([distinct, p])
    items = rng.multinomial(distinct, np.full(1 << p, 0.5**p), count)
    with np.errstate(divide="ignore", invalid="ignore"):  # of a register without items
        # The greatest of n values is at most k with probability (1 - 2**-k) ** n.
        values = np.ceil(-np.log2(-np.expm1(np.log(rng.random(items.shape)) / items)))
        return np.where(items > 0, np.clip(values, 1, highest(p)), 0).astype(np.uint8)


@cache
def compared(distinct: int, p: int, count: int) -> tuple[float, float]:
    """Root mean square of the errors in stated ones: here, and of HyperLogLog++ in datasketch."""
    registers = simulated(distinct, p, count)
    theirs = [HyperLogLogPlusPlus(p=p, reg=row.astype(np.int8)).count() for row in registers]
    both = np.array([estimates(registers, p), theirs]) / distinct - 1
    ours, others = np.sqrt(np.mean(both**2, axis=1)) / promised(p)
    return float(ours), float(others)


def comparison(precisions: Iterable[int] = (4, 8, 12, 14, 16), most: int = 2000) -> str:
    """The errors of both estimators by the number of items per register."""
    loads = [Fraction(load) for load in ("1/64", "1/4", "1", "3/2", "2", "3", "5", "16", "64")]
    lines = [f"| p | {' | '.join(map(str, loads))} |", "|---|" + "---|" * len(loads)]
    for p in precisions:
        pairs = (compared(max(round(load * 2**p), 1), p, min(most, 2**24 >> p)) for load in loads)
        lines.append(f"| {p} | {' | '.join(f'{a:.2f}, {b:.2f}' for a, b in pairs)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(comparison(), table(), sep="\n\n")
