"""HyperLogLog in simple Python, item by item."""

from __future__ import annotations

import math
from collections.abc import Iterable

WORD = (1 << 64) - 1
FIRST, SECOND = 0x87C37B91114253D5, 0x4CF5AD432745937F


def murmur3(item: int) -> tuple[int, int]:
    """MurmurHash3 (x64, 128 bits, seed 9001) of the eight bytes of a long."""
    mixed = (item & WORD) * FIRST & WORD
    mixed = (mixed << 31 | mixed >> 33) & WORD
    one, two = 9001 ^ (mixed * SECOND & WORD) ^ 8, 9001 ^ 8
    one = one + two & WORD
    two = two + one & WORD
    one, two = finished(one), finished(two)
    one = one + two & WORD
    return one, two + one & WORD


def finished(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & WORD
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & WORD
    return word ^ word >> 33


def coupon(item: int) -> int:
    """The coupon of an item: its value above 26 bits of address."""
    one, two = murmur3(item)
    return min(64 - two.bit_length(), 62) + 1 << 26 | one & (1 << 26) - 1


def registers(coupons: Iterable[int], p: int) -> list[int]:
    """The greatest value of each address modulo the number of registers."""
    found = [0] * (1 << p)
    for coupon_of_item in coupons:
        address = coupon_of_item % (1 << p)
        found[address] = max(found[address], min(coupon_of_item >> 26, 65 - p))
    return found


def state(items: Iterable[int], p: int) -> list[object]:
    """Coupons, while there are few of them; then registers."""
    coupons = sorted({coupon(item) for item in items})
    few = 7 if p < 8 else 3 * 2**p // 32
    if len(coupons) <= few:
        return [coupons, None]
    return [None, bytes(registers(coupons, p))]


def count(found: list[int] | bytes, p: int) -> float:
    """Ertl's algorithm 6, with the constant of so many registers."""
    m, q = 1 << p, 64 - p
    counts = [list(found).count(value) for value in range(q + 2)]
    total = m * tau(1 - counts[q + 1] / m)
    for value in range(q, 0, -1):
        total = (total + counts[value]) / 2
    total += m * sigma(counts[0] / m)
    return m**2 / (2 * math.log(2) * (1 + 1.079 / m)) / total if total else math.inf


def sigma(x: float) -> float:
    """Of the registers that are empty."""
    if x == 1:
        return math.inf
    weight, total, before = 1.0, x, -1.0
    while total != before:
        before, x = total, x * x
        total += x * weight
        weight *= 2
    return total


def tau(x: float) -> float:
    """Of the registers that have the highest value."""
    if x in (0, 1):
        return 0
    weight, total, before = 1.0, 1 - x, -1.0
    while total != before:
        before, x, weight = total, math.sqrt(x), weight / 2
        total -= (1 - x) ** 2 * weight
    return total / 3
