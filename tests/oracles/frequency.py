"""Heavy hitters and count-min, in simple Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

WORD = (1 << 64) - 1


@dataclass
class Frequent:
    """Counters of the most frequent items."""

    counters: int
    counts: Counter[Hashable] = field(default_factory=Counter)
    offset: int = 0
    count: int = 0

    def add(self, items: Iterable[tuple[Hashable, int]]) -> Frequent:
        for item, weight in items:
            self.counts[item] += weight
            self.count += weight
        return self.trimmed()

    def merged(self, others: Sequence[Frequent]) -> Frequent:
        for other in others:
            self.counts += other.counts
            self.offset += other.offset
            self.count += other.count
        return self.trimmed()

    def trimmed(self) -> Frequent:
        ranked = sorted(self.counts.values(), reverse=True)
        if len(ranked) > self.counters:
            cut = ranked[self.counters]
            self.counts = Counter({k: v - cut for k, v in self.counts.items() if v > cut})
            self.offset += cut
        return self


class CountMin:
    """A table of counts from the first item on."""

    def __init__(self, width: int, depth: int) -> None:
        self.width = width
        self.rows = [[0] * width for _ in range(depth)]

    def cells(self, item: int) -> list[int]:
        found = []
        for row in range(len(self.rows)):
            half = murmur3(item, 9001 + row // 2)[row % 2]
            found.append((half >> 32) * self.width >> 32)
        return found

    def add(self, item: int, weight: int) -> None:
        for row, cell in zip(self.rows, self.cells(item), strict=True):
            row[cell] += weight

    def count_of(self, item: int) -> int:
        return min(row[cell] for row, cell in zip(self.rows, self.cells(item), strict=True))


def murmur3(item: int, seed: int) -> tuple[int, int]:
    """MurmurHash3_x64_128 of the eight bytes of a long."""
    tail = (item & WORD) * 0x87C37B91114253D5 & WORD
    tail = (tail << 31 | tail >> 33) & WORD
    one, two = seed ^ (tail * 0x4CF5AD432745937F & WORD) ^ 8, seed ^ 8
    one = one + two & WORD
    two = two + one & WORD
    one, two = mixed(one), mixed(two)
    one = one + two & WORD
    return one, two + one & WORD


def mixed(word: int) -> int:
    word ^= word >> 33
    word = word * 0xFF51AFD7ED558CCD & WORD
    word ^= word >> 33
    word = word * 0xC4CEB9FE1A85EC53 & WORD
    return word ^ word >> 33
