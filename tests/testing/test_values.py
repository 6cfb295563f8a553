from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from streamops.kernel.values import comparable, same

NAN = float("nan")
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (NAN, NAN),
        (NAN, Decimal("NaN")),
        ([1, {"x": NAN}], [1, {"x": NAN}]),
        (0.0, -0.0),
        (2, 2.0),
        (2, Decimal("2.00")),
        (b"a", bytearray(b"a")),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (
            dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=BERLIN),
            dt.datetime(2024, 10, 27, 1, 30, tzinfo=dt.UTC),
        ),
    ],
    ids=str,
)
def test_equal_values(one: Any, other: Any) -> None:
    assert same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (None, 0),
        (True, 1),
        (NAN, None),
        ("1", 1),
        ("a", b"a"),
        ([1, 2], [2, 1]),
        ({"a": 1}, {"a": None}),
        (dt.date(2024, 1, 1), dt.datetime(2024, 1, 1)),  # noqa: DTZ001  (naive on purpose)
        (dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),  # noqa: DTZ001
        (
            dt.datetime(2024, 10, 27, 2, 30, fold=0, tzinfo=BERLIN),
            dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=BERLIN),
        ),
        (dt.time(1), dt.timedelta(hours=1)),
    ],
    ids=str,
)
def test_different_values(one: Any, other: Any) -> None:
    assert not same(one, other)


def test_values_of_all_types_can_be_sorted() -> None:
    values = [
        object, {"a": 1}, [1], dt.timedelta(1), dt.time(1), dt.date(2024, 1, 1), at_noon(), b"", "",
        NAN, Decimal(2), 1.5, 1, False, None,
    ]  # fmt: skip
    ordered = sorted(values, key=comparable)
    assert ordered[:4] == [None, False, 1, 1.5]
    assert ordered[-1] is object


def at_noon() -> dt.datetime:
    return dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
