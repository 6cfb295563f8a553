"""Bands of several earlier periods, one sentence each. Times are microseconds."""

from __future__ import annotations

import itertools
import random
import statistics
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

from streamops.kernel.calendar import CalendarPeriod
from streamops.windows.core.bands import find_bands
from tests.borders import cases
from tests.windows.core.test_compare import AFTER, BEFORE, DELETE, HOUR, INSERT, NOON, Stream

NAN, INFINITY = float("nan"), float("inf")


def band(
    earlier: list[Any], value: Any, dtype: pa.DataType | None = None, fewest: int = 3
) -> tuple[Any, ...]:
    """Median, deviation, number of earlier values, and whether the value is an anomaly."""
    dtype = dtype or pa.int64()
    values, all_earlier = pa.array([value], dtype), pa.array(earlier, dtype)
    found = find_bands(values, all_earlier, len(earlier), threshold=3.5, fewest=fewest)
    return tuple(column.to_pylist()[0] for column in found)


def test_a_value_far_from_the_median_is_an_anomaly() -> None:
    assert band([10, 12, 11, 14, 10], 16) == (11.0, 1.4826, 5, False)
    assert band([10, 12, 11, 14, 10], 17) == (11.0, 1.4826, 5, True)
    assert band([10, 12, 11, 14, 10], 5) == (11.0, 1.4826, 5, True)


def test_one_outlier_among_the_earlier_values_does_not_widen_the_band() -> None:
    assert band([10, 12, 11, 14, 10**9], 20)[:2] == (12.0, 2 * 1.4826)


def test_of_an_even_number_of_values_the_median_is_the_mean_of_both_in_the_middle() -> None:
    assert band([1, 2, 4, 9], 3) == (3.0, 1.4826 * 1.5, 4, False)


def test_a_value_exactly_at_the_threshold_is_no_anomaly() -> None:
    far = 3.5 * 1.4826
    assert band([-1.0, 0.0, 1.0], far, pa.float64())[3] is False
    assert band([-1.0, 0.0, 1.0], far + 1e-12, pa.float64())[3] is True


def test_without_a_deviation_each_other_value_is_an_anomaly() -> None:
    assert band([7, 7, 7, 9], 7) == (7.0, 0.0, 4, False)
    assert band([7, 7, 7, 9], 8) == (7.0, 0.0, 4, True)


def test_too_few_earlier_values_judge_nothing() -> None:
    assert band([7, None, 8, None], 100) == (7.5, 1.4826 * 0.5, 2, None)
    assert band([7, None, 8, None], 100, fewest=2)[3] is True
    assert band([None, None], 100, fewest=1) == (None, None, 0, None)


@pytest.mark.parametrize("missing", [NAN, INFINITY, -INFINITY, None])
def test_earlier_values_that_are_no_numbers_are_not_counted(missing: float | None) -> None:
    assert band([missing, 1.0, 2.0, missing, 3.0], 2.0, pa.float64())[:3] == (2.0, 1.4826, 3)


def test_nothing_is_known_of_a_value_that_is_null_or_nan() -> None:
    assert band([1.0, 2.0, 3.0], NAN, pa.float64()) == (2.0, 1.4826, 3, None)
    assert band([1.0, 2.0, 3.0], None, pa.float64()) == (2.0, 1.4826, 3, None)
    assert band([1, 2, 3], None) == (2.0, 1.4826, 3, None)
    assert band([1.0, 2.0, 3.0], -INFINITY, pa.float64())[3] is True


@pytest.mark.parametrize(
    ("dtype", "make"),
    [(pa.int64(), int), (pa.decimal128(38, 2), Decimal)],
    ids=["bigint", "decimal"],
)
@pytest.mark.parametrize("base", [2**62, -(2**62)])
def test_large_numbers_that_differ_a_little_have_the_band_of_small_ones(
    base: int, dtype: pa.DataType, make: Any
) -> None:
    numbers = [make(base + n) for n in (0, 2, 1, 4, 0)]
    assert band(numbers, make(base + 6), dtype) == (float(base), 1.4826, 5, False)
    assert band(numbers, make(base + 7), dtype) == (float(base), 1.4826, 5, True)


def test_a_value_far_from_all_others_takes_no_digits_from_their_distances() -> None:
    for largest in (2**63 - 1, -(2**63)):
        for order in itertools.permutations([100, 104, largest]):
            median = 104.0 if largest > 0 else 100.0
            assert band(list(order), 500) == (median, 5.9304, 3, True)


INTEGERS = [*range(5), 7, 100, 104, *(2**n + d for n in (51, 53, 62) for d in (-1, 0, 1))]
INTEGERS += [-number for number in INTEGERS] + [2**63 - 1, 2**63 - 2, -(2**63), 1 - 2**63]


@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [
        (pa.int64(), INTEGERS),
        (pa.int32(), [number for number in INTEGERS if abs(number) < 2**31]),
        (pa.decimal128(19, 0), INTEGERS),
        (pa.decimal128(38, 0), [10**38 - 1, 10**38 - 2, 1 - 10**38, 2 - 10**38, 0, 1, 10**37]),
        (pa.decimal128(38, 38), [10**38 - 1, 10**38 - 2, 1 - 10**38, 0, 1, -1, 10**20]),
    ],
    ids=str,
)
def test_bands_at_the_limits_of_a_type_are_those_of_exact_arithmetic(
    dtype: pa.DataType, numbers: list[int]
) -> None:
    rng = random.Random(3)
    digits = 0 if pa.types.is_integer(dtype) else dtype.scale
    context = Context(prec=80)
    for _ in range(cases(200, 5_000)):
        near = rng.sample(numbers, 3)
        chosen = [rng.choice([None, *near, *numbers]) for _ in range(rng.randint(1, 6))]
        known = [Fraction(number, 10**digits) for number in chosen if number is not None]
        value = rng.choice([*near, *numbers])
        row: list[Any] = [*chosen, value]
        if pa.types.is_decimal(dtype):
            row = [n and Decimal(n).scaleb(-digits, context) for n in row]
        median, deviation, number, is_anomaly = band(row[:-1], row[-1], dtype, fewest=1)
        assert number == len(known)
        if not known:
            assert (median, deviation, is_anomaly) == (None, None, None)
            continue
        center = statistics.median(known)
        assert median == float(center)
        spread = 1.4826 * float(statistics.median(abs(item - center) for item in known))
        assert deviation == pytest.approx(spread, rel=2**-51)
        distance = float(abs(Fraction(value, 10**digits) - center))
        if abs(distance - 3.5 * spread) > distance * 2**-50 or not spread:
            assert is_anomaly is (distance > 3.5 * spread)


