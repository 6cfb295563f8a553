"""Comparison of values in tests."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

__all__ = ["comparable", "same"]


def comparable(value: Any) -> tuple[Any, ...]:
    """A key to compare and sort values in tests.

    NaN equals NaN at any depth; 0.0 equals -0.0; 2 equals 2.0, but no number equals a boolean.
    Aware datetimes are equal if they are the same instant. (Python's own comparison differs for times
    in the hour that is repeated when clocks are set back.)

    Examples
    --------
    >>> comparable([1, float("nan")]) == comparable([1.0, float("nan")])
    True
    >>> comparable(1) == comparable(True)
    False
    """
    if value is None:
        return (0,)
    if isinstance(value, bool):
        return (1, value)
    if isinstance(value, int | float | Decimal):
        return (3,) if math.isnan(value) else (2, value)
    if isinstance(value, str):
        return (4, value)
    if isinstance(value, bytes | bytearray):
        return (5, bytes(value))
    if isinstance(value, dt.datetime):
        aware = value.tzinfo is not None
        return (6, value.astimezone(dt.UTC)) if aware else (7, value)
    for rank, type_ in enumerate((dt.date, dt.time, dt.timedelta), start=8):
        if isinstance(value, type_):
            return (rank, value)
    if isinstance(value, Mapping):
        return (12, tuple(sorted((comparable(k), comparable(v)) for k, v in value.items())))
    if isinstance(value, list | tuple):
        return (11, tuple(comparable(item) for item in value))
    return (13, type(value).__name__, str(value))


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal in a test."""
    return comparable(one) == comparable(other)
