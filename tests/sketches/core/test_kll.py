"""Sketches of quantiles: what they keep, what they answer, and where they end."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
import pytest

from streamops.kernel.codec import decode, encode
from streamops.kernel.core import StateFormat
from streamops.kernel.errors import CapacityError
from streamops.kernel.groups import Groups
from streamops.sketches.core.kll import QuantileSketch, rank_error
from streamops.sketches.core.kll_levels import MAX_VALUES, capacities, equal_sizes

NAN, INFINITY = float("nan"), float("inf")
MEDIAN = QuantileSketch("ms", 8)


def of(
    values: list[Any], *, dtype: pa.DataType | None = None, sketch: QuantileSketch = MEDIAN
) -> list[pa.Array]:
    """The state of one group."""
    rows = pa.table({"ms": pa.array(values, dtype or pa.float64())})
    return sketch.update(Groups(np.zeros(len(values), np.int64), 1), rows)


def queries(values: list[Any], *shares: float, dtype: pa.DataType | None = None, k: int = 8) -> Any:
    """The estimate of a sketch of these values."""
    sketch = QuantileSketch("ms", k, shares)
    return sketch.estimate(of(values, dtype=dtype, sketch=sketch))[0].as_py()


def united(*states: list[pa.Array], sketch: QuantileSketch = MEDIAN) -> list[pa.Array]:
    """The state of one group over these of it."""
    groups = Groups(np.zeros(len(states), np.int64), 1)
    return sketch.merge(groups, [pa.concat_arrays(item) for item in zip(*states, strict=True)])


def test_up_to_k_values_are_all_stored_and_quantiles_are_exact() -> None:
    found = queries([7, 1, 5, 3, 8, 2, 4, 6], 0, 0.25, 0.26, 0.5, 0.99, 1)
    exact = [1.0, 2.0, 3.0, 4.0, 8.0, 8.0]
    assert found == {
        "estimate": exact,
        "lower": exact,
        "upper": exact,
        "rank_error": 0.0,
        "count": 8,
    }


def test_beyond_k_values_the_result_has_an_error() -> None:
    found = queries(list(range(1, 1001)), 0, 0.1, 0.5, 1, k=100)
    assert found["rank_error"] == rank_error(100)
    assert (found["count"], found["estimate"][0], found["estimate"][-1]) == (1000, 1.0, 1000.0)
    for lower, value, upper, truth in zip(
        found["lower"], found["estimate"], found["upper"], [1, 100, 500, 1000], strict=True
    ):
        assert lower <= value <= upper
        assert lower <= truth <= upper
        assert abs(value - truth) <= 1000 * rank_error(100)


def test_a_quantile_is_a_value_that_occurs_also_if_its_position_is_rounded() -> None:
    # 0.07 * 100 is a little above 7.
    assert queries(list(range(1, 101)), 0.07, 0.29, 0.57, k=200)["estimate"] == [7.0, 29.0, 57.0]
    values = list(range(1, 8))
    shares = [item / 7 for item in values]
    assert queries(values, *shares)["estimate"] == [float(item) for item in values]


def test_nulls_are_ignored_and_without_values_quantiles_are_null() -> None:
    nothing = {"estimate": None, "lower": None, "upper": None, "rank_error": 0.0, "count": 0}
    assert queries([], 0.5) == queries([None, None], 0.5) == nothing
    assert queries([None, 3.0, None], 0.5)["count"] == 1
    states = of([None])
    assert [state.to_pylist() for state in states] == [[None], [None], [[]], [[]]]
    assert MEDIAN.ranks(states, [1.0]).to_pylist() == [None]


def test_nan_is_the_greatest_and_zeros_are_equal() -> None:
    found = queries([NAN, INFINITY, -0.0, -INFINITY], 0, 0.5, 0.75, 1)
    assert found["estimate"][:3] == [-INFINITY, 0.0, INFINITY]
    assert math.isnan(found["estimate"][3])
    assert math.copysign(1, found["estimate"][1]) == 1
    payload = np.array([0xFFF8000000000123], np.uint64).view(np.float64)[0]
    assert MEDIAN.payload(of([payload, 0.0])) == MEDIAN.payload(of([NAN, -0.0]))
    many = queries([NAN] * 50 + [1.0] * 50, 0.4, 0.6)
    assert many["estimate"][0] == 1.0
    assert math.isnan(many["estimate"][1])


@pytest.mark.parametrize(
    ("dtype", "values", "median"),
    [
        (pa.int8(), [1, 2, 3], 2.0),
        (pa.float32(), [0.5, 1.5, 2.5], 1.5),
        (pa.decimal128(9, 2), [Decimal("0.10"), Decimal("0.30"), Decimal("0.50")], 0.3),
        # Doubles have 53 bits: the nearest one is kept.
        (pa.int64(), [2**53 + 1] * 3, float(2**53)),
    ],
    ids=str,
)
def test_numbers_of_any_type_are_stored_as_doubles(
    dtype: pa.DataType, values: list[Any], median: float
) -> None:
    assert queries(values, 0.5, dtype=dtype)["estimate"] == [median]


def test_bytes_do_not_depend_on_the_order_of_rows() -> None:
    values = np.random.default_rng(3).normal(size=3000)
    shuffled = np.random.default_rng(4).permutation(values)
    assert MEDIAN.payload(of(values.tolist())) == MEDIAN.payload(of(shuffled.tolist()))


def test_coins_have_both_values() -> None:
    # Of nine values the least stays, and four of the eight others rise: the odd or the even ones.
    second = [of([i + j for j in range(9)])[2][0].as_py()[1] - i for i in range(1000)]
    assert {1.0, 2.0} == set(second)
    assert 450 <= second.count(1.0) <= 550


def test_a_sketch_stores_no_more_than_apache_allows() -> None:
    for k in (8, 9, 100, 200, 4096, 65535):
        sketch = QuantileSketch("ms", k)
        for n in (1, k, k + 1, 3 * k, 50_000):
            values = np.random.default_rng(n).random(n).tolist()
            (items,), (sizes,) = (state.to_pylist() for state in of(values, sketch=sketch)[2:])
            assert len(items) <= capacities(k)[1][len(sizes)]
            assert sum(size << h for h, size in enumerate(sizes)) == n


def test_the_rank_error_is_that_of_apache() -> None:
    for k in (8, 100, 200, 800, 65535):
        theirs = datasketches.kll_doubles_sketch.get_normalized_rank_error
        known = [theirs(k, False), theirs(k, True)]
        assert [rank_error(k), rank_error(k, mass=True)] == pytest.approx(known, rel=1e-15)


def test_ranks_are_shares_of_values_that_are_not_above() -> None:
    sketch = QuantileSketch("ms", 8)
    states = of([1.0, 2.0, 2.0, 4.0])
    points = [0.0, 1.0, 2.0, 3.9, 4.0, NAN, INFINITY]
    (found,) = sketch.ranks(states, points).to_pylist()
    assert found == [0.0, 0.25, 0.75, 0.75, 1.0, 1.0, 1.0]
    assert sketch.ranks(of([1.0, NAN]), [INFINITY, NAN]).to_pylist() == [[0.5, 1.0]]


def test_ranks_of_the_least_and_the_greatest_value_are_exact() -> None:
    values = list(range(1, 10_001))
    for start in range(8):  # whichever items were left out
        states = of([value + start for value in values])
        points = [start + 0.5, start + 1.0, start + 9999.5, start + 10_000.0]
        (found,) = MEDIAN.ranks(states, points).to_pylist()
        assert found[0] == 0.0
        assert 0.0 < found[1] < 0.2
        assert 0.8 < found[2] < 1.0
        assert found[3] == 1.0


def test_bounds_are_those_of_the_estimate() -> None:
    sketch = QuantileSketch("ms", 8, (0.25, 0.5))
    states = of(list(range(100)), sketch=sketch)
    lower, upper = sketch.bounds(states)
    found = sketch.estimate(states)
    assert (lower, upper) == (found.field("lower"), found.field("upper"))


def test_a_single_member_is_copied_and_empty_members_are_ignored() -> None:
    one, two, none = of(list(range(50))), of([7.0]), of([])
    states = [pa.concat_arrays(item) for item in zip(one, none, two, none, none, two, strict=True)]
    groups = Groups(np.array([2, 2, 0, 1, 0, 4]), 5)
    found = [state.to_pylist() for state in MEDIAN.merge(groups, states)]
    members = [two, none, one, none, two]
    assert found == [[item[field][0].as_py() for item in members] for field in range(4)]


def test_a_state_in_a_checkpoint_is_unchanged() -> None:
    states = united(of(list(range(500))), of([3.5]))
    names = [name for name, _ in MEDIAN.fields]
    table = pa.table(dict(zip(names, states, strict=True)))
    frame = encode(StateFormat("doc", 1), {"k": 8}, 1, {"sketches": table})
    again = decode(frame, StateFormat("doc", 1), {"k": 8}, 1)["sketches"]
    assert again == table
    pieces = [column.chunk(0) for column in again.columns]
    assert MEDIAN.payload(pieces) == MEDIAN.payload(states)


def heavy(levels: int) -> list[pa.Array]:
    """A state with one item, high up."""
    sizes = pa.array([[0] * (levels - 1) + [1]], pa.list_(pa.int32()))
    one = pa.array([1.0])
    return [one, one, pa.array([[1.0]]), sizes]


def test_more_values_than_can_be_counted_are_refused() -> None:
    allowed = united(heavy(48), heavy(47))
    assert MEDIAN.estimate(allowed)[0]["count"].as_py() == 3 * MAX_VALUES // 4
    with pytest.raises(CapacityError) as caught:
        united(heavy(48), heavy(48))
    assert caught.value.code == "STATE_FULL"
    assert str(caught.value) == (
        "[STATE_FULL] sketches.quantiles: a sketch cannot represent so many values\n"
        "  got:       about 2.81e+14\n"
        "  expected:  fewer than 2^48, or 281,474,976,710,656\n"
        "  fix:       store one sketch a month or a year, and do not merge those"
        "\n  see:       docs/errors.md#state_full"
    )


def test_too_many_values_of_several_sketches_are_refused() -> None:
    states = [pa.concat_arrays([item] * 2**15) for item in heavy(48)]
    with pytest.raises(CapacityError) as caught:
        MEDIAN.estimate(states)
    assert caught.value.code == "STATE_FULL"
    assert caught.value.got == "32,768 sketches of 4.61e+18 values"


def test_percentages_are_no_parameter_of_a_sketch() -> None:
    assert (
        QuantileSketch("ms", 100, (0.9,)).parameters
        == QuantileSketch("s", 100).parameters
        == {"k": 100}
    )
    assert MEDIAN.inputs == ("ms",)


def test_runs_of_equal_sizes_of_nothing() -> None:
    assert list(equal_sizes(np.zeros(0, np.int64))) == []
    assert [size for size, _, _ in equal_sizes(np.array([0, 1, 1]))] == [0, 1]