def test_distances_beyond_64_bits_do_not_wrap() -> None:
    least, most = -(2**63), 2**63 - 1
    assert band([least, least, most, most], 0) == (-0.5, 1.4826 * 2.0**63, 4, False)
    assert band([least, least, least + 1], most)[3] is True


def test_doubles_whose_sum_overflows_have_a_median() -> None:
    median, deviation, *_ = band([1.5e308, 1.7e308], 1.6e308, pa.float64())
    assert (median, deviation) == (1.6e308, pytest.approx(1.4826e307))
    assert band([5e-324, 5e-324], 0.0, pa.float64(), fewest=1)[:2] == (5e-324, 0.0)


def test_a_window_is_compared_with_the_same_window_of_each_earlier_period() -> None:
    stream = Stream(20, periods=3, min_periods=2, threshold=1.0)
    rows = [(0, 4), (10, 99), (20, 6), (60, 5), (70, 0)]
    assert stream.run(*rows) == [
        (0, 4, None, None, None, None, None, 0, None),
        (10, 99, None, None, None, None, None, 0, None),
        (20, 6, 4, 2, 0.5, 4.0, 0.0, 1, None),
        # The window of 40 is missing: there is no previous value, and there are two earlier ones.
        (60, 5, None, None, None, 5.0, 1.4826, 2, False),
        (70, 0, None, None, None, 99.0, 0.0, 1, None),
    ]


def test_windows_are_stored_until_the_last_one_compared_with_them_is_over() -> None:
    stream = Stream(10, periods=3)
    stream.step((0, 4), watermark=39)
    assert (stream.state.rows, stream.deadline) == (1, 40)
    assert stream.step((30, 4), watermark=40)[0][7] == 1
    assert (stream.state.rows, stream.deadline) == (1, 70)


def test_a_straggler_corrects_the_bands_of_all_later_windows_that_it_changes() -> None:
    stream = Stream(10, periods=3, min_periods=1, stragglers="retract", lateness=100)
    stream.step((10, 6), (20, 6), (30, 6), (40, 7), watermark=50)
    found = stream.step((0, 9))
    assert [(row[0], *row[5:]) for row in found] == [
        (0, None, None, 0, None, 1, INSERT),
        (10, None, None, 0, None, 0, BEFORE),
        (10, 9.0, 0.0, 1, True, 1, AFTER),
        (20, 6.0, 0.0, 1, False, 0, BEFORE),
        (20, 7.5, 1.4826 * 1.5, 2, False, 1, AFTER),
        (30, 6.0, 0.0, 2, False, 0, BEFORE),
        (30, 6.0, 0.0, 3, False, 1, AFTER),
    ]
    assert (stream.counts.results, stream.counts.corrections) == (1, 3)


def test_a_correction_that_changes_no_band_is_not_published() -> None:
    stream = Stream(10, periods=3, stragglers="retract", revised="changes", lateness=100)
    stream.step((0, 9), (10, 6), (20, 6), (30, 6), watermark=40)
    # 8 instead of 9 changes what 10 and 20 are compared with, but no number of 30.
    found = stream.step((0, 8, 1, "a", AFTER))
    assert [row[0] for row in found if row[-1] == AFTER] == [0, 10, 20]
    found = stream.step((0, 8, 1, "a", DELETE))
    assert [(row[0], row[7]) for row in found if row[-1] == AFTER] == [(10, 0), (20, 1), (30, 2)]


def test_the_same_hour_of_several_days_is_found_across_a_change_of_the_clock() -> None:
    # 31 March 2013 had 23 hours in Berlin.
    hours = {24: 3, 23: 4, 0: 5, -24: 6, -25: 99}
    rows = [(NOON - n * HOUR, v, 0, "a", INSERT, NOON - n * HOUR + HOUR) for n, v in hours.items()]
    day = Stream(CalendarPeriod("day", "Europe/Berlin"), periods=2, min_periods=2)
    found = {(row[0] - NOON) // HOUR: row for row in day.run(*rows)}
    assert found[24][2:] == (5, 1, 0.2, 4.5, 1.4826 * 0.5, 2, False)
    assert found[25][7] == 0


def test_an_hour_that_a_day_skipped_does_not_hide_that_of_the_day_before() -> None:
    # At two on 31 March there was no such hour; 1 April is still compared with 30 March.
    two = NOON - 10 * HOUR  # 01:00 UTC, when the clock was put forward
    rows = [(two - 24 * HOUR, 8), (two - HOUR + 24 * HOUR, 9)]
    ended = [(at, value, 0, "a", INSERT, at + HOUR) for at, value in rows]
    day = Stream(CalendarPeriod("day", "Europe/Berlin"), periods=2, min_periods=1)
    assert day.run(*ended)[-1][1:] == (9, None, None, None, 8.0, 0.0, 1, True)
