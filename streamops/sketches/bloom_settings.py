"""The two numbers of a Bloom filter, validated."""

from __future__ import annotations

from streamops.kernel.errors import SpecError
from streamops.sketches.core.filters import MOST_BITS

__all__ = ["require_capacity", "require_rate", "too_large"]

_LEAST_RATE, _MOST_RATE = 1e-9, 0.5


def require_capacity(capacity: object, *, where: str) -> None:
    """Refuse what is no number of items.

    Raises
    ------
    SpecError
        ``CAPACITY_OUT_OF_RANGE``.
    """
    if type(capacity) is not int or capacity < 1:
        raise SpecError(
            "CAPACITY_OUT_OF_RANGE",
            "`capacity` is no number of items",
            where=where,
            got=f"capacity={capacity!r}",
            expected="an integer >= 1",
            fix="the most distinct values that there can be, such as capacity=1_000_000",
        )


def require_rate(rate: object, *, where: str) -> float:
    """Refuse what is no rate of false positives.

    Raises
    ------
    SpecError
        ``RATE_OUT_OF_RANGE``.
    """
    if type(rate) is float and _LEAST_RATE <= rate <= _MOST_RATE:
        return rate
    raise SpecError(
        "RATE_OUT_OF_RANGE",
        "`false_positive_rate` is out of range",
        where=where,
        got=f"false_positive_rate={rate!r}",
        expected=f"a float from {_LEAST_RATE:g} to {_MOST_RATE:g}",
        fix="0.001: of a thousand values that are not in it, one is said to be",
    )


def too_large(got: str, *, fix: str, where: str) -> SpecError:
    """The error for a filter that has more bits than can be reached."""
    return SpecError(
        "FILTER_TOO_LARGE",
        "a Bloom filter would be too large",
        where=where,
        got=got,
        expected=f"at most {MOST_BITS} bits ({MOST_BITS // 8 // 1024**2} MiB) in one filter",
        fix=fix,
    )
