from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from streamops.kernel.errors import SpecError, located
from streamops.testing import START, at
from streamops.testing.notation import duration, instant, window


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("0s", 0),
        ("10s", 10_000_000),
        ("9.999999s", 9_999_999),
        ("-1us", -1),
        ("-1m30s", -90_000_000),
        ("1d2h3m4s5ms6us", 93_784_005_006),
        ("0.5ms", 500),
    ],
)
def test_a_duration_is_numbers_with_units(text: str, micros: int) -> None:
    assert duration(text) == dt.timedelta(microseconds=micros)


@pytest.mark.parametrize("text", ["", "10", "s", "1 s", "+1s", "1s ", "1.5us", "1month", 10, None])
def test_any_other_duration_is_refused(text: Any) -> None:
    with pytest.raises(SpecError, match=r"here: .*: this is not a time"), located("here"):
        duration(text)


def test_an_instant_is_relative_to_the_epoch_or_absolute() -> None:
    assert instant("-1s", START) == at(-1)
    assert instant("2024-01-01T01:00:01+01:00", START) == at(1)
    assert instant(at(1), START) == at(1)
    assert instant(None, START) is None


@pytest.mark.parametrize("text", ["2024-01-01T00:00:00", at(0).replace(tzinfo=None), "noon"])
def test_an_instant_without_an_offset_is_refused(text: Any) -> None:
    with pytest.raises(SpecError, match="here"), located("here"):
        instant(text, START)


def test_a_window_is_a_half_open_interval() -> None:
    assert window("[-5s, 10s)", START) == {"window_start": at(-5), "window_end": at(10)}
    assert window(None, START) == {"window_start": None, "window_end": None}


@pytest.mark.parametrize("text", ["[0s, 10s]", "(0s, 10s)", "0s, 10s", "[0s)", "[0, 10)", 5])
def test_any_other_interval_is_refused(text: Any) -> None:
    with pytest.raises(SpecError, match="here"), located("here"):
        window(text, START)
