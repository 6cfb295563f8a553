"""Aggregates that keep values, against plain Python."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops.aggregates.core.ordered import flatten, merge_lists
from streamops.kernel.aggregation import Aggregation, make_lists
from streamops.kernel.errors import CapacityError
from streamops.kernel.groups import Groups
from streamops.kernel.values import comparable
from streamops.testing.laws import to_rows
from tests.aggregates.samples import (
    COMPARABLE,
    DECIMALS,
    FLOATS,
    INFINITY,
    INTEGERS,
    NAN,
    ORDERED,
    SCHEMA,
    TYPES,
    VALUES,
    bind,
    column,
    one_group,
    over,
    over_parts,
)
from tests.oracles.lists import stored_value
from tests.oracles.windows import ranked

EMPTY = Groups(np.empty(0, np.int64), 1)


def plain(aggregate: Aggregation, name: str, values: list[Any]) -> Any:
    """What the oracle states about these values, one a second."""
    rows = [{"ts": i, "seq": i, name: value} for i, value in enumerate(values)]
    return stored_value(aggregate, rows, "ts", ranked)


def arguments(name: str, values: list[Any]) -> list[Any]:
    """The values as Arrow gives them back."""
    given_: list[Any] = pa.array(values, TYPES[name]).to_pylist()
    return given_


@pytest.mark.parametrize("name", COMPARABLE)
def test_distinct_values_are_counted_once(name: str) -> None:
    values = [None, *VALUES[name], *reversed(VALUES[name]), None]
    expected = len({str(comparable(value)) for value in VALUES[name]})
    if name in FLOATS:  # 0.0 and -0.0 are one
        expected = 6
    exact = agg.count_distinct(name, at_most=expected)
    assert over(exact, values) == expected
    assert over_parts(exact, values[:2], [], values[2:], [None]) == expected
    assert over(agg.count_distinct(name, at_most=expected - 1, when_full="null"), values) is None


def test_nothing_is_no_value_and_a_struct_of_nulls_is_one() -> None:
    assert over(agg.count_distinct("text", at_most=1), []) == 0
    assert over(agg.count_distinct("text", at_most=1), [None, None]) == 0
    assert over(agg.count_distinct("struct", at_most=1), [{"a": None, "b": None}]) == 1


@pytest.mark.parametrize("name", [*INTEGERS, *FLOATS, *DECIMALS])
@pytest.mark.parametrize("probability", [0, 0.1, 0.25, 1 / 3, 0.5, 0.99, 1.0])
def test_quantiles_are_those_of_the_sorted_values(name: str, probability: float) -> None:
    for values in (VALUES[name], VALUES[name][1:], [*VALUES[name], None, VALUES[name][0]]):
        one = agg.percentile(name, probability, at_most=100)
        two = agg.percentile(name, [1, probability], at_most=100)
        given = arguments(name, values)
        assert comparable(over(one, values)) == comparable(plain(one, name, given))
        assert comparable(over(two, values)) == comparable(plain(two, name, given))
        assert comparable(over_parts(two, values[:2], [None], values[2:])) == comparable(
            plain(two, name, given)
        )


def test_a_quantile_of_one_value_and_of_none() -> None:
    assert over(agg.percentile("double", [0, 0.5, 1], at_most=1), [None, 2.5]) == [2.5] * 3
    assert over(agg.percentile("double", [0, 0.5, 1], at_most=1), [None]) is None
    assert over(agg.percentile("double", 0.5, at_most=1), []) is None


def test_between_equal_values_nothing_is_rounded() -> None:
    # 0.7 * (n - 1) is no whole number, and the parts of 0.1 would not add up to it.
    for count in range(2, 50):
        assert over(agg.percentile("double", 0.7, at_most=50), [0.1] * count) == 0.1


def test_quantiles_ascend_with_their_probabilities_also_where_doubles_are_far_apart() -> None:
    values = [1e18 + i * 128 for i in range(20)]
    found = over(agg.percentile("double", [0.04, 0.05], at_most=20), values)
    assert found == [1e18 + 128, 1e18 + 128]


def test_between_infinities_and_numbers_it_is_as_in_spark() -> None:
    middle = agg.percentile("double", 0.5, at_most=9)
    assert comparable(over(middle, [-INFINITY, 1.0])) == comparable(NAN)
    assert comparable(over(middle, [INFINITY, -INFINITY])) == comparable(NAN)
    assert over(middle, [INFINITY, INFINITY]) == INFINITY
    assert over(agg.percentile("double", 0.25, at_most=9), [1.0, INFINITY]) == INFINITY
    assert comparable(over(middle, [NAN, 1.0])) == comparable(NAN)
    assert over(agg.percentile("double", 0, at_most=9), [NAN, 1.0]) == 1.0


@pytest.mark.parametrize("name", TYPES)
def test_values_are_collected_by_event_time(name: str) -> None:
    values = [None, *VALUES[name], *VALUES[name], None]
    present = arguments(name, values[1:-1])
    for when_full, expected in {
        "reject_new": present[:2],
        "evict_oldest": present[-2:],
        "null": None,
    }.items():
        two: Any = agg.collect_list(name, at_most=2, tie_break="seq", when_full=when_full)  # type: ignore[arg-type]
        assert comparable(over(two, values)) == comparable(expected)
    exact = agg.collect_list(name, at_most=len(present), tie_break="seq")
    assert comparable(over(exact, values)) == comparable(present)
    assert over(exact, [None]) == []


def test_rows_of_one_time_are_collected_by_their_tie_break() -> None:
    rows = column("text", ["c", "a", "b"])
    rows = rows.set_column(0, "ts", pa.array([5, 5, 1], pa.int64()).cast(SCHEMA[0].type))
    rows = rows.set_column(1, "seq", pa.array([2, None, 9], pa.int64()))
    summary = bind(agg.collect_list("text", at_most=3, tie_break="seq"))
    (found,) = summary.estimate(summary.update(one_group(3), rows)).to_pylist()
    assert found == ["b", "a", "c"]


@pytest.mark.parametrize("name", ORDERED)
def test_the_rows_that_rank_highest_are_found_among_nulls(name: str) -> None:
    ranks = [None, *VALUES[name], *VALUES[name], None]
    rows = column(name, ranks)
    lists = pa.array([[i] if i % 3 else None for i in range(len(ranks))], TYPES["list"])
    rows = rows.drop_columns(["list"]).append_column("list", lists)
    best = agg.top(3, "list", ranked_by=name, tie_break="seq")
    summary = bind(best)
    (found,) = summary.estimate(summary.update(one_group(len(rows)), rows)).to_pylist()
    named = to_rows(rows.select(["seq", "list"]))
    given = [row | {name: rank} for row, rank in zip(named, arguments(name, ranks), strict=True)]
    assert found == stored_value(best, given, "ts", ranked)


def test_a_top_of_nothing_is_empty() -> None:
    assert over(agg.top(3, "long", ranked_by="long", tie_break="seq"), [None]) == []
    assert over(agg.top(3, "long", ranked_by="long", tie_break="seq"), [4, 9]) == [9, 4]


FULL = {
    "count_distinct": lambda when: agg.count_distinct("long", at_most=2, when_full=when),
    "percentile": lambda when: agg.percentile("long", 0.5, at_most=2, when_full=when),
    "percentile of several": lambda when: agg.percentile("long", [0.5], at_most=2, when_full=when),
    "collect_list": lambda when: agg.collect_list(
        "long", at_most=2, tie_break="seq", when_full=when
    ),
}


@pytest.mark.parametrize("make", FULL.values(), ids=FULL)
def test_a_full_group_stays_null_in_whatever_order_its_states_are_merged(
    make: Callable[[str], Aggregation],
) -> None:
    summary = bind(make("null"))
    parts = [summary.update(one_group(n), column("long", list(range(n))))[0] for n in (3, 1, 0, 2)]
    assert [part.null_count for part in parts] == [1, 0, 0, 0]
    for order in permutations(parts):
        stepwise = order[0]
        for part in order[1:]:
            (stepwise,) = summary.merge(one_group(2), [pa.concat_arrays([stepwise, part])])
        (at_once,) = summary.merge(one_group(4), [pa.concat_arrays(order)])
        assert stepwise.to_pylist() == at_once.to_pylist() == [None]
        assert summary.estimate([at_once]).to_pylist() == [None]


@pytest.mark.parametrize(("function", "make"), FULL.items(), ids=FULL)
def test_a_full_group_fails_only_where_its_result_is_asked_for(
    function: str, make: Callable[[str], Aggregation]
) -> None:
    summary, rows = bind(make("fail")), column("long", [1, 2, 3])
    states = summary.update(Groups(np.array([0, 1, 1]), 3), rows)
    summary.estimate(states)
    whole = summary.merge(Groups(np.array([0, 0, 1]), 2), states)
    with pytest.raises(CapacityError) as caught:
        summary.estimate(whole)
    assert str(caught.value) == (
        f"[STATE_FULL] aggregates.{function.split()[0]}: a result needs more values of 'long' than "
        "`at_most`\n"
        "  got:       more than 2 in 1 of 2 results\n"
        "  expected:  at most 2 per group: at_most=2\n"
        "  fix:       raise at_most; or return null: when_full='null'. On a stream, with a new "
        "checkpoint"
        "\n  see:       docs/errors.md#state_full"
    )


@pytest.mark.parametrize("make", FULL.values(), ids=FULL)
def test_a_full_group_takes_no_room(make: Callable[[str], Aggregation]) -> None:
    (full,) = bind(make("null")).update(one_group(1000), column("long", list(range(1000))))
    assert full.is_null().to_pylist() == [True]
    assert len(full.values) == 0


def test_no_groups_have_no_lists() -> None:
    none = Groups(np.empty(0, np.int64), 0)
    for make in FULL.values():
        summary = bind(make("fail"))
        states = summary.update(none, column("long", []))
        assert summary.estimate(summary.merge(none, states)).to_pylist() == []


def test_a_group_without_members_has_an_empty_list() -> None:
    summary = bind(agg.count_distinct("long", at_most=2))
    (one,) = summary.update(one_group(1), column("long", [7]))
    (three,) = summary.merge(Groups(np.array([1]), 3), [one])
    assert three.to_pylist() == [[], [7], []]
    assert summary.merge(EMPTY, [one[:0]])[0].to_pylist() == [[]]


def test_lists_in_a_slice_are_those_of_the_slice() -> None:
    whole = pa.array([[9, 9], [1], None, [], [2, 3]], pa.list_(pa.int64()))
    values, parents = flatten(whole.slice(1))
    assert (values.to_pylist(), parents.tolist()) == ([1, 2, 3], [0, 3, 3])
    summary = bind(agg.collect_list("long", at_most=4, tie_break="seq"))
    (state,) = summary.update(Groups(np.array([0, 0, 1, 2, 2]), 3), column("long", [9, 8, 1, 2, 3]))
    assert summary.estimate([state.slice(1)]).to_pylist() == [[1], [2, 3]]
    best = bind(agg.top(4, "long", ranked_by="long", tie_break="seq"))
    (state,) = best.update(Groups(np.array([0, 0, 1, 2, 2]), 3), column("long", [9, 8, 1, 2, 3]))
    assert best.estimate([state.slice(1)]).to_pylist() == [[1], [3, 2]]


def test_lists_without_a_companion_are_passed_on() -> None:
    lists = pa.array([[3, 1], [5], None, [4]], pa.list_(pa.int64()))

    def gather(groups: Groups, values: pa.Array, passed: Any) -> pa.Array:
        assert (groups.ids.tolist(), values.to_pylist()) == ([0, 0], [5, 4])
        return make_lists(values, groups.sizes(), passed)

    together = merge_lists(Groups(np.array([2, 0, 1, 0]), 3), lists, gather)
    assert together.to_pylist() == [[5, 4], None, [3, 1]]
