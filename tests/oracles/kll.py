"""A KLL sketch, and its bytes, in simple Python, sketch by sketch and item by item."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from streamops.sketches.core.items import murmur3

GOLDEN = 0x9E3779B97F4A7C15


def order(value: float) -> tuple[bool, float]:
    """NaN is the greatest."""
    return (True, 0.0) if math.isnan(value) else (False, value)


def room(k: int, depth: int) -> int:
    """Items that a level so far below the top may hold: k * (2/3)^depth, rounded, 8 at least."""
    rounded: int = ((2 * k << depth) // 3**depth + 1) // 2
    return max(8, rounded)


@dataclass
class Sketch:
    """Levels of items."""

    k: int
    levels: list[list[float]] = field(default_factory=list)
    least: float | None = None
    greatest: float | None = None

    @property
    def count(self) -> int:
        return sum(len(level) << h for h, level in enumerate(self.levels))

    def compact(self) -> None:
        """Lowest full level first, while there are too many items."""
        count, h = self.count, 0
        self.levels = [sorted(level, key=order) for level in self.levels]
        while sum(map(len, self.levels)) > sum(room(self.k, d) for d in range(len(self.levels))):
            level = self.levels[h]
            if len(level) >= room(self.k, len(self.levels) - 1 - h):
                if h + 1 == len(self.levels):
                    self.levels.append([])
                staying, rest = (level[:1], level[1:]) if len(level) % 2 else ([], level)
                rising = rest[coin(level, count, h) :: 2]
                self.levels[h] = staying
                self.levels[h + 1] = sorted(self.levels[h + 1] + rising, key=order)
            h += 1

    def weighted(self) -> list[tuple[float, int]]:
        """Items in order, and the number of values that each represents."""
        pairs = [(v, 1 << h) for h, level in enumerate(self.levels) for v in level]
        return sorted(pairs, key=lambda pair: order(pair[0]))

    def quantile(self, share: float) -> float:
        """The first item that, with those below it, stands for this share."""
        assert self.least is not None
        assert self.greatest is not None
        position = max(1, math.ceil(round(share * self.count, 9)))
        if position == 1:
            return self.least
        if position >= self.count:
            return self.greatest
        passed = 0
        for value, weight in self.weighted():
            passed += weight
            if passed >= position:
                return value
        raise AssertionError


def coin(level: Sequence[float], count: int, h: int) -> int:
    """The coin, a hash of the items."""
    bits = [struct.unpack("<Q", struct.pack("<d", value))[0] for value in level]
    word = (sum(bits) + (64 * count + h) * GOLDEN) % 2**64
    first, _ = murmur3(np.array([word], np.uint64).view(np.int64))
    return int(first[0]) >> 63


def of(values: Sequence[float], k: int) -> Sketch:
    """The sketch of values that are added together."""
    plain = [math.nan if math.isnan(value) else value + 0.0 for value in values]
    if not plain:
        return Sketch(k)
    sketch = Sketch(k, [plain], min(plain, key=order), max(plain, key=order))
    sketch.compact()
    return sketch


def union(sketches: Sequence[Sketch]) -> Sketch:
    """The sketch of sketches."""
    parts = [part for part in sketches if part.levels]
    if not parts:
        return sketches[0]
    deep = max(len(part.levels) for part in parts)
    levels: list[list[float]] = [[] for _ in range(deep)]
    for part in parts:
        for h, level in enumerate(part.levels):
            levels[h] += level
    least = min((part.least for part in parts if part.least is not None), key=order)
    greatest = max((part.greatest for part in parts if part.greatest is not None), key=order)
    sketch = Sketch(parts[0].k, levels, least, greatest)
    sketch.compact()
    return sketch


def to_bytes(sketch: Sketch) -> bytes:
    """As ``kll_doubles_sketch.serialize`` of Apache DataSketches has it."""
    if not sketch.levels:
        return struct.pack("<BBBBHBB", 2, 1, 15, 1, sketch.k, 8, 0)
    if sketch.count == 1:
        return struct.pack("<BBBBHBBd", 2, 2, 15, 4, sketch.k, 8, 0, sketch.least)
    items = [value for level in sketch.levels for value in level]
    begin = sum(room(sketch.k, d) for d in range(len(sketch.levels))) - len(items)
    begins = []
    for level in sketch.levels:
        begins.append(begin)
        begin += len(level)
    head = struct.pack("<BBBBHBBQ", 5, 1, 15, 2, sketch.k, 8, 0, sketch.count)
    head += struct.pack("<HBB", sketch.k, len(sketch.levels), 0)
    numbers = [sketch.least, sketch.greatest, *items]
    return head + struct.pack(f"<{len(begins)}I{len(numbers)}d", *begins, *numbers)
