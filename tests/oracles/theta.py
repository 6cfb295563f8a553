"""Theta sketches and overlaps, with Python's sets and numbers of any length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import combinations
from typing import Any, NamedTuple

WHOLE = 2**63 - 1
_WORD = 2**64 - 1


class Sample(NamedTuple):
    """The hashes of a set that lie below theta."""

    hashes: frozenset[int]
    theta: int


def hash_of(item: int) -> int:
    """The first half of MurmurHash3 of the eight bytes of a long, without its last bit."""
    first = _mixed_in(item & _WORD) ^ 9001 ^ 8
    second = 9001 ^ 8
    first = (first + second) & _WORD
    second = (second + first) & _WORD
    return ((_finished(first) + _finished(second)) & _WORD) >> 1


def _mixed_in(word: int) -> int:
    word = word * 0x87C37B91114253D5 & _WORD
    word = (word << 31 | word >> 33) & _WORD
    return word * 0x4CF5AD432745937F & _WORD


def _finished(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _WORD
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _WORD
    return word ^ word >> 33


def sketch(items: Iterable[int], k: int) -> Sample:
    """The k lowest hashes of the items, and the next one."""
    return _trimmed(frozenset(map(hash_of, items)), WHOLE, k)


def union(samples: Iterable[Sample], k: int) -> Sample:
    """The union of all sets."""
    samples = list(samples)
    theta = min((sample.theta for sample in samples), default=WHOLE)
    return _trimmed(frozenset().union(*(sample.hashes for sample in samples)), theta, k)


def _trimmed(hashes: frozenset[int], theta: int, k: int) -> Sample:
    ordered = sorted(value for value in hashes if value < theta)
    if len(ordered) > k:
        theta = ordered[k]
    return Sample(frozenset(ordered[:k]), theta)


def intersection(left: Sample, right: Sample) -> Sample:
    return _below(left.hashes & right.hashes, min(left.theta, right.theta))


def difference(left: Sample, right: Sample) -> Sample:
    return _below(left.hashes - right.hashes, min(left.theta, right.theta))


def _below(hashes: frozenset[int], theta: int) -> Sample:
    return Sample(frozenset(value for value in hashes if value < theta), theta)


def estimate(sample: Sample) -> int:
    """How many items the set has, rounded to the nearest, halves to the even one."""
    if sample.theta == WHOLE:
        return len(sample.hashes)
    return round(Fraction(len(sample.hashes) * 2**63, sample.theta))


def overlaps(
    audiences: Mapping[Any, Iterable[int]], k: int
) -> tuple[dict[Any, int], dict[tuple[Any, Any], dict[str, Any]]]:
    """Sizes of the audiences, and what each two share: estimates alone."""
    samples = {name: sketch(items, k) for name, items in audiences.items()}
    sizes = {name: estimate(sample) for name, sample in samples.items()}
    pairs = {}
    for left, right in combinations(samples, 2):
        a, b = samples[left], samples[right]
        both, theta = intersection(a, b), min(a.theta, b.theta)
        either = _below(a.hashes | b.hashes, theta)
        among = len(either.hashes)
        pairs[left, right] = {
            "both": estimate(both),
            "only_left": estimate(difference(a, b)),
            "only_right": estimate(difference(b, a)),
            "either": estimate(either),
            "jaccard": len(both.hashes) / among if among else None,
        }
    return sizes, pairs
