"""Counts, sums and means against plain Python."""

from __future__ import annotations

import datetime as dt
import math
import statistics
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import aggregates as agg
from streamops.kernel.errors import CapacityError
from tests.aggregates.samples import (
    DECIMALS,
    FLOATS,
    INFINITY,
    INTEGERS,
    LARGEST,
    NAN,
    TYPES,
    VALUES,
    bind,
    over,
    over_parts,
)
from tests.oracles.windows import half_up

money = st.decimals(Decimal("-9999.99"), Decimal("9999.99"), places=2, allow_nan=False)


@pytest.mark.parametrize("name", TYPES)
def test_a_count_counts_the_values_that_are_not_null(name: str) -> None:
    values = [None, *VALUES[name], None]
    assert over(agg.count(name), values) == len(VALUES[name])
    assert over(agg.count(name), [None]) == 0
    assert over(agg.count(name), []) == 0
    assert over_parts(agg.count(name), values, [], values) == 2 * len(VALUES[name])


@pytest.mark.parametrize(
    "aggregate",
    [
        *(agg.sum(name) for name in [*INTEGERS, *DECIMALS, *FLOATS, "span"]),
        *(agg.mean(name) for name in [*INTEGERS, *DECIMALS, *FLOATS]),
    ],
    ids=str,
)
def test_without_a_value_there_is_neither_sum_nor_mean(aggregate: agg.Aggregate) -> None:
    assert over(aggregate, []) is None
    assert over(aggregate, [None, None]) is None
    assert over_parts(aggregate, [], [None]) is None


@pytest.mark.parametrize("name", INTEGERS)
def test_a_sum_of_integers_of_any_width_is_a_bigint(name: str) -> None:
    values = [v for v in VALUES[name] for _ in range(3)]
    assert over(agg.sum(name), [None, *values]) == sum(values)
    assert str(bind(agg.sum(name)).result) == "int64"


def test_a_sum_of_integers_is_exact_up_to_the_last_one_that_fits() -> None:
    assert over(agg.sum("long"), [LARGEST - 1, 1]) == LARGEST
    assert over_parts(agg.sum("long"), [-LARGEST], [-1]) == -(2**63)


@pytest.mark.parametrize("parts", [([LARGEST, 1],), ([LARGEST], [1]), ([-LARGEST - 1], [-1])])
def test_a_sum_of_integers_that_does_not_fit_is_an_error(parts: Any) -> None:
    with pytest.raises(CapacityError) as caught:
        over_parts(agg.sum("long"), *parts)
    assert str(caught.value) == (
        "[NUMERIC_OVERFLOW] aggregates.sum: the sum of 'long' does not fit into its type\n"
        "  got:       a sum out of range\n"
        "  expected:  a value of type bigint\n"
        "  fix:       cast the column to a wider type first: decimal(38,0) for integers; double, which rounds"
        "\n  see:       docs/errors.md#numeric_overflow"
    )


def test_a_sum_of_intervals_is_an_interval() -> None:
    day = dt.timedelta(days=1, microseconds=1)
    assert over(agg.sum("span"), [day, None, -day, day]) == day


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(
    ("values", "total"),
    [
        ([0.25, None, -1.5], -1.25),
        ([-0.0], 0.0),
        ([1.0, INFINITY], INFINITY),
        ([-INFINITY, 5.0], -INFINITY),
        ([INFINITY, -INFINITY], NAN),
        ([1.0, NAN], NAN),
        ([NAN], NAN),
    ],
)
def test_a_sum_of_floats_follows_ieee_754(name: str, values: list[Any], total: float) -> None:
    found = over(agg.sum(name), values)
    assert found == total or (math.isnan(found) and math.isnan(total))
    parts = over_parts(agg.sum(name), values, [None])
    assert parts == total or (math.isnan(parts) and math.isnan(total))


@given(st.lists(money | st.none(), max_size=20))
def test_sums_and_means_of_decimals_are_exact(values: list[Decimal | None]) -> None:
    present = [v for v in values if v is not None]
    expected = (sum(present), half_up(present)) if present else (None, None)
    assert over(agg.sum("money"), values) == expected[0]
    assert over(agg.mean("money"), values) == expected[1]
    middle = len(values) // 2
    assert over_parts(agg.mean("money"), values[:middle], values[middle:]) == expected[1]


