"""HyperLogLog in simple Python, item by item."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from datasketch import HyperLogLogPlusPlus

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
    """The estimate of datasketch."""
    reg = np.array(list(found), np.int8)
    estimate: float = HyperLogLogPlusPlus(p=p, reg=reg).count()
    return estimate