def test_a_sum_of_decimals_is_ten_digits_wider_and_at_most_38() -> None:
    assert str(bind(agg.sum("money")).result) == "decimal128(16, 2)"
    assert str(bind(agg.sum("huge")).result) == "decimal128(38, 0)"
    assert str(bind(agg.sum("tiny")).result) == "decimal128(38, 38)"


def test_a_mean_of_decimals_has_four_more_digits_behind_the_point_and_at_most_38() -> None:
    assert str(bind(agg.mean("money")).result) == "decimal128(10, 6)"
    assert str(bind(agg.mean("huge")).result) == "decimal128(38, 4)"
    assert str(bind(agg.mean("tiny")).result) == "decimal128(38, 38)"


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        (["0.01", "0.00"], "0.005000"),
        (["0.01", "0.01", "0.00"], "0.006667"),
        (["-0.01", "-0.01", "0.00"], "-0.006667"),
        (["0.01"] + ["0.00"] * 31, "0.000313"),  # 0.0003125
        (["-0.01"] + ["0.00"] * 31, "-0.000313"),
        (["0.01"] + ["0.00"] * 19_999, "0.000001"),  # 0.0000005, to the last digit half
        (["0.01"] + ["0.00"] * 20_000, "0.000000"),  # and just below it
        (["-0.01"] + ["0.00"] * 19_999, "-0.000001"),
    ],
)
def test_a_mean_of_decimals_is_rounded_half_up(values: list[str], mean: str) -> None:
    found = over(agg.mean("money"), [Decimal(value) for value in values])
    assert (found, str(found)) == (Decimal(mean), str(Decimal(mean)))


def test_a_sum_of_decimals_beyond_38_digits_is_an_error() -> None:
    nearly = Decimal(10**38 - 1)
    assert over(agg.sum("huge"), [nearly, Decimal(-1), Decimal(1)]) == nearly
    for parts in ([nearly, Decimal(1)],), ([nearly], [Decimal(1)]):
        with pytest.raises(CapacityError) as caught:
            over_parts(agg.sum("huge"), *parts)
        assert caught.value.code == "NUMERIC_OVERFLOW"
        assert caught.value.expected == "a value of type decimal(38,0)"


def test_a_mean_of_decimals_that_does_not_fit_is_an_error_of_ours() -> None:
    with pytest.raises(CapacityError) as caught:
        over(agg.mean("huge"), [Decimal(10**37)])
    assert caught.value.expected == "a value of type decimal(38,4)"


@pytest.mark.parametrize("name", INTEGERS)
def test_a_mean_of_integers_is_a_double(name: str) -> None:
    assert over(agg.mean(name), [1, None, 2]) == 1.5
    assert str(bind(agg.mean(name)).result) == "double"


@pytest.mark.parametrize("number", [2**53 + 1, LARGEST, -(2**63)])
def test_a_mean_of_integers_too_long_for_a_double_is_rounded_as_spark_rounds_it(
    number: int,
) -> None:
    assert over(agg.mean("long"), [number]) == float(number)
    assert over(agg.mean("long"), [number, None, 0]) == float(number) / 2


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=20))
def test_a_mean_of_integers_is_that_of_statistics(values: list[int]) -> None:
    assert over(agg.mean("long"), values) == statistics.fmean(values)


@pytest.mark.parametrize(
    ("values", "mean"),
    [([0.25, None, 0.75], 0.5), ([NAN, 1.0], NAN), ([INFINITY], INFINITY), ([-0.0], 0.0)],
)
def test_a_mean_of_floats_follows_ieee_754(values: list[Any], mean: float) -> None:
    for found in over(agg.mean("double"), values), over_parts(agg.mean("double"), values, []):
        assert found == mean or (math.isnan(found) and math.isnan(mean))


def test_a_mean_is_that_of_all_values_not_of_the_means_of_the_parts() -> None:
    assert over_parts(agg.mean("long"), [1, 1, 1], [5]) == 2.0
    assert over_parts(agg.mean("money"), [Decimal(1)] * 3, [Decimal(5)]) == Decimal(2)
